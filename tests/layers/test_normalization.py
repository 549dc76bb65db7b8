"""RMS normalization equals that of Keras; of layer normalization, tests/kernels checks it."""

import keras
import numpy as np
import pytest

import zoo
from tests.layers.test_attention import gradients, normal, numpy
from zoo.layers import RMSNormalization, TransformerDecoder, normalization_layer


# Half precision rounds each result.
@pytest.mark.parametrize(
    "dtype, tolerance", [("float32", 1e-6), ("float64", 1e-12), ("mixed_bfloat16", 2**-7)]
)
def test_rms_normalization_equals_that_of_keras(dtype, tolerance):
    ours = RMSNormalization(1e-3, dtype=dtype)
    keras_layer = keras.layers.RMSNormalization(epsilon=1e-3, dtype=dtype)
    for layer in (ours, keras_layer):
        layer.build((None, 7))
        layer.set_weights([normal(7, seed=1)])
    x = keras.ops.cast(normal(2, 5, 7) * 3 + 1, ours.compute_dtype)
    expected = numpy(keras.ops.cast(keras_layer(x), "float32"))
    np.testing.assert_allclose(
        numpy(keras.ops.cast(ours(x), "float32")), expected, atol=tolerance, rtol=tolerance
    )


def test_gradients_of_rms_normalization_equal_those_of_keras():
    x = normal(2, 5, 7) * 3 + 1
    gamma = normal(7, seed=1)
    layer = keras.layers.RMSNormalization(epsilon=1e-3)
    layer.build((None, 7))

    def of_keras(x, gamma):
        return layer.stateless_call([gamma], [], x)[0]

    def of_ours(x, gamma):
        return zoo.layers.rms_normalization(x, gamma, 1e-3)

    for found, expected in zip(gradients(of_ours, [x, gamma]), gradients(of_keras, [x, gamma])):
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)


def test_the_kind_is_chosen_by_a_name():
    assert type(normalization_layer("rms", 1e-3, name="x")) is RMSNormalization
    block = TransformerDecoder(8, 2, norm_type="rms")
    norms = (block.self_attention_norm, block.cross_attention_norm, block.feed_forward_norm)
    assert [type(norm) for norm in norms] == [RMSNormalization] * 3
    with pytest.raises(ValueError, match="norm_type must be one of .*'batch'"):
        TransformerDecoder(8, 2, norm_type="batch")


def test_configs_of_earlier_versions_have_layer_normalization():
    config = TransformerDecoder(8, 2).get_config()
    assert config.pop("norm_type") == "layer"
    assert TransformerDecoder.from_config(config).norm_type == "layer"
