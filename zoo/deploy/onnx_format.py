"""Exports of classifiers to ONNX, for ONNX Runtime and other runtimes.

Axes: B images or texts, H image height, W image width, C channels, T tokens.
"""

import logging
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

from zoo.deploy import checks
from zoo.deploy.plain_graphs import classifier_graph, write_data
from zoo.errors import ExportError, needed

_LARGEST = 2**31  # bytes; the limit of protocol buffers
_OPSET = 18  # the newest that tf2onnx supports


def write(classifier, folder, dtype="float32", dynamic_size=False):
    """Writes ``model.onnx``, the labels and the tokenizer of texts, and checks the model.

    It maps "pixels", uint8 [B, H, W, C], or "tokens", int32 [B, T], to "probabilities", float32
    [B, classes]. For the arguments see `zoo.export`.
    """
    folder = pathlib.Path(folder)
    graph = classifier_graph(classifier, dynamic_size=dynamic_size)
    model = to_onnx(graph, dtype)
    onnx = needed("onnx")
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, folder / "model.onnx")
    write_data(classifier, folder)
    run = runner(folder / "model.onnx")
    return {
        "needs": ["onnxruntime", "numpy"],
        "made_with": ["tf2onnx", "onnx"],
        "signatures": {"model.onnx": graph.tensors},
        "checked": checks.check_classes(classifier, run, "onnxruntime", dtype, dynamic_size),
    }


def to_onnx(graph, dtype="float32"):
    """Converts a `zoo.deploy.plain_graphs.Graph` to an `onnx.ModelProto`.

    `dtype` is that of the weight matrices: "float32", "float16" or "int8".
    """
    size = 4 * graph.model.count_params()
    if size > _LARGEST:
        raise ExportError(
            f"The model is too large for ONNX: {size / 1e9:.1f} of 2.1 GB. Export a SavedModel."
        )
    model = _converted(graph)
    tensors = graph.tensors["inputs"] | graph.tensors["outputs"]
    for value in (*model.graph.input, *model.graph.output):
        for axis, size in zip(value.type.tensor_type.shape.dim, tensors[value.name]["shape"]):
            if isinstance(size, str):
                axis.dim_param = size
    if dtype == "float16":
        return _halved(model)
    if dtype == "int8":
        return _quantized(model)
    return model


def runner(model):
    """Returns a function that runs an ONNX file, or its content: run(name=array) -> dict."""
    session = needed("onnxruntime").InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(**inputs):
        return dict(zip(names, session.run(names, inputs)))

    return run


def _converted(graph):
    """Returns an `onnx.ModelProto` whose weights are initializers named by their paths."""
    onnx = needed("onnx")
    tf2onnx = needed("tf2onnx")
    weights = graph.model.weights
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    # For the converter, the weights are inputs: it copies the graph many times, and with weights
    # of 350 MB inside, it took 20 GB of memory. Afterwards, they become initializers.
    named = {f"weight_{index}": weight for index, weight in enumerate(weights)}

    def stateless(inputs, *values):
        with keras.StatelessScope(zip(weights, values)):
            return graph.function(inputs)

    specs = [tf.TensorSpec(weight.shape, "float32", name) for name, weight in named.items()]
    model, _ = tf2onnx.convert.from_function(
        tf.function(stateless, autograph=False),
        input_signature=[graph.spec, *specs],
        opset=_OPSET,
        custom_op_handlers={"Erfc": (_erfc, [])},
    )
    for value in list(model.graph.input):
        if value.name in named:
            model.graph.input.remove(value)
    used = set()
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name in named:
                used.add(name)
                node.input[place] = named[name].path
    for name, weight in named.items():
        if name in used:
            array = keras.ops.convert_to_numpy(weight)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, weight.path))
    return model


def _erfc(graph, node, name, _):
    """Replaces Erfc of Keras's exact GELU, which ONNX does not have, by 1 - Erf."""
    erf = graph.make_node("Erf", node.input)
    one = graph.make_const(f"{name}/one", np.float32(1.0))
    shapes = [graph.get_shape(node.output[0])]
    dtypes = [graph.get_dtype(node.output[0])]
    graph.remove_node(name)
    inputs = [one.output[0], erf.output[0]]
    graph.make_node("Sub", inputs, name=name, outputs=node.output, shapes=shapes, dtypes=dtypes)


def _halved(model):
    """Stores weight matrices in float16, which runtimes convert to float32 at loading."""
    onnx = needed("onnx")
    float32 = onnx.TensorProto.FLOAT
    casts = []
    for weight in model.graph.initializer:
        if weight.data_type == float32 and len(weight.dims) > 1:
            array = onnx.numpy_helper.to_array(weight).astype("float16")
            stored = f"{weight.name}/float16"
            casts.append(onnx.helper.make_node("Cast", [stored], [weight.name], to=float32))
            weight.CopyFrom(onnx.numpy_helper.from_array(array, stored))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _quantized(model):
    """Quantizes weight matrices to 8 bits; in matrix products, each column has its own scale."""
    onnx = needed("onnx")
    quantization = needed("onnxruntime.quantization")
    # Silences a warning: tf2onnx has already done this preprocessing.
    onnx.helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        # On CPUs without VNNI, sums of 8-bit products overflow. reduce_range uses 7 bits, which
        # gives the same results on all CPUs at almost the same accuracy.
        quantization.quantize_dynamic(
            model, path, ["MatMul", "Gather"], per_channel=True, reduce_range=True
        )
        return onnx.load(path)
