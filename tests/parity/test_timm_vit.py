"""Files of timm beside the library timm.

The logits of each kind, also of Google's archives as timm reads them, are recorded by
`record_timm.py` for tests/checkpoints.
"""

import pytest

pytest.importorskip("timm", reason="needs the library timm")
torch = pytest.importorskip("torch", reason="needs PyTorch")

import argparse  # noqa: E402
import collections  # noqa: E402
import datetime  # noqa: E402
import enum  # noqa: E402
import functools  # noqa: E402
import pathlib  # noqa: E402

import numpy as np  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from timm.data import create_transform  # noqa: E402
from timm.models import load_state_dict, save_for_hf  # noqa: E402
from timm.models._manipulate import adapt_input_conv  # noqa: E402
from torch.optim.swa_utils import AveragedModel  # noqa: E402
from torchvision.transforms import CenterCrop  # noqa: E402

import zoo  # noqa: E402
from tests.parity import timm_models  # noqa: E402
from tests.parity import vit_models as models  # noqa: E402
from zoo.checkpoints import CheckpointError  # noqa: E402
from zoo.checkpoints.formats.timm import preprocessing  # noqa: E402


def published(kind, **settings):
    return models.with_drawn_weights(timm_models.build(kind, **settings))


class EasyDict(dict):
    """As the libraries of this name."""

    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__


class Config:
    class Mode(enum.Enum):
        TRAIN = 1

    def __setstate__(self, state):
        raise AssertionError("is called")


def training_state(model):
    """What training programs write beside the weights."""
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(1, 3, 32, 32)).sum().backward()
    optimizer.step()
    values = {
        "paths": [pathlib.Path("a"), pathlib.PurePosixPath("b")],
        "numbers": [np.float64(1), np.int64(2), np.zeros(3), np.dtype("float32")],
        "times": [datetime.datetime.now(), datetime.timedelta(1)],
        "torch": [torch.float16, torch.device("cpu"), torch.Size([1]), torch.nn.GELU()],
        "objects": [Config(), Config.Mode.TRAIN, functools.partial(int, base=2), 1j, {1, 2}],
        Config.Mode.TRAIN: {("a", 1): collections.deque([1, 2]), torch.float16: bytearray(b"x")},
        "counts": [
            collections.defaultdict(list, a=[1]),
            collections.Counter("aab"),
            Exception("x"),
        ],
    }
    return {
        "args": argparse.Namespace(config=Config(), values=values),
        "optimizer": optimizer.state_dict(),
        "amp_scaler": {"scale": 65536.0},
        "rng": torch.get_rng_state(),
        "epoch": 3,
        "hyper_parameters": EasyDict(values),
    }


def wrapped(*parts):
    """The names of tensors with parts before them."""
    return lambda tensors: {"".join(parts) + name: x for name, x in tensors.items()}


@pytest.mark.parametrize(
    "key, zipped", [("state_dict", True), ("model", False), ("my_net", True), ("teacher", True)]
)
def test_files_of_training_programs(key, zipped, tmp_path):
    model, path = published("plain"), tmp_path / "model_best.pth.tar"
    state = {**training_state(published("plain")), key: model.state_dict()}
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    models.assert_same_outputs(zoo.load(path, num_heads=3).model, model, (32, 32))


@pytest.mark.parametrize(
    "parts", [("_orig_mod.",), ("module.", "_orig_mod."), ("model.",), ("net.", "backbone.")]
)
def test_wrappers(parts, tmp_path):
    model = published("plain")
    tensors = wrapped(*parts)(model.state_dict())
    save_file(tensors, tmp_path / "vit.safetensors")
    heads = {name[name.find("head") :]: x for name, x in tensors.items() if "head" in name}
    beside = {name: x for name, x in tensors.items() if "head" not in name}
    save_file({**beside, **heads}, tmp_path / "head.safetensors")
    torch.save({"state_dict": tensors, "epoch": 3}, tmp_path / "last.ckpt")
    for path in tmp_path.iterdir():
        models.assert_same_outputs(zoo.load(path, num_heads=3).model, model, (32, 32))


AVERAGED = {  # what programs write: of weights and their average
    "timm": lambda now, mean: {"state_dict": now, "state_dict_ema": mean},
    "DeiT": lambda now, mean: {"model": now, "model_ema": mean},
    "torchvision": lambda now, mean: {
        "model": now,
        "model_ema": {**wrapped("module.")(mean), "n_averaged": torch.tensor(3)},
    },
    "DINO": lambda now, mean: {
        "student": wrapped("module.", "backbone.")(now),
        "teacher": wrapped("backbone.")(mean),
    },
    "I-JEPA": lambda now, mean: {
        "encoder": wrapped("module.")(now),
        "target_encoder": wrapped("module.")(mean),
    },
    "Lightning": lambda now, mean: {
        "state_dict": {
            **wrapped("model.")(now),
            **wrapped("ema_model.")(mean),
            "criterion.weight": torch.ones(5),
        }
    },
    "one dict": lambda now, mean: {**now, **wrapped("ema.")(mean)},
    "nested": lambda now, mean: {"checkpoint": {"net": now, "ema": {"module": mean, "decay": 0.9}}},
}


@pytest.mark.parametrize("kind", AVERAGED)
def test_averaged_weights(kind, tmp_path, capsys):
    path, now, mean = tmp_path / "last.pth", published("plain"), published("plain")
    with torch.no_grad():
        mean.head.bias += 1.0
    torch.save(AVERAGED[kind](now.state_dict(), mean.state_dict()), path)
    if kind in ("timm", "DeiT"):
        assert load_state_dict(path)["head.bias"].equal(mean.head.bias)
    models.assert_same_outputs(zoo.load(path, num_heads=3).model, mean, (32, 32))
    line = capsys.readouterr().out
    assert line.startswith(f"{path}: loads ") and "Pass ema=False for weights that are not" in line
    assert ("criterion (1)" in line) == (kind == "Lightning")
    models.assert_same_outputs(zoo.load(path, num_heads=3, ema=False).model, now, (32, 32))
    assert "Not used" in capsys.readouterr().out


def test_averaged_weights_of_pytorch_and_whole_models(tmp_path):
    model, path = published("plain"), tmp_path / "last.pth"
    for content in ({"ema": AveragedModel(model).state_dict()}, model, {"model": model, "ema": {}}):
        torch.save(content, path)
        models.assert_same_outputs(zoo.load(path, num_heads=3).model, model, (32, 32))


@pytest.mark.parametrize(
    "content, message",
    [
        (lambda now: {"state_dict": now, "state_dict_ema": {"head.bias": now["head.bias"]}}, None),
        (
            lambda now: {"model": now, "ema": {k: x for k, x in now.items() if "s.1." not in k}},
            "ema lacks model/blocks.1.* Pass ema=False for model",
        ),
        (lambda now: {"model": now, "ema": {k: x[:1] for k, x in now.items()}}, "another shape. P"),
        (lambda now: {"generator": now, "discriminator": dict(now)}, "several models: gen"),
        (lambda now: {"ema": {}, "optimizer": {"state": {0: now}}}, "contains no tensors by name"),
        (lambda now: {}, "contains no tensors by name"),
        (lambda now: [now], "contains no tensors by name"),
        (lambda now: now["head.bias"], "contains no tensors by name"),
    ],
)
def test_files_without_one_model(content, message, tmp_path, capsys):
    path = tmp_path / "last.pth"
    torch.save(content(published("plain").state_dict()), path)
    if message is None:
        zoo.load(path, num_heads=3)
        assert "Not used (tensors): state_dict_ema (1)." in capsys.readouterr().out
        return
    with pytest.raises(CheckpointError, match=message):
        zoo.load(path, num_heads=3)


@pytest.mark.parametrize(
    "old, new, dtype",
    [(3, 1, "float32"), (3, 4, "bfloat16"), (1, 3, "float32"), (4, 3, "bfloat16")],
)
def test_channels(old, new, dtype, tmp_path, capsys):
    """The kernels are those of timm to the bit."""
    model, path = published("plain", in_chans=old).to(getattr(torch, dtype)), tmp_path / "a.pth"
    torch.save(model.state_dict(), path)
    loaded = zoo.load(path, num_heads=3, input_shape=(32, 32, new))
    assert f"adapted from {old} channels to {new}" in capsys.readouterr().out
    expected = adapt_input_conv(new, model.patch_embed.proj.weight, old).float()
    expected = expected.detach().numpy().transpose(2, 3, 1, 0)
    found = loaded.model.patch_embed.projection.kernel
    np.testing.assert_array_equal(found, expected.reshape(found.shape))
    loaded.save(tmp_path / "run")
    assert loaded([np.full((40, 40, new), 7, "uint8")]) == zoo.load(tmp_path / "run")(
        [np.full((40, 40, new), 7, "uint8")]
    )


@pytest.mark.parametrize(
    "safe, settings",
    [
        (False, {}),
        (True, {"img_size": (32, 48)}),
        (True, {"global_pool": "avg", "fc_norm": False}),
        (True, {"num_classes": 0}),
    ],
)
def test_folders(settings, safe, tmp_path):
    """config.json says what the tensors do not."""
    model = published("plain", **settings)
    model.pretrained_cfg = {"architecture": "vit", "input_size": (3, *model.patch_embed.img_size)}
    save_for_hf(model, tmp_path, model_args={"num_heads": 3}, safe_serialization=safe)
    models.assert_same_outputs(zoo.load(tmp_path).model, model, model.patch_embed.img_size)


@pytest.mark.parametrize(
    "kind", ["plain", "mean", "mean, no class token", "registers, mean", "distilled"]
)
def test_features(kind, tmp_path):
    """Those of ``num_classes=0``, from weights without a head and with one."""
    model, path = published(kind), tmp_path / "vit.safetensors"
    options = {"num_heads": model.blocks[0].attn.num_heads}
    for change in ({"num_classes": 0}, {}):
        save_file(model.state_dict(), path)
        model.reset_classifier(0)
        encoder = zoo.load(path, **options, **change)
        models.assert_same_outputs(encoder.model, model, model.patch_embed.img_size)


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


@pytest.mark.parametrize("crop_mode", ["center", "squash"])
def test_pixels_that_fill_no_patch(crop_mode, tmp_path):
    """Those at the right and the bottom are left out, as in SigLIP's models of 384 pixels."""
    model = published("attention pooling", img_size=30)
    settings = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 0.8, "crop_mode": crop_mode}
    settings |= {"input_size": (3, 30, 30), "interpolation": "bicubic"}
    model.pretrained_cfg = {"architecture": "vit", **settings}
    save_for_hf(model, tmp_path, model_args={"num_heads": 2})
    encoder = zoo.load(tmp_path)
    images = torch.tensor(models.drawn.images(30, 30)).permute(0, 3, 1, 2)
    with torch.no_grad():
        expected = model(images)
    found = encoder.model(images.permute(0, 2, 3, 1)[:, :24, :24].numpy())
    np.testing.assert_allclose(found, expected, atol=1e-4)
    transform = create_transform(**settings)
    [place] = [n for n, step in enumerate(transform.transforms) if type(step) is CenterCrop]
    transform.transforms[place] = crop(30, 30)
    models.assert_same_pixels(encoder.preprocessing, lambda image: transform(image)[:, :24, :24])


def crop(height, width):
    """The crop of transformers and the zoo; that of torchvision may be one pixel further.

    Where the margins are not equal, torchvision rounds to the even number of pixels.
    """

    def function(image):
        left, top = (image.width - width) // 2, (image.height - height) // 2
        return image.crop((left, top, left + width, top + height))

    return function


@pytest.mark.parametrize("kind", ["registers", "swiglu"])
def test_names_of_dinov2(kind, tmp_path):
    """Its own files, as those of torch.hub, whose class token has a position beside registers."""
    model = published(kind, num_classes=0)
    names = {"reg_token": "register_tokens", "mlp.fc1": "mlp.w12", "mlp.fc2": "mlp.w3"}
    tensors = {"mask_token": torch.zeros(1, 24)}
    for name, tensor in model.state_dict().items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        tensors[name] = tensor
    if kind == "registers":
        tensors["pos_embed"] = torch.cat([torch.ones(1, 1, 24), tensors["pos_embed"]], dim=1)
        tensors["cls_token"] = tensors["cls_token"] - 1.0
    torch.save(tensors, tmp_path / "dinov2.pth")
    encoder = zoo.load(tmp_path / "dinov2.pth", num_heads=3)
    models.assert_same_outputs(encoder.model, model, model.patch_embed.img_size)
