"""The loss that translation models are trained with.

Axes: B batch, T tokens, V vocabulary.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable("zoo")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy of tokens, with a share of each label spread over all V classes.

    Sources: Szegedy et al. 2015, "Rethinking the Inception Architecture", section 7; Vaswani et
    al. 2017, "Attention Is All You Need", section 5.4. The values are those of
    `keras.losses.CategoricalCrossentropy` on one-hot labels, which would take B·T·V numbers more.

    Which tokens count is said by the sample weights [B, T]: padding has 0. With weights that sum
    to one over all tokens and ``reduction="sum"``, the loss is the mean over the real tokens.

    Args:
        label_smoothing: the share that is spread, at least 0 and less than 1.
        reduction: as in Keras; "sum" leaves the mean to the weights.
        name: of the loss.

    Input: labels, int [B, T], each from 0 to V - 1; logits [B, T, V]. Computes in float32, or
    wider where `keras.config.floatx` is wider.

    Output: [B, T] from `call`; a number from the loss itself, unless `reduction` is "none".

    Raises:
        ValueError: if `label_smoothing` is out of range.
    """

    def __init__(self, label_smoothing=0.0, reduction="sum", name="smoothed_cross_entropy"):
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(
                "label_smoothing must be at least 0 and less than 1. "
                f"Received: label_smoothing={label_smoothing}."
            )
        # Labels pass through this type too: in 16 bits most ids would be rounded.
        dtype = keras.backend.result_type(keras.config.floatx(), "float32")
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        logits = ops.cast(y_pred, self.dtype)
        return smoothed_cross_entropy(ops.cast(y_true, "int32"), logits, self.label_smoothing)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}


def smoothed_cross_entropy(labels, logits, label_smoothing):
    """logsumexp(logits) - (1 - label_smoothing) logits[label] - label_smoothing mean(logits).

    Args:
        labels: int32 [...].
        logits: float [..., V].
        label_smoothing: share of a label that is spread over all classes.

    Returns:
        The losses [...].
    """
    classes = ops.shape(logits)[-1]
    labels = ops.expand_dims(labels, -1)

    # The gradient that would be derived scatters into a tensor of zeros for the label, then adds
    # up three tensors of the logits' size: four times as slow on a CPU.
    @ops.custom_gradient
    def losses_of(logits):
        log_total = ops.logsumexp(logits, axis=-1, keepdims=True)
        label_logit = ops.take_along_axis(logits, labels, axis=-1)
        mean = ops.mean(logits, axis=-1, keepdims=True)
        losses = log_total - (1.0 - label_smoothing) * label_logit - label_smoothing * mean

        def gradient(*args, upstream=None):
            # PyTorch passes the arguments of the function, then this by name; the others this.
            upstream = args[0] if upstream is None else upstream
            spread = label_smoothing / classes
            is_label = ops.equal(ops.arange(classes, dtype="int32"), labels)
            target = ops.where(is_label, 1.0 - label_smoothing + spread, spread)
            softmax = ops.exp(logits - log_total)
            return upstream * (softmax - ops.cast(target, logits.dtype))

        return losses, gradient

    return ops.squeeze(losses_of(logits), -1)
