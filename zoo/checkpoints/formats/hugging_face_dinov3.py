"""Hugging Face's folders of DINOv3, which have no head (transformers: models/dinov3_vit)."""

import math

from zoo.checkpoints.hugging_face_config import (
    activation,
    check_settings,
    patch_side,
    preprocessing,
    sides,
)
from zoo.checkpoints.mapping import biases, dense, linear, norm, patches, same, stacked
from zoo.checkpoints.vision_transformer import vit_classifier
from zoo.errors import CheckpointError, as_number
from zoo.layers import RotaryGridPositions
from zoo.layers.multi_head_attention import head_width

MODEL_TYPES = ("dinov3_vit",)
ANCHOR = "embeddings.patch_embeddings.weight"
BLOCK = "layer.{i}."
REGISTERS = "embeddings.register_tokens"
IGNORED = (r"embeddings\.mask_token", r"rope_embeddings\..*")
DEFAULTS = {  # of transformers
    "image_size": 224, "patch_size": 16, "hidden_size": 384, "intermediate_size": 1536,
    "num_hidden_layers": 12, "num_attention_heads": 6, "num_register_tokens": 0,
    "hidden_act": "gelu", "use_gated_mlp": False, "layer_norm_eps": 1e-5, "rope_theta": 100.0,
    "query_bias": True, "key_bias": False, "value_bias": True, "proj_bias": True, "mlp_bias": True,
}  # fmt: skip
TABLE = {
    "patch_embed/projection/kernel": patches(ANCHOR),
    "patch_embed/projection/bias": same("embeddings.patch_embeddings.bias"),
    "class_token/tokens": stacked("embeddings.cls_token"),
    "registers/tokens": stacked(REGISTERS),
    **norm("encoder_{i}/attention_norm", f"{BLOCK}norm1"),
    "encoder_{i}/attention_scale/gamma": same(f"{BLOCK}layer_scale1.lambda1"),
    **norm("encoder_{i}/feed_forward_norm", f"{BLOCK}norm2"),
    "encoder_{i}/feed_forward_scale/gamma": same(f"{BLOCK}layer_scale2.lambda1"),
    **norm("encoder_norm", "norm"),
    **dense("head", "head"),  # no file has it
}


def load(folder, config, tensors, options):
    """Loads the encoder of a folder; options are arguments of `zoo.vit`."""
    tensors = tensors.renamed(lambda name: name.removeprefix("model."))  # `model.state_dict()`
    config = {**DEFAULTS, **config}
    rope = {"rope_theta": config["rope_theta"], **(config.get("rope_parameters") or {})}
    check_settings(folder, rope, {"rope_type": "default"})
    images = preprocessing(folder, config, sides(config["image_size"]))
    width = config["hidden_size"]
    heads = config["num_attention_heads"]
    qkv = {
        "attention.q_proj": config["query_bias"],
        "attention.k_proj": config["key_bias"],
        "attention.v_proj": config["value_bias"],
    }
    key_dim = head_width(width, heads)
    theta = as_number("rope_theta", rope["rope_theta"], float, 1)
    positions = RotaryGridPositions(key_dim, theta, extent=4 * math.pi, centered=True)
    arguments = {
        "input_shape": (*images.image_size, tensors.shape(ANCHOR, 4)[1]),
        "patch_size": patch_side(folder, config["patch_size"]),
        "embed_dim": width,
        "num_layers": config["num_hidden_layers"],
        "num_heads": heads,
        "ff_dim": config["intermediate_size"],
        "activation": activation(folder, config),
        "num_registers": config["num_register_tokens"],
        "positions": "rotary",
        "rotation": positions,
        "layer_scale": 1.0,
        "qkv_bias": any(qkv.values()),
        "epsilon": as_number("layer_norm_eps", config["layer_norm_eps"], float, 0),
    }
    hidden = ["up_proj"]
    if config["use_gated_mlp"]:
        hidden = ["gate_proj", "up_proj"]
        if arguments["activation"] != "silu":
            name = config["hidden_act"]
            raise CheckpointError(f"{folder}: {name!r} as hidden_act of gates is not supported.")
        arguments["activation"] = "swiglu"
    ff_dim = config["intermediate_size"]
    table = {
        **TABLE,
        **_dense("attention/qkv", width, qkv),
        **_dense("attention/output_projection", width, {"attention.o_proj": config["proj_bias"]}),
        **_dense("feed_forward/hidden", ff_dim, {f"mlp.{x}": config["mlp_bias"] for x in hidden}),
        **_dense("feed_forward/output_projection", width, {"mlp.down_proj": config["mlp_bias"]}),
    }
    ignored = IGNORED
    if tensors.shape(REGISTERS, 3)[1] == 0:
        ignored = (*IGNORED, REGISTERS)
    return vit_classifier(tensors, table, arguments, images, options, ignored=ignored)


def _dense(path, width, modules):
    """The entries of a layer that joins modules of this width: {name: whether it has a bias}."""
    with_bias = [f"{BLOCK}{name}.bias" if has_bias else None for name, has_bias in modules.items()]
    return {
        f"encoder_{{i}}/{path}/kernel": linear(*(f"{BLOCK}{name}.weight" for name in modules)),
        f"encoder_{{i}}/{path}/bias": biases(width, *with_bias),
    }
