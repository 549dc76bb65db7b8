"""Hugging Face's folders of ViT, DeiT and DINOv2 (transformers: models/vit, deit and dinov2)."""

from zoo.checkpoints.hugging_face import activation, class_names, preprocessing
from zoo.checkpoints.images import first_head_alone, vit_classifier
from zoo.checkpoints.mapping import dense, joined, linear, norm, patches, same, stacked

IGNORED = (r"pooler\..*", r"embeddings\.mask_token")
_QKV = [f"encoder.layer.{{i}}.attention.attention.{name}" for name in ("query", "key", "value")]
_COMMON = {
    "patch_embed/projection/kernel": patches("embeddings.patch_embeddings.projection.weight"),
    "patch_embed/projection/bias": same("embeddings.patch_embeddings.projection.bias"),
    "patch_positions/embeddings": stacked("embeddings.position_embeddings"),
    "encoder_{i}/attention/qkv/kernel": linear(*(f"{name}.weight" for name in _QKV)),
    "encoder_{i}/attention/qkv/bias": joined(*(f"{name}.bias" for name in _QKV)),
    **dense("encoder_{i}/attention/output_projection", "encoder.layer.{i}.attention.output.dense"),
    **norm("encoder_norm", "layernorm"),
}
VIT = {
    **_COMMON,
    "class_token/tokens": stacked("embeddings.cls_token"),
    **norm("encoder_{i}/attention_norm", "encoder.layer.{i}.layernorm_before"),
    **norm("encoder_{i}/feed_forward_norm", "encoder.layer.{i}.layernorm_after"),
    **dense("encoder_{i}/feed_forward/hidden", "encoder.layer.{i}.intermediate.dense"),
    **dense("encoder_{i}/feed_forward/output_projection", "encoder.layer.{i}.output.dense"),
    **dense("head", "classifier"),
}
DEIT = {
    **VIT,
    "class_token/tokens": stacked("embeddings.cls_token", "embeddings.distillation_token"),
}
DEIT_DISTILLED = {
    **DEIT,
    **dense("head", "cls_classifier"),
    **dense("distillation_head", "distillation_classifier"),
}
DEIT_PLAIN = {**DEIT, **first_head_alone(dense("head", "classifier"))}
DINOV2 = {
    **_COMMON,
    "class_token/tokens": stacked("embeddings.cls_token"),
    "registers/tokens": stacked("embeddings.register_tokens"),
    **norm("encoder_{i}/attention_norm", "encoder.layer.{i}.norm1"),
    "encoder_{i}/attention_scale/gamma": same("encoder.layer.{i}.layer_scale1.lambda1"),
    **norm("encoder_{i}/feed_forward_norm", "encoder.layer.{i}.norm2"),
    "encoder_{i}/feed_forward_scale/gamma": same("encoder.layer.{i}.layer_scale2.lambda1"),
    **dense("encoder_{i}/feed_forward/hidden", "encoder.layer.{i}.mlp.fc1"),
    **dense("encoder_{i}/feed_forward/output_projection", "encoder.layer.{i}.mlp.fc2"),
    **dense("head", "classifier"),
}
DINOV2_GIANT = {
    **DINOV2,
    **dense("encoder_{i}/feed_forward/hidden", "encoder.layer.{i}.mlp.weights_in"),
    **dense("encoder_{i}/feed_forward/output_projection", "encoder.layer.{i}.mlp.weights_out"),
}


DEFAULTS = {  # what config.json may leave out
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
    "qkv_bias": True,
    "mlp_ratio": 4,
    "use_swiglu_ffn": False,
}
DINOV2_DEFAULTS = {"layer_norm_eps": 1e-6, "patch_size": 14}


def load(folder, config, tensors, options):
    """The classifier of a folder, see `zoo.load`."""
    kind = config["model_type"]
    config = {**DEFAULTS, **({} if kind in ("vit", "deit") else DINOV2_DEFAULTS), **config}
    tensors = tensors.without_prefix("vit.", "deit.", "dinov2.", "dinov2_with_registers.")
    size = config["hidden_size"]
    settings = {
        "input_shape": (config["image_size"], config["image_size"], config["num_channels"]),
        "patch_size": config["patch_size"],
        "embed_dim": size,
        "num_layers": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "ff_dim": config.get("intermediate_size"),
        "epsilon": config["layer_norm_eps"],
        "qkv_bias": config["qkv_bias"],
        "activation": activation(folder, config),
    }
    of_heads = (s[0] for n, s in tensors.shapes.items() if n.endswith("classifier.weight"))
    classes = next(of_heads, 0)
    if kind == "vit":
        table = VIT
    elif kind == "deit":
        settings["num_class_tokens"] = 2
        table = DEIT_DISTILLED if "cls_classifier.weight" in tensors else DEIT_PLAIN
    else:
        table = DINOV2
        settings |= {"pool": "cls+mean", "layer_scale": 1.0, "ff_dim": size * config["mlp_ratio"]}
        settings["num_registers"] = config.get("num_register_tokens", 0)
        if config["use_swiglu_ffn"]:
            table, settings["activation"] = DINOV2_GIANT, "swiglu"
            settings["ff_dim"] = (int(settings["ff_dim"] * 2 / 3) + 7) // 8 * 8
    names = class_names(config, classes) if classes else []
    images = preprocessing(folder, config, settings["input_shape"][:2])
    return vit_classifier(tensors, table, settings, images, names, IGNORED, options)
