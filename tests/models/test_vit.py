"""The Vision Transformer: published sizes, every setting, saving, and what it sees."""

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from zoo.models.vit import rollout

SMALL = {
    "input_shape": (8, 12, 3),
    "num_classes": 5,
    "patch_size": 4,
    "embed_dim": 16,
    "num_heads": 2,
    "num_layers": 3,
}
IMAGES = np.random.default_rng(0).normal(size=(4, 8, 12, 3)).astype("float32")
SETTINGS = {
    "plain": {},
    "mean": {"pool": "mean"},
    "post": {"norm": "post"},
    "registers": {"num_registers": 2},
    "mean of registers": {"num_registers": 2, "pool": "mean"},
    "all": {
        "ff_dim": 24,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "stochastic_depth": 0.2,
        "layer_scale": 0.5,
        "num_registers": 3,
        "interpolation": "bilinear",
    },
}
each_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
# the same float32 sums in another order
TOLERANCE = 1e-5


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


def shaken(model):
    random = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(variable + random.normal(0.0, 0.1, variable.shape))
    return model


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
    assert zoo.vit(size, input_shape=(side, side, 3)).count_params() == parameters


@each_setting
def test_shapes(settings):
    model = zoo.vit(**SMALL, **settings)
    class_token = model.pool == "cls"
    registers = settings.get("num_registers", 0)
    tokens = 6 + class_token
    assert model(IMAGES).shape == (4, 5)
    assert model.features(IMAGES).shape == (4, tokens, 16)
    maps = numpy(model.attention_maps(IMAGES))
    assert maps.shape == (4, 3, 2, tokens + registers, tokens + registers)
    np.testing.assert_allclose(maps.sum(axis=-1), 1.0, atol=TOLERANCE)


@each_setting
def test_the_head_reads_what_pool_says(settings):
    model = shaken(zoo.vit(**SMALL, **settings))
    tokens = model.features(IMAGES)
    pooled = tokens[:, 0] if model.pool == "cls" else ops.mean(tokens, axis=1)
    np.testing.assert_allclose(numpy(model(IMAGES)), numpy(model.head(pooled)), atol=TOLERANCE)


@each_setting
def test_fit_save_and_reload(settings, tmp_path):
    model = zoo.vit(**SMALL, **settings)
    before = [numpy(v) for v in model.trainable_variables]
    model.compile(
        keras.optimizers.SGD(1.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.fit(IMAGES, np.array([0, 1, 2, 3]), epochs=4, verbose=0)
    for variable, old in zip(model.trainable_variables, before):
        assert np.abs(numpy(variable) - old).max() > 0, variable.path
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    np.testing.assert_allclose(
        loaded.predict(IMAGES, verbose=0), model.predict(IMAGES, verbose=0), atol=TOLERANCE
    )


def test_the_call_of_the_texts(tmp_path):
    model = zoo.vit(
        input_shape=(224, 224, 3),
        num_classes=10,
        patch_size=16,
        embed_dim=64,
        num_heads=8,
        num_layers=12,
        ff_dim=128,
        dropout=0.1,
    )
    images = np.random.default_rng(0).normal(size=(2, 224, 224, 3)).astype("float32")
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(images, np.array([3, 7]), verbose=0)
    expected = model.predict(images, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(images, verbose=0), expected, atol=TOLERANCE)


def test_other_image_sizes_get_resized_positions():
    model = shaken(zoo.vit(**SMALL))
    larger = np.random.default_rng(1).normal(size=(2, 16, 20, 3)).astype("float32")
    assert model.features(larger).shape == (2, 1 + 4 * 5, 16)
    twin = zoo.vit(**{**SMALL, "input_shape": (16, 20, 3)})
    twin.set_weights(
        [
            numpy(model.positions.resized((4, 5))) if v is model.positions.embeddings else numpy(v)
            for v in model.weights
        ]
    )
    np.testing.assert_allclose(numpy(model(larger)), numpy(twin(larger)), atol=TOLERANCE)


def test_an_unknown_image_size_is_refused():
    # JAX and PyTorch try a size of their own, which the patches do not divide
    with pytest.raises(ValueError, match=r"known .* for instance \(8, 12, 3\)|must divide"):
        zoo.vit(**SMALL)(keras.Input((None, None, 3)))


def test_without_positions_the_patches_have_no_order():
    model = shaken(zoo.vit(**SMALL))
    model.positions.embeddings.assign(np.zeros((7, 16), "float32"))
    swapped = IMAGES.copy()
    swapped[:, :4, :4], swapped[:, 4:, 8:] = IMAGES[:, 4:, 8:], IMAGES[:, :4, :4]
    np.testing.assert_allclose(numpy(model(swapped)), numpy(model(IMAGES)), atol=TOLERANCE)


def test_stochastic_depth_grows_to_the_last_block():
    model = zoo.vit(**SMALL, stochastic_depth=0.3)
    rates = [block.stochastic_depth for block in model.blocks]
    np.testing.assert_allclose(rates, [0.0, 0.15, 0.3])


# Training is TensorFlow's: on JAX, `fit` tells the layers of a model nothing of it.
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="trained on TensorFlow alone")
@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "stochastic_depth"])
def test_dropout_acts_in_training_alone(rate):
    """With a learning rate of zero, losses of `fit` differ by what is dropped only."""
    model, labels = shaken(zoo.vit(**SMALL, **{rate: 0.5})), np.arange(4)
    model.compile(
        keras.optimizers.SGD(0.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    tested = [model.evaluate(IMAGES, labels, verbose=0) for _ in range(2)]
    assert abs(tested[0] - tested[1]) < TOLERANCE
    trained = [model.fit(IMAGES, labels, verbose=0).history["loss"][0] for _ in range(4)]
    assert len({round(loss, 4) for loss in trained}) > 1


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_returns_full_precision_logits(policy):
    model = zoo.vit(**SMALL, dtype=policy)
    logits = model(IMAGES)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert np.isfinite(numpy(logits)).all()
    assert all(keras.backend.standardize_dtype(v.dtype) == "float32" for v in model.weights)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"size": "XL/16"}, "Unknown size 'XL/16'"),
        ({"size": "B"}, "Unknown size 'B'"),
        ({"size": "B/16", "patch_size": 8}, "another patch size than patch_size=8"),
        ({"patch_size": 16}, "embed_dim, num_layers, num_heads"),
        ({"size": "B/16", "input_shape": (30, 32, 3)}, "30x32 pixels, patch_size=16"),
        ({**SMALL, "num_heads": 3}, "embed_dim=16, num_heads=3"),
        ({**SMALL, "num_layers": 0}, "num_layers=0"),
        ({**SMALL, "pool": "max"}, "pool='max'"),
        ({**SMALL, "norm": "none"}, "norm='none'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        zoo.vit(**arguments)


def test_rollout_follows_attention_through_the_layers():
    # CLS looks at patch 3 only, which in the layer before took everything from patch 1
    maps = np.broadcast_to(np.eye(5), (1, 2, 1, 5, 5)).copy()
    maps[0, 1, 0, 0] = [0, 0, 0, 1, 0]
    maps[0, 0, 0, 3] = [0, 1, 0, 0, 0]
    shares = rollout(maps, (2, 2), 1, reads_class_token=True)
    assert shares.shape == (1, 2, 2)
    # half of every step stays where it is: the residual connection
    np.testing.assert_allclose(ops.convert_to_numpy(shares)[0], [[0.25, 0.0], [0.25, 0.0]])
    uniform = np.full((1, 3, 2, 4, 4), 0.25)
    mean = rollout(uniform, (2, 2), 0, reads_class_token=False)
    np.testing.assert_allclose(ops.convert_to_numpy(mean), 0.25)
