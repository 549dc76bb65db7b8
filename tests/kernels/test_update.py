"""The update that XLA compiles equals that of the optimizer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo import kernels
from zoo.kernels import update
from zoo.training.optimizers import AdamW
from zoo.training.step import apply_gradients


class Own(keras.optimizers.SGD):
    """Optimizers of others may have operations that XLA does not have."""

    def apply(self, gradients, variables=None):
        tf.py_function(lambda x: None, [gradients[0]], [])
        return super().apply(gradients, variables)


OPTIMIZERS = {
    "adamw": (lambda: keras.optimizers.AdamW(0.1, global_clipnorm=0.5, use_ema=True), True),
    "factors": (lambda: AdamW(0.1, weight_decay=0.1, rate_factors=[0.5, 1.0]), True),
    "float16": (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1)), True),
    "muon": (lambda: keras.optimizers.Muon(0.1), False),
    "own": (lambda: Own(0.1), False),
}


def steps(optimizer, dtype, on, is_compiled):
    """The variables and the state of the optimizer after three steps."""
    kernels.enabled = on  # the fixture restores it
    random = np.random.default_rng(0)
    variables = [keras.Variable(random.normal(size=shape), dtype=dtype) for shape in ((4, 3), (3,))]
    optimizer.build(variables)
    step = tf.function(lambda *gradients: apply_gradients(optimizer, gradients, variables))
    gradients = [tf.cast(random.normal(size=v.shape), dtype) for v in variables]
    operations = step.get_concrete_function(*gradients).graph.get_operations()
    assert any(op.type == "StatefulPartitionedCall" for op in operations) == is_compiled
    for _ in range(3):
        step(*gradients)
    return [np.asarray(v.numpy(), "float64") for v in (*variables, *optimizer.variables)]


@pytest.mark.parametrize(
    "name, dtype",
    [
        *(("adamw", dtype) for dtype in ("float32", "float64", "bfloat16")),
        *((name, "float32") for name in ("factors", "float16", "muon", "own")),
    ],
)
def test_equals_the_plain_function(name, dtype, monkeypatch):
    monkeypatch.setattr(update, "LARGE", 0)
    create, is_compiled = OPTIMIZERS[name]
    results = [steps(create(), dtype, on, is_compiled and on) for on in (False, True)]
    # XLA keeps the intermediate results of a chain of operations, in another order
    tolerance = {"float64": 1e-12, "bfloat16": 2**-7}.get(dtype, 1e-6)
    for plain, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, plain, rtol=tolerance, atol=tolerance)


def test_small_models_and_strategies_are_updated_as_they_are(monkeypatch):
    variable = keras.Variable(np.ones(3, "float32"))
    assert update.apply_gradients(keras.optimizers.SGD(0.1), [tf.ones(3)], [variable]) is None
    monkeypatch.setattr(update, "LARGE", 0)
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        assert update.apply_gradients(keras.optimizers.SGD(0.1), [tf.ones(3)], [variable]) is None
