"""Google's NumPy archives of ViT: those of vision_transformer (augreg) and of big_vision."""

import functools

from zoo.checkpoints.mapping import feed_forward, merged_dense, norm, stacked
from zoo.checkpoints.vision_transformer import count_blocks, image_size, vit_classifier
from zoo.data.preprocessing import ImagePreprocessing

ANCHOR = "embedding/kernel"
SCANNED, BLOCK = "Transformer/encoderblock/", "Transformer/encoderblock_{i}/"
norm = functools.partial(norm, gamma="/scale", beta="/bias")


def table(is_new):
    """The table of big_vision if `is_new`, or else that of vision_transformer."""
    attention = f"{BLOCK}MultiHeadDotProductAttention_{0 if is_new else 1}"
    mlp, second = ("MlpBlock_0", "LayerNorm_1") if is_new else ("MlpBlock_3", "LayerNorm_2")
    qkv, mlp = [f"{attention}/{name}" for name in ("query", "key", "value")], BLOCK + mlp
    positions = "pos_embedding" if is_new else "Transformer/posembed_input/pos_embedding"
    return {
        **merged_dense("patch_embed/projection", "embedding"),
        "class_token/tokens": stacked("cls"),
        "patch_positions/embeddings": stacked(positions),
        **norm("encoder_{i}/attention_norm", f"{BLOCK}LayerNorm_0"),
        **merged_dense("encoder_{i}/attention/qkv", *qkv, to_heads=True),
        **merged_dense("encoder_{i}/attention/output_projection", f"{attention}/out"),
        **norm("encoder_{i}/feed_forward_norm", BLOCK + second),
        **feed_forward(
            "encoder_{i}/feed_forward", f"{mlp}/Dense_0", f"{mlp}/Dense_1", merged_dense
        ),
        **norm("encoder_norm", "Transformer/encoder_norm"),
        **merged_dense("representation", "pre_logits"),
        **merged_dense("head", "head"),
    }


def load(path, config, tensors, options):
    """Loads the classifier or encoder of an archive; options are arguments of `zoo.vit`."""
    tensors = tensors.unstacked(SCANNED, BLOCK)
    shapes, is_new = tensors.shapes, any("/MlpBlock_0/" in name for name in tensors)
    entries, has_token = table(is_new), "cls" in tensors
    names = {path: source.names[0].replace("{i}", "0") for path, source in entries.items()}
    patch_size, _, channels, embed_dim = tensors.shape(ANCHOR, 4)
    _, num_heads, _ = tensors.shape(names["encoder_{i}/attention/qkv/kernel"], 3)
    _, ff_dim = tensors.shape(names["encoder_{i}/feed_forward/hidden/kernel"], 2)
    positions, has_prefix = names["patch_positions/embeddings"], False
    is_fixed = is_new and positions not in tensors
    size = tuple(options.get("input_shape", (224, 224))[:2])
    if not is_fixed:
        size, has_prefix = image_size(tensors, positions, has_token, patch_size)
    settings = {
        "input_shape": (*size, channels),
        "patch_size": patch_size,
        "embed_dim": embed_dim,
        "num_heads": num_heads,
        "num_layers": count_blocks(shapes, BLOCK),
        "ff_dim": ff_dim,
        "pool": "cls" if has_token else "mean",
        "positions": "sinusoidal" if is_fixed else "learned",
        "prefix_positions": has_prefix,
        "representation_dim": shapes.get("pre_logits/bias", (None,))[0],
    }
    images = ImagePreprocessing(size, channels, *[(0.5,) * channels] * 2, size)
    return vit_classifier(tensors, entries, settings, images, options)
