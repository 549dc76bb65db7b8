"""What every layer and model promises, checked the same way for each of them.

A layer under test is described by a `Case`: how to build it, with no argument at its default, and
what to call it with. Every check is a function of a case; `tests/layers/test_contracts.py` runs
each of them on each layer of the package, and `tests/models/test_contracts.py` on each model.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
from keras import ops

from zoo import compat, kernels
from zoo.layers.config import ConfigMixin

SIZES = {"embed_dim": 16, "num_heads": 2, "num_layers": 2}  # of small models
# Two ways of computing the same float32 numbers differ by a few units in the last place.
TOLERANCE = 1e-5
# To build a graph takes longer than some small steps; JAX compiles every operation by itself.
EAGERLY = keras.backend.backend() != "jax"


class Case(NamedTuple):
    """A layer and its inputs.

    Fields:
        make: function of keyword arguments (such as a dtype) that builds the layer.
        inputs: list of arrays that it is called with, the batch first, in each of them.
        free: for each input, the axes whose length a model may leave open.
        mask: array that hides every key of some query; None if the layer takes no mask.
        keys: for each mask that a call takes, the index of the input whose positions it hides.
        rates: names of the arguments that are rates of dropout or stochastic depth.
        for_each_query: whether masks may depend on the query and there may be a bias.
    """

    make: Callable[..., Any]
    inputs: list[np.ndarray]
    free: list[tuple[int, ...]]
    mask: np.ndarray | None = None
    keys: dict[str, int] = {}
    rates: tuple[str, ...] = ()
    for_each_query: bool = True


def call(case, layer, training=False, mask=None):
    keywords = {} if mask is None else {"mask": mask}
    return layer(*case.inputs, training=training, **keywords)


def remade(layer, **settings):
    """A layer of the same config, but for `settings`."""
    return type(layer).from_config({**layer.get_config(), **settings})


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


def run(case, layer, **keywords):
    return numpy(ops.cast(call(case, layer, **keywords), "float32"))


def shake(layer):
    """Moves all weights off their start: zeros, ones and small scales hide mistakes."""
    random = np.random.default_rng(1)
    for variable in layer.trainable_variables:
        variable.assign(variable + random.normal(0.0, 0.3, variable.shape))


def check_config_is_complete(case):
    """The config holds each constructor argument, and the case leaves none at its default."""
    layer = case.make()
    arguments = own_arguments(type(layer))
    assert set(layer.get_config()) == {*arguments, "name", "trainable", "dtype"}
    for name, parameter in arguments.items():
        if name == "cross_attention":  # there is a case with it and one without
            continue
        if name == "tokens":  # a layer that a model shares: see tests/models/test_transformer.py
            continue
        if parameter.default is not inspect.Parameter.empty:
            value = layer.get_config()[name]
            assert value != parameter.default, f"{name} has its default in the case"


def own_arguments(cls):
    """The constructor's arguments beside those of every Keras layer: {name: inspect.Parameter}."""
    parameters = inspect.signature(cls).parameters
    return {name: x for name, x in parameters.items() if x.kind != x.VAR_KEYWORD}


def model_of(case):
    """A model of the layer, which is shaken, or the model itself; and its inputs."""
    layer = case.make()
    run(case, layer)
    shake(layer)
    if isinstance(layer, keras.Model):
        return layer, case.inputs[0]
    inputs = [keras.Input(array.shape[1:], dtype=str(array.dtype)) for array in case.inputs]
    return keras.Model(inputs, layer(*inputs)), case.inputs


def check_save_load_save(case, folder, times=2):
    """A saved model gives equal outputs, and saves again to a model that does."""
    model, inputs = model_of(case)
    expected = numpy(model(inputs))
    for time in range(times):
        model.save(folder / f"{time}.keras")
        model = keras.saving.load_model(folder / f"{time}.keras")
        outputs = numpy(model(inputs))
        np.testing.assert_allclose(outputs, expected, atol=TOLERANCE, rtol=TOLERANCE)


def check_frozen_stays_frozen(case):
    """A layer that is frozen before it is built, and one with the config of a frozen one."""
    layer = case.make()
    layer.trainable = False
    for frozen in (layer, remade(layer)):
        run(case, frozen)
        assert not any(variable.trainable for variable in frozen.variables)


def check_symbolic_shape(case):
    """The inferred shape, with a dynamic batch and dynamic lengths, is that of the result."""
    shapes = [
        [None if axis in (0, *free) else side for axis, side in enumerate(array.shape)]
        for array, free in zip(case.inputs, case.free)
    ]
    inputs = [
        keras.Input(batch_shape=tuple(shape), dtype=str(array.dtype))
        for shape, array in zip(shapes, case.inputs)
    ]
    symbolic = case.make()(*inputs).shape
    layer = case.make()
    eager = run(case, layer).shape
    assert len(symbolic) == len(eager)
    assert symbolic[0] is None
    for inferred, found in zip(symbolic, eager):
        assert inferred in (None, found)
    assert symbolic[-1] == eager[-1]
    assert layer.compute_output_shape(*[array.shape for array in case.inputs]) == eager
    unknown = layer.compute_output_shape(*map(tuple, shapes))
    assert unknown[0] is None and unknown[-1] == eager[-1]


def check_every_weight_learns(case):
    """A few steps of gradient descent move every trainable weight."""
    keras.utils.set_random_seed(0)  # with some weights, all units of a ReLU are off
    model, inputs = model_of(case)
    if not model.trainable_variables:
        return
    before = [numpy(v) for v in model.trainable_variables]
    targets = np.random.default_rng(2).normal(size=model(inputs).shape)
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=EAGERLY)
    for _ in range(2):
        model.train_on_batch(inputs, targets)
    for variable, old in zip(model.trainable_variables, before):
        assert np.abs(numpy(variable) - old).max() > 0, variable.path


def check_subclass_config(case):
    """A subclass with one more argument has a config of all arguments, without rules for users.

    One made from the config, with the weights copied, computes the same.
    """
    if not issubclass(type(case.make()), ConfigMixin):
        return  # a layer of Keras, such as dropout

    class Subclass(type(case.make())):
        def __init__(self, *, extra, **others):
            super().__init__(**others)
            self.renamed = extra

    config = {**case.make().get_config(), "extra": 7}
    layer = Subclass.from_config(config)
    expected = run(case, layer)
    twin = Subclass.from_config(layer.get_config())
    assert twin.get_config() == layer.get_config() == config
    assert twin.renamed == 7
    run(case, twin)
    twin.set_weights(layer.get_weights())
    np.testing.assert_allclose(run(case, twin), expected, atol=TOLERANCE, rtol=TOLERANCE)


def check_paths(case):
    """The path of every weight is that of the attributes that lead to it.

    A list of blocks ``encoder_blocks`` stands for ``encoder_0``, ``encoder_1`` and so on.
    """
    layer = case.make()
    run(case, layer)
    for weight in layer.weights:
        root, *attributes = weight.path.split("/")
        assert root == layer.name
        found = layer
        for name in attributes:
            if hasattr(found, name):
                found = getattr(found, name)
            else:
                stack, index = re.fullmatch(r"(\w+)_(\d+)", name).groups()
                found = getattr(found, f"{stack}_blocks")[int(index)]
        assert found is weight, weight.path


class Passing(keras.Model):
    """A model of a user's own that passes `training` on, as Keras asks for on JAX."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, inputs, training=None):
        return self.layer(*inputs, training=training)


def check_dropout_acts_in_fit(case):
    """Each rate alone makes training losses differ in subclassed models, the last in functional."""
    layer = case.make()
    arrays = keras.tree.map_structure(lambda array: np.repeat(array, 8, axis=0), case.inputs)
    targets = np.random.default_rng(4).normal(size=layer(*arrays).shape).astype("float32")
    inputs = keras.tree.map_structure(
        lambda array: keras.Input(array.shape[1:], dtype=str(array.dtype)), arrays
    )
    for rate in case.rates:
        rates = {**dict.fromkeys(case.rates, 0.0), rate: 0.5}
        model = remade(layer, **rates)
        is_model = isinstance(model, keras.Model)
        models = [(model, arrays[0]) if is_model else (Passing(model), arrays)]
        if rate == case.rates[-1]:
            models.append((keras.Model(inputs, remade(layer, **rates)(*inputs)), arrays))
        for model, data in models:
            trained, tested = losses(model, data, targets)
            assert len({*trained, tested[0]}) == 3, f"{rate} does nothing: {trained}, {tested}"
            assert tested[0] == tested[1], rate


def losses(model, inputs, targets):
    """Losses of two steps in which nothing is learned, and of two evaluations."""
    model.compile(keras.optimizers.SGD(0.0), "mse", run_eagerly=EAGERLY)
    trained = []
    tested = []
    for _ in range(2):
        model.reset_metrics()
        trained.append(float(model.train_on_batch(inputs, targets)))
    for _ in range(2):
        model.reset_metrics()
        tested.append(float(model.test_on_batch(inputs, targets)))
    return trained, tested


def check_carried_masks(case):
    """Masks that Keras carries along with the inputs are applied beside those of a call."""
    layer = case.make()
    outputs = run(case, layer)
    shake(layer)
    for name, index in case.keys.items():
        case.inputs[index][0, -1] = 0.0  # what `keras.layers.Masking` hides
        valid = np.any(case.inputs[index] != 0.0, axis=-1)  # [B, S]
        carrying = list(case.inputs)
        carrying[index] = keras.layers.Masking()(case.inputs[index])
        queries = outputs.shape[1]
        keys = valid.shape[1]
        given = np.ones(valid.shape, bool)
        given[1, 0] = False
        masks = [None, given]
        others = [{}]
        if case.for_each_query:
            masks.append(given[:, None] & np.tri(queries, keys, dtype=bool))
            if name == "mask" and "bias" in inspect.signature(layer.call).parameters:
                bias = np.random.default_rng(3).normal(size=(1, 1, queries, keys))
                others.append({"bias": bias.astype("float32")})
        for arguments in others:
            plain = numpy(layer(*case.inputs, **arguments))
            for mask in masks:
                found = numpy(layer(*carrying, **{name: mask}, **arguments))
                both = _both(mask, valid)
                expected = numpy(layer(*case.inputs, **{name: both}, **arguments))
                np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=TOLERANCE)
                assert np.abs(found - plain).max() > 0
        # a functional model carries masks as well
        inputs = [keras.Input(array.shape[1:]) for array in case.inputs]
        masked = list(inputs)
        masked[index] = keras.layers.Masking()(inputs[index])
        model = keras.Model(inputs, layer(*masked))
        found = model.predict(case.inputs, verbose=0)
        expected = numpy(layer(*case.inputs, **{name: valid}))
        np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=TOLERANCE)


def _both(mask, valid):
    """The mask of both, for a mask None, [B, S] or [B, T, S]; valid [B, S]."""
    if mask is None:
        return valid[:, None]  # [B, 1, S]
    if mask.ndim == 2:
        return mask & valid
    return mask & valid[:, None]


def check_float_masks_are_refused(case):
    layer = case.make()
    run(case, layer)
    for name, index in case.keys.items():
        additive = np.zeros(case.inputs[index].shape[:2], "float32")
        with pytest.raises(ValueError, match="dtype float32"):
            layer(*case.inputs, **{name: additive})


def check_sublayer_configs(case):
    """Each layer within a layer can be made from its config, as in a functional model."""
    layer = case.make()
    run(case, layer)
    for sublayer in compat.all_layers(layer)[1:]:
        config = keras.saving.serialize_keras_object(sublayer)
        assert keras.saving.deserialize_keras_object(config).get_config() == sublayer.get_config()


def check_all_is_built(case):
    """No layer within a layer is left unbuilt: `keras.Model.quantize` refuses such a model.

    Not in a functional model either, nor in a model that was not called.
    """
    layer = case.make()
    if not isinstance(layer, keras.Model):
        layer(*(keras.Input(array.shape[1:], dtype=str(array.dtype)) for array in case.inputs))
    assert [part.path for part in compat.all_layers(layer) if not part.built] == []


def check_empty(case, monkeypatch):
    """No rows, and a length of 0 on the free axes: the shape is that of any other number.

    Eagerly, and without rows in graphs of unknown lengths with kernels and without; gradients are
    finite.
    """
    layer = case.make()
    run(case, layer)
    free = dict(zip(map(id, keras.tree.flatten(case.inputs)), case.free))

    def with_lengths(make):
        return keras.tree.map_structure(lambda array: make(array, free[id(array)]), case.inputs)

    all_empty = [with_lengths(lambda array, axes: array[:0])]
    if any(case.free):
        all_empty.append(with_lengths(lambda array, axes: _empty(array, axes)))
        all_empty.append(with_lengths(lambda array, axes: _empty(array, (0, *axes))))
    for empty in all_empty:
        shapes = keras.tree.map_structure(lambda array: array.shape, empty)
        assert tuple(layer(*empty).shape) == tuple(layer.compute_output_shape(*shapes))
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    def step(*inputs):
        with tf.GradientTape() as tape:
            outputs = layer(*inputs, training=True)
            loss = tf.reduce_sum(tf.cast(outputs, "float32") ** 2)
        return outputs, tape.gradient(loss, layer.trainable_variables)

    unknown = with_lengths(
        lambda array, axes: tf.TensorSpec(
            [None if axis in (0, *axes) else side for axis, side in enumerate(array.shape)],
            array.dtype,
        )
    )
    steps = [step]
    for enabled in (True, False):
        monkeypatch.setattr(kernels, "enabled", enabled)
        steps.append(tf.function(step, input_signature=unknown))
        steps[-1].get_concrete_function()
    for empty in all_empty:
        # In graphs, attention takes unknown lengths but 0: ONNX cannot have B as a tensor there.
        for compute in steps if empty is all_empty[0] else steps[:1]:
            outputs, gradients = compute(*empty)
            assert outputs.shape[0] == keras.tree.flatten(empty)[0].shape[0]
            for gradient in gradients:
                assert gradient is None or np.isfinite(tf.convert_to_tensor(gradient)).all()


def _empty(array, axes):
    return array[tuple(slice(0 if axis in axes else None) for axis in range(array.ndim))]


def check_channels_stay_last(case):
    """Keras's setting for images in which channels come first changes nothing."""
    layer = case.make()
    expected = run(case, layer)
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    try:
        twin = remade(layer)
        run(case, twin)
        twin.set_weights(layer.get_weights())
        np.testing.assert_allclose(run(case, twin), expected, atol=TOLERANCE, rtol=TOLERANCE)
    finally:
        keras.config.set_image_data_format(before)


def check_any_initializer(case):
    """Initializers may be names, objects, classes or functions."""
    layer = case.make()
    arguments = [name for name in layer.get_config() if name.endswith("initializer")]

    def ones(shape, dtype=None):
        return ops.ones(shape, dtype)

    for name in arguments:
        for initializer in ("ones", keras.initializers.Ones(), keras.initializers.Ones, ones):
            config = {**layer.get_config(), name: initializer}
            del config["dtype"]
            made = type(layer)(**config)
            run(case, made)
            weights = [w for w in made.weights if name in (f"{w.name}_initializer", "initializer")]
            assert weights and all((numpy(weight) == 1).all() for weight in weights)


def check_mixed_precision(case, policy):
    """Finite in half precision, for large inputs and with a row that may attend to nothing."""
    layer = case.make(dtype=policy)
    large = case._replace(inputs=[array * array.dtype.type(30) for array in case.inputs])
    outputs = call(large, layer, mask=case.mask)
    assert keras.backend.standardize_dtype(outputs.dtype) == policy.removeprefix("mixed_")
    assert np.isfinite(run(large, layer, mask=case.mask)).all()
    assert all(keras.backend.standardize_dtype(v.dtype) == "float32" for v in layer.weights)
