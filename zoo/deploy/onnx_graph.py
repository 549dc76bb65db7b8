"""Graphs of ONNX, from functions of TensorFlow, in 32 or in 8 bits."""

import logging
import pathlib
import tempfile

import keras
import tensorflow as tf

from zoo.deploy.errors import needed
from zoo.deploy.plain_graphs import specs

OPSET = 18  # the newest that tf2onnx writes


def converted(function, inputs, outputs, weights):
    """The ONNX model of a function.

    Args:
        function: of tensors by name, returns a dict of tensors.
        inputs, outputs: name -> (dtype, shape); a free axis is its letter.
        weights: the variables that it uses, float32; they bear their paths as names.

    Returns:
        `onnx.ModelProto`.
    """
    tf2onnx = needed("tf2onnx")
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    # To the converter the weights are inputs, and are put in afterwards: it copies the graph at
    # every turn, and with its weights in it a model of 350 MB took 20 GB.
    named = {f"weight_{index}": variable for index, variable in enumerate(weights)}

    def stateless(*values):
        with keras.StatelessScope(zip(weights, values[len(inputs) :])):
            return function(**dict(zip(inputs, values)))

    shapes = {name: ("float32", list(weight.shape)) for name, weight in named.items()}
    model, _ = tf2onnx.convert.from_function(
        tf.function(stateless, autograph=False),
        input_signature=specs({**inputs, **shapes}),
        opset=OPSET,
    )
    for value in list(model.graph.input):
        if value.name in named:
            model.graph.input.remove(value)
    _put_in(model.graph, named)
    _name_axes(model, {**inputs, **outputs})
    return model


def _put_in(graph, weights):
    """Variables, by the names they have in the graph, become part of it under their own."""
    onnx, used = needed("onnx"), {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in weights:
                used[name] = weights[name]
                node.input[place] = weights[name].path
    for weight in used.values():
        array = keras.ops.convert_to_numpy(weight)
        graph.initializer.append(onnx.numpy_helper.from_array(array, weight.path))


def _name_axes(model, tensors):
    """Gives the free axes of inputs and outputs their letters, in place of the converter's."""
    for value in (*model.graph.input, *model.graph.output):
        axes = value.type.tensor_type.shape.dim
        for axis, size in zip(axes, tensors[value.name][1], strict=True):
            if isinstance(size, str):
                axis.dim_param = size


def rounded(model):
    """The model with its matrices in 8 bits, a scale for each column of those of products."""
    onnx, quantization = needed("onnx"), needed("onnxruntime.quantization")
    held = {held.name: held for held in model.graph.initializer if len(held.dims) == 2}
    for node in list(model.graph.node):
        # An output layer that is the embedding, transposed, is rounded as a matrix of its own.
        if node.op_type == "Transpose" and node.input[0] in held:
            array = onnx.numpy_helper.to_array(held[node.input[0]]).T
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, node.output[0]))
            model.graph.node.remove(node)
    # tf2onnx has done what it would else ask for, whatever the format
    onnx.helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        # Sums of 8-bit products overflow on processors older than VNNI: 7 bits (reduce_range) run
        # alike everywhere, and the eighth is worth little.
        quantization.quantize_dynamic(
            model, path, ["MatMul", "Gather"], per_channel=True, reduce_range=True
        )
        return onnx.load(path)
