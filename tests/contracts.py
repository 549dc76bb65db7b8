"""What every layer promises, checked the same way for each of them.

A layer under test is described by a `Case`: how to build it, with no argument at its default, and
what to call it with. Every check is a function of a case; `tests/layers/test_contracts.py` runs
each of them on each layer of the package.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

# Two ways of computing the same float32 numbers differ by a few units in the last place.
TOLERANCE = 1e-5


class Case(NamedTuple):
    """A layer and its inputs.

    Fields:
        make: function of keyword arguments (such as a dtype) that builds the layer.
        inputs: list of arrays that it is called with, the batch first, in each of them.
        free: for each input, the axes whose length a model may leave open.
        mask: array that hides every key of some query; None if the layer takes no mask.
    """

    make: Callable[..., Any]
    inputs: list[np.ndarray]
    free: list[tuple[int, ...]]
    mask: np.ndarray | None = None


def call(case, layer, training=False, mask=None):
    keywords = {} if mask is None else {"mask": mask}
    return layer(*case.inputs, training=training, **keywords)


def run(case, layer, **keywords):
    return ops.convert_to_numpy(ops.cast(call(case, layer, **keywords), "float32"))


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
        if parameter.default is not inspect.Parameter.empty:
            assert getattr(layer, name) != parameter.default, f"{name} is not put to the test"


def own_arguments(cls):
    """The constructor's arguments beside those of every Keras layer: {name: inspect.Parameter}."""
    if cls.__init__ is keras.layers.Layer.__init__:
        return {}
    parameters = inspect.signature(cls.__init__).parameters
    return {
        name: parameter
        for name, parameter in parameters.items()
        if name != "self" and parameter.kind != inspect.Parameter.VAR_KEYWORD
    }


def check_config_round_trip(case):
    """A layer made from the config, with the weights copied, computes the same."""
    layer = case.make()
    expected_shape = run(case, layer).shape
    shake(layer)
    expected = run(case, layer)
    twin = type(layer).from_config(layer.get_config())
    run(case, twin)
    twin.set_weights(layer.get_weights())
    assert expected.shape == expected_shape
    np.testing.assert_allclose(run(case, twin), expected, atol=TOLERANCE, rtol=TOLERANCE)
    assert twin.get_config() == layer.get_config()


def model_of(case):
    inputs = [keras.Input(array.shape[1:], dtype=str(array.dtype)) for array in case.inputs]
    layer = case.make()
    return keras.Model(inputs, layer(*inputs)), layer


def check_save_load_save(case, folder):
    """A saved model gives equal outputs, and saves again to a model that does."""
    model, layer = model_of(case)
    shake(layer)
    expected = run(case, layer)
    for name in ("first.keras", "second.keras"):
        model.save(folder / name)
        model = keras.saving.load_model(folder / name)
        outputs = ops.convert_to_numpy(model(case.inputs))
        np.testing.assert_allclose(outputs, expected, atol=TOLERANCE, rtol=TOLERANCE)


def check_symbolic_shape(case):
    """The shape foretold with an unknown batch and unknown lengths is that of the result."""
    shapes = [
        [None if axis in (0, *free) else side for axis, side in enumerate(array.shape)]
        for array, free in zip(case.inputs, case.free)
    ]
    dtypes = [str(array.dtype) for array in case.inputs]
    inputs = [keras.Input(batch_shape=tuple(s), dtype=d) for s, d in zip(shapes, dtypes)]
    symbolic = case.make()(*inputs).shape
    layer = case.make()
    eager = run(case, layer).shape
    assert len(symbolic) == len(eager)
    assert symbolic[0] is None
    for foretold, found in zip(symbolic, eager):
        assert foretold in (None, found)
    assert symbolic[-1] == eager[-1]
    assert layer.compute_output_shape(*[array.shape for array in case.inputs]) == eager
    unknown = layer.compute_output_shape(*map(tuple, shapes))
    assert unknown[0] is None and unknown[-1] == eager[-1]


def check_every_weight_learns(case):
    """One step of gradient descent moves every trainable weight."""
    layer = case.make()
    run(case, layer)
    shake(layer)
    if not layer.trainable_variables:
        return
    inputs = [keras.Input(array.shape[1:], dtype=str(array.dtype)) for array in case.inputs]
    model = keras.Model(inputs, layer(*inputs))
    before = [ops.convert_to_numpy(v) for v in model.trainable_variables]
    targets = np.random.default_rng(2).normal(size=run(case, layer).shape)
    model.compile(keras.optimizers.SGD(1.0), "mse")
    model.fit(case.inputs, targets, batch_size=len(targets), epochs=4, verbose=0)
    for variable, old in zip(model.trainable_variables, before):
        assert np.abs(ops.convert_to_numpy(variable) - old).max() > 0, variable.path


def check_mixed_precision(case, policy):
    """Finite in half precision, for large inputs and with a row that may attend to nothing."""
    layer = case.make(dtype=policy)
    large = case._replace(inputs=[array * array.dtype.type(30) for array in case.inputs])
    outputs = call(large, layer, mask=case.mask)
    assert keras.backend.standardize_dtype(outputs.dtype) == policy.removeprefix("mixed_")
    assert np.isfinite(run(large, layer, mask=case.mask)).all()
    assert all(keras.backend.standardize_dtype(v.dtype) == "float32" for v in layer.weights)
