"""Vision Transformers that were trained on masked images: MAE, I-JEPA and BEiT."""

import pytest

pytest.importorskip("timm", reason="needs the library timm")
transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch", reason="needs PyTorch")

import numpy as np  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from timm.layers import resample_abs_pos_embed, resize_rel_pos_bias_table  # noqa: E402
from timm.models import beit, save_for_hf  # noqa: E402

import zoo  # noqa: E402
from tests.checkpoints import drawn  # noqa: E402
from tests.parity import timm_models  # noqa: E402
from tests.parity import vit_models as models  # noqa: E402
from zoo.checkpoints import CheckpointError  # noqa: E402

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


RELATIVE = {"use_relative_position_bias": True}
SHARED = {"use_shared_relative_position_bias": True}
BEIT = {
    "BEiT": ("Beit", RELATIVE),
    "one table for all blocks": ("Beit", SHARED),
    "both kinds of tables": ("Beit", {**RELATIVE, **SHARED}),
    "absolute positions": ("Beit", {"use_absolute_position_embeddings": True}),
    "other options": (
        "Beit",
        {
            **RELATIVE,
            "image_size": [40, 40],
            "num_channels": 1,
            "hidden_act": "gelu_new",
            "layer_norm_eps": 0.1,
            "layer_scale_init_value": 0.0,
            "use_mean_pooling": False,
            "use_mask_token": True,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
        },
    ),
    "Data2Vec": ("Data2VecVision", RELATIVE),
}


def with_resized_tables(published, other, size):
    """Gives `other` the weights of `published`, with the tables that timm computes for a size."""
    grid = (size[0] // 8, size[1] // 8)
    tensors = published.state_dict()
    for name, expected in other.state_dict().items():
        if name.endswith("relative_position_bias_table"):
            tensors[name] = resize_rel_pos_bias_table(tensors[name], grid, expected.shape)
        elif name.endswith("position_embeddings"):
            tensors[name] = resample_abs_pos_embed(tensors[name], grid)
    other.load_state_dict(tensors)
    return other


@pytest.mark.parametrize("kind", BEIT)
def test_beit(kind, tmp_path):
    family, settings = BEIT[kind]
    published = build(family, "ForImageClassification", **settings)
    published.save_pretrained(tmp_path)
    model = zoo.load(tmp_path).model
    size = model.input_shape
    models.assert_same_outputs(model, published, size)
    encoder = zoo.load(tmp_path, num_classes=0).model
    models.assert_same_outputs(
        encoder, getattr(published, published.base_model_prefix), size, "pooler_output"
    )
    tensors = published.state_dict()  # with the names of modules, and the index of timm's files
    tensors["beit.relative_position_index"] = torch.arange(4)
    if family == "Beit":
        save_file(tensors, tmp_path / "model.safetensors")
        models.assert_same_outputs(zoo.load(tmp_path).model, published, size)


@pytest.mark.parametrize("kind", ["BEiT", "both kinds of tables", "absolute positions"])
@pytest.mark.parametrize("size", [(64, 64), (24, 24)])
def test_beit_at_another_image_size(kind, size, tmp_path):
    """The tables are those of timm. transformers resizes them linearly, without a progression."""
    family, settings = BEIT[kind]
    published = build(family, "ForImageClassification", **settings)
    published.save_pretrained(tmp_path)
    other = build(family, "ForImageClassification", **{**settings, "image_size": list(size)})
    other = with_resized_tables(published, other, size)
    model = zoo.load(tmp_path, input_shape=size).model
    models.assert_same_outputs(model, other, size)
    if kind != "absolute positions":  # which transformers may resize, too
        models.assert_same_outputs(zoo.load(tmp_path).model, other, size)


@pytest.mark.parametrize(
    "task, settings, unused",
    [
        (
            "ForMaskedImageModeling",
            {**SHARED, "use_mask_token": True},
            ["layernorm (2)", "lm_head"],
        ),
        (
            "ForSemanticSegmentation",
            {**RELATIVE, "num_hidden_layers": 4, "out_indices": [0, 1, 2, 3], "pool_scales": [1]},
            ["fpn1 (", "decode_head", "auxiliary_head"],
        ),
    ],
)
def test_other_heads_of_beit(task, settings, unused, tmp_path, capsys):
    """An encoder, of which the normalization after the mean of the patches is new."""
    published = build("Beit", task, **settings)
    published.save_pretrained(tmp_path)
    encoder = zoo.load(tmp_path)
    lines = capsys.readouterr().out
    assert all(name in lines for name in unused), lines
    expected = transformers.BeitModel.from_pretrained(tmp_path).eval()
    models.assert_same_outputs(encoder.model, expected, (32, 32), "pooler_output")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {**RELATIVE, "use_absolute_position_embeddings": True},
        {**RELATIVE, "image_size": [32, 48]},  # transformers exchanges the sides of the table
    ],
)
def test_positions_of_beit_that_are_not_supported(settings, tmp_path):
    build("Beit", "ForImageClassification", **settings).save_pretrained(tmp_path)
    message = "image_size" if "image_size" in settings else "use_absolute_position_embeddings"
    with pytest.raises(CheckpointError, match=f"{message}.* not supported"):
        zoo.load(tmp_path)


TIMM = {**timm_models.SIZES, "use_abs_pos_emb": False, "init_values": 0.1, "depth": 3}
TIMM_BEIT = {
    "BEiT": {"use_rel_pos_bias": True},
    "one table for all blocks": {"use_shared_rel_pos_bias": True},
    "both kinds of tables": {"use_shared_rel_pos_bias": True, "use_rel_pos_bias": True},
    "class token, no layer scale, no biases": {
        "use_rel_pos_bias": True,
        "global_pool": "token",
        "init_values": None,
        "qkv_bias": False,
        "num_heads": 4,
    },
}


@pytest.mark.parametrize("kind", TIMM_BEIT)
def test_beit_of_timm(kind, tmp_path):
    """A file, which also says the number of heads, and a folder, at several image sizes."""
    model = models.with_drawn_weights(beit.Beit(**{**TIMM, **TIMM_BEIT[kind]}))
    path = tmp_path / "beit.safetensors"
    save_file(model.state_dict(), path)
    native = zoo.load(path).model
    models.assert_same_outputs(native, model, (32, 32))
    encoder = zoo.load(path, num_classes=0).model
    for size in ((48, 64), (24, 40)):
        resized = zoo.load(path, input_shape=size)
        model.set_input_size(size)
        models.assert_same_outputs(resized.model, model, size)
        models.assert_same_outputs(native, model, size)
        model = models.with_drawn_weights(beit.Beit(**{**TIMM, **TIMM_BEIT[kind]}))
    model.reset_classifier(0)
    models.assert_same_outputs(encoder, model, (32, 32))


def test_folders_of_beit_of_timm(tmp_path):
    settings = {**TIMM, **TIMM_BEIT["BEiT"], "img_size": (32, 48)}
    model = models.with_drawn_weights(beit.Beit(**settings))
    model.pretrained_cfg = {"architecture": "beitv2", "input_size": (3, 32, 48), "std": (0.3,) * 3}
    save_for_hf(model, tmp_path, model_args={"use_rel_pos_bias": True, "use_abs_pos_emb": False})
    classifier = zoo.load(tmp_path)
    models.assert_same_outputs(classifier.model, model, (32, 48))
    assert classifier.preprocessing.std == (0.3,) * 3


def test_a_table_and_absolute_positions_of_timm(tmp_path):
    settings = {**TIMM, "use_rel_pos_bias": True, "use_abs_pos_emb": True}
    save_file(beit.Beit(**settings).state_dict(), tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match="no place in the model: pos_embed"):
        zoo.load(tmp_path / "a.safetensors")
