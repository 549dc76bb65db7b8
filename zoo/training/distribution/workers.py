"""Communication between workers and replicas, and handling of lost workers."""

import contextlib
import functools
import os
import re
import sys

import numpy as np
import tensorflow as tf

from zoo.errors import UserError

_STRIDE = 1_000_003  # between the seeds of replicas; a large prime, as layers have nearby seeds
# What TensorFlow raises in the remaining workers, depending on how the other one was lost.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)


def num_workers(strategy):
    """Returns the number of processes that train together."""
    if strategy.cluster_resolver is None:
        return 1
    cluster = strategy.cluster_resolver.cluster_spec()
    return max(1, sum(map(cluster.num_tasks, cluster.jobs)))


def worker_index(strategy):
    """Returns the index of this process; the chief is 0."""
    resolver = strategy.cluster_resolver
    if resolver is None or resolver.task_type in (None, "chief"):
        return 0
    return resolver.task_id + ("chief" in resolver.cluster_spec().jobs)


def is_chief(strategy):
    """Whether this process writes the run directory and prints."""
    return worker_index(strategy) == 0


def replica_values(strategy, variable):
    """The tensors of a `keras.Variable` on the replicas of this worker."""
    return strategy.experimental_local_results(variable.value)


def sum_over_replicas(tensors):
    """Sums a list of dense tensors over all replicas; call it within a replica context."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return tensors
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)


def sum_over_workers(strategy, numbers):
    """Sums a tensor over all workers; a collective operation that all workers must call.

    Args:
        strategy: `tf.distribute.Strategy`.
        numbers: tensor of the same shape on all workers.

    Returns:
        NumPy array.
    """
    # Every replica contributes the value of its worker.
    replicas = strategy.num_replicas_in_sync // num_workers(strategy)
    return _summing(strategy)(numbers).numpy() / replicas


@functools.cache
def _summing(strategy):
    @tf.function  # called eagerly, TensorFlow logs a performance warning
    def over_replicas(numbers):
        # Without identity, the replicas of a worker would share one tensor, which is summed once.
        each = strategy.run(lambda: tf.identity(numbers))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, each, axis=None)

    return over_replicas


def from_chief(strategy, number):
    """Broadcasts an integer from the chief; a collective operation that all workers must call.

    Args:
        strategy: `tf.distribute.Strategy`.
        number: integer; ignored on other workers than the chief.
    """
    if num_workers(strategy) == 1:
        return number
    with exit_if_a_worker_is_lost(strategy):
        own = tf.constant(number if is_chief(strategy) else 0, tf.int64)
        return int(sum_over_workers(strategy, own))


def check_agreement(strategy, numbers):
    """Checks that all workers start training with the same state and data.

    Args:
        strategy: `tf.distribute.Strategy`.
        numbers: {description: number that must be the same on all workers}.

    Raises:
        UserError: if a number differs between workers by more than a relative 1e-3.
    """
    if num_workers(strategy) == 1:
        return
    own = tf.constant([float(number) for number in numbers.values()], tf.float64)
    with exit_if_a_worker_is_lost(strategy):
        mean = sum_over_workers(strategy, own) / num_workers(strategy)
    for what, mine, common in zip(numbers, own.numpy(), mean):
        if not np.isclose(mine, common, rtol=1e-3, equal_nan=True):
            raise UserError(
                f"The workers differ in {what}: {mine:.8g} on worker {worker_index(strategy)}, "
                f"{common:.8g} on average. Start all workers with the same command and the same "
                "files."
            )


def set_random_state(variable, state, strategy):
    """Sets the state of a `keras.random.SeedGenerator` to a different value on each replica.

    Keras gives all replicas the same state, so dropout would drop the same units on each. Here the
    seed of replica r is that of `state` plus 1,000,003 r; replica 0 gets `state` itself.

    Args:
        variable: `keras.Variable` of two numbers, seed and counter.
        state: the two numbers for replica 0.
        strategy: `tf.distribute.Strategy` under which the variable was created.
    """
    components = replica_values(strategy, variable)
    first = worker_index(strategy) * len(components)
    for replica, component in enumerate(components, first):
        value = np.array(state, dtype=component.dtype.as_numpy_dtype)
        value[0] = (int(value[0]) + _STRIDE * replica) % 2**32
        component.assign(value)


@contextlib.contextmanager
def exit_if_a_worker_is_lost(strategy, newest=lambda: None):
    """Context for collective operations: exits with status 1 if another worker is lost.

    Args:
        strategy: `tf.distribute.Strategy`.
        newest: function that returns the newest checkpoint, named in the message, or None.
    """
    try:
        yield
    except _LOST as error:
        if num_workers(strategy) == 1:
            raise
        checkpoint = newest()
        reason = re.search(r"aborted by: (.+)", str(error)) or re.match(r"(.*)", error.message)
        print(
            f"error: a worker is lost, so training cannot continue ({reason[1].rstrip('.:')}).\n"
            + (f"The last checkpoint is {checkpoint}. " if checkpoint else "")
            + "Start all workers again with --resume; their number may change.",
            file=sys.stderr,
            flush=True,
        )
        sys.stdout.flush()
        # `sys.exit` would wait for the lost worker.
        os._exit(1)
