"""Vision Transformers with rotary positions beside transformers and timm, which published them."""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch", reason="needs PyTorch")

import json  # noqa: E402

import numpy as np  # noqa: E402

import zoo  # noqa: E402
from tests.parity import vit_models as models  # noqa: E402
from zoo.checkpoints import CheckpointError  # noqa: E402
from zoo.checkpoints.hugging_face_config import preprocessing  # noqa: E402

SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "image_size": 32}
SIZES |= {"intermediate_size": 36, "patch_size": 8, "num_register_tokens": 4}
GATED = {"use_gated_mlp": True, "hidden_act": "silu"}
DINOV3 = {
    "plain": {},
    "gated, no registers": {**GATED, "num_register_tokens": 0},
    "biases of keys only": {"key_bias": True, "query_bias": False, "value_bias": False},
    "no biases": {
        **{"query_bias": False, "value_bias": False, "proj_bias": False, "mlp_bias": False},
        **{"hidden_size": 40, "num_attention_heads": 2, "num_hidden_layers": 1},
    },
    "other numbers": {**GATED, "rope_theta": 30.0, "layer_norm_eps": 0.1, "image_size": [32, 48]},
}


def dinov3(kind):
    config = transformers.DINOv3ViTConfig(**{**SIZES, **DINOV3[kind]})
    return models.with_drawn_weights(transformers.DINOv3ViTModel(config))


@pytest.mark.parametrize("kind", DINOV3)
def test_dinov3_of_hugging_face(kind, tmp_path):
    """At its own and other sizes, of which the weights are the same."""
    published = dinov3(kind)
    published.save_pretrained(tmp_path)
    encoder = zoo.load(tmp_path)
    twin = zoo.load(tmp_path, input_shape=(48, 24))
    for size in (encoder.model.input_shape[:2], (48, 24), (16, 64)):
        for model in (encoder.model, twin.model):
            models.assert_same_outputs(model, published, size, "pooler_output")

    def tokens(images):
        outputs = published(images).last_hidden_state
        registers = published.config.num_register_tokens
        return torch.cat([outputs[:, :1], outputs[:, 1 + registers :]], dim=1)

    models.assert_same_outputs(twin.model.features, tokens, (48, 24))


def test_names_of_modules(tmp_path):
    """torch.save(model.state_dict()) writes them since transformers 5."""
    published = dinov3("plain")
    published.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(published.state_dict(), tmp_path / "pytorch_model.bin")
    models.assert_same_outputs(zoo.load(tmp_path).model, published, (32, 32), "pooler_output")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"use_gated_mlp": True}, "'gelu' as hidden_act of gates is not supported"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type='yarn' is not supported"),
        ({"num_attention_heads": 12}, "multiple of 4. Received: key_dim=2"),
        ({"num_register_tokens": 0}, "no place in the model: embeddings.register_tokens"),
        ({"key_bias": True}, "missing: layer.0.attention.k_proj.bias"),
        ({"query_bias": False}, "no place in the model: layer.0.attention.q_proj.bias"),
        ({"patch_size": [8, 4]}, r"patch_size=\[8, 4\] is not supported"),
        ({"hidden_size": "wide"}, "cannot be used"),
    ],
)
def test_what_is_refused(change, message, tmp_path):
    dinov3("plain").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CheckpointError, match=message) as error:
        zoo.load(tmp_path)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("settings", [{}, {"size": {"height": 40, "width": 64}}])
def test_pixels_of_dinov3(settings, tmp_path):
    processor = transformers.DINOv3ViTImageProcessor(**settings)
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps({"image_processor_type": "DINOv3ViTImageProcessorFast", **settings}))

    def reference(image):
        return np.asarray(processor(image, return_tensors="pt")["pixel_values"][0])

    models.assert_same_pixels(preprocessing(tmp_path, {}, (224, 224)), reference)
    processor.save_pretrained(tmp_path)
    models.assert_same_pixels(preprocessing(tmp_path, {}, (224, 224)), reference)
    path.write_text(json.dumps({**json.loads(path.read_text()), "resample": 3}))
    with pytest.raises(CheckpointError, match="resample=3 is not supported"):
        preprocessing(tmp_path, {}, (224, 224))
