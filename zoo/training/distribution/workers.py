"""Workers and replicas: their numbers, and values that differ between replicas."""

import numpy as np
import tensorflow as tf

# Gradients are summed in packs of about this size: the sum of a pack can begin before the backward
# pass has ended. PyTorch's DistributedDataParallel has the same default.
BYTES_PER_PACK = 25 * 2**20
_STRIDE = 1_000_003  # between the seeds of replicas: a large prime, as layers have nearby seeds


def num_workers(strategy):
    """Returns the number of processes that train together."""
    if strategy.cluster_resolver is None:
        return 1
    cluster = strategy.cluster_resolver.cluster_spec()
    return max(1, sum(map(cluster.num_tasks, cluster.jobs)))


def worker_index(resolver):
    """Returns the index of this process: 0 for the chief, and for a worker without a resolver."""
    if resolver is None or resolver.task_type in (None, "chief"):
        return 0
    return resolver.task_id + ("chief" in resolver.cluster_spec().jobs)


def is_chief(strategy):
    """Whether this process writes the run directory and prints."""
    return worker_index(strategy.cluster_resolver) == 0


def replica_values(strategy, variable):
    """Returns the tensors of a `keras.Variable` on the replicas of this worker."""
    return strategy.experimental_local_results(variable.value)


def sum_over_replicas(tensors):
    """Sums a list of dense tensors over all replicas; call it within a replica context."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return tensors
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=BYTES_PER_PACK)
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors, options=options)


def set_random_state(variable, state, strategy):
    """Sets the state of a `keras.random.SeedGenerator` to a different value on each replica.

    With Keras, all replicas have the same state and drop the same units. Here the seed of replica r
    is that of `state` (seed and counter) plus 1,000,003 r.
    """
    components = replica_values(strategy, variable)
    first = worker_index(strategy.cluster_resolver) * len(components)
    for replica, component in enumerate(components, first):
        value = np.array(state, dtype=component.dtype.as_numpy_dtype)
        value[0] = (int(value[0]) + _STRIDE * replica) % 2**32
        component.assign(value)
