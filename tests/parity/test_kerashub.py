"""Presets of KerasHub give the logits and the pixels of keras-hub, and positions those of T5."""

import json

import keras
import keras_hub
import numpy as np
import pytest
from keras_hub.src.models.t5.t5_multi_head_attention import T5MultiHeadAttention

import zoo
from tests.checkpoints import drawn
from zoo.checkpoints import CheckpointError
from zoo.checkpoints.formats.kerashub import preprocessing
from zoo.layers import RelativePositions

SIZES = {"image_shape": (32, 48, 3), "patch_size": 8, "num_layers": 2, "num_heads": 3}
SIZES |= {"hidden_dim": 24, "layer_norm_epsilon": 1e-3}
# The same float32 operations in another order.
TOLERANCE = 1e-4


def backbone(family, **settings):
    """A backbone whose weights all matter."""
    width = {"ViT": "mlp_dim", "DeiT": "intermediate_dim"}[family]
    model = getattr(keras_hub.models, f"{family}Backbone")(**{**SIZES, width: 36, **settings})
    return with_drawn_weights(model)


def classifier(family, preprocessor=None, **settings):
    kind = getattr(keras_hub.models, f"{family}ImageClassifier")
    return with_drawn_weights(kind(backbone(family), 5, preprocessor=preprocessor, **settings))


def with_drawn_weights(model):
    values = drawn.tensors({weight.path: weight.shape for weight in model.weights})
    for weight in model.weights:
        weight.assign(values[weight.path])
    return model


@pytest.mark.parametrize("family, settings", [("ViT", {"use_mha_bias": False}), ("DeiT", {})])
def test_features(family, settings, tmp_path):
    published, images = backbone(family, **settings), drawn.images(32, 48)
    published.save_to_preset(tmp_path)
    expected = np.asarray(published(images))
    np.testing.assert_allclose(zoo.load(tmp_path).model(images), expected[:, 0], atol=TOLERANCE)
    if family == "DeiT":  # without the distillation token, which is a register
        expected = np.delete(expected, 1, axis=1)
    found = zoo.load(tmp_path, num_classes=3).model.features(images)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


@pytest.mark.parametrize("family, settings", [("ViT", {"intermediate_dim": 20}), ("DeiT", {})])
def test_logits(family, settings, tmp_path):
    published, images = classifier(family, **settings), drawn.images(32, 48)
    published.save_to_preset(tmp_path)
    expected = published(images)
    assert np.ptp(expected) > 1
    np.testing.assert_allclose(zoo.load(tmp_path).model(images), expected, atol=TOLERANCE)
    (tmp_path / "task.weights.h5").unlink()
    with pytest.raises(CheckpointError, match="no task.weights.h5, the weights of its head"):
        zoo.load(tmp_path)


@pytest.mark.parametrize(
    "name, value", [("num_layers", 900), ("hidden_dim", 10**6), ("image_shape", [10**9, 10**9, 3])]
)
@pytest.mark.parametrize("file", ["config.json", "task.json"])
def test_a_config_of_a_huge_model(file, name, value, tmp_path, monkeypatch):
    classifier("ViT").save_to_preset(tmp_path)
    monkeypatch.setattr(keras_hub.models.ImageClassifier, "from_preset", pytest.fail)
    content = json.loads((tmp_path / file).read_text())
    backbone = content if file == "config.json" else content["config"]["backbone"]
    backbone["config"][name] = value
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="must be|does not fit the model that its metadata"):
        zoo.load(tmp_path)


@pytest.mark.parametrize("crop", [True, False])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_pixels(crop, interpolation):
    """Tolerance: one level of 255, as only the zoo rounds to whole levels.

    KerasHub crops before it resizes: at these sizes neither rounds the crop, and its border, where
    the zoo also sees what is beyond, is left out.
    """
    converter = keras_hub.layers.ViTImageConverter(
        image_size=(32, 48),
        scale=[1 / 127.5, 1 / 100, 1 / 60],
        offset=[-1.0, -0.5, 0.0],
        crop_to_aspect_ratio=crop,
        interpolation=interpolation,
        antialias=True,
    )
    settings, random = preprocessing((32, 48, 3), converter), np.random.default_rng(0)
    for size in ((40, 70), (50, 60), (64, 96)):
        coarse = random.integers(0, 256, (5, 7, 3)).astype("float32")
        image = np.asarray(keras.ops.image.resize(coarse, size)).round().astype("uint8")
        found = settings.normalize(settings.read(image))
        levels = np.abs((found - converter(image)) * settings.std)[2:-2, 2:-2] * 255
        assert levels.max() < 1.01


def test_pixels_of_a_converter_without_scale_or_offset():
    image = np.random.default_rng(0).integers(0, 256, (32, 48, 3), dtype="uint8")
    for settings in ({"scale": 1 / 255}, {"offset": -100.0}, {}):
        converter = keras_hub.layers.ViTImageConverter(image_size=(32, 48), **settings)
        found = preprocessing((32, 48, 3), converter)
        expected = converter(image.astype("float32"))
        # float32 of numbers up to 255
        np.testing.assert_allclose(found.normalize(found.read(image)), expected, atol=1e-4)


@pytest.mark.parametrize("settings", [{"pad_to_aspect_ratio": True}, {"interpolation": "nearest"}])
def test_converters_that_are_not_supported(settings):
    settings = {"crop_to_aspect_ratio": False, **settings}
    converter = keras_hub.layers.ViTImageConverter(image_size=(32, 48), **settings)
    with pytest.raises(CheckpointError, match="image converter .* is not supported"):
        preprocessing((32, 48, 3), converter)


def test_a_folder_with_the_name_of_a_published_preset(tmp_path, monkeypatch):
    """keras-hub would download that one."""
    published, images = classifier("ViT"), drawn.images(32, 48)
    published.save_to_preset(tmp_path / "vit_base_patch16_224_imagenet")
    monkeypatch.chdir(tmp_path)
    found = zoo.load("vit_base_patch16_224_imagenet").model(images)
    np.testing.assert_allclose(found, published(images), atol=TOLERANCE)


def test_what_is_not_supported(tmp_path):
    classifier("ViT", pooling="gap").save_to_preset(tmp_path / "gap")
    with pytest.raises(CheckpointError, match="gap: pooling 'gap' is not supported"):
        zoo.load(tmp_path / "gap")
    backbone("ViT", use_class_token=False).save_to_preset(tmp_path / "token")
    with pytest.raises(CheckpointError, match="missing: class_token"):
        zoo.load(tmp_path / "token", num_classes=2)
    (tmp_path / "token" / "model.weights.h5").write_bytes(b"no weights" * 100_000)
    with pytest.raises(CheckpointError, match="token cannot be loaded by keras-hub"):
        zoo.load(tmp_path / "token", num_classes=2)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("num_buckets, max_distance", [(32, 128), (8, 20)])
def test_relative_positions_have_t5s_buckets(bidirectional, num_buckets, max_distance):
    distances = np.arange(-300, 301, dtype="int32")
    expected = T5MultiHeadAttention._relative_position_bucket(
        keras.ops.convert_to_tensor(distances), bidirectional, num_buckets, max_distance
    )
    layer = RelativePositions(1, num_buckets, max_distance, bidirectional)
    layer.build((None, None))
    layer.embeddings.assign(np.arange(num_buckets, dtype="float32")[:, None])
    found = np.asarray(layer(np.array([[300]]), 300 + distances[None]))[0, 0, 0]
    np.testing.assert_array_equal(found, expected)
