"""Input pipeline for images: each row of a batch is a pure function of seed, step and row number.

So a resumed run sees the same batches as an uninterrupted one, with any number of workers.
Axes: B rows of a batch, b rows that a worker computes, H image height, W image width, C channels,
K classes.
"""

import numpy as np
import tensorflow as tf

from zoo.data.preprocessing import random_resized_crop
from zoo.data.token_batches import shuffled
from zoo.data.worker_batches import GROUP, BatchRows, WorkerBatches, each_replica, split, split_rows
from zoo.errors import UserError


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
    accumulation=1,
    min_crop_area=None,
):
    """Returns an infinite data set of shuffled and augmented batches.

    An epoch has `steps_per_epoch` batches.

    Args:
        images: `zoo.data.images.Images`.
        num_classes: K.
        batch_size: B.
        augment: `zoo.training.augmentation.Augmentation`; none by default.
        label_smoothing: share of each label spread over all classes (Szegedy et al. 2015, section
            7).
        seed: seed of shuffling and augmentation.
        first_step: step of the first batch, counted from the beginning of the run.
        accumulation: number of parts of a batch, which must divide `batch_size`; their gradients
            are summed, which takes less memory.
        min_crop_area: see `random_resized_crop`; no such crops by default.

    Returns:
        `WorkerBatches` of (images uint8 [B, H, W, C], soft labels float32 [B, K], weights float32
        [B]), or of tuples of such parts if `accumulation` is greater than 1. The weights are 1 / B,
        so a summed loss is the mean over the batch.
    """
    count, steps = len(images), steps_per_epoch(images, batch_size)

    @tf.autograph.experimental.do_not_convert  # which takes seconds, and changes nothing
    def parts(context):
        rows, split_parts = _worker_rows(batch_size, context, accumulation)

        def numbers(step):
            places = step % steps * batch_size + tf.cast(rows, tf.int64)
            return step, shuffled(places, count, seed, step // steps)

        def crop(image, step, row):
            own = tf.random.fold_in(_seed(seed, step), row)
            return random_resized_crop(image, own, images.image_shape, min_crop_area)

        def batch(step, pixels, labels):
            labels = tf.one_hot(labels, num_classes)
            if augment is not None:
                augmented = BatchRows(tf.constant(rows), batch_size)
                pixels, labels = augment(pixels, labels, _seed(seed, step), augmented)
            labels = (1.0 - label_smoothing) * labels + label_smoothing / num_classes
            return split_parts(pixels, labels, tf.fill([len(rows)], 1 / batch_size))

        batches = tf.data.Dataset.counter(first_step).map(numbers)
        read = _read(images, batches, rows, None if min_crop_area is None else crop)
        return each_replica(read.map(batch, tf.data.AUTOTUNE))

    return WorkerBatches(parts)


def evaluation_batches(images, num_classes, batch_size):
    """Returns a data set of all images in order, in batches with one-hot labels and weights.

    The weights are number of batches / number of images: with a summed loss, the mean over the
    batches, which Keras reports, is then the mean over all images. The last batch is filled with
    rows of weight 0. For arguments and return value see `training_batches`.
    """
    batch_size = min(batch_size, len(images))
    steps = -(-len(images) // batch_size)

    @tf.autograph.experimental.do_not_convert  # which takes seconds, and changes nothing
    def parts(context):
        rows, split_parts = _worker_rows(batch_size, context)

        def numbers(step):
            places = step * batch_size + tf.cast(rows, tf.int64)
            return step, tf.minimum(places, len(images) - 1)

        def batch(step, pixels, labels):
            places = step * batch_size + tf.cast(rows, tf.int64)
            weights = tf.where(places < len(images), steps / len(images), 0.0)
            return split_parts(pixels, tf.one_hot(labels, num_classes), weights)

        read = _read(images, tf.data.Dataset.range(steps).map(numbers), rows)
        return each_replica(read.map(batch, tf.data.AUTOTUNE))

    return WorkerBatches(parts, steps)


def _worker_rows(batch_size, context, accumulation=1):
    """The rows of a batch that a worker computes: the groups that contain those of its replicas.

    Returns int32 [b], ascending, and a function that splits (inputs, labels, weights) of these rows
    into the parts of each replica.
    """
    size, every = batch_size // accumulation, np.arange(batch_size, dtype=np.int32)
    own, real = (tensor.numpy() for tensor in split_rows(size, context))
    wanted = [part * size + own for part in range(accumulation)]
    rows = every[np.isin(every // GROUP, np.stack(wanted) // GROUP)]

    def split_parts(*batch):
        parts = [split(batch, np.searchsorted(rows, part), real) for part in wanted]
        return parts[0] if accumulation == 1 else tuple(parts)

    return rows, split_parts


def _seed(seed, step):
    return tf.stack([seed, tf.cast(step, tf.int32)])


def _read(images, steps, rows, crop=None):
    """Reads the images of each batch.

    `steps` is a data set of (step, int64 [b], the indices of the images), and `crop` a function of
    (encoded image, step, row) that returns uint8 [H, W, C]. Returns a data set of (step, uint8
    [b, H, W, C], labels int32 [b]).
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
        return step, images.fit(image) if crop is None else crop(image, step, row), label

    batches = steps.flat_map(examples).map(example, tf.data.AUTOTUNE).batch(len(rows))
    return batches.map(lambda steps, *batch: (steps[0], *batch))
