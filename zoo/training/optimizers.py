"""Optimizers as Transformers are trained with them."""

import keras


def adamw(
    model,
    learning_rate,
    weight_decay,
    total_steps,
    warmup_steps=0,
    clip_norm=None,
    ema_momentum=None,
):
    """AdamW with linear warmup and cosine decay to zero; only matrices of the layers decay.

    Sources: Loshchilov and Hutter 2017, "Decoupled Weight Decay Regularization"; the schedule as in
    Dosovitskiy et al. 2020, appendix B.1; what is exempt from decay as in the code of DeiT.

    Args:
        model: built; its biases, norms, scales, positions and learned tokens are exempt from decay.
        learning_rate: at the end of the warmup.
        weight_decay: subtracted part of a weight per step, times the learning rate.
        total_steps: at which the learning rate is zero.
        warmup_steps: over which the learning rate rises from zero.
        clip_norm: largest norm of all gradients together; none by default.
        ema_momentum: if given, an exponential moving average of the weights is kept; the model has
            it when training ends.

    Returns:
        `keras.optimizers.AdamW`.
    """
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0 if warmup_steps else learning_rate,
        max(1, total_steps - warmup_steps),
        warmup_target=learning_rate if warmup_steps else None,
        warmup_steps=warmup_steps,
    )
    optimizer = keras.optimizers.AdamW(
        schedule,
        weight_decay=weight_decay,
        global_clipnorm=clip_norm,
        use_ema=ema_momentum is not None,
        ema_momentum=0.99 if ema_momentum is None else ema_momentum,
    )
    optimizer.exclude_from_weight_decay(
        var_list=[v for v in model.trainable_variables if v.name != "kernel"]
    )
    return optimizer
