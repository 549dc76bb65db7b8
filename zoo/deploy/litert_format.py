"""Exports of classifiers to LiteRT (formerly TensorFlow Lite), for mobile and small devices.

Axes: B images, H image height, W image width, C channels, T tokens.
"""

import pathlib
import tempfile

import tensorflow as tf

from zoo.deploy import checks
from zoo.deploy.plain_graphs import classifier_graph, write_data
from zoo.errors import ExportError, needed
from zoo.tasks.classifier import TextClassifier

MODEL_FILE = "model.tflite"
_SIGNATURE = "serving_default"


def write(classifier, folder, dtype="float32", dynamic_size=False):
    """Writes ``model.tflite``, the labels and the tokenizer of texts, and checks the model.

    Its signature "serving_default" maps "pixels", uint8 [B, H, W, C], or "tokens", int32 [1, T], to
    "probabilities", float32 [B or 1, classes]. For the arguments see `zoo.export`.
    """
    # LiteRT can insert axes only in tensors with at most one dynamic dimension.
    batch = 1 if isinstance(classifier, TextClassifier) else "B"
    graph = classifier_graph(classifier, batch=batch, dynamic_size=dynamic_size)
    folder = pathlib.Path(folder)
    litert = needed("ai_edge_litert.interpreter")
    write_data(classifier, folder)
    (folder / MODEL_FILE).write_bytes(_converted(graph, dtype))
    interpreter = litert.Interpreter(model_path=str(folder / MODEL_FILE))
    run = interpreter.get_signature_runner(_SIGNATURE)
    return {
        "needs": ["ai-edge-litert", "numpy"],
        "signatures": {_SIGNATURE: graph.tensors},
        "checked": checks.check_classes(classifier, run, "ai-edge-litert", dtype, dynamic_size),
    }


def _converted(graph, dtype):
    module = tf.Module()
    module.weights = [variable.value for variable in graph.model.weights]
    module.function = tf.function(graph.function, [graph.spec], autograph=False)
    with tempfile.TemporaryDirectory() as saved:
        tf.saved_model.save(module, saved, signatures={_SIGNATURE: module.function})
        converter = tf.lite.TFLiteConverter.from_saved_model(saved)
        # Weights become constants; otherwise matrix products cannot be quantized.
        converter.experimental_enable_resource_variables = False
        if dtype != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if dtype == "float16":
            converter.target_spec.supported_types = [tf.float16]
        try:
            return converter.convert()
        except Exception as error:  # the converter does not document its error types
            reason = "LiteRT cannot convert this model. Export it as saved_model or onnx"
            raise ExportError(f"{reason}. ({error})") from None
