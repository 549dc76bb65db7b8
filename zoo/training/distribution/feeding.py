"""How a batch is dealt out to replicas."""

import tensorflow as tf


def distribute(batches, strategy):
    """Deals each batch out to the replicas, whatever the number of its rows.

    Every worker computes all batches, and takes the parts of its own replicas: what is trained on
    does not depend on the number of workers. Rows are cut in order into equal parts; if they do not
    divide, the last row is repeated with weight 0.

    Args:
        batches: `tf.data.Dataset` of batches (inputs, labels, weights), or of tuples of these.
            Weights are [B] or [B, ...], and all that counts is what is summed with them.
        strategy: `tf.distribute.Strategy`.

    Returns:
        What `fit` takes: the data set itself for one replica, else a `DistributedDataset` that
        begins anew when it ends. Distributed data sets are returned as they are.
    """
    replicas = strategy.num_replicas_in_sync
    if replicas == 1 or isinstance(batches, tf.distribute.DistributedDataset):
        return batches

    def parts(context):
        count = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * count

        def own(*element):
            parts = _split(element, replicas)
            return tf.nest.map_structure(lambda part: part[first : first + count], parts)

        # A data set with an end would have the workers ask each other in every step if it came.
        return batches.map(own, tf.data.AUTOTUNE).unbatch().prefetch(count).repeat()

    return strategy.distribute_datasets_from_function(parts)


def _split(element, replicas):
    """Each tensor [B, ...] of a batch, or of a tuple of batches, as [replicas, B / replicas, ...].

    Every batch gets at least one row for each replica, a repeated row weight 0.
    """
    if isinstance(element[0], tuple):
        return tuple(_split(batch, replicas) for batch in element)
    inputs, labels, weights = element
    rows = tf.shape(weights)[0]
    share = -(-rows // replicas)
    numbers = tf.range(share * replicas)
    real = tf.cast(numbers < rows, weights.dtype)

    def deal(tensor):
        rest = tf.shape(tensor)[1:]
        return tf.reshape(tensor, tf.concat([[replicas, share], rest], axis=0))

    # A row is repeated, as a model might make NaN of zeros.
    rows = tf.minimum(numbers, rows - 1)
    batch = tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), (inputs, labels, weights))
    inputs, labels, weights = batch
    weights *= tf.reshape(real, tf.concat([[-1], tf.ones_like(tf.shape(weights)[1:])], axis=0))
    return tf.nest.map_structure(deal, (inputs, labels, weights))
