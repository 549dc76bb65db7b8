"""The loss with an explicit gradient equals the plain function."""

import numpy as np
import pytest
import tensorflow as tf

from zoo import kernels
from zoo.training.losses import SmoothedCrossEntropy


@pytest.mark.parametrize(
    "label_smoothing, dtype",
    [(0.0, "float32"), *((0.1, dtype) for dtype in ("float32", "float64", "bfloat16", "float16"))],
)
def test_the_loss_equals_the_plain_function(label_smoothing, dtype):
    """Logits of any dtype are cast to float32, or to `floatx` if that is wider."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 50, (3, 7)).astype("int32")
    logits = tf.cast(5.0 * random.normal(size=(3, 7, 50)), dtype)
    weights = random.uniform(size=(3, 7)).astype("float32")
    loss = SmoothedCrossEntropy(label_smoothing)

    def run(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = loss(labels, logits, weights)
        return value, tape.gradient(value, logits)

    results = []
    for on in (False, True):
        kernels.enabled = on  # the fixture restores it
        function = tf.function(run)
        operations = function.get_concrete_function(logits).graph.get_operations()
        assert ("IdentityN" in {op.type for op in operations}) == on  # of a custom gradient
        results.append([np.asarray(x, "float64") for x in function(logits)])
    # sums of 50 exponentials in float32; a gradient is rounded to the dtype of the logits
    unit = {"bfloat16": 2**-8, "float16": 2**-10}.get(dtype, 1e-6)
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=2e-6)
    np.testing.assert_allclose(results[1][1], results[0][1], atol=1e-6, rtol=unit)
