"""Small models of timm and archives of Google, of each kind that the zoo reads."""

import functools

import timm
import torch
from timm.models import beit, deit, eva, vision_transformer

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
    "registers with positions": {"reg_tokens": 2},
    "registers with positions, mean": {
        "class_token": False,
        "global_pool": "avg",
        "reg_tokens": 1,
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
    "BEiT": {"use_abs_pos_emb": False, "use_rel_pos_bias": True, "init_values": 0.1},
}
DINOV3 = {
    **{"init_values": 1e-5, "num_reg_tokens": 4, "use_fc_norm": False, "use_abs_pos_emb": False},
    **{"use_rot_pos_emb": True, "rope_type": "dinov3", "rope_temperature": 100},
    **{"rope_rotate_half": True, "norm_layer": functools.partial(torch.nn.LayerNorm, eps=1e-5)},
}
ROPE = {
    **{"attn_type": "rope", "init_values": 1e-5, "global_pool": "token", "use_abs_pos_emb": False},
    **{"use_rot_pos_emb": True, "rope_grid_indexing": "xy", "rope_temperature": 100.0},
}
EVA02 = {"mlp_ratio": 8 / 3, "swiglu_mlp": True, "use_rot_pos_emb": True, "ref_feat_shape": 16}
EVA = {  # of timm/models/eva.py, with rotary positions
    "DINOv3": DINOV3,
    "DINOv3, gated": {**DINOV3, "qkv_bias": False, "swiglu_mlp": True, "swiglu_align_to": 8},
    "DINOv3, no registers": {**DINOV3, "num_reg_tokens": 0, "depth": 3, "num_heads": 2},
    "RoPE-ViT": ROPE,
    "RoPE-ViT, learned positions": {**ROPE, "use_abs_pos_emb": True, "no_embed_class": True},
    "rotary, registers, mean": {
        **{"class_token": False, "num_reg_tokens": 1, "init_values": 1e-5, "ref_feat_shape": 16},
        **{"use_rot_pos_emb": True, "use_abs_pos_emb": False},
    },
    "EVA-02": EVA02,
    "EVA-02, token": {**EVA02, "global_pool": "token", "embed_dim": 40, "num_heads": 5},
}


def build(kind, **settings):
    """The model of a kind, with settings of timm that differ from those above."""
    if kind in EVA:
        return eva.Eva(**{**SIZES, **EVA[kind], **settings})
    settings = {**SIZES, **KINDS[kind], **settings}
    if kind == "BEiT":
        return beit.Beit(**settings)
    if kind == "distilled":
        return deit.VisionTransformerDistilled(**settings)
    return vision_transformer.VisionTransformer(**settings)


GOOGLE = {  # kinds of archives: settings of timm
    "vision_transformer": {},
    "vision_transformer, no prefix": {},
    "big_vision, mean": {"class_token": False, "global_pool": "avg", "fc_norm": False},
}
