"""A training step: forward, loss, gradients, sum over the replicas, update.

Each replica runs these functions on its share of the rows. The gradients of all batches and of all
replicas are summed before they are clipped, so how rows are distributed changes nothing.
"""

import math

import keras
import tensorflow as tf

from zoo.kernels import loss_on_cpus
from zoo.kernels.xla import compiled
from zoo.training.distribution import sum_over_replicas
from zoo.training.optimizers import without_loss_scale

LARGE = 10_000_000


def training_step(trainer, batches, loss_and_gradients):
    """Updates the weights once, by the sum of the gradients of some batches.

    Args:
        trainer: compiled `zoo.training.trainer.Trainer`.
        batches: list of (inputs, labels, weights).
        loss_and_gradients: function of (inputs, labels, weights): `loss_and_gradients`, compiled or
            not.

    Returns:
        The sum of the losses of the batches on this replica.
    """
    variables = trainer.trainable_variables
    total_loss, total_gradients = 0.0, [None] * len(variables)
    for batch in batches:
        loss, outputs, gradients = loss_and_gradients(*batch)
        total_loss += loss
        total_gradients = [_add(*pair) for pair in zip(total_gradients, gradients)]
        trainer.update_metrics(batch, outputs)
    # A variable that the loss does not depend on has no gradient, and stays as it is.
    used = [index for index, gradient in enumerate(total_gradients) if gradient is not None]
    gradients = sum_over_replicas([total_gradients[index] for index in used])
    apply_gradients(trainer.optimizer, gradients, [variables[index] for index in used])
    return total_loss


def loss_and_gradients(trainer, inputs, labels, weights):
    """The loss of a batch, the outputs of the model, and a gradient or None for each variable."""
    with tf.GradientTape() as tape:
        outputs = trainer(inputs, training=True)
        loss = trainer.compute_loss(inputs, labels, outputs, weights, training=True)
        scaled = trainer.optimizer.scale_loss(loss)  # so that no gradient is 0 in float16
    gradients = tape.gradient(scaled, trainer.trainable_variables)
    # Gradients of embeddings are `IndexedSlices` with repeated rows, which this adds up.
    return loss, outputs, [g if g is None else tf.convert_to_tensor(g) for g in gradients]


def apply_gradients(optimizer, gradients, variables):
    """Clips the gradients and updates the variables, unless a gradient overflows in float16."""

    def update(*gradients):
        optimizer.apply(gradients, variables)

    is_large = sum(math.prod(variable.shape) for variable in variables) >= LARGE
    one_device = not tf.distribute.has_strategy()
    if is_large and one_device and loss_on_cpus() and _is_elementwise(optimizer):
        update = compiled(update)  # one pass over memory
    update(*gradients)


def _is_elementwise(optimizer):
    """Whether an optimizer of Keras or ours has no matrix products, in which XLA is slower."""
    kind = type(without_loss_scale(optimizer))
    is_known = kind.__module__.startswith(("keras.", "zoo."))
    return is_known and not issubclass(kind, keras.optimizers.Muon)


def validation_step(trainer, batch):
    """Returns the loss of a batch on this replica."""
    inputs, labels, weights = batch
    outputs = trainer(inputs, training=False)
    loss = trainer.compute_loss(inputs, labels, outputs, weights, training=False)
    trainer.update_metrics(batch, outputs)
    return loss


def _add(first, second):
    return first if second is None else second if first is None else first + second
