"""Small models of timm and archives of Google, of each kind that the zoo reads."""

import functools

import timm
import torch
from timm.models import deit, vision_transformer

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
    "distilled": {},
}


def build(kind, **settings):
    """The model of a kind, with settings of timm that differ from those above."""
    settings = {**SIZES, **KINDS[kind], **settings}
    if kind == "distilled":
        return deit.VisionTransformerDistilled(**settings)
    return vision_transformer.VisionTransformer(**settings)


GOOGLE = {  # whether of big_vision, prefix of the names, settings of timm
    "vision_transformer": (False, "opt/target/", {}),
    "vision_transformer, no prefix": (False, "", {}),
    "big_vision, mean": (
        True,
        "params/",
        {"class_token": False, "global_pool": "avg", "fc_norm": False},
    ),
}


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
