"""Google's NumPy archives of ViT, from vision_transformer (augreg) and from big_vision."""

import functools

from zoo.checkpoints.mapping import feed_forward, merged_dense, norm, stacked
from zoo.checkpoints.vision_transformer import count_blocks, image_size, vit_classifier
from zoo.data.preprocessing import ImagePreprocessing

ANCHOR = "embedding/kernel"
SCANNED = "Transformer/encoderblock/"  # all blocks in one tensor, by `flax.linen.scan`
BLOCK = "Transformer/encoderblock_{i}/"
norm = functools.partial(norm, gamma="/scale", beta="/bias")


def table(is_big_vision):
    """The table of big_vision, or that of vision_transformer."""
    if is_big_vision:
        positions = "pos_embedding"
        attention = f"{BLOCK}MultiHeadDotProductAttention_0"
        second_norm = f"{BLOCK}LayerNorm_1"
        mlp = f"{BLOCK}MlpBlock_0"
    else:
        positions = "Transformer/posembed_input/pos_embedding"
        attention = f"{BLOCK}MultiHeadDotProductAttention_1"
        second_norm = f"{BLOCK}LayerNorm_2"
        mlp = f"{BLOCK}MlpBlock_3"
    qkv = [f"{attention}/{name}" for name in ("query", "key", "value")]
    return {
        **merged_dense("patch_embed/projection", "embedding"),
        "class_token/tokens": stacked("cls"),
        "patch_positions/embeddings": stacked(positions),
        **norm("encoder_{i}/attention_norm", f"{BLOCK}LayerNorm_0"),
        **merged_dense("encoder_{i}/attention/qkv", *qkv, to_heads=True),
        **merged_dense("encoder_{i}/attention/output_projection", f"{attention}/out"),
        **norm("encoder_{i}/feed_forward_norm", second_norm),
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
    is_big_vision = any("/MlpBlock_0/" in name for name in tensors)
    entries = table(is_big_vision)
    names = {path: source.names[0].replace("{i}", "0") for path, source in entries.items()}
    patch_size, _, channels, embed_dim = tensors.shape(ANCHOR, 4)
    _, num_heads, _ = tensors.shape(names["encoder_{i}/attention/qkv/kernel"], 3)
    _, ff_dim = tensors.shape(names["encoder_{i}/feed_forward/hidden/kernel"], 2)
    has_class_token = "cls" in tensors
    positions = names["patch_positions/embeddings"]
    is_fixed = is_big_vision and positions not in tensors
    if is_fixed:
        size = tuple(options.get("input_shape", (224, 224))[:2])
        has_prefix_positions = False
    else:
        size, num_others = image_size(tensors, positions, has_class_token, patch_size)
        has_prefix_positions = num_others > 0
    arguments = {
        "input_shape": (*size, channels),
        "patch_size": patch_size,
        "embed_dim": embed_dim,
        "num_heads": num_heads,
        "num_layers": count_blocks(tensors.shapes, BLOCK),
        "ff_dim": ff_dim,
        "pool": "cls" if has_class_token else "mean",
        "positions": "sinusoidal" if is_fixed else "learned",
        "prefix_positions": has_prefix_positions,
        "representation_dim": tensors.shapes.get("pre_logits/bias", (None,))[0],
    }
    half = (0.5,) * channels
    images = ImagePreprocessing(size, channels, mean=half, std=half, resize=size)
    return vit_classifier(tensors, entries, arguments, images, options)
