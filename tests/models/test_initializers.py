"""He and Xavier initialization by name: each matrix of a model has the scale of its own shape."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from tests.layers.test_encoder import numpy

SIZES = {"embed_dim": 128, "num_heads": 2, "num_layers": 1, "ff_dim": 192}
MODELS = {
    "vit": lambda **k: zoo.vit(input_shape=(16, 16, 3), patch_size=8, **SIZES | k),
    "transformer": lambda **k: zoo.transformer(
        source_vocab_size=8, target_vocab_size=8, **SIZES | k
    ),
    "causal_lm": lambda **k: zoo.causal_lm(vocab_size=8, **SIZES | k),
    "text_classifier": lambda **k: zoo.text_classifier(vocab_size=8, num_classes=2, **SIZES | k),
}
each_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())


def matrices(model):
    """The matrices of the blocks and of the patch projection, those side by side one by one."""
    for weight in model.weights:
        parts = {"qkv": 3, "key_value": 2}.get(weight.path.split("/")[-2], 1)
        if weight.name == "kernel" and weight.path.split("/")[1] != "head":
            for kernel in np.split(numpy(weight), parts, axis=1):
                yield weight.path, kernel


@each_model
@pytest.mark.parametrize(
    "settings, variance",
    [
        # He et al. 2015, section 2.2, equation 10; Glorot and Bengio 2010, equation 12
        ({"kernel_initializer": "he_normal"}, lambda rows, columns: 2 / rows),
        ({"kernel_initializer": "glorot_uniform"}, lambda rows, columns: 2 / (rows + columns)),
        ({}, lambda rows, columns: 2 / (rows + columns)),
    ],
    ids=["he", "xavier", "default"],
)
def test_standard_deviations(make, settings, variance):
    names, model = set(), make(**settings)
    for path, kernel in matrices(model):
        names.add(path.split("/")[-2])
        # of 16,384 numbers or more: the standard error is below 0.6 %
        expected = pytest.approx(variance(*kernel.shape) ** 0.5, rel=0.03)
        assert kernel.std() == expected, path
    assert {"qkv", "hidden", "output_projection"} <= names
    assert ("projection" in names) == (model.name == "vit"), "the patches'"
    assert ("key_value" in names) == (model.name == "transformer")


@each_model
@pytest.mark.parametrize("has_generator", [False, True])
def test_initializer_objects_give_each_block_other_weights(make, has_generator):
    """Keras's draw the same numbers at every call, but for those with a generator, of which a copy
    would start again.
    """
    seed = keras.random.SeedGenerator(3) if has_generator else None
    initializer = keras.initializers.TruncatedNormal(stddev=0.02, seed=seed)
    model = make(kernel_initializer=initializer, num_layers=2)
    kernels = [kernel for _, kernel in matrices(model)]
    pairs = [(a, b) for a, b in itertools.combinations(kernels, 2) if a.shape == b.shape]
    assert len(pairs) > 3 and all(abs(a - b).max() > 1e-3 for a, b in pairs)


@each_model
def test_an_initializer_that_cannot_be_copied_is_used_as_it_is(make):
    class Five(keras.initializers.Initializer):
        def __init__(self, value):  # which is not in a config
            self.value = value

        def __call__(self, shape, dtype=None):
            return ops.full(shape, self.value, dtype)

    for path, kernel in matrices(make(kernel_initializer=Five(5.0), **SIZES)):
        assert (kernel == 5).all(), path
