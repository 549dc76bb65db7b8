"""Cross-entropy with few passes over the logits; on CPUs, their number determines the time."""

import functools

from keras import ops

from zoo import compat
from zoo.kernels.xla import compile_for_cpus


def smoothed_cross_entropy(labels, logits, label_smoothing):
    """`zoo.training.losses.smoothed_cross_entropy`, with a gradient that reuses the softmax.

    The gradient that TensorFlow derives makes ten passes over the logits.
    """
    import tensorflow as tf

    labels = ops.expand_dims(labels, -1)  # [..., 1]

    @tf.custom_gradient
    def compute_losses(logits):
        probabilities = ops.softmax(logits)  # [..., K]
        # log(sum(exp(logits))) = max(logits) - log(max(probabilities)), which is exact: the largest
        # probability never underflows.
        best = compat.maximum(logits, axis=-1, keepdims=True)  # [..., 1]
        largest = compat.maximum(probabilities, axis=-1, keepdims=True)
        log_total = best - ops.log(largest)
        label_logit = ops.take_along_axis(logits, labels, axis=-1)
        mean = ops.mean(logits, axis=-1, keepdims=True)
        losses = log_total - (1.0 - label_smoothing) * label_logit - label_smoothing * mean

        def gradient(upstream):
            return _compiled_gradient()(probabilities, labels, upstream, label_smoothing)

        return losses, gradient

    return ops.squeeze(compute_losses(logits), -1)


@functools.cache
def _compiled_gradient():
    def gradient(probabilities, labels, upstream, label_smoothing):
        classes = ops.shape(probabilities)[-1]
        spread = label_smoothing / ops.cast(classes, probabilities.dtype)
        is_label = ops.cast(ops.arange(classes, dtype="int32") == labels, probabilities.dtype)
        return upstream * (probabilities - (1.0 - label_smoothing) * is_label - spread)

    return compile_for_cpus(gradient)
