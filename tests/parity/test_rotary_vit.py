"""Vision Transformers with rotary positions beside transformers and timm, which published them."""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("timm", reason="needs the library timm")

import json  # noqa: E402

import numpy as np  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from timm.models import save_for_hf  # noqa: E402

import zoo  # noqa: E402
from tests.parity import timm_models  # noqa: E402
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
        ({"key_bias": True}, "missing: encoder.layer.0.attention.k_proj.bias"),
        ({"query_bias": False}, "no place in the model: encoder.layer.0.attention.q_proj.bias"),
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


# kind of model: an architecture of timm with its settings
ARCHITECTURES = {
    "DINOv3": "vit_small_patch16_dinov3_qkvb",
    "DINOv3, gated": "vit_small_plus_patch16_dinov3",
    "DINOv3, no registers": "vit_large_patch16_dinov3",
    "RoPE-ViT": "vit_base_patch16_rope_224",
    "RoPE-ViT, learned positions": "vit_small_patch16_rope_ape_224",
    "rotary, registers, mean": "vit_medium_patch16_rope_reg1_gap_256",
    "EVA-02": "eva02_tiny_patch14_336",
    "EVA-02, token": "eva02_small_patch14_224",
}


def write_timm(folder, kind, architecture=None, **changed):
    """A folder of timm, whose config.json names an architecture and what was changed."""
    published = timm_models.build(kind, dynamic_img_size=True, **changed)
    models.with_drawn_weights(published)
    architecture = architecture or ARCHITECTURES[kind]
    size = (3, *published.patch_embed.img_size)
    published.pretrained_cfg = {"architecture": architecture, "input_size": size}
    heads = published.blocks[0].attn.num_heads
    arguments = {"num_heads": heads, "global_pool": published.global_pool, **changed}
    arguments["num_reg_tokens"] = timm_models.EVA[kind].get("num_reg_tokens", 0)
    save_for_hf(published, folder, model_args=arguments, safe_serialization=True)
    return published


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_timm(kind, tmp_path):
    """At its own and other sizes, of which the weights are the same but for learned positions."""
    published = write_timm(tmp_path, kind)
    model = zoo.load(tmp_path).model
    twin = zoo.load(tmp_path, input_shape=(48, 24)).model
    for size in ((32, 32), (48, 24), (16, 64)):
        models.assert_same_outputs(model, published, size)
        if model.positions == "rotary" or size == (48, 24):
            models.assert_same_outputs(twin, published, size)


@pytest.mark.parametrize(
    "kind, change",
    [
        ("RoPE-ViT", {"rope_temperature": 30.0, "rope_grid_indexing": "ij"}),
        ("RoPE-ViT", {"rope_rotate_half": True, "global_pool": "avg", "use_fc_norm": False}),
        ("DINOv3", {"rope_rotate_half": False, "rope_grid_indexing": "xy", "qkv_bias": False}),
        ("EVA-02", {"ref_feat_shape": [16, 16], "no_embed_class": True, "init_values": 0.1}),
    ],
)
def test_settings_of_timm(kind, change, tmp_path):
    published = write_timm(tmp_path, kind, **change)
    models.assert_same_outputs(zoo.load(tmp_path).model, published, (32, 32))


@pytest.mark.parametrize(
    "kind, architecture, message",
    [
        ("RoPE-ViT", "vit_small_patch16_rope_mixed_224", "_rope_mixed_224 is not supported"),
        ("EVA-02", "eva02_base_patch14_448", "eva02_base_patch14_448 is not supported"),
        ("EVA-02", "eva_giant_patch14_224", "eva_giant_patch14_224 is not supported"),
        ("RoPE-ViT", "vit_pe_core_base_patch16_224", "vit_pe_core_.* is not supported"),
        ("DINOv3", "vit_base_patch16_sapiens2", "vit_base_patch16_sapiens2 is not supported"),
    ],
)
def test_architectures_that_are_refused(kind, architecture, message, tmp_path):
    write_timm(tmp_path, kind, architecture)
    with pytest.raises(CheckpointError, match=message):
        zoo.load(tmp_path)


@pytest.mark.parametrize(
    "kind, change, message",
    [
        ("RoPE-ViT", {"rope_type": "mixed"}, "RoPE-Mixed, .* is not supported"),
        ("EVA-02", {"scale_mlp": True}, "a norm inside of .* is not supported"),
        ("EVA-02", {"swiglu_mlp": False}, "does not say which rotary positions it has"),
        ("DINOv3", {"qkv_fused": False}, "missing: blocks.0.attn.qkv"),
        (
            "RoPE-ViT",
            {"init_values": None, "use_pre_transformer_norm": True, "global_pool": "map"},
            "Perception Encoder is not supported",
        ),
    ],
)
def test_files_that_are_refused(kind, change, message, tmp_path):
    published = timm_models.build(kind, **change)
    save_file(published.state_dict(), tmp_path / "vit.safetensors")
    with pytest.raises(CheckpointError, match=message):
        zoo.load(tmp_path / "vit.safetensors", num_heads=3)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"rope_type": "mrope"}, "rope_type='mrope' is not supported"),
        ({"use_post_norm": True}, "use_post_norm=True is not supported"),
        ({"ref_feat_shape": [8, 16]}, "ref_feat_shape=.8, 16. is not supported"),
        ({"global_pool": "avgmax"}, "global_pool='avgmax' is not supported"),
        ({"rope_temperature": "hot"}, "rope_temperature must be a finite number"),
        ({"num_reg_tokens": 2}, "has no reg_token, but num_reg_tokens is 2"),
        ({"class_token": False}, "has cls_token, but class_token is False"),
        ({"use_abs_pos_emb": False}, "has pos_embed, but use_abs_pos_emb is False"),
        ({"num_heads": None, "embed_dim": 24}, "does not say how many heads it has"),
    ],
)
def test_settings_that_are_refused(change, message, tmp_path):
    write_timm(tmp_path, "EVA-02")
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["model_args"] |= change
    config |= {name: change[name] for name in change if name in config}
    path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        zoo.load(tmp_path)


@pytest.mark.parametrize("kind", ["DINOv3", "DINOv3, gated", "DINOv3, no registers"])
def test_names_of_dinov3(kind, tmp_path):
    """Meta's own files: the class token is the output, and the biases of keys are masked."""
    published = timm_models.build(kind, num_classes=0, global_pool="token")
    models.with_drawn_weights(published)
    tensors = {"mask_token": torch.zeros(1, 24), "rope_embed.periods": torch.ones(2)}
    names = {"gamma_1": "ls1.gamma", "gamma_2": "ls2.gamma", "reg_token": "storage_tokens"}
    if "gated" in kind:
        names |= {"fc1_g": "w1", "fc1_x": "w2", "fc2": "w3"}
    for name, tensor in published.state_dict().items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        if name.endswith("q_bias"):
            start = name.removesuffix("q_bias")
            value = published.get_parameter(f"{start}v_bias")
            keys = torch.randn(24)
            tensors[f"{start}qkv.bias"] = torch.cat([tensor, keys, value.detach()])
            tensors[f"{start}qkv.bias_mask"] = torch.ones(72)
        elif not name.endswith("v_bias"):
            tensors[name] = tensor
    torch.save(tensors, tmp_path / "dinov3.pth")
    heads = published.blocks[0].attn.num_heads
    encoder = zoo.load(tmp_path / "dinov3.pth", num_heads=heads, input_shape=(32, 48))
    assert encoder.model.pool == "cls"
    models.assert_same_outputs(encoder.model, published, (32, 32))
