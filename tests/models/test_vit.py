"""The Vision Transformer: published sizes, every setting, saving, and what it sees."""

from unittest import mock

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from tests import contracts
from tests.layers.test_attention import numpy
from zoo.models.attention_rollout import attention_rollout
from zoo.models.vit import SIZES

SMALL = {**contracts.SIZES, "input_shape": (8, 12, 3), "num_classes": 5, "patch_size": 4}
IMAGES = np.random.default_rng(0).normal(size=(4, 8, 12, 3)).astype("float32")
SETTINGS = {
    "plain": {},
    "mean": {"pool": "mean"},
    "map": {"pool": "map", "num_registers": 1},
    "post": {"norm": "post"},
    "all": {
        "ff_dim": 24,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "stochastic_depth": 0.2,
        "layer_scale": 0.5,
        "num_registers": 3,
        "interpolation": "bilinear",
    },
    "mean beside a class token": {"pool": "mean", "num_class_tokens": 1, "num_registers": 1},
    "class token and mean": {"pool": "cls+mean", "num_registers": 1},
    "distilled": {"num_class_tokens": 2},
    "distilled, no positions": {"num_class_tokens": 2, "prefix_positions": False},
    "CLIP": {"normalize_embeddings": True, "activation": "quick_gelu"},
    "rotary": {"positions": "rotary", "num_registers": 2},
    "learned and rotary": {"rotation": zoo.layers.RotaryGridPositions(8, 1e4, 16.0)},
    "sinusoidal": {"positions": "sinusoidal", "pool": "mean"},
    "relative": {"positions": "relative", "pool": "mean", "num_class_tokens": 1},
    "relative table": {"positions": "relative_table", "pool": "mean", "num_class_tokens": 1},
    "patch dropout": {"patch_dropout": 0.5, "num_registers": 2},
    "MAE": {"pool": "mean", "num_class_tokens": 1, "normalize_pooled": True},
    "DINOv2": {"layer_scale": 1e-5, "num_registers": 4, "activation": "swiglu"},
    "DINOv3": {
        "positions": "rotary",
        "rotation": zoo.layers.RotaryGridPositions(8, extent=4 * np.pi, centered=True),
        "num_registers": 4,
    },
}
each_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
# the same float32 sums in another order
TOLERANCE = 1e-5


def shaken(model):
    random = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(variable + random.normal(0.0, 0.1, variable.shape))
    return model


def embedded(model):
    """The input of the first block."""
    with mock.patch.object(model.encoder_blocks[0], "call", side_effect=lambda x, **_: x) as call:
        model(IMAGES)
    return call.call_args.args[0]


@pytest.mark.parametrize(
    "size, side, parameters",
    [
        # as timm and torchvision publish them, with 1000 classes
        ("Ti/16", 224, 5_717_416),
        ("S/16", 224, 22_050_664),
        ("B/16", 224, 86_567_656),
        ("B/32", 224, 88_224_232),
        ("B/16", 384, 86_859_496),
        pytest.param("L/16", 224, 304_326_632, marks=pytest.mark.slow),
        pytest.param("H/14", 224, 632_045_800, marks=pytest.mark.slow),
    ],
)
def test_parameter_counts_are_the_published_ones(size, side, parameters):
    """Counted in models of one block: the whole ones would take gigabytes."""
    model = zoo.vit(size, input_shape=(side, side, 3), num_layers=1)
    blocks = SIZES[size.split("/")[0]]["num_layers"]
    block = model.encoder_blocks[0].count_params()
    assert model.count_params() + (blocks - 1) * block == parameters


@pytest.mark.parametrize(
    "size, settings, parameters",
    [
        # as timm counts those of vit_small_patch16_rope_224 and vit_small_plus_patch16_dinov3
        ("S/16", {"positions": "rotary", "layer_scale": 1e-5}, 21_984_232),
        (
            "S+/16",
            {
                **{"positions": "rotary", "layer_scale": 1e-5, "num_registers": 4},
                **{"qkv_bias": False, "num_classes": 0},
            },
            28_683_264,
        ),
    ],
)
def test_parameter_counts_with_rotary_positions(size, settings, parameters):
    assert zoo.vit(size, **settings).count_params() == parameters


@each_setting
def test_the_input_of_the_head(settings):
    settings = {**settings, "num_layers": 1}
    model = shaken(zoo.vit(**{**SMALL, **settings}))
    prefix = settings.get("num_class_tokens", int(model.pool not in ("mean", "map")))
    tokens = model.features(IMAGES)
    assert tokens.shape == (4, prefix + 6, 16)
    mean = ops.mean(tokens[:, prefix:], axis=1)
    pooled = {
        "cls": tokens[:, 0],
        "mean": mean,
        "cls+mean": ops.concatenate([tokens[:, 0], mean], axis=-1),
        "map": model.attention_pool and model.attention_pool(tokens[:, prefix:])[:, 0],
    }[model.pool]
    if settings.get("normalize_pooled"):
        assert model.encoder_norm is None
        pooled = model.head_norm(pooled)
    logits = model.logits(model.pooled(model.encode(IMAGES)))
    np.testing.assert_allclose(numpy(model(IMAGES)), numpy(logits), atol=TOLERANCE)
    without = zoo.vit(**{**SMALL, **settings, "num_classes": 0})
    without.set_weights(model.get_weights()[: len(without.weights)])
    for one in (model, without):
        expected = numpy(one.head(pooled))
        if one.pool == "cls" and prefix == 2:
            expected = (expected + numpy(one.distillation_head(tokens[:, 1]))) / 2
        np.testing.assert_allclose(numpy(one(IMAGES)), expected, atol=TOLERANCE)
    assert without(IMAGES).shape == pooled.shape
    # `expected` is the output without a head
    np.testing.assert_allclose(numpy(model.pooled_features(IMAGES)), expected, atol=TOLERANCE)


def test_other_image_sizes_get_resized_positions():
    model = shaken(zoo.vit(**SMALL))
    larger = np.random.default_rng(1).normal(size=(2, 16, 20, 3)).astype("float32")
    assert model.features(larger).shape == (2, 1 + 4 * 5, 16)
    twin = zoo.vit(**{**SMALL, "input_shape": (16, 20, 3)})
    twin.set_weights(
        [
            numpy(model.patch_positions.resized((4, 5)))
            if v is model.patch_positions.embeddings
            else numpy(v)
            for v in model.weights
        ]
    )
    np.testing.assert_allclose(numpy(model(larger)), numpy(twin(larger)), atol=TOLERANCE)


@pytest.mark.parametrize("positions", ["rotary", "relative"])
def test_positions_of_distances_do_not_depend_on_the_image_size(positions):
    """Weights trained at one size are those of a model of another size, unchanged."""
    model = shaken(zoo.vit(**SMALL, positions=positions, num_registers=1))
    twin = zoo.vit(**{**SMALL, "input_shape": (16, 20, 3)}, positions=positions, num_registers=1)
    twin.set_weights(model.get_weights())
    larger = np.random.default_rng(1).normal(size=(2, 16, 20, 3)).astype("float32")
    np.testing.assert_allclose(numpy(model(larger)), numpy(twin(larger)), atol=TOLERANCE)
    assert model.features(larger).shape == (2, 1 + 4 * 5, 16)


def test_rotary_positions_are_rows_and_columns():
    """Class and register tokens are not rotated; patches are, by their row and their column."""
    model = zoo.vit(**{**SMALL, "num_heads": 1}, positions="rotary", num_registers=2)
    rotation = numpy(model.position_arguments((2, 3))["rotation"])[0, 0]
    assert rotation.shape == (3 + 6, 16)
    np.testing.assert_array_equal(rotation[:3], [[1.0] * 8 + [0.0] * 8] * 3)
    frequencies = 100.0 ** (-np.arange(4) / 4)
    for patch, (row, column) in enumerate(np.ndindex(2, 3)):
        expected = np.concatenate([row * frequencies, column * frequencies])
        np.testing.assert_allclose(rotation[3 + patch, :8], np.cos(expected), atol=1e-6)
        np.testing.assert_allclose(rotation[3 + patch, 8:], np.sin(expected), atol=1e-6)


def test_rotary_positions_beside_others():
    """The blocks get the rotation of the layer, beside what the other positions add."""
    layer = zoo.layers.RotaryGridPositions(8, extent=4 * np.pi, centered=True)
    expected = numpy(layer.of_grid((2, 3), 1))
    for positions in ("learned", "sinusoidal", "relative", "rotary"):
        plain = zoo.vit(**SMALL, positions=positions)
        model = zoo.vit(**SMALL, positions=positions, rotation=layer)
        model.set_weights(plain.get_weights())
        np.testing.assert_array_equal(numpy(embedded(model)), numpy(embedded(plain)))
        found = model.position_arguments((2, 3))
        np.testing.assert_array_equal(numpy(found.pop("rotation")), expected)
        others = plain.position_arguments((2, 3))
        others.pop("rotation", None)
        assert found.keys() == others.keys() == {"bias"} & found.keys()
    half = zoo.vit(**SMALL, rotation=layer, dtype="mixed_bfloat16")
    rotation = half.position_arguments((2, 3))["rotation"]
    assert keras.backend.standardize_dtype(rotation.dtype) == "bfloat16"


def test_relative_positions_add_a_bias_for_rows_and_one_for_columns():
    model = shaken(zoo.vit(**SMALL, positions="relative", num_registers=2))
    bias = numpy(model.position_arguments((2, 3))["bias"])
    assert bias.shape == (1, 2, 3 + 6, 3 + 6)
    assert (bias[:, :, :3] == 0).all() and (bias[:, :, :, :3] == 0).all()
    rows, columns = (
        numpy(layer(np.zeros((1, 1), "int32"), np.arange(-2, 3)[None]))[0, :, 0]
        for layer in (model.row_positions, model.column_positions)
    )
    for query, (row, column) in enumerate(np.ndindex(2, 3)):
        for key, (other_row, other_column) in enumerate(np.ndindex(2, 3)):
            expected = rows[:, 2 + other_row - row] + columns[:, 2 + other_column - column]
            np.testing.assert_allclose(bias[0, :, 3 + query, 3 + key], expected, atol=1e-6)


def test_each_block_has_a_table_of_biases():
    """Of distances in rows and columns, and three for the tokens before the patches."""
    model = shaken(zoo.vit(**SMALL, positions="relative_table", num_registers=1))
    for layer, arguments in zip(model.position_tables, model.block_arguments((2, 3)), strict=True):
        table, bias = numpy(layer.embeddings), numpy(arguments["bias"])[0]
        assert table.shape == (3 * 5 + 3, 2) and bias.shape == (2, 2 + 6, 2 + 6)
        for query, (row, column) in enumerate(np.ndindex(2, 3)):
            for key, (other_row, other_column) in enumerate(np.ndindex(2, 3)):
                place = (row - other_row + 1) * 5 + column - other_column + 2
                np.testing.assert_array_equal(bias[:, 2 + query, 2 + key], table[place])
        for place, part in ((15, bias[:, :2, 2:]), (16, bias[:, 2:, :2]), (17, bias[:, :2, :2])):
            np.testing.assert_array_equal(
                part, np.broadcast_to(table[place, :, None, None], part.shape)
            )


def test_a_table_of_biases_for_another_grid():
    """Biases of neighbors stay; between old distances, which become larger ones, it is linear."""
    layer = zoo.layers.RelativePositionTable(1, (3, 1))
    layer.build()
    layer.embeddings.assign([[1.0], [2.0], [4.0], [8.0], [16.0]])  # of distances -2 to 2
    # of 4 rows: 1 + q = 3 for q = 2, which is more than 1.5, so that the old 2 becomes 2.5
    one, two = 16.0 * 2 / 3 + 8.0 / 3, 1.0 * 2 / 3 + 2.0 / 3
    np.testing.assert_allclose(
        numpy(layer.resized((4, 1)))[:, 0], [1.0, two, 2.0, 4.0, 8.0, one, 16.0], rtol=1e-6
    )
    shaken(layer)
    np.testing.assert_allclose(numpy(layer.resized((3, 1))), numpy(layer.embeddings), rtol=1e-6)


@pytest.mark.parametrize("positions", ["rotary", "relative", "relative_table"])
def test_positions_reach_every_block(positions):
    """The attention maps, and the first tokens, which the last block computes alone."""
    model = shaken(zoo.vit(**SMALL, positions=positions))
    x = embedded(model)
    for block, arguments in zip(model.encoder_blocks, model.block_arguments((2, 3)), strict=True):
        maps = block.attention_weights(x, **arguments)
        assert np.abs(numpy(maps) - numpy(block.attention_weights(x))).max() > 1e-3
        x = block(x, **arguments)
    np.testing.assert_allclose(
        numpy(model.attention_maps(IMAGES))[:, -1], numpy(maps), atol=TOLERANCE
    )
    expected = numpy(model.encoder_norm(x))
    np.testing.assert_allclose(numpy(model.features(IMAGES)), expected, atol=TOLERANCE)
    np.testing.assert_allclose(numpy(model.pooled_features(IMAGES)), expected[:, 0], atol=TOLERANCE)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="dynamic sizes are its own")
@pytest.mark.parametrize(
    "settings, jit_compile",
    [
        (SETTINGS["all"], True),
        *((SETTINGS[n], False) for n in ("distilled, no positions", "sinusoidal", "relative")),
        ({"positions": "relative_table", "num_registers": 2}, False),
        ({"attention": "blockwise", "positions": "rotary", "pool": "cls+mean"}, False),
        ({"attention": "linear", "pool": "mean"}, False),
        (SETTINGS["learned and rotary"], False),
        (SETTINGS["DINOv3"], True),
    ],
    ids=str,
)
def test_a_graph_for_images_of_any_size(settings, jit_compile):
    import tensorflow as tf

    model = shaken(zoo.vit(**{**SMALL, "num_layers": 1}, **settings))
    random = np.random.default_rng(2)
    signature = [tf.TensorSpec((None, None, None, 3))]
    graph = tf.function(model, input_signature=signature, jit_compile=jit_compile)
    for size in [(8, 12), (16, 20), (4, 44)]:
        images = random.normal(size=(2, *size, 3)).astype("float32")
        np.testing.assert_allclose(numpy(graph(images)), numpy(model(images)), atol=TOLERANCE)
    # a wrong size fails, and does not become more or fewer examples
    for size in [(9, 12), (8, 13), (3, 3)]:
        with pytest.raises(tf.errors.InvalidArgumentError, match="reshape|start <= limit"):
            graph(np.zeros((4, *size, 3), "float32"))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="dynamic sizes are its own")
def test_images_of_any_size_in_another_model():
    model, images = zoo.vit(**SMALL), keras.Input((None, None, 3))
    outer = keras.Model(images, model(images))
    assert outer.output_shape == (None, 5)
    with pytest.raises(ValueError, match="need a known height and width"):
        model.features(images)
    larger = np.random.default_rng(1).normal(size=(2, 16, 20, 3)).astype("float32")
    for inputs in (IMAGES, larger):
        np.testing.assert_allclose(outer.predict(inputs), numpy(model(inputs)), atol=TOLERANCE)


@pytest.mark.parametrize(
    "pool, rate", [("cls", "attention_dropout"), ("cls", "stochastic_depth"), ("mean", "dropout")]
)
def test_the_last_block_takes_training(pool, rate):
    keras.utils.set_random_seed(0)
    model = shaken(zoo.vit(**{**SMALL, "num_layers": 1}, pool=pool, **{rate: 0.5}))
    one, two = (numpy(model.pooled_features(IMAGES, training=True)) for _ in range(2))
    assert np.abs(one - two).max() > 0


def test_stochastic_depth_grows_to_the_last_block():
    model = zoo.vit(**{**SMALL, "num_layers": 3}, stochastic_depth=0.3)
    rates = [block.stochastic_depth for block in model.encoder_blocks]
    np.testing.assert_allclose(rates, [0.0, 0.15, 0.3])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"size": "XL/16"}, "Unknown size 'XL/16'"),
        ({"size": "B/16", "patch_size": 8}, "conflicts with patch_size=8"),
        ({"patch_size": 16}, "embed_dim, num_layers, num_heads"),
        ({"size": "B/16", "input_shape": (30, 32, 3)}, "30x32 pixels, patch_size=16"),
        ({**SMALL, "input_shape": (8, 12)}, "input_shape=.8, 12.|not enough values"),
        ({**SMALL, "num_heads": 3}, "embed_dim=16, num_heads=3"),
        ({**SMALL, "num_classes": -1}, "num_classes=-1"),
        ({**SMALL, "pool": "max"}, "pool='max'"),
        ({**SMALL, "norm": "none"}, "norm='none'"),
        ({**SMALL, "num_class_tokens": 0}, "num_class_tokens=0, pool='cls'"),
        ({**SMALL, "activation": "gelo"}, "gelo"),
        ({**SMALL, "positions": "sideways"}, "positions='sideways'"),
        ({**SMALL, "positions": "rotary", "key_dim": 6}, "multiple of 4. Received: key_dim=6"),
        ({**SMALL, "attention": "sparse"}, "attention='sparse'"),
        ({**SMALL, "representation_activation": "relu"}, "representation_activation='relu'"),
        ({**SMALL, "attention": "linear", "positions": "relative"}, "positions='relative'"),
        ({**SMALL, "attention": "linear", "positions": "relative_table"}, "='relative_table'"),
        ({**SMALL, "positions": "rotary", "patch_dropout": 0.5}, "dropout=0.5, positions='rotary'"),
        ({**SMALL, **SETTINGS["learned and rotary"], "patch_dropout": 0.5}, "and no rotation"),
        ({**SMALL, "rotation": "rotary"}, "RotaryGridPositions or None. Received: .*'rotary'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        zoo.vit(**arguments)


@pytest.mark.parametrize("settings", [{"pool": "cls+mean"}, {"representation_dim": 24}])
def test_a_head_of_a_subclass_is_built_for_the_features(settings):
    class TwoHeads(zoo.models.ViT):
        def _create_head(self):
            super()._create_head()
            self.second_head = self._classification_head("second_head")

    model = TwoHeads(**SMALL, **settings)
    model.build((None, *SMALL["input_shape"]))
    assert model.second_head.kernel.shape == (model.num_features, 5)
    assert model.second_head(model.pooled_features(IMAGES)).shape == (4, 5)


@pytest.mark.parametrize("settings", [{}, {"pool": "cls+mean"}, {"num_class_tokens": 2}])
def test_rollout_follows_all_that_the_head_reads(settings):
    """Half of every step stays in place: the residual connection."""
    model = zoo.vit(**SMALL, **settings)
    maps = numpy(model.attention_maps(IMAGES)).mean(axis=2)
    first, second = np.moveaxis(0.5 * maps + 0.5 * np.eye(maps.shape[-1]), 1, 0)
    flow = second @ first
    prefix = model.num_prefix_tokens
    read = flow[:, :prefix].mean(axis=1)
    if model.pool == "cls+mean":
        read = (read + flow[:, prefix:].mean(axis=1)) / 2
    found = numpy(attention_rollout(model, IMAGES)).reshape(4, 6)
    np.testing.assert_allclose(found, read[:, prefix:], atol=1e-6)


def test_rollout_through_attention_pooling():
    model = shaken(zoo.vit(**SMALL, pool="map"))
    tokens = model.encode(IMAGES)
    y = model.attention_pool.attention_weights(tokens)
    weights = numpy(y).mean(axis=1)[:, 0]  # [B, N]
    maps = numpy(model.attention_maps(IMAGES)).mean(axis=2)
    first, second = np.moveaxis(0.5 * maps + 0.5 * np.eye(6), 1, 0)
    expected = np.einsum("bn,bnm->bm", weights, second @ first)
    found = numpy(attention_rollout(model, IMAGES)).reshape(4, 6)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("factor", [1, 1e4])
def test_logits_of_unit_vectors_are_cosines(factor):
    model = zoo.vit(**SMALL, representation_dim=7, representation_activation="unit_norm")
    linear = zoo.vit(**SMALL, representation_dim=7, representation_activation="linear")
    weights = [factor * weight for weight in shaken(model).get_weights()]
    linear.set_weights(weights)
    model.set_weights(weights)
    features = numpy(linear.pooled_features(IMAGES))
    unit = features / np.linalg.norm(features, axis=-1, keepdims=True)
    np.testing.assert_allclose(numpy(model.pooled_features(IMAGES)), unit, atol=TOLERANCE)
    kernel, bias = map(numpy, (model.head.kernel, model.head.bias))
    np.testing.assert_allclose(numpy(model(IMAGES)), unit @ kernel + bias, rtol=1e-4, atol=1e-4)


def test_patch_dropout_leaves_patches_out_in_training_only():
    model = zoo.vit(**SMALL, patch_dropout=0.5, num_registers=2)
    assert model.features(IMAGES).shape == (4, 1 + 6, 16)
    assert model.features(IMAGES, training=True).shape == (4, 1 + 3, 16)
    plain = zoo.vit(**SMALL, num_registers=2)
    plain.set_weights(model.get_weights())
    np.testing.assert_array_equal(numpy(model(IMAGES)), numpy(plain(IMAGES)))
