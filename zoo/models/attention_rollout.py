"""Attention rollout: which patches of an image the output of a Vision Transformer depends on.

Source: Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3.

Axes: B images, L layers, T tokens, N patches.
"""

from keras import ops

from zoo.layers import image_size


def attention_rollout(model, images):
    """Computes the attention of a model's output to the patches, through all layers.

    Args:
        model: `zoo.models.ViT`.
        images: [B, H, W, C], as for the model.

    Returns:
        float32 [B, rows, columns] of the patches.
    """
    maps = ops.cast(model.attention_maps(images), "float32")  # [B, L, heads, T, T]
    maps = ops.mean(maps, axis=2)  # [B, L, T, T]
    maps = 0.5 * maps + 0.5 * ops.eye(maps.shape[-1], dtype="float32")  # residual connections
    flow = maps[:, 0]  # [B, T, T]: the share of each token (last axis) in each output
    for layer in range(1, maps.shape[1]):
        flow = ops.matmul(maps[:, layer], flow)
    shares = flow[:, :, model.num_prefix_tokens :]  # [B, T, N]: of the patches in each output
    of_class_tokens = shares[:, : model.num_class_tokens]
    of_patches = shares[:, model.num_prefix_tokens :]
    # the mean over the outputs that the heads read: [B, N]
    if model.pool == "cls":
        shares = ops.mean(of_class_tokens, axis=1)
    elif model.pool == "mean":
        shares = ops.mean(of_patches, axis=1)
    elif model.pool == "map":
        tokens = model.encode(images)[:, model.num_prefix_tokens :]
        weights = ops.cast(model.attention_pool.attention_weights(tokens), "float32")
        shares = ops.matmul(ops.mean(weights, axis=1), of_patches)[:, 0]
    else:
        shares = (of_class_tokens[:, 0] + ops.mean(of_patches, axis=1)) / 2
    return ops.reshape(shares, (-1, *model.grid(image_size(images))))
