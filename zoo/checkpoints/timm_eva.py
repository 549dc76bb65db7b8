"""What differs in timm's DINOv3, RoPE-ViT and EVA-02: rotary positions (timm/models/eva.py)."""

import math
import re

import numpy as np

from zoo.checkpoints.hugging_face_config import (
    CLIP_MEAN,
    CLIP_STD,
    IMAGENET_MEAN,
    IMAGENET_STD,
    check_settings,
)
from zoo.checkpoints.mapping import changed, dense
from zoo.errors import CheckpointError, as_number
from zoo.layers import RotaryGridPositions
from zoo.layers.multi_head_attention import head_width

Q_BIAS = "blocks.0.attn.q_bias"
PERIODS = "rope_embed.periods"  # in Meta's own files of DINOv3
IGNORED = (r"rope_embed\..*", r".*rope\.freqs_.*", r".*bias_mask", "local_cls_norm.*")
# What timm's functions set, and the preprocessing of files without metadata.
DEFAULTS = {
    "class_token": True, "num_reg_tokens": 0, "use_abs_pos_emb": True, "rope_temperature": 1e4,
    "epsilon": 1e-6,
}  # fmt: skip
IMAGENET = {"input_size": (3, 224, 224), "mean": IMAGENET_MEAN, "std": IMAGENET_STD}
DINOV3 = {
    "num_reg_tokens": 4, "use_abs_pos_emb": False, "global_pool": "avg", "rope_type": "dinov3",
    "rope_temperature": 100.0, "rope_rotate_half": True, "epsilon": 1e-5,
    **IMAGENET, "input_size": (3, 256, 256), "crop_pct": 1.0,
}  # fmt: skip
META = {**DINOV3, "global_pool": "token", "crop_mode": "squash", "interpolation": "bilinear"}
APE = {**IMAGENET, "rope_grid_indexing": "xy", "rope_temperature": 100.0}
ROPE = {**APE, "use_abs_pos_emb": False}
REGISTERS = {
    "class_token": False, "num_reg_tokens": 1, "use_abs_pos_emb": False, "ref_feat_shape": 16,
    "input_size": (3, 256, 256), "crop_pct": 0.95, "mean": (0.5,) * 3, "std": (0.5,) * 3,
}  # fmt: skip
EVA02 = {"ref_feat_shape": 16, "mean": CLIP_MEAN, "std": CLIP_STD}
KINDS = {
    r"vit_\w+_dinov3(_qkvb)?": DINOV3,
    r"vit_\w+_lingbot": {**DINOV3, "global_pool": "token"},
    r"vit_\w+_rope_\d+": ROPE,
    r"vit_\w+_rope_ape_\d+": APE,
    r"vit_\w+_rope_reg\d_gap_\d+": REGISTERS,
    r"eva02_(tiny|small)_patch14_\d+": EVA02,
}
TOKENS = {"cls_token": "class_token", "reg_token": "num_reg_tokens", "pos_embed": "use_abs_pos_emb"}
OTHERS = re.compile(r"(eva_giant|eva02|vit_(\w+_)?(rope|pe|sapiens2))_\w+|vit_\w+_sapiens2")
SUPPORTED = {  # others follow from the tensors, or do not affect the results
    "global_pool": ("", "token", "avg"), "use_rot_pos_emb": True, "rope_type": ("cat", "dinov3"),
    "rope_rotate_half": (False, True), "rope_grid_indexing": ("ij", "xy"), "rope_grid_offset": 0,
    "ref_feat_shape": (16, [16, 16]), "use_post_norm": False,
}  # fmt: skip


def is_eva(config, tensors):
    """Whether a file of timm is of a model in timm/models/eva.py."""
    architecture = config.get("architecture", "")
    if OTHERS.fullmatch(architecture) or any(re.fullmatch(x, architecture) for x in KINDS):
        return True
    if any(name.endswith("relative_position_bias_table") for name in tensors):  # BEiT
        return False
    return any(name in tensors for name in ("blocks.0.gamma_1", Q_BIAS, PERIODS, "rope.freqs"))


def settings(tensors, config):
    """The settings of timm for a model: of its architecture or its tensors, and in config.json."""
    architecture = config.get("architecture", "")
    named = [kind for pattern, kind in KINDS.items() if re.fullmatch(pattern, architecture)]
    kind = named[0] if named else _kind(tensors, architecture)
    found = {**DEFAULTS, **kind}
    if "pos_embed" in tensors:
        found["input_size"] = ()  # follows from their number
    width = tensors.shape("patch_embed.proj.weight", 4)[0]
    if width % 64 == 0 and "embed_dim" not in config.get("model_args", {}):
        found["num_heads"] = 32 if width == 4096 else width // 64
    found |= {**config.get("model_args", {}), **config.get("pretrained_cfg", {}), **config}
    check_settings(tensors.path, found, SUPPORTED)
    for name, setting in TOKENS.items():
        if named and bool(found[setting]) != (name in tensors):
            has = "has" if name in tensors else "has no"
            raise CheckpointError(
                f"{tensors.path} {has} {name}, but {setting} is {found[setting]!r}."
            )
    return found


def _kind(tensors, architecture):
    """The settings of a model whose tensors show its kind; raises `CheckpointError` for others."""
    unknown = None
    if OTHERS.fullmatch(architecture):
        unknown = architecture
    elif "rope.freqs" in tensors:
        unknown = "RoPE-Mixed, with learned frequencies (rope.freqs),"
    elif any(re.match(r"blocks\.0\.(attn|mlp)\.(norm|ffn_ln)\.", name) for name in tensors):
        unknown = "a norm inside of attention or the feed-forward network, as of EVA-02 B and L,"
    if unknown:
        raise CheckpointError(f"{tensors.path}: {unknown} is not supported.")
    _, ff_dim = tensors.shape("blocks.0.mlp.fc2.weight", 2)
    is_packed = tensors.shapes.get("blocks.0.mlp.fc1.weight", (0,))[0] == 2 * ff_dim
    if PERIODS in tensors:
        return META
    if "pos_embed" not in tensors and ("reg_token" in tensors or Q_BIAS in tensors):
        return DINOV3 if "cls_token" in tensors else REGISTERS
    if "pos_embed" in tensors and Q_BIAS in tensors and is_packed:
        return EVA02
    if "blocks.0.attn.qkv.bias" in tensors and "norm_pre.weight" not in tensors:
        return ROPE
    raise CheckpointError(
        f"{tensors.path} does not say which rotary positions it has: load a folder with its "
        "config.json."
    )


def add_rotation(tensors, config, heads, table, arguments):
    """Adds rotary positions to a table and to arguments of `zoo.vit`; `config` are `settings`."""
    width = arguments["embed_dim"]
    key_dim = head_width(width, heads)
    wavelength = as_number("rope_temperature", config["rope_temperature"], float, 1)
    if config.get("rope_type") == "dinov3":  # 2π times coordinates from -1 to 1
        rotation = RotaryGridPositions(key_dim, wavelength, extent=4 * math.pi, centered=True)
    else:
        extent = 16 if config.get("ref_feat_shape") else None
        rotation = RotaryGridPositions(key_dim, wavelength, extent)
    arguments["rotation"] = rotation
    if "pos_embed" not in tensors:
        arguments["positions"] = "rotary"
    arguments["epsilon"] = config["epsilon"]
    if "blocks.0.mlp.fc1_g.weight" in tensors:
        hidden = [f"blocks.{{i}}.mlp.{name}" for name in ("fc1_g", "fc1_x")]
        table |= dense("encoder_{i}/feed_forward/hidden", *hidden)
    kernel = "encoder_{i}/attention/qkv/kernel"
    bias = "encoder_{i}/attention/qkv/bias"
    if PERIODS in tensors:  # the biases of keys are masked
        mask = np.repeat([True, False, True], width)
        table[bias] = changed(table[bias], lambda x: np.where(mask, x, 0))
    reordered = _reordered(heads, key_dim, config)
    table[kernel] = changed(table[kernel], reordered)
    table[bias] = changed(table[bias], reordered)


def _reordered(heads, key_dim, config):
    """A function that orders the outputs of `qkv` so that the pairs (k, k + D/2) are rotated.

    timm rotates the pairs (2k, 2k + 1) by default, and those of columns come first with "xy".
    """
    pairs = np.arange(key_dim).reshape(-1, 2).T  # [2, D/2]
    if config.get("rope_rotate_half"):
        pairs = np.arange(key_dim).reshape(2, -1)
    if config.get("rope_grid_indexing") == "xy":
        pairs = np.roll(pairs, key_dim // 4, axis=1)

    def reordered(x):
        parts = np.array(x.reshape(*x.shape[:-1], 3, heads, key_dim))
        parts[..., :2, :, :] = parts[..., :2, :, pairs.ravel()]
        return parts.reshape(x.shape)

    return reordered
