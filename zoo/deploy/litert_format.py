"""Exports to LiteRT (formerly TensorFlow Lite), for mobile and small devices.

Axes: B images or sentences, H image height, W image width, C channels; S source tokens, T target
tokens, K hypotheses of a sentence. A dynamic dimension is given by its letter.
"""

import pathlib
import tempfile
from importlib import metadata

import tensorflow as tf

from zoo.deploy import checks
from zoo.deploy.errors import ExportError
from zoo.deploy.plain_graphs import PixelClassifier, StepGraphs, write_data
from zoo.errors import needed
from zoo.tasks.classifier import ImageClassifier

MODEL_FILE = "model.tflite"


def write(original, folder, dtype="float32", beam_size=None, **options):
    """Writes ``model.tflite`` and labels or tokenizers, and checks the model.

    The signature "serving_default" of a classifier maps "pixels", uint8 [B, H, W, C] of the model's
    image size, to "probabilities", float32 [B, classes].

    The signatures "encode" and "decode" of a translator are those of
    `zoo.deploy.plain_graphs.StepGraphs`, for one sentence at a time: B is 1 and K is fixed; S and T
    are dynamic. The search is up to the caller; ``translate.py`` of an ONNX export shows one.

    Args:
        original: `zoo.tasks.classifier.ImageClassifier` or `zoo.tasks.translator.Translator`.
        folder: path of an existing folder.
        dtype: of the weight matrices: "float32", "float16" or "int8".
        beam_size: K; the translator's beam size by default.
        **options: not used.

    Returns:
        dict for export.json: "files" (name -> description), "signatures", "checked".

    Raises:
        ExportError: if the model cannot be converted, or its outputs differ from the original.
    """
    if isinstance(original, ImageClassifier):
        plain, shapes, what = PixelClassifier(original), [], "pixels to probabilities"
    else:
        beams = original.beam_size if beam_size is None else beam_size
        # LiteRT can insert axes only in tensors with at most one dynamic dimension.
        plain, shapes = StepGraphs(original.model, 1, beams), [(1, beams), (1, beams)]
        what = "the encoder, and one decoding step"
    folder, graphs = pathlib.Path(folder), plain.graphs
    litert = needed("ai_edge_litert.interpreter")
    content = _converted(graphs, plain.model.weights, dtype)
    (folder / MODEL_FILE).write_bytes(content)
    interpreter = litert.Interpreter(model_path=str(folder / MODEL_FILE))
    found = {name: interpreter.get_signature_runner(name) for name in graphs}
    runners = {name: lambda arrays, run=run: run(**arrays) for name, run in found.items()}
    version = f"ai-edge-litert {metadata.version('ai-edge-litert')}"
    return {
        "files": {MODEL_FILE: what, **write_data(original, folder)},
        "signatures": {name: graph.description() for name, graph in graphs.items()},
        "checked": checks.check(original, runners, shapes, version, dtype),
    }


def _converted(graphs, weights, dtype):
    """Content of a file with a signature for each graph."""
    module = tf.Module()
    module.weights = [variable.value for variable in weights]
    module.functions = {
        name: tf.function(graph.call, graph.specs(), autograph=False)
        for name, graph in graphs.items()
    }
    with tempfile.TemporaryDirectory() as saved:
        tf.saved_model.save(module, saved, signatures=dict(module.functions))
        converter = tf.lite.TFLiteConverter.from_saved_model(
            saved, signature_keys=list(module.functions)
        )
        # Weights become constants; otherwise matrix products cannot be quantized.
        converter.experimental_enable_resource_variables = False
        if dtype != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if dtype == "float16":
            converter.target_spec.supported_types = [tf.float16]
        try:
            return converter.convert()
        except Exception as error:  # the converter does not document its error types
            raise ExportError(f"LiteRT cannot convert this model: {error}") from None
