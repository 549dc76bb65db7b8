"""Hugging Face's folders of ViT, DeiT and DINOv2 (transformers: models/vit, deit and dinov2)."""

import functools
import re

import numpy as np

from zoo.checkpoints.hugging_face_config import activation, class_names, preprocessing
from zoo.checkpoints.mapping import Source, dense, feed_forward, norm, patches, same, stacked
from zoo.checkpoints.vision_transformer import first_head_alone, image_size, vit_classifier
from zoo.errors import CheckpointError

ANCHOR = "embeddings.patch_embeddings.projection.weight"
DISTILLED, POSITIONS = "embeddings.distillation_token", "embeddings.position_embeddings"
IGNORED, BLOCK = (r"pooler\..*", r"embeddings\.mask_token"), "encoder.layer.{i}."
SETTINGS = {  # argument of `zoo.vit`: its name in config.json, and its default there
    "patch_size": ("patch_size", 16),
    "embed_dim": ("hidden_size", 768),
    "num_layers": ("num_hidden_layers", 12),
    "num_heads": ("num_attention_heads", 12),
    "ff_dim": ("intermediate_size", 3072),
    "epsilon": ("layer_norm_eps", 1e-12),
    "qkv_bias": ("qkv_bias", True),
}
QKV = [f"{BLOCK}attention.attention.{name}" for name in ("query", "key", "value")]
DENSE = [f"{BLOCK}{name}.dense" for name in ("intermediate", "output")]
VIT = {
    "patch_embed/projection/kernel": patches(ANCHOR),
    "patch_embed/projection/bias": same("embeddings.patch_embeddings.projection.bias"),
    "class_token/tokens": stacked("embeddings.cls_token"),
    "patch_positions/embeddings": stacked(POSITIONS),
    **norm("encoder_{i}/attention_norm", f"{BLOCK}layernorm_before"),
    **dense("encoder_{i}/attention/qkv", *QKV),
    **dense("encoder_{i}/attention/output_projection", f"{BLOCK}attention.output.dense"),
    **norm("encoder_{i}/feed_forward_norm", f"{BLOCK}layernorm_after"),
    **feed_forward("encoder_{i}/feed_forward", *DENSE),
    **norm("encoder_norm", "layernorm"),
    **dense("head", "classifier"),
}
TWO_TOKENS = stacked("embeddings.cls_token", DISTILLED)
DEIT = {**VIT, "class_token/tokens": TWO_TOKENS, **first_head_alone(VIT)}
DEIT_DISTILLED = {
    **DEIT,
    **dense("head", "cls_classifier"),
    **dense("distillation_head", "distillation_classifier"),
}
DINOV2 = {
    **VIT,
    "registers/tokens": stacked("embeddings.register_tokens"),
    **norm("encoder_{i}/attention_norm", f"{BLOCK}norm1"),
    "encoder_{i}/attention_scale/gamma": same(f"{BLOCK}layer_scale1.lambda1"),
    **norm("encoder_{i}/feed_forward_norm", f"{BLOCK}norm2"),
    "encoder_{i}/feed_forward_scale/gamma": same(f"{BLOCK}layer_scale2.lambda1"),
    **feed_forward("encoder_{i}/feed_forward", f"{BLOCK}mlp.fc1", f"{BLOCK}mlp.fc2"),
}
FIRST_TOKEN = {  # the distillation token, with its position, becomes a register
    "class_token/tokens": stacked("embeddings.cls_token"),
    "registers/tokens": Source((DISTILLED, POSITIONS), lambda x, places: x[0] + places[0, 1:2]),
    "patch_positions/embeddings": Source((POSITIONS,), lambda places: np.delete(places[0], 1, 0)),
}
SWIGLU = [f"{BLOCK}mlp.weights_{name}" for name in ("in", "out")]
GIANT = feed_forward("encoder_{i}/feed_forward", *SWIGLU)
# Names that modules have since transformers 5, and so torch.save(model.state_dict()).
MODULES = {f"{x[0]}_proj": f"attention.{x}" for x in ("query", "key", "value")}
MODULES |= {"o_proj": "output.dense", "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense"}


def load(folder, config, tensors, options):
    """Loads the classifier or encoder of a folder; options are arguments of `zoo.vit`."""
    model_type, table = config["model_type"], VIT
    is_dino = model_type not in ("vit", "deit")
    tensors = tensors.renamed(functools.partial(_renamed, is_dino))
    if is_dino:
        config = {"layer_norm_eps": 1e-6, "patch_size": 14, **config}
    settings = {ours: config.get(*theirs) for ours, theirs in SETTINGS.items()}
    size, given = _sides(config.get("image_size", 224)), settings["patch_size"]
    patch_size, width = _sides(given)
    if patch_size != width or not isinstance(width, int):
        raise CheckpointError(f"{folder}: patch_size={given!r} is not supported.")
    settings["patch_size"] = patch_size
    image_size(tensors, POSITIONS, 2 if model_type == "deit" else 1, patch_size, size)
    settings["input_shape"] = (*size, tensors.shape(ANCHOR, 4)[1])
    settings["activation"] = activation(folder, {"hidden_act": "gelu", **config})
    if model_type == "deit":
        settings["num_class_tokens"] = 2
        table = DEIT_DISTILLED if "cls_classifier.weight" in tensors else DEIT
    elif is_dino:
        table, ff_dim = DINOV2, int(settings["embed_dim"] * config.get("mlp_ratio", 4))
        settings |= {"pool": "cls+mean", "layer_scale": 1.0}
        settings["num_registers"] = tensors.shapes.get("embeddings.register_tokens", (1, 0))[1]
        if config.get("use_swiglu_ffn"):
            table, settings["activation"] = {**DINOV2, **GIANT}, "swiglu"
            ff_dim = (int(ff_dim * 2 / 3) + 7) // 8 * 8
        settings["ff_dim"] = ff_dim
    images = preprocessing(folder, config, size)
    bias = table["head/bias"].names[0]
    [classes] = tensors.shape(bias, 1) if bias in tensors else [0]
    names = class_names(folder, config, classes, options)
    if not (names if options.get("num_classes") is None else options["num_classes"]):
        settings["pool"] = "cls"
        if model_type == "deit":
            settings |= {"num_class_tokens": 1, "num_registers": 1}
            table = {**table, **FIRST_TOKEN}
    if is_dino:  # trained at 518 pixels; its image processor, and so its evaluation, uses 224
        options = {"input_shape": images.image_size, **options}
    return vit_classifier(tensors, table, settings, images, options, names, IGNORED)


def _renamed(is_dino, name):
    """The name of a tensor in files, of that name or the name in modules."""
    name = re.sub(r"^layers\.", "encoder.layer.", name)
    names = r"\b[qkvo]_proj\b" if is_dino else r"\b([qkvo]_proj|mlp\.fc[12])\b"
    return re.sub(names, lambda match: MODULES[match[0]], name)


def _sides(value):
    """(height, width) of a list of both, or of one number for both."""
    return tuple(value) if isinstance(value, list) else (value, value)
