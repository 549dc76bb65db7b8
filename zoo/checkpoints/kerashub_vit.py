"""KerasHub's presets of ViT and DeiT (keras_hub/src/models/vit and deit)."""

import functools

import numpy as np

from zoo.checkpoints.images import first_head_alone, vit_classifier
from zoo.checkpoints.kerashub import preprocessing, read_preset
from zoo.checkpoints.mapping import Source, feed_forward, merged_dense, norm, stacked

BLOCK = "encoder/transformer_block_{i}/"
QKV = [f"{BLOCK}mha/{name}" for name in ("query", "key", "value")]
FEED_FORWARD = "encoder_{i}/feed_forward"
norm = functools.partial(norm, gamma="/gamma", beta="/beta")
VIT = {
    **merged_dense("patch_embed/projection", "patch_embedding"),
    "class_token/tokens": stacked("class_token"),
    "patch_positions/embeddings": stacked("position_embedding/embeddings"),
    **norm("encoder_{i}/attention_norm", f"{BLOCK}ln_1"),
    **merged_dense("encoder_{i}/attention/qkv", *QKV, to_heads=True),
    **merged_dense("encoder_{i}/attention/output_projection", f"{BLOCK}mha/attention_output"),
    **norm("encoder_{i}/feed_forward_norm", f"{BLOCK}ln_2"),
    **feed_forward(FEED_FORWARD, f"{BLOCK}mlp/dense_1", f"{BLOCK}mlp/dense_2", merged_dense),
    **norm("encoder_norm", "encoder/ln"),
    **merged_dense("representation", "pre_logits"),
    **merged_dense("head", "predictions"),
}
DEIT = {
    **VIT,
    "class_token/tokens": stacked("class_token", "distillation_token"),
    "patch_positions/embeddings": stacked("position_embedding"),
    **feed_forward(FEED_FORWARD, f"{BLOCK}mlp/dense", f"{BLOCK}output_layer/output", merged_dense),
    **first_head_alone(VIT),
}


def load(folder, options):
    """The classifier of a preset, see `zoo.load`."""
    config, tensors, converter = read_preset(folder)
    table = DEIT if "distillation_token" in tensors else VIT
    if not config["use_mha_bias"]:
        bias = Source((), lambda: np.zeros(config["hidden_dim"]))
        table = {**table, "encoder_{i}/attention/output_projection/bias": bias}
    settings = {
        "input_shape": tuple(config["image_shape"]),
        "patch_size": config["patch_size"][0],
        "embed_dim": config["hidden_dim"],
        "num_layers": config["num_layers"],
        "num_heads": config["num_heads"],
        "ff_dim": config.get("mlp_dim", config.get("intermediate_dim")),
        "epsilon": config["layer_norm_epsilon"],
        "qkv_bias": config["use_mha_bias"],
        "num_class_tokens": len(table["class_token/tokens"].names),
        "representation_dim": tensors.shapes.get("pre_logits/bias", (None,))[0],
    }
    images = preprocessing(settings["input_shape"], converter)
    return vit_classifier(tensors, table, settings, images, options)
