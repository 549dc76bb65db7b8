"""Small models of timm and archives of Google, of each kind that the zoo reads."""

import functools

import timm
import torch
from timm.models import deit, vision_transformer

SIZES = {"img_size": 32, "patch_size": 8, "num_classes": 5}
SIZES |= {"embed_dim": 24, "depth": 2, "num_heads": 3}
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
    "attention pooling": {"class_token": False, "global_pool": "map", "num_heads": 2},
    "attention pooling, registers": {
        "class_token": False,
        "global_pool": "map",
        "reg_tokens": 2,
        "no_embed_class": True,
        "mlp_ratio": 1.5,
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


GOOGLE = {  # kinds of archives: settings of timm
    "vision_transformer": {},
    "vision_transformer, no prefix": {},
    "big_vision, mean": {"class_token": False, "global_pool": "avg", "fc_norm": False},
}
