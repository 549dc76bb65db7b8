"""timm's files of DINOv3, RoPE-ViT and EVA-02, with rotary positions (timm/models/eva.py)."""

import math
import re

import numpy as np

from zoo.checkpoints.formats.timm import IMAGENET_MEAN, IMAGENET_STD, TABLE, infer, preprocessing
from zoo.checkpoints.hugging_face_config import check_settings, sides
from zoo.checkpoints.mapping import biases, changed, dense, stacked
from zoo.checkpoints.vision_transformer import vit_classifier
from zoo.errors import CheckpointError, as_number
from zoo.layers import RotaryGridPositions
from zoo.layers.multi_head_attention import head_width

ANCHOR = "patch_embed.proj.weight"
BLOCK = "blocks.{i}."
QKV = "encoder_{i}/attention/qkv"
Q_BIAS = "blocks.0.attn.q_bias"
PERIODS = "rope_embed.periods"  # in Meta's own files of DINOv3
NAMES = {  # names in these files, and those in `timm.TABLE`
    "gamma_1": "ls1.gamma", "gamma_2": "ls2.gamma", "storage_tokens": "reg_token",
    "w12": "fc1", "w1": "fc1_g", "w2": "fc1_x", "w3": "fc2", "ffn_ln": "norm",
}  # fmt: skip
IGNORED = ("mask_token", r"rope_embed\..*", r".*rope\.freqs_.*", r".*bias_mask", "local_cls_norm.*")
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
    "input_size": (3, 256, 256), "crop_pct": 0.95,
}  # fmt: skip
EVA02 = {
    "ref_feat_shape": 16,
    "mean": (0.48145466, 0.4578275, 0.40821073), "std": (0.26862954, 0.26130258, 0.27577711),
}  # fmt: skip
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
    "crop_mode": ("center", "squash"), "interpolation": ("bicubic", "bilinear"),
    "global_pool": ("", "token", "avg"), "use_rot_pos_emb": True, "rope_type": ("cat", "dinov3"),
    "rope_rotate_half": (False, True),
    "rope_grid_indexing": ("ij", "xy"), "rope_grid_offset": 0, "use_post_norm": False,
}  # fmt: skip


def is_eva(config, tensors):
    """Whether a file of timm has a model of this module."""
    architecture = config.get("architecture", "")
    if OTHERS.fullmatch(architecture) or any(re.fullmatch(x, architecture) for x in KINDS):
        return True
    if any(name.endswith("relative_position_bias_table") for name in tensors):  # BEiT
        return False
    return any(name in tensors for name in ("blocks.0.gamma_1", Q_BIAS, PERIODS, "rope.freqs"))


def load(path, config, tensors, options):
    """Loads the classifier or encoder of a file or folder; options are arguments of `zoo.vit`."""
    tensors = tensors.renamed(
        lambda name: re.sub(r"\w+", lambda match: NAMES.get(match[0], match[0]), name)
    )
    settings = _settings(tensors, config)
    check_settings(tensors.path, settings, SUPPORTED)
    arguments = infer(tensors, int("cls_token" in tensors), settings)
    width = arguments["embed_dim"]
    heads = options.get("num_heads") or settings.get("num_heads")
    if not heads and width % 64 == 0 and "embed_dim" not in settings:
        heads = 32 if width == 4096 else width // 64
    if not heads:
        raise CheckpointError(f"{tensors.path} does not say how many heads it has: pass num_heads.")
    key_dim = head_width(width, heads)
    arguments["num_heads"] = heads
    arguments["rotation"] = _rotation(tensors.path, key_dim, settings)
    arguments["epsilon"] = settings["epsilon"]
    if "pos_embed" not in tensors:
        arguments["positions"] = "rotary"
    table = {**TABLE, "class_token/tokens": stacked("cls_token")}
    if "blocks.0.mlp.fc1_g.weight" in tensors:
        hidden = "encoder_{i}/feed_forward/hidden"
        table |= dense(hidden, f"{BLOCK}mlp.fc1_g", f"{BLOCK}mlp.fc1_x")
    if Q_BIAS in tensors:
        arguments["qkv_bias"] = True
        names = (f"{BLOCK}attn.q_bias", None, f"{BLOCK}attn.v_bias")
        table[f"{QKV}/bias"] = biases(width, *names)
    elif PERIODS in tensors:  # those of keys are masked
        mask = np.repeat([True, False, True], width)
        table[f"{QKV}/bias"] = changed(table[f"{QKV}/bias"], lambda x: np.where(mask, x, 0))
    reordered = _reordered(heads, key_dim, settings)
    for name in (f"{QKV}/kernel", f"{QKV}/bias"):
        table[name] = changed(table[name], reordered)
    return vit_classifier(
        tensors,
        table,
        arguments,
        preprocessing(tensors.path, settings, arguments["input_shape"], False),
        options,
        names=settings.get("label_names"),
        ignored=IGNORED,
    )


def _settings(tensors, config):
    """The settings of timm for a model: of its architecture or its tensors, and in config.json."""
    architecture = config.get("architecture", "")
    named = [kind for pattern, kind in KINDS.items() if re.fullmatch(pattern, architecture)]
    kind = named[0] if named else _kind(tensors, architecture)
    settings = {**DEFAULTS, **kind}
    if "pos_embed" in tensors:
        settings["input_size"] = ()  # follows from their number
    settings |= {**config.get("model_args", {}), **config.get("pretrained_cfg", {}), **config}
    for name, setting in TOKENS.items():
        if named and bool(settings[setting]) != (name in tensors):
            has = "has" if name in tensors else "has no"
            raise CheckpointError(
                f"{tensors.path} {has} {name}, but {setting} is {settings[setting]!r}."
            )
    return settings


def _kind(tensors, architecture):
    """The settings of a model whose tensors show its kind; raises `CheckpointError` for others."""
    unknown = None
    if OTHERS.fullmatch(architecture):
        unknown = architecture
    elif "rope.freqs" in tensors:
        unknown = "RoPE-Mixed, with learned frequencies (rope.freqs),"
    elif any(re.match(r"blocks\.0\.(attn|mlp)\.norm\.", name) for name in tensors):
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


def _rotation(path, key_dim, settings):
    """The rotary positions of these settings of timm."""
    wavelength = as_number("rope_temperature", settings["rope_temperature"], float, 1)
    if settings.get("rope_type") == "dinov3":  # 2π times coordinates from -1 to 1
        return RotaryGridPositions(key_dim, wavelength, extent=4 * math.pi, centered=True)
    rows, columns = sides(settings.get("ref_feat_shape"))
    if rows != columns:
        raise CheckpointError(f"{path}: ref_feat_shape={(rows, columns)} is not supported.")
    extent = None if rows is None else as_number("ref_feat_shape", rows, int, 1)
    return RotaryGridPositions(key_dim, wavelength, extent)


def _reordered(heads, key_dim, settings):
    """A function that orders the outputs of `qkv` so that the pairs (k, k + D/2) are rotated.

    timm rotates the pairs (2k, 2k + 1) by default, and those of columns come first with "xy".
    """
    pairs = np.arange(key_dim).reshape(-1, 2).T  # [2, D/2]
    if settings.get("rope_rotate_half"):
        pairs = np.arange(key_dim).reshape(2, -1)
    if settings.get("rope_grid_indexing") == "xy":
        pairs = np.roll(pairs, key_dim // 4, axis=1)

    def reordered(x):
        parts = np.array(x.reshape(*x.shape[:-1], 3, heads, key_dim))
        parts[..., :2, :, :] = parts[..., :2, :, pairs.ravel()]
        return parts.reshape(x.shape)

    return reordered
