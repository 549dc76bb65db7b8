"""Vision Transformers that were trained on masked images: MAE, I-JEPA and BEiT."""

import pytest

pytest.importorskip("timm", reason="needs the library timm")
transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch", reason="needs PyTorch")

import numpy as np  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402, F401
from timm.models import beit, save_for_hf  # noqa: E402, F401

import zoo  # noqa: E402
from tests.checkpoints import drawn  # noqa: E402
from tests.parity import timm_models  # noqa: E402
from tests.parity import vit_models as models  # noqa: E402

SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3}
SIZES |= {"intermediate_size": 36, "image_size": 32, "patch_size": 8, "num_labels": 5}
DECODER = {"decoder_hidden_size": 16, "decoder_num_attention_heads": 2}
DECODER |= {"decoder_num_hidden_layers": 1, "decoder_intermediate_size": 8}
OTHERS = {"image_size": [32, 48], "num_channels": 1, "qkv_bias": False, "hidden_act": "gelu_new"}
OTHERS |= {"layer_norm_eps": 0.1, "num_hidden_layers": 2, "num_attention_heads": 4}


def build(family, task, **settings):
    """A model of transformers with drawn weights."""
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **settings})
    return models.with_drawn_weights(getattr(transformers, family + task)(config))


def class_token_of_mae(model):
    """The function of images that computes it from all patches in their order."""
    encoder = getattr(model, "vit", model)
    encoder.config.mask_ratio = 0.0
    order = torch.arange(encoder.embeddings.patch_embeddings.num_patches)
    return lambda images: encoder(images, noise=order.expand(2, -1)).last_hidden_state[:, 0]


@pytest.mark.parametrize("task, settings", [("ForPreTraining", DECODER), ("Model", OTHERS)])
def test_mae(task, settings, tmp_path, capsys):
    """An encoder: the class token. The decoder of pre-training is named in a printed line."""
    published = build("ViTMAE", task, **settings)
    published.save_pretrained(tmp_path)
    encoder = zoo.load(tmp_path)
    assert ("loads vit. Not used (tensors): decoder (24)" in capsys.readouterr().out) == (
        task == "ForPreTraining"
    )
    images = class_token_of_mae(published)
    models.assert_same_outputs(encoder.model, images, encoder.model.input_shape)
    classifier = zoo.load(tmp_path, num_classes=7, input_shape=(48, 40))
    assert classifier.model(drawn.images(48, 40, classifier.model.input_shape[2])).shape == (2, 7)


def test_mae_with_the_pooling_of_its_fine_tuning(tmp_path):
    """The mean of the patches, and a new normalization in place of the last one."""
    build("ViTMAE", "ForPreTraining", **DECODER).save_pretrained(tmp_path)
    options = {"pool": "mean", "num_class_tokens": 1, "normalize_pooled": True, "num_classes": 7}
    model = zoo.load(tmp_path, **options).model
    tokens = np.array(model.features(drawn.images(32, 32)))[:, 1:].mean(axis=1)
    expected = (tokens - tokens.mean(axis=-1, keepdims=True)) / tokens.std(axis=-1, keepdims=True)
    found = model.pooled_features(drawn.images(32, 32))
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    "task, settings", [("ForImageClassification", {}), ("ForImageClassification", OTHERS)]
)
def test_ijepa(task, settings, tmp_path):
    published = build("IJepa", task, **settings)
    published.save_pretrained(tmp_path)
    model = zoo.load(tmp_path).model
    models.assert_same_outputs(model, published, model.input_shape)
    encoder = zoo.load(tmp_path, num_classes=0).model

    def mean(images):
        return published.ijepa(images).last_hidden_state.mean(dim=1)

    models.assert_same_outputs(encoder, mean, model.input_shape)


@pytest.mark.parametrize("is_ijepa", [True, False])
def test_files_of_meta(is_ijepa, tmp_path, capsys):
    """I-JEPA's target encoder, or MAE's encoder, with fixed positions and the pixels of both."""
    kind = "mean, no class token" if is_ijepa else "plain"
    model = timm_models.build(kind, num_classes=0, fc_norm=False)
    model = models.with_drawn_weights(model)
    with torch.no_grad():
        model.pos_embed[:, 0] = torch.arange(24) >= 12 if is_ijepa else 0
    tensors = model.state_dict()
    if is_ijepa:
        named = {f"module.{name}": x for name, x in tensors.items()}
        other = {name: x + 1 for name, x in named.items()}
        predictor = {"module.predictor_pos_embed": torch.ones(1, 16, 12)}
        content = {"encoder": other, "predictor": predictor, "target_encoder": named, "epoch": 3}
    else:
        decoder = {"mask_token": torch.ones(1, 1, 12), "decoder_pos_embed": torch.ones(1, 17, 12)}
        decoder["decoder_embed.weight"] = torch.ones(12, 24)
        content = {"model": {**tensors, **decoder}}
    torch.save(content, tmp_path / "weights.pth")
    encoder = zoo.load(tmp_path / "weights.pth", num_heads=3)
    lines = capsys.readouterr().out
    if is_ijepa:
        assert "loads target_encoder/module. Not used" in lines
        assert "predictor" in lines and "Pass ema=False" in lines
    else:
        assert "Not used: decoder_embed" in lines
    models.assert_same_outputs(encoder.model, model, (32, 32))
    assert encoder.preprocessing.mean == (0.485, 0.456, 0.406)
    zoo.load(tmp_path / "weights.pth", num_heads=3, num_classes=2, input_shape=(40, 56))
