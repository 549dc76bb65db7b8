"""Hugging Face's folders of ViT, DeiT, DINOv2, MAE and I-JEPA.

In transformers: models/vit, deit, dinov2, dinov2_with_registers, vit_mae and ijepa.
"""

import functools
import re

from zoo.checkpoints.hugging_face_config import (
    ACTIVATION_NAMES,
    INTERPOLATIONS,
    activation,
    check_counterparts,
    class_names,
    patch_side,
    preprocessing,
    sides,
)
from zoo.checkpoints.mapping import collect, dense, feed_forward, norm, patches, same, stacked
from zoo.checkpoints.vision_transformer import image_size, registers_with_positions, vit_classifier

MODEL_TYPES = ("vit", "deit", "dinov2", "dinov2_with_registers", "vit_mae", "ijepa")
ANCHOR = "embeddings.patch_embeddings.projection.weight"
DISTILLED = "embeddings.distillation_token"
POSITIONS = "embeddings.position_embeddings"
BLOCK = "encoder.layer.{i}."
IGNORED = (r"pooler\..*", r"embeddings\.mask_token")
ARGUMENTS = {  # argument of `zoo.vit`: its name in config.json, and its default there
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
DEIT = {**VIT, **registers_with_positions(DISTILLED, POSITIONS, 1, 1)}
DEIT_DISTILLED = {
    **VIT,
    "class_token/tokens": stacked("embeddings.cls_token", DISTILLED),
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
SWIGLU = feed_forward(
    "encoder_{i}/feed_forward", f"{BLOCK}mlp.weights_in", f"{BLOCK}mlp.weights_out"
)
# Names in `model.state_dict()` since transformers 5, and those in published files.
MODULES = {
    "q_proj": "attention.query",
    "k_proj": "attention.key",
    "v_proj": "attention.value",
    "o_proj": "output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}
CLASS_TOKENS = {"deit": 2, "ijepa": 0}  # of the others 1
# The values of arguments that have no counterpart in config.json.
REQUIRED = {
    "pool": "cls", "norm": "pre", "layer_scale": None, "num_class_tokens": 1, "num_registers": 0,
    "positions": "learned", "rotation": None, "prefix_positions": True, "key_dim": None,
    "normalize_embeddings": False, "normalize_pooled": False, "representation_dim": None,
}  # fmt: skip


def load(folder, config, tensors, options):
    """Loads the classifier or encoder of a folder; options are arguments of `zoo.vit`."""
    model_type = config["model_type"]
    is_dino = model_type.startswith("dinov2")
    tensors = tensors.renamed(functools.partial(renamed, is_dino=is_dino))
    if is_dino:
        config = {"layer_norm_eps": 1e-6, "patch_size": 14, **config}
    arguments = arguments_of(folder, config, tensors)
    size = arguments["input_shape"][:2]
    class_tokens = CLASS_TOKENS.get(model_type, 1)
    image_size(tensors, POSITIONS, class_tokens, arguments["patch_size"], size)
    table = VIT
    if model_type == "deit":
        table = DEIT_DISTILLED if "cls_classifier.weight" in tensors else DEIT
    elif model_type == "ijepa":
        arguments["pool"] = "mean"
    elif is_dino:
        table = DINOV2
        ff_dim = int(arguments["embed_dim"] * config.get("mlp_ratio", 4))
        if config.get("use_swiglu_ffn"):
            table = {**DINOV2, **SWIGLU}
            ff_dim = (int(ff_dim * 2 / 3) + 7) // 8 * 8
            arguments["activation"] = "swiglu"
        arguments["ff_dim"] = ff_dim
        arguments["pool"] = "cls+mean"
        arguments["layer_scale"] = 1.0
        arguments["num_registers"] = tensors.shapes.get("embeddings.register_tokens", (1, 0))[1]
    images = preprocessing(folder, config, size)
    bias = table["head/bias"].names[0]
    [classes] = tensors.shape(bias, 1) if bias in tensors else [0]
    names = class_names(folder, config, classes, options)
    num_classes = options.get("num_classes")
    if num_classes is None:
        num_classes = len(names)
    if not num_classes and is_dino:  # features are the class token
        arguments["pool"] = "cls"
    if not num_classes and model_type == "deit":  # whose heads are not used
        table = DEIT
    if model_type == "deit":
        arguments["num_class_tokens"] = len(table["class_token/tokens"].names)
        arguments["num_registers"] = 2 - arguments["num_class_tokens"]
    if is_dino:  # trained at 518 pixels; its image processor, and so its evaluation, uses 224
        options = {"input_shape": images.image_size, **options}
    return vit_classifier(tensors, table, arguments, images, options, names, IGNORED)


def arguments_of(folder, config, tensors):
    """The arguments of `zoo.vit` that config.json has for ViT and its kin."""
    arguments = {ours: config.get(*theirs) for ours, theirs in ARGUMENTS.items()}
    arguments["patch_size"] = patch_side(folder, arguments["patch_size"])
    size = sides(config.get("image_size", 224))
    arguments["input_shape"] = (*size, tensors.shape(ANCHOR, 4)[1])
    arguments["activation"] = activation(folder, {"hidden_act": "gelu", **config})
    return arguments


def renamed(name, is_dino=False):
    """The name in published files; see `MODULES`."""
    name = re.sub(r"^layers\.", "encoder.layer.", name)
    pattern = r"\b[qkvo]_proj\b" if is_dino else r"\b([qkvo]_proj|mlp\.fc[12])\b"
    return re.sub(pattern, lambda match: MODULES[match[0]], name)


def contents(classifier):
    """The inverse of `load`, for ViT; see `registry`."""
    vit = classifier.model
    images = classifier.preprocessing
    height, width, channels = vit.input_shape
    others = []
    if height != width:
        others.append(f"input_shape={vit.input_shape}")
    if vit.attention == "linear":
        others.append("attention='linear'")
    if not images.antialias:
        others.append("antialias=False")
    if images.crop_size:
        others.append(f"crop_size={images.crop_size}")
    check_counterparts("ViT", vit, REQUIRED, others)
    config = {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        **{theirs: getattr(vit, ours) for ours, (theirs, _) in ARGUMENTS.items()},
        "intermediate_size": vit.ff_dim or 4 * vit.embed_dim,
        "hidden_act": ACTIVATION_NAMES[vit.activation],
        "hidden_dropout_prob": vit.dropout,
        "attention_probs_dropout_prob": vit.attention_dropout,
        "image_size": height,
        "num_channels": channels,
        "problem_type": f"{classifier.problem}_classification",
        "id2label": {str(index): name for index, name in enumerate(classifier.class_names)},
        "label2id": {name: index for index, name in enumerate(classifier.class_names)},
    }
    table = {**VIT, "patch_embed/projection/kernel": patches(ANCHOR, channels)}
    tensors = {
        name if name.startswith("classifier.") else f"vit.{name}": array
        for name, array in collect(vit, table).items()
    }
    return {"config.json": config, "preprocessor_config.json": _processor(images)}, tensors


def _processor(images):
    """The content of preprocessor_config.json."""
    resize = images.resize or images.image_size[0]
    if isinstance(resize, int):
        size = {"shortest_edge": resize}
    else:
        size = {"height": int(resize[0]), "width": int(resize[1])}
    height, width = images.image_size
    numbers = {name: number for number, name in INTERPOLATIONS.items()}
    return {
        "image_processor_type": "BitImageProcessor",
        "do_convert_rgb": images.channels == 3,
        "do_resize": True,
        "size": size,
        "resample": numbers[images.interpolation],
        "do_center_crop": True,
        "crop_size": {"height": height, "width": width},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(images.mean),
        "image_std": list(images.std),
    }
