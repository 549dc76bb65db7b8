"""How much of each patch of an image reaches the output of a Vision Transformer."""

from keras import ops

from zoo.layers import image_size


def attention_rollout(model, images):
    """Attention from the output of a model to the patches, followed through all layers.

    Source: Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3.

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
    first_patch = model.num_prefix_tokens + model.num_registers
    shares = flow[:, :, first_patch:]  # [B, T, N]
    # The mean of the outputs that heads read: a distillation token has a head, too.
    if model.pool == "cls":
        shares = ops.mean(shares[:, : model.num_prefix_tokens], axis=1)  # [B, N]
    elif model.pool == "mean":
        shares = ops.mean(shares[:, first_patch:], axis=1)
    else:
        shares = (shares[:, 0] + ops.mean(shares[:, first_patch:], axis=1)) / 2
    return ops.reshape(shares, (-1, *model.grid(image_size(images))))
