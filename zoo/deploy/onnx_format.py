"""Exports to ONNX, for ONNX Runtime and other runtimes.

Axes: B images or sentences, H image height, W image width, C channels; S source tokens, T target
tokens, K hypotheses of a sentence, V target vocabulary. A dynamic dimension is given by its letter.
"""

import json
import pathlib
import shutil

import numpy as np

from zoo.deploy import checks
from zoo.deploy.errors import ExportError, needed
from zoo.deploy.onnx_graph import convert, quantize
from zoo.deploy.plain_graphs import PixelClassifier, StepGraphs, signature
from zoo.translator import SOURCE_FILE, TARGET_FILE

_RESIZING = ("resize", "interpolation", "antialias")
_LARGEST = 2**31  # bytes; the limit of protocol buffers
_DRIVER = pathlib.Path(__file__).parent / "onnx_driver"


def write_classifier(classifier, folder, int8=False):
    """Writes ``model.onnx``, ``labels.txt`` and ``classify.py``, and checks the model.

    ``model.onnx`` maps "pixels", uint8 [B, H, W, C] of the model's image size, to "probabilities",
    float32 [B, classes]. Its metadata contain the labels and how images are resized as JSON, under
    "labels" and "resizing".

    Args:
        classifier: `zoo.classifier.ImageClassifier`.
        folder: path of an existing folder.
        int8: whether to quantize weight matrices to 8 bits.

    Returns:
        dict for export.json: "files" (name -> description), "signatures", "checked".

    Raises:
        ExportError: if the model is too large for one file, or its outputs differ from the
            original.
    """
    _check_size(classifier.model)
    if not classifier.preprocessing.antialias:
        raise ExportError(
            "classify.py resizes images by Pillow, which always antialiases, and the preprocessing "
            "of this model does not. Export a SavedModel."
        )
    graph, path = PixelClassifier(classifier), pathlib.Path(folder) / "model.onnx"
    resizing = {name: getattr(classifier.preprocessing, name) for name in _RESIZING}
    metadata = {
        "labels": json.dumps(classifier.class_names, ensure_ascii=False),
        "resizing": json.dumps(resizing),
    }
    weights = graph.model.weights
    _write(graph.probabilities, graph.inputs, graph.outputs, weights, path, metadata, int8)
    lines = [" ".join(name.split()) for name in classifier.class_names]
    path.with_name("labels.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.copy(_DRIVER / "classify.py", folder)
    run = _runner(path)
    return {
        "files": {
            "model.onnx": "pixels to probabilities",
            "labels.txt": "the class names, one per line",
            "classify.py": "runs the model with numpy and onnxruntime only",
        },
        "signatures": {"model.onnx": signature(graph.inputs, graph.outputs)},
        "checked": checks.check_classifier(
            classifier, lambda pixels: run({"pixels": pixels})["probabilities"], _version(), int8
        ),
    }


def write_translator(translator, folder, int8=False):
    """Writes ``encoder.onnx``, ``decoder.onnx``, the tokenizers and ``translate.py``; checks them.

    The models are `encode` and `decode` of `zoo.deploy.plain_graphs.StepGraphs`. Their metadata
    contain the default search arguments and the maximum text length in tokens as JSON, under
    "search".

    Args:
        translator: `zoo.translator.Translator`.
        folder: path of an existing folder.
        int8: whether to quantize weight matrices to 8 bits.

    Returns, raises: see `write_classifier`.
    """
    _check_size(translator.model)
    folder, graphs = pathlib.Path(folder), StepGraphs(translator.model)
    search = {**translator.description()["search"], "max_length": translator.max_source_length}
    parts = {
        "encoder.onnx": (graphs.encode, graphs.encode_inputs, graphs.encode_outputs),
        "decoder.onnx": (graphs.decode, graphs.decode_inputs, graphs.decode_outputs),
    }
    for name, part in parts.items():
        _write(*part, graphs.model.weights, folder / name, {"search": json.dumps(search)}, int8)
    translator.source_tokenizer.save(folder / SOURCE_FILE)
    translator.target_tokenizer.save(folder / TARGET_FILE)
    for name in ("translate.py", "search.py", "tokenizer.py"):
        shutil.copy(_DRIVER / name, folder)
    encode, decode = (_runner(folder / name) for name in parts)
    shapes = [(1, 1), (3, 2)]
    return {
        "files": {
            "encoder.onnx": "source tokens to the keys and values of cross-attention",
            "decoder.onnx": "one decoding step: log-probabilities of the next token",
            SOURCE_FILE: "the tokenizer of the source language",
            TARGET_FILE: "the tokenizer of the target language",
            "translate.py": "translates texts with numpy and onnxruntime only",
            "search.py": "beam search for translate.py",
            "tokenizer.py": "tokenizer for translate.py",
        },
        "signatures": {name: signature(*part[1:]) for name, part in parts.items()},
        "checked": checks.check_translator(
            translator,
            lambda source: encode({"source": source}),
            decode,
            shapes,
            _version(),
            int8,
        ),
    }


def _write(function, inputs, outputs, weights, path, metadata, int8):
    onnx = needed("onnx")
    model = convert(function, inputs, outputs, weights)
    if int8:
        model = quantize(model)
    onnx.helper.set_model_props(model, metadata)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def _check_size(model):
    """Raises `ExportError` if the float32 parameters do not fit in one file."""
    size = 4 * model.count_params()
    if size > _LARGEST:
        raise ExportError(
            f"The model is too large for ONNX: it has {size / 1e9:.1f} GB of parameters, and the "
            "limit is 2.1 GB. Export it as a SavedModel."
        )


def _runner(path):
    """Returns a function from a dict of arrays to a dict of arrays."""
    onnxruntime = needed("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(feeds):
        feeds = {name: np.asarray(value) for name, value in feeds.items()}
        return dict(zip(names, session.run(names, feeds)))

    return run


def _version():
    return f"onnxruntime {needed('onnxruntime').__version__}"
