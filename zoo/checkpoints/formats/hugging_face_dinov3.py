"""Hugging Face's folders of DINOv3, which have no head (transformers: models/dinov3_vit)."""

import math
import re

from zoo.checkpoints.formats.hugging_face_vit import BLOCK, DINOV2, IGNORED, arguments_of
from zoo.checkpoints.hugging_face_config import check_settings, preprocessing
from zoo.checkpoints.mapping import biases, linear
from zoo.checkpoints.vision_transformer import vit_classifier
from zoo.errors import CheckpointError, as_number
from zoo.layers import RotaryGridPositions
from zoo.layers.multi_head_attention import head_width

MODEL_TYPES = ("dinov3_vit",)
ANCHOR = "embeddings.patch_embeddings.weight"
REGISTERS = "embeddings.register_tokens"
DEFAULTS = {  # of transformers
    "hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 6,
    "num_register_tokens": 0, "use_gated_mlp": False, "layer_norm_eps": 1e-5, "rope_theta": 100.0,
    "query_bias": True, "key_bias": False, "value_bias": True, "proj_bias": True, "mlp_bias": True,
}  # fmt: skip


def load(folder, config, tensors, options):
    """Loads the encoder of a folder; options are arguments of `zoo.vit`."""
    tensors = tensors.renamed(_renamed)
    config = {**DEFAULTS, **config}
    rope = {"rope_theta": config["rope_theta"], **(config.get("rope_parameters") or {})}
    check_settings(folder, rope, {"rope_type": "default"})
    arguments = arguments_of(folder, config, tensors)
    images = preprocessing(folder, config, arguments["input_shape"][:2])
    width = arguments["embed_dim"]
    ff_dim = arguments["ff_dim"]
    hidden = ["mlp.up_proj"]
    if config["use_gated_mlp"]:
        hidden = ["mlp.gate_proj", "mlp.up_proj"]
        if arguments["activation"] != "silu":
            name = config.get("hidden_act")
            raise CheckpointError(f"{folder}: {name!r} as hidden_act of gates is not supported.")
        arguments["activation"] = "swiglu"
    qkv = {
        "attention.q_proj": config["query_bias"],
        "attention.k_proj": config["key_bias"],
        "attention.v_proj": config["value_bias"],
    }
    key_dim = head_width(width, arguments["num_heads"])
    theta = as_number("rope_theta", rope["rope_theta"], float, 1)
    arguments |= {
        "input_shape": (*images.image_size, arguments["input_shape"][2]),
        "num_registers": config["num_register_tokens"],
        "positions": "rotary",
        "rotation": RotaryGridPositions(key_dim, theta, extent=4 * math.pi, centered=True),
        "layer_scale": 1.0,
        "qkv_bias": any(qkv.values()),
    }
    table = {
        **DINOV2,
        **_dense("attention/qkv", width, qkv),
        **_dense("attention/output_projection", width, {"attention.o_proj": config["proj_bias"]}),
        **_dense("feed_forward/hidden", ff_dim, dict.fromkeys(hidden, config["mlp_bias"])),
        **_dense("feed_forward/output_projection", width, {"mlp.down_proj": config["mlp_bias"]}),
    }
    ignored = (*IGNORED, r"rope_embeddings\..*")
    if tensors.shape(REGISTERS, 3)[1] == 0:
        ignored = (*ignored, REGISTERS)
    return vit_classifier(tensors, table, arguments, images, options, ignored=ignored)


def _renamed(name):
    """The name in `DINOV2`, also of `model.state_dict()`."""
    name = re.sub(r"^(model\.)?layer\.", "encoder.layer.", name)
    name = re.sub(r"^norm\.", "layernorm.", name)
    return name.replace("patch_embeddings.", "patch_embeddings.projection.")


def _dense(path, width, modules):
    """The entries of a layer that joins modules of this width: {name: whether it has a bias}."""
    with_bias = [f"{BLOCK}{name}.bias" if has_bias else None for name, has_bias in modules.items()]
    return {
        f"encoder_{{i}}/{path}/kernel": linear(*(f"{BLOCK}{name}.weight" for name in modules)),
        f"encoder_{{i}}/{path}/bias": biases(width, *with_bias),
    }
