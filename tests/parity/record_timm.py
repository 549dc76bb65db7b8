"""Records what timm computes for small models of each kind, from its own files and Google's.

Run it in an environment with PyTorch, timm and torchvision, which need not be the zoo's:

    python tests/parity/record_timm.py

It writes tests/checkpoints/goldens/timm_vit.json and google_vit.json: for each kind the names and
shapes of the tensors, and the logits of drawn weights and images; see tests/checkpoints/drawn.py.
"""

import functools
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
GOLDENS = ROOT / "tests" / "checkpoints" / "goldens"

# With PyTorch for CPUs and torchvision for GPUs, torchvision cannot be imported without these.
_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
for _name in ("nms", "qnms"):
    _LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import timm  # noqa: E402
from timm.models import deit, vision_transformer  # noqa: E402

from tests.checkpoints import drawn  # noqa: E402

SIZES = {
    "img_size": 32,
    "patch_size": 8,
    "embed_dim": 24,
    "depth": 2,
    "num_heads": 3,
    "num_classes": 5,
}
KINDS = {
    "plain": {},
    "mean": {"global_pool": "avg"},
    "mean, no class token": {"global_pool": "avg", "class_token": False},
    "no biases of queries, keys and values": {"qkv_bias": False},
    "norm before the blocks": {
        "pre_norm": True,
        "norm_layer": functools.partial(torch.nn.LayerNorm, eps=1e-5),
    },
    "layer scale, class token without a position": {"init_values": 1e-5, "no_embed_class": True},
    "registers": {"init_values": 1e-5, "no_embed_class": True, "reg_tokens": 4},
    "registers, mean": {
        "class_token": False,
        "global_pool": "avg",
        "no_embed_class": True,
        "reg_tokens": 4,
    },
    "patches of 14, layer scale": {"img_size": 70, "patch_size": 14, "init_values": 1e-5},
    "swiglu": {
        "init_values": 1e-5,
        "mlp_ratio": 16 / 3,
        "mlp_layer": timm.layers.SwiGLUPacked,
        "act_layer": torch.nn.SiLU,
    },
    "other width, heads and depth": {"embed_dim": 40, "num_heads": 5, "depth": 3},
}


def record_timm():
    found = {}
    models = {
        name: vision_transformer.VisionTransformer(**{**SIZES, **settings})
        for name, settings in KINDS.items()
    }
    models["distilled"] = deit.VisionTransformerDistilled(**SIZES)
    for name, model in models.items():
        shapes = {key: list(value.shape) for key, value in model.state_dict().items()}
        tensors = {key: torch.tensor(value) for key, value in drawn.tensors(shapes).items()}
        model.load_state_dict(tensors)
        heads = model.blocks[0].attn.num_heads
        size = model.patch_embed.img_size
        found[name] = {"shapes": shapes, "num_heads": heads, "logits": {}}
        found[name]["logits"][f"{size[0]}x{size[1]}"] = logits(model, size)
        patch = model.patch_embed.patch_size[0]
        size = (2 * size[0], size[1] + 3 * patch)
        model.set_input_size(size)
        found[name]["logits"][f"{size[0]}x{size[1]}"] = logits(model, size)
    return found


GOOGLE = {
    "vision_transformer": (False, "opt/target/", {}),
    "vision_transformer, no prefix": (False, "", {}),
    "big_vision, mean": (
        True,
        "params/",
        {"class_token": False, "global_pool": "avg", "fc_norm": False},
    ),
}


def record_google():
    found = {}
    for name, (is_new, prefix, settings) in GOOGLE.items():
        model = vision_transformer.VisionTransformer(**{**SIZES, **settings})
        shapes = google_shapes(is_new, "class_token" not in settings)
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/weights.npz"
            tensors = drawn.tensors(shapes)
            np.savez(path, **{prefix + key: value for key, value in tensors.items()})
            vision_transformer._load_weights(model, path, prefix)
        found[name] = {"shapes": shapes, "prefix": prefix, "logits": {}}
        found[name]["logits"]["32x32"] = logits(model, (32, 32))
    return found


def google_shapes(is_new, class_token):
    """The tensors of Google's archives, as timm's loader names them."""
    width, heads, depth, patch, hidden, classes = 24, 3, 2, 8, 96, 5
    shapes = {"embedding/kernel": [patch, patch, 3, width], "embedding/bias": [width]}
    if class_token:
        shapes["cls"] = [1, 1, width]
    positions = "pos_embedding" if is_new else "Transformer/posembed_input/pos_embedding"
    shapes[positions] = [1, 16 + class_token, width]
    attention = f"MultiHeadDotProductAttention_{0 if is_new else 1}"
    mlp, second = ("MlpBlock_0", "LayerNorm_1") if is_new else ("MlpBlock_3", "LayerNorm_2")
    for index in range(depth):
        block = f"Transformer/encoderblock_{index}"
        for norm in ("LayerNorm_0", second):
            shapes[f"{block}/{norm}/scale"] = shapes[f"{block}/{norm}/bias"] = [width]
        for part in ("query", "key", "value"):
            shapes[f"{block}/{attention}/{part}/kernel"] = [width, heads, width // heads]
            shapes[f"{block}/{attention}/{part}/bias"] = [heads, width // heads]
        shapes[f"{block}/{attention}/out/kernel"] = [heads, width // heads, width]
        shapes[f"{block}/{attention}/out/bias"] = [width]
        shapes[f"{block}/{mlp}/Dense_0/kernel"] = [width, hidden]
        shapes[f"{block}/{mlp}/Dense_0/bias"] = [hidden]
        shapes[f"{block}/{mlp}/Dense_1/kernel"] = [hidden, width]
        shapes[f"{block}/{mlp}/Dense_1/bias"] = [width]
    norm = "Transformer/encoder_norm"
    shapes[f"{norm}/scale"] = shapes[f"{norm}/bias"] = [width]
    return {**shapes, "head/kernel": [width, classes], "head/bias": [classes]}


def logits(model, size):
    images = torch.tensor(drawn.images(*size)).permute(0, 3, 1, 2)
    with torch.no_grad():
        return np.round(model.eval()(images).numpy().astype(float), 6).tolist()


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    for file, record in (("timm_vit", record_timm), ("google_vit", record_google)):
        text = json.dumps({"timm": timm.__version__, "kinds": record()}, indent=None)
        (GOLDENS / f"{file}.json").write_text(text + "\n")
