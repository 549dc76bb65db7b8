"""The config of a layer is what its constructor was given, whatever its signature."""

import copy

import keras
import numpy as np
import pytest

import zoo
from zoo.layers import TransformerEncoder


class OtherNames(TransformerEncoder):
    def __init__(self, width, *, heads=2, **k):
        super().__init__(width, heads, norm="post", **k)


class NoKeywords(TransformerEncoder):
    def __init__(self, width, initializer=None):
        super().__init__(width, 2, kernel_initializer=initializer or "zeros")


class OwnConfig(TransformerEncoder):
    def __init__(self, *args, scale, **kwargs):
        super().__init__(*args, **kwargs)
        self.scale = scale

    def get_config(self):
        return {**super().get_config(), "embed_dim": self.embed_dim, "num_heads": self.num_heads}


class Unnamed(TransformerEncoder):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


class PositionalOnly(TransformerEncoder):
    def __init__(self, width, /, **kwargs):
        super().__init__(width, 2, **kwargs)


class Changing(TransformerEncoder):
    def __init__(self, width, widths=None, options=None, **kwargs):
        super().__init__(width, 2, dropout=options.pop("dropout"), **kwargs)
        widths.clear()


class WithDefault(TransformerEncoder):
    def __init__(self, width=8, /, **kwargs):
        super().__init__(width, 2, **kwargs)


@keras.saving.register_keras_serializable("tests")
def initializer(shape, dtype=None):
    return keras.ops.full(shape, 0.5, dtype)


@pytest.mark.parametrize(
    "layer, expected",
    [
        (OtherNames(8, dropout=0.5), {"width": 8, "heads": 2, "dropout": 0.5}),
        (NoKeywords(8), {"width": 8, "initializer": None}),
        (OwnConfig(8, 2, scale=3), {"embed_dim": 8, "num_heads": 2, "scale": 3}),
        (Unnamed(embed_dim=8, num_heads=4), {"embed_dim": 8, "num_heads": 4}),
        (WithDefault(epsilon=1e-3), {"epsilon": 1e-3}),
        (
            Changing(8, [1, [2, 3]], {"dropout": 0.5, "unused": None}),
            {"width": 8, "widths": [1, [2, 3]], "options": {"dropout": 0.5, "unused": None}},
        ),
    ],
    ids=lambda x: type(x).__name__,
)
def test_subclasses_need_no_rules(layer, expected):
    config = layer.get_config()
    added = {"name", "trainable", "dtype"}
    assert {name: x for name, x in config.items() if name not in added} == expected
    assert type(layer).from_config(config).get_config() == config
    assert ("name" in config) == (type(layer) is not NoKeywords), "its constructor takes no name"


@pytest.mark.parametrize("layer", [Unnamed(8, 2), PositionalOnly(8)])
def test_arguments_without_names_have_no_config(layer):
    message = f"{type(layer).__name__} was given positional arguments"
    with pytest.raises(NotImplementedError, match=message):
        layer.get_config()


@pytest.mark.parametrize("value", [initializer, keras.initializers.Constant(0.5)])
def test_functions_objects_shapes_and_policies(value):
    policy = keras.dtype_policies.get("mixed_bfloat16")
    layer = zoo.layers.ClassToken(initializer=value, dtype=policy)
    twin = zoo.layers.ClassToken.from_config(layer.get_config())
    twin.build((None, 3, 4))
    assert twin.dtype_policy == policy
    np.testing.assert_array_equal(twin.get_weights()[0], np.full((1, 4), 0.5))
    config = zoo.layers.LearnedPositions((2, 3)).get_config()
    assert zoo.layers.LearnedPositions.from_config(config).shape == (2, 3)


def test_layers_as_arguments_are_saved_once(tmp_path):
    @keras.saving.register_keras_serializable("tests")
    class Wrapper(TransformerEncoder):
        def __init__(self, inner, **k):
            super().__init__(8, 2, **k)
            self.inner = inner

        def call(self, x):
            return self.inner(super().call(x))

    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype("float32")
    model = keras.Sequential([Wrapper(keras.layers.Dense(8))])
    expected = keras.ops.convert_to_numpy(model(x))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(loaded(x)), expected)
    assert len(loaded.weights) == len(model.weights)


def test_without_a_call_of_the_constructor():
    """`copy.copy` and other tools make an object first, without arguments."""
    assert TransformerEncoder.__new__(TransformerEncoder) is not None
    layer = TransformerEncoder(8, 2, norm="post")
    layer.build((None, 3, 8))
    assert copy.copy(layer).get_config() == layer.get_config()
    assert copy.deepcopy(layer).get_config() == layer.get_config()
    with pytest.raises(TypeError, match="num_heads"):
        TransformerEncoder(8)
