"""Workers and replicas once there is a strategy: who writes, who knows what, who is lost."""

import contextlib
import functools
import os
import pathlib
import re
import sys
import tempfile

import numpy as np
import tensorflow as tf

from zoo.errors import UserError

_STRIDE = 1_000_003  # between the seeds of replicas; a prime, as seeds of layers lie close together
# What TensorFlow raises in the workers that are left, by how the lost one ended.
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
    """Number of processes that train together."""
    if strategy.cluster_resolver is None:
        return 1
    cluster = strategy.cluster_resolver.cluster_spec()
    return max(1, sum(map(cluster.num_tasks, cluster.jobs)))


def worker_index(strategy):
    """Number of this process among them: 0 is the chief."""
    resolver = strategy.cluster_resolver
    if resolver is None or resolver.task_type in (None, "chief"):
        return 0
    return resolver.task_id + ("chief" in resolver.cluster_spec().jobs)


def is_chief(strategy):
    """Whether this process writes the run folder and reports."""
    return worker_index(strategy) == 0


def replica_values(strategy, variable):
    """The tensors of a `keras.Variable` on the replicas of this worker."""
    return strategy.experimental_local_results(variable.value)


def sum_over_replicas(tensors):
    """Adds up what each replica has, within a step: list of dense tensors -> the same in all."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return tensors
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)


def sum_over_workers(strategy, numbers):
    """Adds up what each worker has, for which all of them wait.

    Args:
        strategy: `tf.distribute.Strategy`.
        numbers: tensor, of the same shape in all workers.

    Returns:
        NumPy array.
    """
    replicas = strategy.num_replicas_in_sync // num_workers(strategy)  # of which each adds it
    return _summing(strategy)(numbers).numpy() / replicas


@functools.cache
def _summing(strategy):
    @tf.function  # without which TensorFlow warns of the time it takes
    def over_replicas(numbers):
        # A tensor that is the same object on all replicas of a worker would count once.
        each = strategy.run(lambda: tf.identity(numbers))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, each, axis=None)

    return over_replicas


def from_chief(strategy, number):
    """The chief's number in all workers; waits for all of them.

    Args:
        strategy: `tf.distribute.Strategy`.
        number: a whole number; only the chief's counts.
    """
    if num_workers(strategy) == 1:
        return number
    with exit_if_a_worker_is_lost(strategy):
        own = tf.constant(number if is_chief(strategy) else 0, tf.int64)
        return int(sum_over_workers(strategy, own))


def check_agreement(strategy, numbers):
    """Has workers that begin to train find out whether they differ in what should be the same.

    Args:
        strategy: `tf.distribute.Strategy`.
        numbers: {what: a number that follows from it}.

    Raises:
        UserError: if a number is not the same in all workers, to a thousandth.
    """
    if num_workers(strategy) == 1:
        return
    own = tf.constant([float(number) for number in numbers.values()], tf.float64)
    with exit_if_a_worker_is_lost(strategy):
        mean = sum_over_workers(strategy, own) / num_workers(strategy)
    for what, mine, common in zip(numbers, own.numpy(), mean):
        if not np.isclose(mine, common, rtol=1e-3, equal_nan=True):
            raise UserError(
                f"The workers differ in {what}: {mine:.8g} in worker {worker_index(strategy)}, "
                f"{common:.8g} on average. Start all of them by the same command, with the same "
                "files before them."
            )


def set_random_state(variable, state, strategy):
    """Sets the state of a `keras.random.SeedGenerator` so that each replica draws its own numbers.

    Keras gives all replicas the same state: dropout would then drop the same in each. Here replica
    r gets the seed of the state plus 1,000,003 r; replica 0, and a single one, the state itself.

    Args:
        variable: `keras.Variable` of two numbers, seed and count.
        state: the two numbers, as replica 0 has them.
        strategy: `tf.distribute.Strategy` under which the variable was made.
    """
    components = replica_values(strategy, variable)
    first = worker_index(strategy) * len(components)
    for replica, component in enumerate(components, first):
        value = np.array(state, dtype=component.dtype.as_numpy_dtype)
        value[0] = (int(value[0]) + _STRIDE * replica) % 2**32
        component.assign(value)


@contextlib.contextmanager
def private_folder(strategy, path):
    """`path` in the chief, a temporary folder in other workers, for files that each needs."""
    if is_chief(strategy):
        yield path
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield pathlib.Path(folder)


@contextlib.contextmanager
def exit_if_a_worker_is_lost(strategy, newest=lambda: None):
    """Around what workers do together: ends the process with status 1 if another one is gone.

    Args:
        strategy: `tf.distribute.Strategy`.
        newest: function that returns the newest checkpoint, which the message names, or None.
    """
    try:
        yield
    except _LOST as error:
        if num_workers(strategy) == 1:
            raise
        checkpoint = newest()
        reason = re.search(r"aborted by: (.+)", str(error)) or re.match(r"(.*)", error.message)
        print(
            f"error: a worker is lost, and the others cannot go on ({reason[1].rstrip('.:')}).\n"
            + (f"The last checkpoint is {checkpoint}. " if checkpoint else "")
            + "Start all workers again, with --resume; there may be more or fewer of them.",
            file=sys.stderr,
            flush=True,
        )
        sys.stdout.flush()
        # The usual exit would wait for the lost worker.
        os._exit(1)
