"""Input pipeline for images: each row of a batch is a pure function of seed, step and number.

Axes: B rows of a batch, b rows that a worker computes, H image height, W image width, C channels,
K classes.
"""

import numpy as np
import tensorflow as tf

from zoo.data.images import Images
from zoo.data.random_crop import random_resized_crop
from zoo.data.worker_batches import Rows, WorkerBatches, of_each_replica, worker_rows
from zoo.errors import UserError


def steps_per_epoch(images, batch_size, repeats=1):
    """Returns the number of full batches in an epoch, in which each image occurs `repeats` times.

    Raises:
        UserError: if there are fewer images than `batch_size`.
    """
    if not 1 <= batch_size <= len(images):
        raise UserError(
            f"The batch size must be from 1 to the number of training images, {len(images):,}. "
            f"Received: {batch_size}."
        )
    return len(images) * repeats // batch_size


def training_batches(
    images,
    num_classes,
    batch_size,
    augment=None,
    label_smoothing=0.0,
    repeats=1,
    seed=0,
    first_step=0,
    accumulation=1,
    min_crop_area=None,
):
    """Returns shuffled and augmented batches without end.

    Every epoch has `steps_per_epoch` batches. A row of a batch depends only on `seed`,
    its step and its number, so a resumed run sees the same batches as an uninterrupted one, and any
    number of workers computes the same rows. An image that cannot be read has weight 0.

    Args:
        images: `zoo.data.images.Images` or `StreamedImages`.
        num_classes: K.
        batch_size: B.
        augment: `zoo.training.augmentation.Augmentation`; none by default.
        label_smoothing: share of each label spread over all classes (Szegedy et al. 2015, section
            7).
        repeats: number of times an image occurs in its batch, each with a different augmentation
            (Hoffer et al. 2020, "Augment your batch", section 3).
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
    count, steps = len(images), steps_per_epoch(images, batch_size, repeats)

    def parts(context):
        rows = worker_rows(batch_size, context, accumulation, getattr(augment, "group", 1))
        places = _apart(batch_size, repeats)[rows.numbers]

        def epoch_of(epoch):
            shuffled = tf.random.experimental.stateless_shuffle(
                tf.range(count, dtype=tf.int64), seed=tf.stack([tf.cast(seed, tf.int64), epoch])
            )
            first = tf.where(epoch == first_step // steps, first_step % steps, 0)
            return tf.data.Dataset.range(tf.cast(first, tf.int64), steps).map(
                lambda step: (
                    epoch * steps + step,
                    tf.gather(shuffled, (step * batch_size + places) // repeats),
                )
            )

        def crop(image, step, row):
            own = tf.random.fold_in(tf.stack([seed, tf.cast(step, tf.int32)]), row)
            size, channels = images.image_shape[:2], images.image_shape[2]
            return random_resized_crop(image, own, size, channels, min_crop_area)

        def batch(step, pixels, labels, readable):
            labels = tf.one_hot(labels, num_classes)
            if augment is not None:
                step = tf.stack([seed, tf.cast(step, tf.int32)])
                augmented = Rows(tf.constant(rows.numbers), batch_size)
                pixels, labels = augment(pixels, labels, step, augmented)
            labels = (1.0 - label_smoothing) * labels + label_smoothing / num_classes
            return rows.split(pixels, labels, readable / batch_size)

        chosen = tf.data.Dataset.counter(first_step // steps).flat_map(epoch_of)
        crop = None if min_crop_area is None else crop
        batches = _read(images, chosen, rows.numbers, crop).map(batch, tf.data.AUTOTUNE)
        return of_each_replica(batches, rows).prefetch(2)

    return WorkerBatches(parts)


def test_batches(images, num_classes, batch_size):
    """Returns all images in order, in batches with one-hot labels and weights.

    The weights are number of batches / number of images: with a summed loss, the mean over the
    batches, which Keras reports, is then the mean over all images. The last batch is filled with
    rows of weight 0. For arguments and return value see `training_batches`.
    """
    batch_size = min(batch_size, len(images))
    steps = -(-len(images) // batch_size)

    def parts(context):
        rows = worker_rows(batch_size, context)

        def numbers(step):
            wanted = step * batch_size + tf.cast(rows.numbers, tf.int64)
            return wanted, tf.minimum(wanted, len(images) - 1)

        def batch(wanted, pixels, labels, readable):
            weights = tf.where(wanted < len(images), readable * steps / len(images), 0.0)
            return rows.split(pixels, tf.one_hot(labels, num_classes), weights)

        chosen = tf.data.Dataset.range(steps).map(numbers)
        batches = _read(images, chosen, rows.numbers).map(batch, tf.data.AUTOTUNE)
        return of_each_replica(batches, rows).prefetch(2)

    return WorkerBatches(parts, steps)


def _apart(batch_size, repeats):
    """A place in the order of an epoch for each row, so that the repeats of an image are apart."""
    return np.concatenate([np.arange(turn, batch_size, repeats) for turn in range(repeats)])


def _read(images, chosen, rows, crop=None):
    """Reads the images of each batch.

    Args:
        images: `Images` or `StreamedImages`.
        chosen: data set of (anything, numbers of images int64 [b]).
        rows: int32 [b], the rows of the batch.
        crop: function of (image, the first of `chosen`, row) -> uint8 [H, W, C].

    Returns:
        Data set of (the first of `chosen`, uint8 [b, H, W, C], labels int32 [b], float32 [b]: 1, or
        0 if an image cannot be read; it is then black, and its label is -1).
    """
    read = images.reader()
    if isinstance(images, Images) and crop is None:
        readable = tf.ones(len(rows))
        return chosen.map(
            lambda first, numbers: (first, *read(numbers), readable), tf.data.AUTOTUNE
        )

    def batch(first, numbers):
        def example(place):
            image, label = read(numbers[place])
            row = tf.gather(rows, place)
            image = images.fit(image) if crop is None else crop(image, first, row)
            return place, image, label

        nothing = tf.zeros([0], tf.int64), tf.zeros([0, *images.image_shape], tf.uint8)
        nothing = tf.data.Dataset.from_tensors((*nothing, tf.zeros([0], tf.int32)))
        found = tf.data.Dataset.range(len(rows)).map(example, tf.data.AUTOTUNE)
        # The images that are left when those that cannot be read are gone, maybe none.
        found = found.ignore_errors().batch(len(rows)).concatenate(nothing).take(1)
        return found.map(lambda *rest: (first, *_whole(images, numbers, *rest)))

    return chosen.interleave(batch, cycle_length=2, num_parallel_calls=2, deterministic=True)


def _whole(images, numbers, places, pixels, labels):
    """Fills the rows whose images could not be read, and counts them; see `_read`."""
    size = tf.shape(numbers, tf.int64)
    readable = tf.scatter_nd(places[:, None], tf.ones_like(places, tf.float32), size)
    missing = tf.boolean_mask(numbers, readable == 0.0)

    def skip():
        return tf.numpy_function(lambda missing: images.skip(missing) or 0, [missing], tf.int64)

    def filled():
        # scattering takes longer than all else, so it is left out where nothing is missing
        with tf.control_dependencies([skip()]):
            shape = tf.concat([size, tf.shape(pixels, tf.int64)[1:]], axis=0)
            return tf.scatter_nd(places[:, None], pixels, shape)

    pixels = tf.cond(tf.size(missing) > 0, filled, lambda: pixels)
    pixels = tf.ensure_shape(pixels, (None, *images.image_shape))
    # -1 is no class: mixed into another image, it does not change the share of any
    return pixels, tf.scatter_nd(places[:, None], labels + 1, size) - 1, readable
