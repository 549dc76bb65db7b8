"""Exports to ONNX, for ONNX Runtime and other runtimes.

Axes: B images, H image height, W image width, C channels.
"""

import json
import pathlib

from zoo.deploy import checks
from zoo.deploy.errors import ExportError
from zoo.deploy.onnx_graph import convert, halved, quantized
from zoo.deploy.plain_graphs import PixelClassifier, StepGraphs, write_data
from zoo.deploy.programs import write_programs
from zoo.deploy.programs.search import runner
from zoo.errors import needed
from zoo.tasks.classifier import ImageClassifier

_LARGEST = 2**31  # bytes; the limit of protocol buffers
_MODELS = {  # graph: file, description
    "serving_default": ("model.onnx", "pixels to probabilities"),
    "encode": ("encoder.onnx", "source tokens to the keys and values of cross-attention"),
    "decode": ("decoder.onnx", "one decoding step: log-probabilities of the next token"),
}
_STORED = {"float32": lambda model: model, "float16": halved, "int8": quantized}
_CLASSIFIER_PROGRAMS = {"classify.py": "runs the model with numpy and onnxruntime only"}
_TRANSLATOR_PROGRAMS = {
    "translate.py": "translates texts with numpy, onnxruntime and tokenizers only",
    "engine.py": "runs the models for translate.py",
    "search.py": "beam search for engine.py",
}


def write(original, folder, dtype="float32", **options):
    """Writes the models, their data, and programs that run them; checks the models.

    Of a classifier: ``model.onnx``, ``labels.txt`` and ``classify.py``. ``model.onnx`` maps
    "pixels", uint8 [B, H, W, C] of the model's image size, to "probabilities", float32
    [B, classes]. Its metadata contain the labels and how images are resized as JSON, under "labels"
    and "resizing".

    Of a translator: ``encoder.onnx``, ``decoder.onnx``, the tokenizers and ``translate.py``. The
    models are `encode` and `decode` of `zoo.deploy.plain_graphs.StepGraphs`.

    Args:
        original: `zoo.tasks.classifier.ImageClassifier` or `zoo.tasks.translator.Translator`.
        folder: path of an existing folder.
        dtype: of the weight matrices: "float32", "float16" or "int8".
        **options: not used: programs read them in export.json.

    Returns:
        dict for export.json: "files" (name -> description), "signatures", "checked".

    Raises:
        ExportError: if a model is too large for one file, its outputs differ from the original, or
            its images cannot be resized by the program.
    """
    folder = pathlib.Path(folder)
    if isinstance(original, ImageClassifier):
        plain, programs = PixelClassifier(original), _CLASSIFIER_PROGRAMS
        metadata = _metadata(original)
    else:
        plain, programs, metadata = StepGraphs(original.model), _TRANSLATOR_PROGRAMS, {}
    onnx, onnxruntime = needed("onnx"), needed("onnxruntime")
    files, signatures, runners = {}, {}, {}
    for name, graph in plain.graphs.items():
        file, what = _MODELS[name]
        model = to_onnx(graph, plain.model, dtype)
        onnx.helper.set_model_props(model, metadata)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, folder / file)
        files[file], signatures[file] = what, graph.description()
        session = onnxruntime.InferenceSession(folder / file, providers=["CPUExecutionProvider"])
        runners[name] = runner(session)
    write_programs(folder, programs, engine="onnx_engine.py")
    version = f"onnxruntime {onnxruntime.__version__}"
    return {
        "files": {**files, **write_data(original, folder), **programs},
        "signatures": signatures,
        "checked": checks.check(original, runners, [(1, 1), (3, 2)], version, dtype),
    }


def to_onnx(graph, model, dtype="float32"):
    """A `zoo.deploy.plain_graphs.Graph` of a Keras model as an `onnx.ModelProto`.

    Args:
        graph: function with the weights of `model`.
        model: Keras model in float32.
        dtype: of the weight matrices: "float32", "float16" or "int8".

    Raises:
        ExportError: if the model is too large.
    """
    _check_size(model)
    return _STORED[dtype](convert(graph, model.weights))


def _metadata(classifier):
    """The metadata of ``model.onnx``."""
    if not classifier.preprocessing.antialias:
        raise ExportError(
            "classify.py resizes images by Pillow, which always antialiases, and the preprocessing "
            "of this model does not. Export a SavedModel."
        )
    names = ("resize", "interpolation", "antialias")
    resizing = {name: getattr(classifier.preprocessing, name) for name in names}
    metadata = {"labels": classifier.class_names, "resizing": resizing}
    return {key: json.dumps(value, ensure_ascii=False) for key, value in metadata.items()}


def _check_size(model):
    """Raises `ExportError` if the float32 parameters do not fit in one file."""
    size = 4 * model.count_params()
    if size > _LARGEST:
        raise ExportError(
            f"The model is too large for ONNX: it has {size / 1e9:.1f} GB of parameters, and the "
            "limit is 2.1 GB. Export it as a SavedModel."
        )
