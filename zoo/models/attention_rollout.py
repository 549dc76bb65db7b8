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
    layers = ops.mean(ops.cast(model.attention_maps(images), "float32"), axis=2)
    layers = 0.5 * layers + 0.5 * ops.eye(layers.shape[-1], dtype="float32")
    flow = layers[:, 0]  # [B, T, T], the share of each token before the first layer in each after
    for layer in range(1, layers.shape[1]):
        flow = ops.matmul(layers[:, layer], flow)
    first = model.num_prefix_tokens + model.num_registers
    shares = flow[:, :, first:]
    # What the head reads: the mean of its parts.
    parts = {
        "cls": [shares[:, : model.num_prefix_tokens]],  # a distillation token has a head, too
        "mean": [shares[:, first:]],
        "cls+mean": [shares[:, :1], shares[:, first:]],
    }[model.pool]
    shares = sum(ops.mean(part, axis=1) for part in parts) / len(parts)
    return ops.reshape(shares, (-1, *model.grid(image_size(images))))
