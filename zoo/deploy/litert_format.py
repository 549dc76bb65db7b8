"""Exports to LiteRT (formerly TensorFlow Lite), for mobile and small devices.

Axes: B images or sentences, H image height, W image width, C channels; S source tokens, T target
tokens, K hypotheses of a sentence, V target vocabulary. A dynamic dimension is given by its letter.
"""

import pathlib
import tempfile
from importlib import metadata

import tensorflow as tf

from zoo.deploy import checks
from zoo.deploy.errors import ExportError, needed
from zoo.deploy.plain_graphs import PixelClassifier, StepGraphs, by_name, signature, specs
from zoo.translator import SOURCE_FILE, TARGET_FILE

MODEL_FILE = "model.tflite"


def write_classifier(classifier, folder, int8=False):
    """Writes ``model.tflite`` and ``labels.txt``, and checks the model.

    Its signature "serving_default" maps "pixels", uint8 [B, H, W, C] of the model's image size, to
    "probabilities", float32 [B, classes].

    Args:
        classifier: `zoo.classifier.ImageClassifier`.
        folder: path of an existing folder.
        int8: whether to quantize weight matrices to 8 bits.

    Returns:
        dict for export.json: "files" (name -> description), "signatures", "checked".

    Raises:
        ExportError: if the model cannot be converted, or its outputs differ from the original.
    """
    graph, folder = PixelClassifier(classifier), pathlib.Path(folder)
    parts = {"serving_default": (graph.probabilities, graph.inputs, graph.outputs)}
    runners = _write(parts, graph.model, folder, int8)
    lines = [" ".join(name.split()) for name in classifier.class_names]
    (folder / "labels.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    answer = runners["serving_default"]
    return {
        "files": {
            MODEL_FILE: "pixels to probabilities",
            "labels.txt": "the class names, one per line",
        },
        "signatures": {name: signature(*part[1:]) for name, part in parts.items()},
        "checked": checks.check_classifier(
            classifier, lambda pixels: answer({"pixels": pixels})["probabilities"], _version(), int8
        ),
    }


def write_translator(translator, folder, int8=False, beam_size=None):
    """Writes ``model.tflite`` and the tokenizers, and checks the model.

    Its signatures "encode" and "decode" are those of `zoo.deploy.plain_graphs.StepGraphs`, for one
    sentence at a time: B is 1 and K is fixed; S and T are dynamic. The search is up to the caller;
    ``translate.py`` of an ONNX export shows one.

    Args:
        translator: `zoo.translator.Translator`.
        folder: path of an existing folder.
        int8: whether to quantize weight matrices to 8 bits.
        beam_size: K; the translator's beam size by default.

    Returns, raises: see `write_classifier`.
    """
    graphs, folder = StepGraphs(translator.model), pathlib.Path(folder)
    beams = translator.beam_size if beam_size is None else beam_size
    # LiteRT can insert axes only in tensors with at most one dynamic dimension.
    fixed = {"B": 1, "K": beams}
    parts = {
        "encode": (graphs.encode, graphs.encode_inputs, graphs.encode_outputs),
        "decode": (graphs.decode, graphs.decode_inputs, graphs.decode_outputs),
    }
    parts = {
        name: (function, *(_with_sizes(tensors, fixed) for tensors in signatures))
        for name, (function, *signatures) in parts.items()
    }
    runners = _write(parts, graphs.model, folder, int8)
    encode, decode = runners["encode"], runners["decode"]
    translator.source_tokenizer.save(folder / SOURCE_FILE)
    translator.target_tokenizer.save(folder / TARGET_FILE)
    return {
        "files": {
            MODEL_FILE: "the encoder, and one decoding step",
            SOURCE_FILE: "the tokenizer of the source language",
            TARGET_FILE: "the tokenizer of the target language",
        },
        "signatures": {name: signature(*part[1:]) for name, part in parts.items()},
        "checked": checks.check_translator(
            translator,
            lambda source: encode({"source": source}),
            decode,
            [(1, beams), (1, beams)],
            _version(),
            int8,
        ),
    }


def _with_sizes(tensors, sizes):
    """Replaces some dynamic dimensions by fixed sizes: name -> (dtype, shape)."""
    return {
        name: (dtype, [sizes.get(size, size) for size in shape])
        for name, (dtype, shape) in tensors.items()
    }


def _write(parts, model, folder, int8):
    """Converts functions to the signatures of one file, and loads the file.

    Args:
        parts: name -> (function, inputs, outputs).

    Returns:
        name -> function from a dict of arrays to a dict of arrays.
    """
    litert = needed("ai_edge_litert.interpreter")
    module = tf.Module()
    module.weights = [variable.value for variable in model.weights]
    module.functions = {
        name: tf.function(by_name(function, inputs), specs(inputs), autograph=False)
        for name, (function, inputs, _) in parts.items()
    }
    with tempfile.TemporaryDirectory() as saved:
        tf.saved_model.save(module, saved, signatures=dict(module.functions))
        converter = tf.lite.TFLiteConverter.from_saved_model(saved, signature_keys=list(parts))
        # Weights become constants; otherwise matrix products cannot be quantized.
        converter.experimental_enable_resource_variables = False
        if int8:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        try:
            content = converter.convert()
        except Exception as error:  # the converter does not document its error types
            raise ExportError(f"LiteRT cannot convert this model: {error}") from None
    (folder / MODEL_FILE).write_bytes(content)
    interpreter = litert.Interpreter(model_path=str(folder / MODEL_FILE))
    return {name: _runner(interpreter, name) for name in parts}


def _runner(interpreter, name):
    run = interpreter.get_signature_runner(name)
    return lambda arrays: run(**arrays)


def _version():
    return f"ai-edge-litert {metadata.version('ai-edge-litert')}"
