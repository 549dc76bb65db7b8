"""Optimizers and learning rate schedules."""

import re

import keras

from zoo import compat

ALL_BUT_KERNELS = "^(?!.*kernel(:0)?$)"  # matches names of variables of Keras and TensorFlow


def warmup_cosine(learning_rate, total_steps, warmup_steps=0):
    """Creates a schedule with linear warmup and cosine decay to zero.

    Source: Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words", appendix B.1.

    Args:
        learning_rate: learning rate at the end of the warmup.
        total_steps: step at which the learning rate is zero.
        warmup_steps: steps over which the learning rate rises from zero.
    """
    return keras.optimizers.schedules.CosineDecay(
        0.0 if warmup_steps else learning_rate,
        max(1, total_steps - warmup_steps),
        warmup_target=learning_rate if warmup_steps else None,
        warmup_steps=warmup_steps,
    )


@keras.saving.register_keras_serializable("zoo")
class WarmupInverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly, then decays with the inverse square root of the step.

    ``scale * embed_dim**-0.5 * min(update**-0.5, update * warmup_steps**-1.5)``, where the first
    update is 1. Source: Vaswani et al. 2017, "Attention Is All You Need", section 5.3.

    Args:
        embed_dim: width of the model.
        warmup_steps: updates over which the learning rate rises.
        scale: factor of the learning rate.
    """

    def __init__(self, embed_dim, warmup_steps=4000, scale=1.0):
        super().__init__()
        self.embed_dim = embed_dim
        self.warmup_steps = warmup_steps
        self.scale = scale

    def __call__(self, step):
        update = keras.ops.cast(step + 1, "float32")
        factor = self.scale * self.embed_dim**-0.5
        return factor * keras.ops.minimum(update**-0.5, update * self.warmup_steps**-1.5)

    def get_config(self):
        return {
            "embed_dim": self.embed_dim,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }


def limited_momentum(momentum, total_steps):
    """Limits the momentum of an exponential moving average of the weights in short runs.

    The average begins with the initial weights, whose share after n steps is ``momentum**n``: at
    most e⁻¹⁰.
    """
    return min(momentum, max(0.0, 1.0 - 10.0 / total_steps))


def adamw(learning_rate, weight_decay, clip_norm=None, ema_momentum=None, rate_factors=None):
    """AdamW whose weight decay applies to kernels only.

    Biases, norms, scales, positions and learned tokens do not decay, as in the code of DeiT.
    Source: Loshchilov and Hutter 2017, "Decoupled Weight Decay Regularization".

    Args:
        learning_rate: learning rate or schedule, such as `warmup_cosine`.
        weight_decay: share of a weight subtracted per step, times the learning rate.
        clip_norm: maximum global norm of the gradients; no clipping by default.
        ema_momentum: momentum of an exponential moving average of the weights, which replaces the
            weights when training ends; no average by default.
        rate_factors: see `RateFactors`; the same rate for all variables by default.
    """
    return AdamW(
        learning_rate,
        weight_decay=weight_decay,
        without_decay=ALL_BUT_KERNELS,
        rate_factors=rate_factors,
        global_clipnorm=clip_norm,
        use_ema=ema_momentum is not None,
        ema_momentum=ema_momentum or 0.0,
    )


def muon(
    model,
    learning_rate,
    weight_decay=None,
    clip_norm=None,
    ema_momentum=None,
    adam_beta_1=0.9,
    adam_beta_2=0.999,
    epsilon=1e-7,
):
    """Muon for the matrices of the blocks and AdamW for all other weights.

    The updates are scaled to the size of AdamW's, so that the same learning rates and weight decay
    are suitable. If the model computes in bfloat16, they are orthogonalized in bfloat16. Sources:
    Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; Liu et al. 2025,
    "Muon is Scalable for LLM Training", section 2.2.

    Args:
        model: built model, such as `zoo.models.ViT`.
        learning_rate, weight_decay, clip_norm, ema_momentum: see `adamw`.
        adam_beta_1, adam_beta_2, epsilon: see `keras.optimizers.Muon`.
    """
    blocks = [*getattr(model, "encoder_blocks", ()), *getattr(model, "decoder_blocks", ())]
    inside = {id(v) for block in blocks for v in block.trainable_variables}
    outside = [v.path for v in model.trainable_variables if id(v) not in inside]
    return Muon(
        learning_rate,
        weight_decay=weight_decay,
        adam_weight_decay=weight_decay,
        without_decay=ALL_BUT_KERNELS,
        exclude_layers=[f"^{re.escape(path)}$" for path in outside],
        in_bfloat16=model.compute_dtype == "bfloat16",
        global_clipnorm=clip_norm,
        use_ema=ema_momentum is not None,
        ema_momentum=ema_momentum or 0.0,
        adam_beta_1=adam_beta_1,
        adam_beta_2=adam_beta_2,
        epsilon=epsilon,
    )


class WithoutDecay:
    """Mixin for optimizers whose config contains what is exempt from weight decay, unlike Keras's.

    `without_decay` is a regular expression of the names of these variables; none by default.
    """

    def __init__(self, *args, without_decay=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.without_decay = without_decay
        if without_decay is not None:
            self.exclude_from_weight_decay(var_names=[without_decay])

    def get_config(self):
        return {**super().get_config(), "without_decay": self.without_decay}


class RateFactors(compat.DecayInUpdate):
    """Mixin for optimizers that multiplies the learning rate of each variable by a factor.

    It must come before the class of the optimizer. The factor applies to the update and to weight
    decay; a factor of the gradients would have no effect with Adam.

    Args:
        rate_factors: list of factors, in the order of the variables that the optimizer is built
            with; 1 for all by default.
        *args, **kwargs: arguments of the optimizer.
    """

    def __init__(self, *args, rate_factors=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.rate_factors = None if rate_factors is None else list(rate_factors)

    def update_step(self, gradient, variable, learning_rate):
        factor = 1.0
        if self.rate_factors is not None:
            factor = self.rate_factors[self.index_of(variable)]
        rate = keras.ops.cast(learning_rate * factor, variable.dtype)
        if self.has_decay(variable):
            self.assign_sub(variable, variable * self.weight_decay * rate)
        super().update_step(gradient, variable, rate)

    def get_config(self):
        return {**super().get_config(), "rate_factors": self.rate_factors}


@keras.saving.register_keras_serializable("zoo")
class SGD(RateFactors, keras.optimizers.SGD):
    """`keras.optimizers.SGD` with `RateFactors`."""


@keras.saving.register_keras_serializable("zoo")
class AdamW(RateFactors, WithoutDecay, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` with `RateFactors` and `WithoutDecay`."""


@keras.saving.register_keras_serializable("zoo")
class Muon(WithoutDecay, compat.MuonOfConvolutions, keras.optimizers.Muon):
    """`keras.optimizers.Muon` that also trains convolutions, and can orthogonalize in bfloat16.

    The kernel [H, W, C, F] of a convolution is trained as the matrix [H · W · C, F].

    Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks". The
    momentum and the weights keep their dtype; updates are orthogonalized in float32 by default.

    Args:
        *args, **kwargs: arguments of `keras.optimizers.Muon`.
        in_bfloat16: whether to orthogonalize in bfloat16, for devices on which that is faster.
    """

    def __init__(self, *args, in_bfloat16=False, **kwargs):
        super().__init__(*args, **kwargs)
        self.in_bfloat16 = in_bfloat16

    def zeropower_via_newtonschulz5(self, x, steps):
        """Orthogonalizes a matrix by Newton-Schulz iterations."""
        dtype = "bfloat16" if self.in_bfloat16 else "float32"
        result = super().zeropower_via_newtonschulz5(_matrix(keras.ops.cast(x, dtype)), steps)
        result = keras.ops.reshape(result, x.shape)
        return keras.ops.cast(result, "float32")  # the dtype of the learning rate

    def lr_adjust(self, x):
        """Scales an update to the size of AdamW's."""
        return keras.ops.reshape(super().lr_adjust(_matrix(x)), x.shape)

    def get_config(self):
        return {**super().get_config(), "in_bfloat16": self.in_bfloat16}


def _matrix(x):
    """A matrix, or the kernel [H, W, C, F] of a convolution as one: [H · W · C, F]."""
    return keras.ops.reshape(x, (-1, x.shape[-1]))
