"""Cross-entropy in few passes over the logits, whose number is the time on CPUs."""

import functools

from keras import ops

from zoo import compat
from zoo.kernels.xla import compiled


def smoothed_cross_entropy(labels, logits, label_smoothing):
    """`zoo.training.losses.smoothed_cross_entropy`, with a gradient that reuses the softmax.

    The gradient that TensorFlow derives makes ten passes over the logits.
    """
    import tensorflow as tf

    labels = ops.expand_dims(labels, -1)

    @tf.custom_gradient
    def losses_of(logits):
        probabilities = ops.softmax(logits)
        # exact however small the probability of the label is, since the largest one is not small
        best, share = (compat.maximum(x, axis=-1, keepdims=True) for x in (logits, probabilities))
        log_total = best - ops.log(share)
        label_logit = ops.take_along_axis(logits, labels, axis=-1)
        mean = ops.mean(logits, axis=-1, keepdims=True)
        losses = log_total - (1.0 - label_smoothing) * label_logit - label_smoothing * mean
        return losses, lambda upstream: _compiled_gradient()(
            probabilities, labels, upstream, label_smoothing
        )

    return ops.squeeze(losses_of(logits), -1)


@functools.cache
def _compiled_gradient():
    def gradient(probabilities, labels, upstream, label_smoothing):
        classes = ops.shape(probabilities)[-1]
        spread = label_smoothing / ops.cast(classes, probabilities.dtype)
        is_label = ops.cast(ops.arange(classes, dtype="int32") == labels, probabilities.dtype)
        return upstream * (probabilities - (1.0 - label_smoothing) * is_label - spread)

    return compiled(gradient)
