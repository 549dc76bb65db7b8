"""A training step: forward pass, loss, gradients, sum over the replicas, update.

Each replica runs these functions on its shares of the batches, see `zoo.data.worker_batches`. The
gradients of all shares are summed before they are clipped, so the result does not depend on the
number of replicas.
"""

import keras
import tensorflow as tf

from zoo import compat, kernels
from zoo.training.distribution import sum_over_replicas


def training_step(trainer, parts, compute_gradients):
    """Updates the weights once, with the sum of the gradients of all replicas.

    Args:
        trainer: compiled `zoo.training.trainer.Trainer`.
        parts: the share of this replica, or its parts; each is (inputs, labels, `ShareWeights`).
        compute_gradients: `loss_and_gradients` as a function of (inputs, labels, share_weights),
            which may be compiled.

    Returns:
        The sum of the losses of the parts.
    """
    variables = trainer.trainable_variables
    total_loss = 0.0
    total_gradients = [None] * len(variables)

    # 1. The losses and gradients of this replica, summed over its parts.
    for part in parts:
        # One part after the other, as each takes memory.
        with tf.control_dependencies([total for total in total_gradients if total is not None]):
            loss, outputs, attributes, gradients = compute_gradients(*part)
        for output, values in zip(keras.tree.flatten(outputs), attributes):
            compat.set_keras_attributes(output, values)  # a `tf.function` drops them
        total_loss += loss
        total_gradients = [
            _add(total, gradient) for total, gradient in zip(total_gradients, gradients)
        ]
        trainer.update_metrics(part, outputs)

    # 2. Their sum over the replicas. A variable that the loss does not depend on has no gradient,
    #    and is not updated.
    pairs = [pair for pair in zip(total_gradients, variables) if pair[0] is not None]
    gradients = sum_over_replicas([gradient for gradient, _ in pairs])
    trainer.record_gradient_norm(gradients, total_loss)

    # 3. The update, the same on all replicas.
    def update(*gradients):
        apply_gradients(trainer.optimizer, gradients, [variable for _, variable in pairs])

    if trainer.jit_update:  # a function of its own, as its shapes are those of the weights
        update = tf.function(update, jit_compile=True, autograph=False)
    update(*gradients)
    return total_loss


def loss_and_gradients(trainer, inputs, labels, share_weights):
    """Returns the loss of a share, the outputs, and a gradient or None for each variable.

    Before the gradients come the attributes of each output, see `zoo.compat.keras_attributes`.
    """
    with tf.GradientTape() as tape:
        outputs = trainer(inputs, training=True)
        loss = trainer.compute_loss(inputs, labels, outputs, share_weights, training=True)
        scaled = trainer.optimizer.scale_loss(loss)  # for float16; `apply` undoes it
    gradients = tape.gradient(scaled, trainer.trainable_variables)
    # Gradients of embeddings are `IndexedSlices`; convert_to_tensor sums repeated rows.
    gradients = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
    attributes = [compat.keras_attributes(output) for output in keras.tree.flatten(outputs)]
    return loss, outputs, attributes, gradients


@kernels.accelerated_by(kernels.apply_gradients)
def apply_gradients(optimizer, gradients, variables):
    """Clips the gradients and updates the variables, unless a gradient overflows in float16."""
    optimizer.apply(gradients, variables)


def validation_step(trainer, parts):
    """Returns the sum of the losses of the parts, as `training_step` does."""
    total_loss = tf.constant(0.0)
    for part in parts:
        inputs, labels, share_weights = part
        with tf.control_dependencies([total_loss]):  # one after the other
            outputs = trainer(inputs, training=False)
            loss = trainer.compute_loss(inputs, labels, outputs, share_weights, training=False)
        total_loss += loss
        trainer.update_metrics(part, outputs)
    return total_loss


def global_norm(tensors):
    """Computes the norm of all elements of a list of tensors together, in float32."""
    halves = [tf.nn.l2_loss(tf.cast(tensor, tf.float32)) for tensor in tensors]
    return tf.sqrt(2.0 * tf.add_n(halves))


def _add(first, second):
    if first is None:
        return second
    if second is None:
        return first
    return first + second
