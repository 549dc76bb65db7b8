"""Folders of CLIP and SigLIP beside the library transformers."""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch", reason="needs PyTorch")

import json  # noqa: E402

import numpy as np  # noqa: E402

import zoo  # noqa: E402
from tests.checkpoints import clip_folders  # noqa: E402
from tests.checkpoints.clip_folders import TEXTS  # noqa: E402
from tests.parity import vit_models as models  # noqa: E402
from zoo.checkpoints.class_texts import encode_texts  # noqa: E402

TOWER = {"hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 3}
IMAGES = {**TOWER, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
OTHER_TEXT = {"hidden_size": 40, "num_attention_heads": 5, "num_hidden_layers": 2}
PROCESSORS = {
    "CLIP": {"size": {"shortest_edge": 36}, "crop_size": {"height": 32, "width": 32}},
    "Siglip": {"size": {"height": 32, "width": 32}},
}


def tokenizer(kind, folder):
    """transformers' tokenizer, and the number of its tokens."""
    files = folder / "files"
    files.mkdir()
    if kind == "CLIP":
        size = clip_folders.write_clip_tokenizer(files)
        return transformers.CLIPTokenizer.from_pretrained(files), size
    if kind == "Siglip":
        size = clip_folders.write_siglip_tokenizer(files)
        settings = {"model_input_names": ["input_ids"], "model_max_length": 24}
        return transformers.SiglipTokenizer(str(files / "spiece.model"), **settings), size
    size = clip_folders.write_gemma_tokenizer(files)
    settings = {"add_eos_token": True, "padding_side": "right"}
    settings |= {"model_input_names": ["input_ids"], "model_max_length": 24}
    return getattr(transformers, kind).from_pretrained(files, **settings), size


def zero_shot(folder, family="CLIP", tokens=None, text=(), images=(), scale=2.0):
    """A model and its processor, which are also written to the folder."""
    tokens, vocab_size = tokenizer(tokens or family, folder)
    name = f"{family}ImageProcessor"
    processor = getattr(transformers, f"{family}Processor")(
        getattr(transformers, name)(**PROCESSORS[family]), tokens
    )
    text = {**TOWER, "num_attention_heads": 2, "vocab_size": vocab_size, **dict(text)}
    text = {"max_position_embeddings": 24, "eos_token_id": vocab_size - 1, **text}
    options = {"projection_dim": 20} if family == "CLIP" else {}
    config = getattr(transformers, f"{family}Config")(
        text_config=text, vision_config={**IMAGES, **dict(images)}, **options
    )
    model = models.with_drawn_weights(getattr(transformers, f"{family}Model")(config))
    with torch.no_grad():
        model.logit_scale.fill_(scale)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return model, processor


def probabilities(model, processor, texts, images):
    family = type(model).__name__.removesuffix("Model")
    padding = True if family == "CLIP" else "max_length"
    inputs = processor(text=texts, images=images, padding=padding, return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits_per_image
    return (logits.softmax(dim=-1) if family == "CLIP" else logits.sigmoid()).numpy(), inputs


KINDS = {
    "CLIP": ("CLIP", None, {}),
    "CLIP, older files": ("CLIP", None, {"eos_token_id": 2, **OTHER_TEXT, "hidden_act": "gelu"}),
    "SigLIP": ("Siglip", None, {}),
    "SigLIP, other sizes": ("Siglip", None, {**OTHER_TEXT, "projection_size": 24}),
    "SigLIP, patches that do not fill images": ("Siglip", None, {}),
    "SigLIP 2": ("Siglip", "Siglip2Tokenizer", {}),
    "SigLIP 2, Gemma's class": ("Siglip", "GemmaTokenizer", {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_zero_shot_classification(kind, tmp_path):
    family, tokens, text = KINDS[kind]
    images = {"patch_size": 7} if "fill" in kind else {}
    model, processor = zero_shot(tmp_path, family, tokens, text, images)
    photographs = [image.convert("RGB") for image in models.photographs()]
    texts = [text.lower() for text in TEXTS] if "Gemma" in kind else TEXTS
    expected, inputs = probabilities(model, processor, texts, photographs)
    assert np.ptp(expected, axis=1).min() > 0.01

    classifier = zoo.load(tmp_path, classes=texts)
    pixels = inputs["pixel_values"].permute(0, 2, 3, 1).numpy()
    height, width, _ = classifier.model.input_shape
    assert (height, width) == ((28, 28) if "fill" in kind else (32, 32))
    original = inputs["pixel_values"]
    pixels = pixels[:, :height, :width]
    found = classifier.outputs(pixels)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert classifier.class_names == texts
    assert classifier.problem == ("single_label" if family == "CLIP" else "multi_label")
    levels = np.abs(classifier.preprocess(photographs) - pixels) * classifier.preprocessing.std
    assert levels.max() * 255 < 1.01

    encoder = zoo.load(tmp_path)
    with torch.no_grad():
        features = model.get_image_features(original).pooler_output.numpy()
    np.testing.assert_allclose(encoder.outputs(pixels), features, atol=1e-4)


@pytest.mark.parametrize(
    "kind, settings",
    [
        ("CLIP", {"padding_side": "left"}),
        ("CLIP", {"pad_token": "~"}),
        ("Siglip", {"model_input_names": ["input_ids", "attention_mask"], "do_lower_case": False}),
        ("Siglip", {"model_input_names": None, "padding_side": "left"}),
        ("Siglip2Tokenizer", {"model_input_names": None, "padding_side": None}),
        ("Siglip2Tokenizer", {"add_bos_token": True, "add_eos_token": False}),
    ],
)
def test_tokens(kind, settings, tmp_path):
    """Special tokens are ordinary text: TEXTS have none."""
    tokens, size = tokenizer(kind, tmp_path)
    tokens.save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    changed = {**json.loads(path.read_text()), **settings}
    path.write_text(json.dumps({name: x for name, x in changed.items() if x is not None}))
    published = type(tokens).from_pretrained(tmp_path)
    padding = True if kind == "CLIP" else "max_length"
    expected = published(TEXTS, padding=padding, return_tensors="np")
    for default in (kind, None):
        found, found_mask = encode_texts(tmp_path, TEXTS, 24, default, pads_to_limit=kind != "CLIP")
        np.testing.assert_array_equal(found, expected["input_ids"])
        mask = expected.get("attention_mask", np.ones_like(found))
        np.testing.assert_array_equal(found_mask, mask)


def test_older_files_of_clip(tmp_path):
    """vocab.json and merges.txt in place of tokenizer.json; config.json with two dicts of each."""
    model, processor = zero_shot(tmp_path)
    positions = {
        f"{name}_model.embeddings.position_ids": torch.arange(9) for name in ("text", "vision")
    }
    torch.save({**model.state_dict(), **positions}, tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    images = [*models.photographs()][:2]
    expected, _ = probabilities(model, processor, TEXTS, images)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "files" / name).rename(tmp_path / name)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for name in ("text_config", "vision_config"):
        config[f"{name}_dict"] = config[name]
        config[name] = {**config[name], "hidden_size": 7, "hidden_act": "relu"}
    path.write_text(json.dumps(config))
    classifier = zoo.load(tmp_path, classes=TEXTS)
    np.testing.assert_allclose(classifier.probabilities(images), expected, atol=2e-3)  # pixels


@pytest.mark.parametrize("family", ["CLIP", "Siglip"])
def test_files_in_bfloat16(family, tmp_path):
    model, processor = zero_shot(tmp_path, family)
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    images = [*models.photographs()][:2]
    expected, inputs = probabilities(model.float(), processor, TEXTS, images)
    pixels = inputs["pixel_values"].permute(0, 2, 3, 1).numpy()
    found = zoo.load(tmp_path, classes=TEXTS).outputs(pixels)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def vision(family, task, folder, **changed):
    """A model of images only."""
    whole = "ForImage" in task
    config_class = getattr(transformers, f"{family}{'' if whole else 'Vision'}Config")
    settings = {**IMAGES, **changed}
    settings = {"vision_config": settings, "num_labels": 5} if whole else settings
    model = models.with_drawn_weights(
        getattr(transformers, family + task)(config_class(**settings))
    )
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize(
    "family, task, outputs",
    [
        ("CLIP", "VisionModel", "pooler_output"),
        ("CLIP", "VisionModelWithProjection", "image_embeds"),
        ("Siglip", "VisionModel", "pooler_output"),
        ("Siglip", "ForImageClassification", "logits"),
    ],
)
@pytest.mark.parametrize("changed", [{}, {"num_attention_heads": 4, "num_hidden_layers": 1}])
def test_models_of_images(family, task, outputs, changed, tmp_path):
    model = vision(family, task, tmp_path, **changed)
    found = zoo.load(tmp_path)
    models.assert_same_outputs(found.model, model, (32, 32), outputs)
    if task == "ForImageClassification":
        assert found.class_names == [f"LABEL_{index}" for index in range(5)]


@pytest.mark.parametrize("family", ["CLIP", "Siglip"])
def test_another_image_size(family, tmp_path):
    """Positions are resized as by timm."""
    resize = pytest.importorskip("timm.layers", reason="needs timm").resample_abs_pos_embed
    published = vision(family, "VisionModel", tmp_path)
    for size in ((64, 64), (24, 24)):
        other = vision(family, "VisionModel", tmp_path / "other", image_size=size[0])
        tensors = published.state_dict()
        [name] = [name for name in tensors if "position_embedding" in name]
        grid = [side // 8 for side in size]
        prefix = int(family == "CLIP")
        tensors[name] = resize(tensors[name][None], grid, num_prefix_tokens=prefix)[0]
        other.load_state_dict(tensors)
        model = zoo.load(tmp_path, input_shape=(*size, 3)).model
        models.assert_same_outputs(model, other, size, "pooler_output")


def test_a_head_that_is_not_supported(tmp_path):
    vision("CLIP", "ForImageClassification", tmp_path)
    with pytest.raises(zoo.errors.UserError, match="its head reads tokens that are not normalized"):
        zoo.load(tmp_path)
    assert zoo.load(tmp_path, num_classes=3).model.num_classes == 3


def test_without_attention_pooling(tmp_path):
    model = vision("Siglip", "VisionModel", tmp_path, vision_use_head=False)
    found = zoo.load(tmp_path).model

    def mean(images):
        return model(images).last_hidden_state.mean(dim=1)

    models.assert_same_outputs(found, mean, (32, 32))
