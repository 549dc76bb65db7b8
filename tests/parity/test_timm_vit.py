"""Files of timm, and Google's archives as timm reads them, beside the library timm."""

import pytest

pytest.importorskip("timm", reason="needs the library timm")
torch = pytest.importorskip("torch", reason="needs PyTorch")

import numpy as np  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from timm.data import create_transform  # noqa: E402
from timm.models import save_for_hf, vision_transformer  # noqa: E402
from torchvision.transforms import CenterCrop  # noqa: E402

import zoo  # noqa: E402
from tests.checkpoints import drawn  # noqa: E402
from tests.parity import timm_models  # noqa: E402
from tests.parity import vit_models as models  # noqa: E402
from zoo.checkpoints.formats.timm import preprocessing  # noqa: E402

WRITERS = {
    "vit.safetensors": save_file,
    "vit.pth": torch.save,
    "old.pth": lambda tensors, path: torch.save(
        tensors, path, _use_new_zipfile_serialization=False
    ),
    "checkpoint.pth": lambda tensors, path: torch.save({"model": tensors, "epoch": 3}, path),
    "parallel.pth": lambda tensors, path: torch.save(
        {"state_dict": {f"module.{name}": tensor for name, tensor in tensors.items()}}, path
    ),
}


def published(kind, **settings):
    return models.with_drawn_weights(timm_models.build(kind, **settings))


@pytest.mark.parametrize("kind", timm_models.KINDS)
def test_logits(kind, tmp_path):
    """At the model's own size, and at others, for which timm resizes the positions."""
    model = published(kind)
    path, patch = tmp_path / "vit.safetensors", model.patch_embed.patch_size[0]
    save_file(model.state_dict(), path)
    height, width = model.patch_embed.img_size
    for size in [(height, width), (height + 3 * patch, width - patch), (height, 3 * width)]:
        model = published(kind)
        model.set_input_size(size)
        options = {"num_heads": model.blocks[0].attn.num_heads, "input_shape": (*size, 3)}
        models.assert_same_outputs(zoo.load(path, **options).model, model, size)


@pytest.mark.parametrize("native, size", [(518, 224), (224, 336)])
def test_grids_of_dinov2(native, size, tmp_path):
    kind, path = "patches of 14, layer scale", tmp_path / "vit.safetensors"
    model = published(kind, img_size=native)
    save_file(model.state_dict(), path)
    model.set_input_size((size, size))
    loaded = zoo.load(path, num_heads=3, input_shape=(size, size, 3)).model
    models.assert_same_outputs(loaded, model, (size, size))


@pytest.mark.parametrize("file", WRITERS)
def test_files(file, tmp_path):
    model = published("plain").to(torch.bfloat16)
    WRITERS[file](model.state_dict(), tmp_path / file)
    loaded = zoo.load(tmp_path / file, num_heads=3).model
    models.assert_same_outputs(loaded, model.float(), (32, 32))


@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize(
    "settings",
    [{}, {"img_size": (32, 48)}, {"global_pool": "avg", "fc_norm": False}, {"num_classes": 0}],
)
def test_folders(settings, safe, tmp_path):
    """config.json says what the tensors do not."""
    model = published("plain", **settings)
    model.pretrained_cfg = {"architecture": "vit", "input_size": (3, *model.patch_embed.img_size)}
    save_for_hf(model, tmp_path, model_args={"num_heads": 3}, safe_serialization=safe)
    models.assert_same_outputs(zoo.load(tmp_path).model, model, model.patch_embed.img_size)


@pytest.mark.parametrize("kind", timm_models.KINDS)
def test_features(kind, tmp_path):
    """Those of ``num_classes=0``, from weights without a head and with one."""
    model, path = published(kind), tmp_path / "vit.safetensors"
    options = {"num_heads": model.blocks[0].attn.num_heads}
    for change in ({"num_classes": 0}, {}):
        save_file(model.state_dict(), path)
        model.reset_classifier(0)
        encoder = zoo.load(path, **options, **change)
        models.assert_same_outputs(encoder.model, model, model.patch_embed.img_size)


@pytest.mark.parametrize("change", [lambda tensors: tensors, drawn.scanned])
@pytest.mark.parametrize("kind", timm_models.GOOGLE)
def test_archives_of_google(kind, change, tmp_path):
    is_new, prefix, settings = timm_models.GOOGLE[kind]
    if change is drawn.scanned and not is_new:
        pytest.skip("only big_vision writes it")
    shapes = timm_models.google_shapes(is_new, "class_token" not in settings)
    tensors = change(drawn.tensors(shapes))
    path, model = tmp_path / "vit.npz", timm_models.build("plain", **settings).eval()
    np.savez(path, **{prefix + name: value for name, value in tensors.items()})
    vision_transformer._load_weights(model, str(path))
    models.assert_same_outputs(zoo.load(path).model, model, (32, 32))


@pytest.mark.parametrize(
    "size, settings",
    [
        ((224, 224), {}),
        ((32, 32), {"crop_pct": 1.0}),
        ((40, 40), {"interpolation": "bilinear", "crop_pct": 0.875}),
        ((40, 40), {"crop_mode": "squash", "crop_pct": 0.95}),
        ((40, 56), {"crop_mode": "squash", "crop_pct": 1.0, "mean": (0.1, 0.2, 0.3)}),
    ],
)
def test_pixels(size, settings):
    given = {"interpolation": "bicubic", "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 0.9}
    given |= settings
    transform = create_transform(input_size=(3, *size), **given)
    [place] = [n for n, step in enumerate(transform.transforms) if type(step) is CenterCrop]
    transform.transforms[place] = crop(*size)
    found = preprocessing("", given, (*size, 3), False)
    models.assert_same_pixels(found, transform)


def crop(height, width):
    """The crop of transformers and the zoo; that of torchvision may be one pixel further.

    Where the margins are not equal, torchvision rounds to the even number of pixels.
    """

    def function(image):
        left, top = (image.width - width) // 2, (image.height - height) // 2
        return image.crop((left, top, left + width, top + height))

    return function
