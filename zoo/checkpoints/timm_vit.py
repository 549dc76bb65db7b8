"""timm's files of ViT, DeiT and DINOv2 (timm/models/vision_transformer.py and deit.py)."""

import math

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.images import vit_classifier
from zoo.checkpoints.mapping import dense, linear, norm, patches, same, stacked, zeros
from zoo.data.preprocessing import ImagePreprocessing

IGNORED = ("mask_token",)
HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16, 1408: 16, 1536: 24, 1664: 16}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TABLE = {
    "patch_embed/projection/kernel": patches("patch_embed.proj.weight"),
    "patch_embed/projection/bias": same("patch_embed.proj.bias"),
    "patch_positions/embeddings": stacked("pos_embed"),
    "class_token/tokens": stacked("cls_token"),
    "registers/tokens": stacked("reg_token"),
    **norm("embedding_norm", "norm_pre"),
    **norm("encoder_{i}/attention_norm", "blocks.{i}.norm1"),
    "encoder_{i}/attention/qkv/kernel": linear("blocks.{i}.attn.qkv.weight"),
    "encoder_{i}/attention/qkv/bias": same("blocks.{i}.attn.qkv.bias"),
    **dense("encoder_{i}/attention/output_projection", "blocks.{i}.attn.proj"),
    "encoder_{i}/attention_scale/gamma": same("blocks.{i}.ls1.gamma"),
    **norm("encoder_{i}/feed_forward_norm", "blocks.{i}.norm2"),
    **dense("encoder_{i}/feed_forward/hidden", "blocks.{i}.mlp.fc1"),
    **dense("encoder_{i}/feed_forward/output_projection", "blocks.{i}.mlp.fc2"),
    "encoder_{i}/feed_forward_scale/gamma": same("blocks.{i}.ls2.gamma"),
    **norm("encoder_norm", "norm"),
    **norm("head_norm", "fc_norm"),
    **dense("head", "head"),
    **dense("distillation_head", "head_dist"),
}


def load(tensors, config, options):
    """The classifier of a file, see `zoo.load`; `config` is that of a folder, or empty."""
    tensors = tensors.without_prefix("module.", "backbone.")
    try:
        settings = infer(tensors.shapes, {**config.get("pretrained_cfg", {}), **config})
    except KeyError as name:
        raise CheckpointError(
            f"{tensors.path} is no Vision Transformer of timm: it has no tensor {name}."
        ) from None
    settings |= {name: options.pop(name) for name in ("num_heads",) if name in options}
    if "num_heads" not in settings:
        raise CheckpointError(f"{tensors.path} does not say how many heads it has: pass num_heads.")
    table, (classes, _) = TABLE, tensors.shapes.get("head.weight", (0, 0))
    if "dist_token" in tensors:
        table = {**table, "class_token/tokens": stacked("cls_token", "dist_token")}
    if "patch_embed.proj.bias" not in tensors:
        table = {**table, "patch_embed/projection/bias": zeros(settings["embed_dim"])}
    names = config.get("label_names") or [str(index) for index in range(classes)]
    images = preprocessing(tensors, settings, config.get("pretrained_cfg", {}))
    return vit_classifier(tensors, table, settings, images, names, IGNORED, options)


def infer(shapes, config):
    """The arguments of `zoo.vit`, from the shapes of the tensors."""
    embed_dim, channels, patch_size, _ = shapes["patch_embed.proj.weight"]
    ff_dim, positions = shapes["blocks.0.mlp.fc2.weight"][1], shapes["pos_embed"][1]
    prefix = ("cls_token" in shapes) + ("dist_token" in shapes)
    prefix_positions = math.isqrt(positions) ** 2 != positions
    side = math.isqrt(positions - prefix * prefix_positions) * patch_size
    size = config.get("input_size", (channels, side, side))[1:]
    if math.prod(size) // patch_size**2 != positions - prefix * prefix_positions:
        raise CheckpointError(
            f"There are {positions} positions, which are those of no square image, and config.json "
            "names no input_size of this many patches."
        )
    gated = shapes["blocks.0.mlp.fc1.weight"][0] == 2 * ff_dim
    quick = "quickgelu" in config.get("architecture", "")
    settings = {
        "input_shape": (*size, channels),
        "patch_size": patch_size,
        "embed_dim": embed_dim,
        "num_layers": sum(name.endswith(".mlp.fc2.weight") for name in shapes),
        "ff_dim": ff_dim,
        "activation": "swiglu" if gated else "quick_gelu" if quick else "gelu",
        "pool": "mean" if "fc_norm.weight" in shapes or not prefix else "cls",
        "num_class_tokens": prefix,
        "num_registers": shapes.get("reg_token", (1, 0))[1],
        "prefix_positions": prefix_positions,
        "layer_scale": 1.0 if "blocks.0.ls1.gamma" in shapes else None,
        "qkv_bias": "blocks.0.attn.qkv.bias" in shapes,
        "normalize_embeddings": "norm_pre.weight" in shapes,
        "normalize_pooled": "fc_norm.weight" in shapes,
        "epsilon": 1e-5 if "norm_pre.weight" in shapes else 1e-6,
    }
    heads = config.get("model_args", {}).get("num_heads", HEADS.get(embed_dim))
    return settings | ({"num_heads": heads} if heads else {})


def preprocessing(tensors, settings, config):
    """As timm evaluates: the shorter side is resized to the size over `crop_pct`, then cropped."""
    *size, channels = settings["input_shape"]
    imagenet = "dist_token" in tensors or settings["layer_scale"] is not None
    mean, std = (MEAN, STD) if imagenet else ((0.5,) * channels, (0.5,) * channels)
    return ImagePreprocessing(
        image_size=tuple(size),
        channels=channels,
        mean=tuple(config.get("mean", mean)),
        std=tuple(config.get("std", std)),
        resize=math.floor(size[0] / config.get("crop_pct", 0.9)),
        interpolation=config.get("interpolation", "bicubic"),
    )
