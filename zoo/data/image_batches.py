"""Batches of images: each row of a batch is a pure function of seed, step and row number.

So a resumed run sees the same batches as an uninterrupted one, with any number of workers. A worker
computes the rows of its replicas only, in groups of `GROUP_SIZE` consecutive rows, because images
are mixed with others of their group. Here are 48 rows for two workers with one replica each; both
workers compute the group in the middle, and each keeps the half that `split` selects for it::

    row                    0 ... 15 | 16 ... 23 | 24 ... 31 | 32 ... 47
    replica, worker        0 ................ 0 | 1 ................ 1
    group                  0 ..... 0 | 1 ................. 1 | 2 ..... 2
    computed by worker     0        | 0 and 1   | 0 and 1   | 1

See `zoo.data.worker_batches` for how rows are divided between replicas, and for the words
batch, share and part. Axes: B rows of a batch, b rows that a worker computes, H image height, W
image width, C channels, K classes.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from zoo.data.images import INVALID_LABEL
from zoo.data.preprocessing import random_resized_crop
from zoo.data.token_batches import shuffled
from zoo.data.worker_batches import (
    ShareWeights,
    WorkerBatches,
    split,
    split_rows,
    unbatch_replicas,
)
from zoo.errors import UserError

GROUP_SIZE = 16  # consecutive rows that are augmented together


class BatchRows(NamedTuple):
    """The rows of a batch that a worker augments.

    Random draws depend on the index of a row only, whichever other rows the worker has.

    Fields:
        indices: int32 [b], ascending.
        batch_size: number of rows of the whole batch.
    """

    indices: tf.Tensor
    batch_size: int


def steps_per_epoch(images, batch_size):
    """Returns the number of full batches in an epoch.

    Raises:
        UserError: if there are fewer images than `batch_size`.
    """
    if not 1 <= batch_size <= len(images):
        raise UserError(
            f"The batch size must be from 1 to the number of training images, {len(images):,}. "
            f"Received: {batch_size}."
        )
    return len(images) // batch_size


def training_batches(
    images,
    num_classes,
    batch_size,
    augment=None,
    label_smoothing=0.0,
    seed=0,
    first_step=0,
    min_crop_area=None,
    on_device=False,
):
    """Returns an infinite data set of shuffled and augmented batches.

    An epoch has `steps_per_epoch` batches.

    Args:
        images: `zoo.data.images.Images`.
        num_classes: K.
        batch_size: B, the rows of a batch.
        augment: `zoo.training.augmentation.Augmentation`; none by default.
        label_smoothing: share of each label spread over all classes (Szegedy et al. 2015, section
            7); of images with several labels, the share by which each is moved towards 0.5.
        seed: seed of shuffling and augmentation.
        first_step: step of the first batch, counted from the beginning of the run.
        min_crop_area: see `random_resized_crop`; no such crops by default.
        on_device: whether images are augmented by the device that trains on them, and not by the
            CPU. With several replicas, each must have whole groups of `GROUP_SIZE` rows.

    Returns:
        `WorkerBatches` of (images uint8 [B, H, W, C], soft labels float32 [B, K], weights float32
        [B], which are 1).
    """
    count = len(images)
    steps = steps_per_epoch(images, batch_size)

    def augmented(inputs, labels):
        """Returns the images and the labels of rows, whose inputs are those of `batch`."""
        if augment is None:
            return inputs["pixels"], labels
        rows = BatchRows(inputs["row"], batch_size)
        return augment(inputs["pixels"], labels, _seed(seed, inputs["step"][0]), rows)

    @tf.autograph.experimental.do_not_convert  # which takes seconds, and changes nothing
    def shares(context):
        own = _WorkerRows(batch_size, context)

        def places(step):
            places = step % steps * batch_size + tf.cast(own.indices, tf.int64)
            return step, shuffled(places, count, seed, step // steps)

        def crop(image, step, row):
            row_seed = tf.random.fold_in(_seed(seed, step), row)
            return random_resized_crop(image, row_seed, images.image_shape, min_crop_area)

        def batch(step, pixels, labels):
            spread = 2
            if labels.shape.rank == 1:
                tf.debugging.assert_non_negative(labels, INVALID_LABEL)
                tf.debugging.assert_less(labels, num_classes, INVALID_LABEL)
                labels = tf.one_hot(labels, num_classes)
                spread = num_classes
            labels = (1.0 - label_smoothing) * labels + label_smoothing / spread
            rows = tf.constant(own.indices)
            inputs = {"pixels": pixels, "row": rows, "step": tf.fill(tf.shape(rows), step)}
            if not on_device:
                inputs, labels = augmented(inputs, labels)
            weights = tf.ones([len(own.indices)])
            return own.split(inputs, labels, weights, total_weight=batch_size)

        read = _read(
            images,
            tf.data.Dataset.counter(first_step).map(places),
            own.indices,
            crop=None if min_crop_area is None else crop,
        )
        return unbatch_replicas(read.map(batch, tf.data.AUTOTUNE))

    return WorkerBatches(shares, on_device=augmented if on_device else None)


def evaluation_batches(images, num_classes, batch_size):
    """Returns a data set of all images in order, in batches with one-hot labels.

    The last batch is filled with rows of weight 0. For arguments and return value see
    `training_batches`.
    """
    batch_size = min(batch_size, len(images))
    steps = -(-len(images) // batch_size)

    @tf.autograph.experimental.do_not_convert  # which takes seconds, and changes nothing
    def shares(context):
        own = _WorkerRows(batch_size, context)

        def places(step):
            places = step * batch_size + tf.cast(own.indices, tf.int64)
            return step, tf.minimum(places, len(images) - 1)

        def batch(step, pixels, labels):
            start = step * batch_size
            places = start + tf.cast(own.indices, tf.int64)
            weights = tf.cast(places < len(images), tf.float32)
            total_weight = tf.minimum(start + batch_size, len(images)) - start
            if labels.shape.rank == 1:
                labels = tf.one_hot(labels, num_classes)
            return own.split(pixels, labels, weights, total_weight)

        read = _read(images, tf.data.Dataset.range(steps).map(places), own.indices)
        return unbatch_replicas(read.map(batch, tf.data.AUTOTUNE))

    return WorkerBatches(shares, steps)


class _WorkerRows:
    """The rows of a batch that a worker computes: the groups with the rows of its replicas.

    Attributes:
        indices: int32 [b], ascending.
    """

    def __init__(self, batch_size, context):
        self._batch_size = batch_size
        self._split_rows, self._is_real = (
            tensor.numpy() for tensor in split_rows(batch_size, context)
        )
        all_rows = np.arange(batch_size, dtype=np.int32)
        groups = self._split_rows // GROUP_SIZE
        self.indices = all_rows[np.isin(all_rows // GROUP_SIZE, groups)]

    def split(self, inputs, labels, weights, total_weight):
        """Splits the rows of a batch by replicas.

        Args:
            inputs: tensor [b, ...], or a structure of these.
            labels: [b, K].
            weights: [b].
            total_weight: the sum of the weights of all B rows.
        """
        share_weights = ShareWeights.of_batch(weights, self._batch_size, total_weight)
        places = np.searchsorted(self.indices, self._split_rows)
        return split((inputs, labels, share_weights), places, self._is_real)


def _seed(seed, step):
    seed = np.uint32(seed).astype(np.int32)  # the same bits
    return tf.stack([seed, tf.cast(step, tf.int32)])


def _read(images, steps, rows, crop=None):
    """Reads the images of each batch.

    Args:
        images: `zoo.data.images.Images`.
        steps: data set of (step, the indices of the images, int64 [b]).
        rows: int32 [b], their rows in the batch.
        crop: function of (encoded image, step, row) that returns uint8 [H, W, C].

    Returns:
        A data set of (step, images uint8 [b, H, W, C], labels int32 [b] or float32 [b, K]).
    """
    if images.decoded and crop is None:
        # A graph captures tensors by reference, but embeds arrays as constants.
        arrays = [tf.constant(array) for array in images.decoded]

        def read(step, places):
            return step, *(tf.gather(array, places) for array in arrays)

        return steps.map(read, tf.data.AUTOTUNE)

    def examples(step, places):
        return tf.data.Dataset.from_tensor_slices((tf.fill([len(rows)], step), places, rows))

    def example(step, place, row):
        image, label = images.read(tf.gather(images.numbers, place))
        image = images.fit(image) if crop is None else crop(image, step, row)
        return step, image, label

    batches = steps.flat_map(examples).map(example, tf.data.AUTOTUNE).batch(len(rows))
    return batches.map(lambda steps, *batch: (steps[0], *batch))
