"""Exports of classifiers to ONNX, for ONNX Runtime and other runtimes.

Axes: B images or texts, H image height, W image width, C channels, T tokens.
"""

import json
import pathlib
import shutil

from zoo.deploy import checks
from zoo.deploy.errors import ExportError
from zoo.deploy.onnx_graph import convert, halved, quantized
from zoo.deploy.plain_graphs import classifier_graph, write_data
from zoo.errors import needed
from zoo.tasks.classifier import ImageClassifier

_LARGEST = 2**31  # bytes; the limit of protocol buffers
_STORED = {"float32": lambda model: model, "float16": halved, "int8": quantized}
_PROGRAM = pathlib.Path(__file__).parent / "programs" / "classify.py"


def write(classifier, folder, dtype="float32", **options):
    """Writes ``model.onnx``, ``labels.txt`` and what else it takes to use them; checks the model.

    Of images: the model maps "pixels", uint8 [B, H, W, C] of its image size, to "probabilities",
    float32 [B, classes]. ``classify.py`` runs it. Its metadata contain the labels and how images
    are resized as JSON, under "labels" and "resizing". Of texts: it maps "tokens", int32 [B, T].

    Args:
        classifier: `zoo.tasks.classifier.ImageClassifier` or `TextClassifier`.
        folder: path of an existing folder.
        dtype: of the weight matrices: "float32", "float16" or "int8".
        **options: not used.

    Returns:
        dict for export.json: "files" (name -> description), "signatures", "checked".

    Raises:
        ExportError: if the model is too large for one file, its outputs differ from the original,
            or its images cannot be resized by the program.
    """
    folder, graph = pathlib.Path(folder), classifier_graph(classifier)
    onnx, onnxruntime = needed("onnx"), needed("onnxruntime")
    model, files = to_onnx(graph, dtype), {"model.onnx": "inputs to probabilities"}
    if isinstance(classifier, ImageClassifier):
        onnx.helper.set_model_props(model, _metadata(classifier))
        shutil.copy(_PROGRAM, folder)
        files[_PROGRAM.name] = "runs the model with numpy and onnxruntime only"
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, folder / "model.onnx")
    version = f"onnxruntime {onnxruntime.__version__}"
    return {
        "files": {**files, **write_data(classifier, folder)},
        "signatures": {"model.onnx": graph.description()},
        "checked": checks.check_classes(classifier, runner(folder / "model.onnx"), version, dtype),
    }


def to_onnx(graph, dtype="float32"):
    """A `zoo.deploy.plain_graphs.Graph` as an `onnx.ModelProto`.

    Args:
        dtype: of the weight matrices: "float32", "float16" or "int8".

    Raises:
        ExportError: if the model is too large.
    """
    size = 4 * graph.model.count_params()
    if size > _LARGEST:
        raise ExportError(
            f"The model is too large for ONNX: it has {size / 1e9:.1f} GB of parameters, and the "
            "limit is 2.1 GB. Export it as a SavedModel."
        )
    return _STORED[dtype](convert(graph))


def runner(model):
    """A file, or its content, as a function from arrays by name to a dict of arrays."""
    session = needed("onnxruntime").InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda **inputs: dict(zip(names, session.run(names, inputs)))


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
