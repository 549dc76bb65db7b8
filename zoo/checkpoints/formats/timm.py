"""timm's files of ViT, DeiT, DINOv2 and BEiT (vision_transformer.py, deit.py, beit.py)."""

import math
import re

import numpy as np

from zoo.checkpoints import timm_eva
from zoo.checkpoints.hugging_face_config import IMAGENET_MEAN, IMAGENET_STD, check_settings
from zoo.checkpoints.mapping import (
    Source,
    biases,
    dense,
    feed_forward,
    norm,
    patches,
    same,
    stacked,
)
from zoo.checkpoints.vision_transformer import (
    count_blocks,
    image_size,
    registers_with_positions,
    table_size,
    vit_classifier,
)
from zoo.data.preprocessing import ImagePreprocessing
from zoo.errors import CheckpointError

ANCHOR = "patch_embed.proj.weight"
BLOCK = "blocks.{i}."
# The number of heads by width, for files without metadata: tensors do not show it.
NUM_HEADS = {
    192: 3, 256: 4, 320: 5, 384: 6, 512: 8, 640: 10, 768: 12, 832: 13, 896: 14, 1024: 16, 1152: 16,
    1280: 16, 1408: 16, 1664: 16,
}  # fmt: skip
# Exceptions, by the beginning of the architecture's name.
NUM_HEADS_OF = {"vit_giantopt_": 16, "vit_base_patch16_gap_": 16}
GELU_TANH = re.compile(
    r"vit_(base_patch32|so400m_patch16|giantopt_patch16)_siglip_|vit_large_patch16_siglip_(gap_)?512"
)
# Supported `model_args` in config.json: they are used, follow from the tensors, or do not affect
# the results.
MODEL_ARGS = {
    "img_size", "patch_size", "in_chans", "num_classes", "global_pool", "embed_dim", "depth",
    "num_heads", "mlp_ratio", "qkv_bias", "init_values", "class_token", "pos_embed",
    "no_embed_class", "reg_tokens", "pre_norm", "fc_norm", "final_norm", "dynamic_img_size",
    "dynamic_img_pad", "drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate",
    "attn_drop_rate", "drop_path_rate", "weight_init", "fix_init", "use_abs_pos_emb",
    "use_rel_pos_bias", "use_shared_rel_pos_bias", "use_fc_norm", "head_init_scale",
}  # fmt: skip
POOLS = {"token": "cls", "avg": "mean", "map": "map"}
SUPPORTED = {
    "crop_mode": ("center", "squash"),
    "interpolation": ("bicubic", "bilinear"),
    "global_pool": ("", *POOLS),
}
RENAMED = {  # names in Meta's own files of DINOv2 and DINOv3, and of BEiT and EVA
    "register_tokens": "reg_token", "storage_tokens": "reg_token",
    "w12": "fc1", "w1": "fc1_g", "w2": "fc1_x", "w3": "fc2",
    "gamma_1": "ls1.gamma", "gamma_2": "ls2.gamma",
}  # fmt: skip
IGNORED = ("mask_token", "decoder_pos_embed")
# BEiT's tables of biases: in each block, and shared.
BIASES = (f"{BLOCK}attn.relative_position_bias_table", "rel_pos_bias.relative_position_bias_table")
TABLE = {
    "patch_embed/projection/kernel": patches(ANCHOR),
    "patch_embed/projection/bias": same("patch_embed.proj.bias"),
    "patch_positions/embeddings": stacked("pos_embed"),
    "registers/tokens": stacked("reg_token"),
    **norm("embedding_norm", "norm_pre"),
    **norm("encoder_{i}/attention_norm", f"{BLOCK}norm1"),
    **dense("encoder_{i}/attention/qkv", f"{BLOCK}attn.qkv"),
    **dense("encoder_{i}/attention/output_projection", f"{BLOCK}attn.proj"),
    "encoder_{i}/attention_scale/gamma": same(f"{BLOCK}ls1.gamma"),
    **norm("encoder_{i}/feed_forward_norm", f"{BLOCK}norm2"),
    **feed_forward("encoder_{i}/feed_forward", f"{BLOCK}mlp.fc1", f"{BLOCK}mlp.fc2"),
    "encoder_{i}/feed_forward_scale/gamma": same(f"{BLOCK}ls2.gamma"),
    **norm("encoder_norm", "norm"),
    "attention_pool/probe": stacked("attn_pool.latent"),
    **dense("attention_pool/attention/query", "attn_pool.q"),
    **dense("attention_pool/attention/key_value", "attn_pool.kv"),
    **dense("attention_pool/attention/output_projection", "attn_pool.proj"),
    **norm("attention_pool/norm", "attn_pool.norm"),
    **feed_forward("attention_pool/feed_forward", "attn_pool.mlp.fc1", "attn_pool.mlp.fc2"),
    **norm("head_norm", "fc_norm"),
    **dense("representation", "pre_logits.fc"),
    **dense("head", "head"),
    **dense("distillation_head", "head_dist"),
}


def _renamed(name):
    """The name in timm of a tensor of timm or DINOv2, whose blocks may be in chunks."""
    name = re.sub(r"^blocks\.\d+\.(\d+\.)", r"blocks.\1", name)
    return re.sub(r"\w+", lambda match: RENAMED.get(match[0], match[0]), name)


def load(path, config, tensors, options):
    """Loads the classifier or encoder of a file or folder; options are arguments of `zoo.vit`."""
    is_eva = timm_eva.is_eva(config, tensors)
    tensors = tensors.renamed(_renamed)
    architecture = config.get("architecture", "")
    if is_eva:
        config = timm_eva.settings(tensors, config)
    else:
        _check(tensors, config)
        config = {**config.get("model_args", {}), **config.get("pretrained_cfg", {}), **config}
    check_settings(tensors.path, config, SUPPORTED)
    class_tokens = [name for name in ("cls_token", "dist_token") if name in tensors]
    arguments, num_others = infer(tensors, len(class_tokens), config)
    table = {**TABLE, "class_token/tokens": stacked(*class_tokens)}
    if "norm_pre.weight" in tensors and "patch_embed.proj.bias" not in tensors:
        table["patch_embed/projection/bias"] = Source((), lambda: np.zeros(arguments["embed_dim"]))
    if num_others > len(class_tokens):
        counts = (len(class_tokens), arguments["num_registers"])
        table |= registers_with_positions("reg_token", "pos_embed", *counts)
    tables = _tables(tensors)
    table["encoder_{i}_positions/embeddings"] = Source(tables, lambda *biases: sum(biases))
    if "blocks.0.attn.q_bias" in tensors:
        names = (f"{BLOCK}attn.q_bias", None, f"{BLOCK}attn.v_bias")
        table["encoder_{i}/attention/qkv/bias"] = biases(arguments["embed_dim"], *names)
    arguments["num_heads"] = config.get("num_heads") or _num_heads(architecture, arguments)
    if tables:
        _, arguments["num_heads"] = tensors.shape(tables[0].replace("{i}", "0"), 2)
    heads = options.get("num_heads", arguments["num_heads"])
    if not heads:
        raise CheckpointError(f"{tensors.path} does not say how many heads it has: pass num_heads.")
    if is_eva:
        timm_eva.add_rotation(tensors, config, heads, table, arguments)
    is_imagenet = False
    if not tables:  # DeiT; DeiT III and DINOv2; MAE and I-JEPA
        is_imagenet = len(class_tokens) == 2 or arguments["layer_scale"] is not None
        is_imagenet = is_imagenet or _has_fixed_positions(tensors)
    return vit_classifier(
        tensors,
        table,
        arguments,
        preprocessing(tensors.path, config, arguments["input_shape"], is_imagenet),
        options,
        names=config.get("label_names"),
        ignored=(*IGNORED, *timm_eva.IGNORED) if is_eva else IGNORED,
    )


def _check(tensors, config):
    """Raises `CheckpointError` for settings and models that are not supported."""
    architecture = config.get("architecture", "")
    unknown = sorted(config.get("model_args", {}).keys() - MODEL_ARGS)
    if not unknown and "_rpn_" in architecture:  # these normalize the outputs of attention
        unknown = [architecture]
    if not unknown and {"norm_pre.weight", "attn_pool.latent"} <= tensors.keys():
        unknown = ["Perception Encoder"]
    if unknown:
        raise CheckpointError(f"{tensors.path}: {', '.join(unknown)} is not supported.")


def _tables(tensors):
    """The names of BEiT's tables of biases that a file has."""
    return [name for name in BIASES if name.replace("{i}", "0") in tensors]


def _num_heads(architecture, arguments):
    """The number of heads of a model of timm; None if it is unknown."""
    for beginning, count in NUM_HEADS_OF.items():
        if architecture.startswith(beginning):
            return count
    width = arguments["embed_dim"]
    if width == 1536 and arguments["activation"] == "swiglu":  # DINOv2's giant
        return 24
    return NUM_HEADS.get(width)


def _has_fixed_positions(tensors):
    """Whether positions begin with zeros, or with the sines and cosines of zero."""
    if "pos_embed" not in tensors:
        return False
    return np.isin(np.asarray(tensors["pos_embed"][0, 0], "float32"), (0, 1)).all()


def infer(tensors, num_class_tokens, config):
    """Infers the arguments of `zoo.vit`, except `num_heads`, from tensors and config.json.

    Returns:
        (arguments, number of learned positions that are not of patches).
    """
    shapes = tensors.shapes
    embed_dim, channels, patch_size, _ = tensors.shape(ANCHOR, 4)
    _, ff_dim = tensors.shape("blocks.0.mlp.fc2.weight", 2)
    size = config.get("input_size", ())[1:]
    num_registers = shapes.get("reg_token", (1, 0))[1]
    prefix_positions = True
    num_others = 0
    tables = _tables(tensors)
    if tables:
        size = table_size(tensors, tables[0].replace("{i}", "0"), patch_size, size)
    elif "pos_embed" in tensors or not size:
        size, num_others = image_size(
            tensors, "pos_embed", num_class_tokens, patch_size, size, num_registers
        )
        prefix_positions = 0 < num_class_tokens <= num_others
    architecture = config.get("architecture", "")
    is_split = "blocks.0.mlp.fc1_g.weight" in tensors
    if is_split or tensors.shape("blocks.0.mlp.fc1.weight", 2)[0] == 2 * ff_dim:
        activation = "swiglu"
    elif "quickgelu" in architecture:
        activation = "quick_gelu"
    elif GELU_TANH.match(architecture):
        activation = "gelu_tanh"
    else:
        activation = "gelu"
    is_clip = "_clip_" in architecture or not architecture
    epsilon = 1e-5 if "norm_pre.weight" in shapes and is_clip else 1e-6
    pool = config.get("global_pool")
    if not pool and "attn_pool.latent" in shapes:
        pool = "map"
    if not pool:
        pool = "avg" if "fc_norm.weight" in shapes or not num_class_tokens else "token"
    arguments = {
        "input_shape": (*size, channels),
        "patch_size": patch_size,
        "embed_dim": embed_dim,
        "num_layers": count_blocks(shapes, BLOCK),
        "ff_dim": ff_dim,
        "activation": activation,
        "pool": POOLS[pool],
        "num_class_tokens": num_class_tokens,
        "num_registers": num_registers,
        "positions": "relative_table" if tables else "learned",
        "prefix_positions": prefix_positions,
        "layer_scale": 1.0 if "blocks.0.ls1.gamma" in shapes else None,
        "qkv_bias": any(f"blocks.0.attn.{name}" in shapes for name in ("qkv.bias", "q_bias")),
        "representation_dim": shapes.get("pre_logits.fc.bias", (None,))[0],
        "normalize_embeddings": "norm_pre.weight" in shapes,
        "normalize_pooled": "fc_norm.weight" in shapes,
        "epsilon": epsilon,
    }
    return arguments, num_others


def preprocessing(path, config, input_shape, is_imagenet):
    """Returns `ImagePreprocessing` like timm's evaluation transform; a file has an empty `config`.

    With `is_imagenet`, mean and deviation are by default those of ImageNet, and not 0.5.
    """
    *size, channels = input_shape
    half = (0.5,) * channels
    config = {
        "mean": IMAGENET_MEAN if is_imagenet else half,
        "std": IMAGENET_STD if is_imagenet else half,
        "crop_mode": "center",
        "interpolation": "bicubic",
        "crop_pct": 0.9,
        **config,
    }
    resize = tuple(math.floor(side / config["crop_pct"]) for side in size)
    if config["crop_mode"] == "center":  # keeps the aspect ratio
        resize = resize[0] if size[0] == size[1] else None
    return ImagePreprocessing(
        image_size=tuple(size),
        channels=3 if len(config["mean"]) == 3 else channels,  # adapted to the model later
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        resize=resize,
        interpolation=config["interpolation"],
    )
