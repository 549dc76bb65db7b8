"""Converts TensorFlow functions to ONNX graphs, with weights of 32, 16 or 8 bits."""

import logging
import pathlib
import tempfile

import keras
import tensorflow as tf

from zoo.errors import needed

OPSET = 18  # the newest that tf2onnx supports


def convert(graph):
    """Converts a `zoo.deploy.plain_graphs.Graph` to an ONNX model.

    Returns:
        `onnx.ModelProto`, in which the weights are named by their paths.
    """
    tf2onnx, weights = needed("tf2onnx"), graph.model.weights
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    # The converter sees the weights as inputs; they are inserted afterwards. It copies the graph
    # many times: with the weights inside, a model of 350 MB took 20 GB of memory.
    named = {f"weight_{index}": variable for index, variable in enumerate(weights)}

    def stateless(inputs, *values):
        with keras.StatelessScope(zip(weights, values)):
            return graph.function(inputs)

    specs = [tf.TensorSpec(weight.shape, "float32", name) for name, weight in named.items()]
    model, _ = tf2onnx.convert.from_function(
        tf.function(stateless, autograph=False),
        input_signature=[*graph.specs(), *specs],
        opset=OPSET,
    )
    for value in list(model.graph.input):
        if value.name in named:
            model.graph.input.remove(value)
    _insert_weights(model.graph, named)
    tensors = {**graph.inputs, **graph.outputs}
    for value in (*model.graph.input, *model.graph.output):
        for axis, size in zip(value.type.tensor_type.shape.dim, tensors[value.name]["shape"]):
            if isinstance(size, str):
                axis.dim_param = size
    return model


def _insert_weights(graph, weights):
    """Inserts variables, {name in the graph: variable}, as initializers named by their paths."""
    onnx, used = needed("onnx"), {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in weights:
                used[name] = weights[name]
                node.input[place] = weights[name].path
    for weight in used.values():
        array = keras.ops.convert_to_numpy(weight)
        graph.initializer.append(onnx.numpy_helper.from_array(array, weight.path))


def halved(model):
    """Stores weight matrices in float16. Runtimes convert them to float32 when they load them."""
    onnx, casts = needed("onnx"), []
    for weight in model.graph.initializer:
        if weight.data_type == onnx.TensorProto.FLOAT and len(weight.dims) > 1:
            array = onnx.numpy_helper.to_array(weight).astype("float16")
            stored, to = f"{weight.name}/float16", onnx.TensorProto.FLOAT
            casts.append(onnx.helper.make_node("Cast", [stored], [weight.name], to=to))
            weight.CopyFrom(onnx.numpy_helper.from_array(array, stored))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def quantized(model):
    """Quantizes matrices to 8 bits, with one scale per column for those of matrix products."""
    onnx, quantization = needed("onnx"), needed("onnxruntime.quantization")
    matrices = {weight.name: weight for weight in model.graph.initializer if len(weight.dims) == 2}
    for node in list(model.graph.node):
        # An output layer tied to the embedding gets its own matrix, to be quantized separately.
        if node.op_type == "Transpose" and node.input[0] in matrices:
            array = onnx.numpy_helper.to_array(matrices[node.input[0]]).T
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, node.output[0]))
            model.graph.node.remove(node)
    # silences a warning: tf2onnx has already done this preprocessing
    onnx.helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        # On CPUs without VNNI, sums of 8-bit products overflow. reduce_range uses 7 bits, which
        # gives the same results on all CPUs at almost the same accuracy.
        quantization.quantize_dynamic(
            model, path, ["MatMul", "Gather"], per_channel=True, reduce_range=True
        )
        return onnx.load(path)
