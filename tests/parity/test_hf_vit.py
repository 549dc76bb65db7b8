"""Folders of ViT, DeiT and DINOv2 beside the library transformers."""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch", reason="needs PyTorch")

import json  # noqa: E402

from safetensors.torch import load_file, save_file  # noqa: E402

import zoo  # noqa: E402
from tests.deploy.small_models import small_classifier  # noqa: E402
from tests.parity import vit_models as models  # noqa: E402
from zoo.checkpoints.hugging_face_config import preprocessing  # noqa: E402
from zoo.layers import patch_grid  # noqa: E402

SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3}
SIZES |= {"image_size": 32, "patch_size": 8, "num_labels": 5}
VIT = {**SIZES, "intermediate_size": 36}
GIANT = {**SIZES, "hidden_size": 40, "num_attention_heads": 5, "use_swiglu_ffn": True}
OTHERS = {**VIT, "image_size": [32, 48], "num_channels": 1, "qkv_bias": False}
OTHERS |= {"hidden_act": "gelu_new", "layer_norm_eps": 0.1}
KINDS = {
    "ViT": ("ViT", "ForImageClassification", VIT),
    "ViT, other options": ("ViT", "ForImageClassification", OTHERS),
    "DeiT, distilled": ("DeiT", "ForImageClassificationWithTeacher", VIT),
    "DINOv2": ("Dinov2", "ForImageClassification", {**SIZES, "image_size": 70, "patch_size": 14}),
    "DINOv2, giant": ("Dinov2", "ForImageClassification", GIANT),
    "DINOv2, registers": ("Dinov2WithRegisters", "ForImageClassification", SIZES),
    "DINOv2, giant with registers": (
        "Dinov2WithRegisters",
        "ForImageClassification",
        {**GIANT, "num_register_tokens": 3},
    ),
}


def build(kind, task=None, **changed):
    """A model of transformers with drawn weights."""
    family, default, settings = KINDS[kind]
    config = getattr(transformers, f"{family}Config")(**{**settings, **changed})
    return models.with_drawn_weights(getattr(transformers, family + (task or default))(config))


@pytest.mark.parametrize("kind", ["ViT, other options", "DINOv2", "DINOv2, giant with registers"])
def test_logits(kind, tmp_path):
    """Of kinds beside those that `record_hugging_face.py` records for tests/checkpoints."""
    published = build(kind)
    published.save_pretrained(tmp_path)
    model = zoo.load(tmp_path).model
    models.assert_same_outputs(model, published, model.input_shape)


@pytest.mark.parametrize(
    "kind, native, size",
    [
        ("ViT", 32, (48, 40)),
        ("ViT", 64, (24, 24)),
        ("DeiT, distilled", 32, (24, 56)),
        ("DINOv2", 518, (224, 224)),
        ("DINOv2, registers", 32, (72, 72)),
    ],
)
def test_another_image_size(kind, native, size, tmp_path):
    """Positions are resized as by timm; transformers does it without antialiasing."""
    layers = pytest.importorskip("timm.layers", reason="needs the library timm")
    published, other = (build(kind, image_size=image_size) for image_size in (native, size))
    published.save_pretrained(tmp_path)
    model = zoo.load(tmp_path, input_shape=(*size, 3)).model
    tensors = published.state_dict()
    [name] = [name for name in tensors if name.endswith("position_embeddings")]
    grid, prefix = patch_grid(size, model.patch_size), model.num_class_tokens
    tensors[name] = layers.resample_abs_pos_embed(tensors[name], grid, num_prefix_tokens=prefix)
    other.load_state_dict(tensors)
    models.assert_same_outputs(model, other, size)


def write_config(model, folder):
    """Writes all but the tensors, which are returned by their names in files."""
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    return tensors


def test_several_safetensors(tmp_path):
    published = build("DINOv2, giant").to(torch.bfloat16)
    published.save_pretrained(tmp_path, max_shard_size="30KB")
    assert len([*tmp_path.glob("*.safetensors")]) > 2
    models.assert_same_outputs(zoo.load(tmp_path).model, published.float(), (32, 32))


@pytest.mark.parametrize(
    "kind, has_prefix",
    [("ViT", False), ("DeiT, distilled", True), ("DINOv2", False), ("DINOv2, registers", True)],
)
def test_without_a_head(kind, has_prefix, tmp_path):
    """An encoder: the class token. With a pooler that the zoo does not have, where there is one."""
    published = build(kind, "Model")
    prefix = published.config.model_type + "." if has_prefix else ""
    tensors = {prefix + name: x for name, x in write_config(published, tmp_path).items()}
    save_file(tensors, tmp_path / "model.safetensors")
    model = zoo.load(tmp_path, num_classes=3).model
    if not model.num_registers:
        size = model.input_shape
        models.assert_same_outputs(model.features, published, size, "last_hidden_state")

    def class_token(images):
        return published(images).last_hidden_state[:, 0]

    models.assert_same_outputs(zoo.load(tmp_path).model, class_token, model.input_shape)


def test_a_head_without_a_prefix(tmp_path):
    published = build("ViT")
    tensors = {n.removeprefix("vit."): x for n, x in write_config(published, tmp_path).items()}
    save_file(tensors, tmp_path / "model.safetensors")
    models.assert_same_outputs(zoo.load(tmp_path).model, published, (32, 32))


def reference(processor):
    """The function of an image that `assert_same_pixels` takes."""
    return lambda image: processor(image, return_tensors="np")["pixel_values"][0]


@pytest.mark.parametrize(
    "family, settings",
    [
        ("ViT", {}),
        ("ViT", {"size": {"height": 40, "width": 64}, "resample": 3}),
        ("ViT", {"do_normalize": False}),
        ("Beit", {}),
        ("Beit", {"do_center_crop": True, "size": {"height": 256, "width": 256}}),
        ("DeiT", {}),
        ("DeiT", {"size": {"height": 40, "width": 40}, "do_center_crop": False, "resample": 2}),
        ("CLIP", {}),
        ("CLIP", {"size": {"shortest_edge": 240}, "resample": 2}),
        ("Siglip", {}),
        ("Siglip", {"size": {"height": 40, "width": 24}, "do_normalize": False}),
        ("Bit", {"size": {"shortest_edge": 256}}),  # DINOv2
        ("Bit", {"size": {"shortest_edge": 35}, "crop_size": {"height": 32, "width": 24}}),
        ("Bit", {"size": {"shortest_edge": 240}, "resample": 2, "image_mean": [0.1, 0.2, 0.3]}),
    ],
)
def test_pixels(family, settings, tmp_path):
    name = f"{family}ImageProcessor"
    processor = getattr(transformers, name + "Pil")(**settings)
    processor.save_pretrained(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    written = json.loads(path.read_text())
    for content in (written, settings):  # the others are the processor's defaults
        path.write_text(json.dumps({**content, "image_processor_type": name}))
        models.assert_same_pixels(preprocessing(tmp_path, {}, (224, 224)), reference(processor))


@pytest.mark.parametrize(
    "settings", [{}, {"image": (8, 8, 1), "activation": "quick_gelu", "qkv_bias": False}]
)
def test_transformers_reads_what_save_hf_writes(settings, tmp_path):
    classifier = small_classifier(**{"image": (8, 8, 3), **settings})
    zoo.save_hf(classifier, tmp_path / "hf")
    published = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "hf").eval()
    models.assert_same_outputs(classifier.model, published, classifier.model.input_shape)
    names = published.config.id2label
    assert [names[index] for index in range(4)] == classifier.class_names
    assert published.config.problem_type == "single_label_classification"
    classifier.problem = "multi_label"
    zoo.save_hf(classifier, tmp_path / "several")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "several")
    assert config.problem_type == "multi_label_classification"


def test_saved_preprocessing(tmp_path):
    zoo.save_hf(small_classifier(image=(16, 16, 3)), tmp_path / "hf")
    processor = transformers.BitImageProcessorPil.from_pretrained(tmp_path / "hf")
    models.assert_same_pixels(zoo.load(tmp_path / "hf").preprocessing, reference(processor))
