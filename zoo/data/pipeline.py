"""Input pipeline for images: each batch is a pure function of the seed and the step.

Axes: B batch, H image height, W image width, C channels, K classes.
"""

import tensorflow as tf

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
    preprocessing,
    num_classes,
    batch_size,
    augment=None,
    label_smoothing=0.0,
    repeats=1,
    seed=0,
    first_step=0,
    accumulation=1,
):
    """Returns an infinite data set of shuffled, augmented and normalised batches.

    Every epoch has ``len(images) // batch_size`` batches. A batch depends only on `seed` and its
    step, so a resumed run sees the same batches as an uninterrupted one.

    Args:
        images: `zoo.data.images.Images`.
        preprocessing: `zoo.data.preprocessing.ImagePreprocessing`.
        num_classes: K.
        batch_size: B.
        augment: function of (images float32 [B, H, W, C] in 0..255, one-hot labels, seed [2]), such
            as `zoo.training.augmentation.Augmentation`; none by default.
        label_smoothing: share of each label spread over all classes (Szegedy et al. 2015, section
            7).
        repeats: number of times an image occurs in its batch, each with a different augmentation;
            an epoch then has fewer distinct images (Hoffer et al. 2020, "Augment your batch",
            section 3).
        seed: seed of shuffling and augmentation.
        first_step: step of the first batch, counted from the beginning of the run.
        accumulation: number of parts of a batch, which must divide `batch_size`; their gradients
            are summed, which takes less memory.

    Returns:
        `tf.data.Dataset` of (images float32 [B, H, W, C], soft labels float32 [B, K], weights
        float32 [B]), or of tuples of such parts if `accumulation` is greater than 1. The weights
        are 1 / B, so a summed loss is the mean over the batch.
    """
    read, count, steps = images.reader(), len(images), steps_per_epoch(images, batch_size)

    def order(epoch):
        shuffled = tf.random.experimental.stateless_shuffle(
            tf.range(count), seed=tf.stack([tf.cast(seed, tf.int64), epoch])
        )
        return tf.data.Dataset.from_tensor_slices(
            tf.repeat(shuffled, repeats)[: steps * batch_size]
        )

    def batch(step, indices):
        pixels, labels = read(indices)
        pixels, labels = tf.cast(pixels, tf.float32), tf.one_hot(labels, num_classes)
        if augment is not None:
            pixels, labels = augment(pixels, labels, tf.stack([seed, tf.cast(step, tf.int32)]))
        labels = (1.0 - label_smoothing) * labels + label_smoothing / num_classes
        return preprocessing.normalise(pixels), labels, tf.fill([batch_size], 1.0 / batch_size)

    indices = tf.data.Dataset.counter(first_step // steps).flat_map(order)
    indices = indices.batch(batch_size, drop_remainder=True).skip(first_step % steps)
    batches = indices.enumerate(first_step).map(batch, num_parallel_calls=tf.data.AUTOTUNE)
    if accumulation > 1:
        batches = batches.map(lambda *it: tuple(zip(*(tf.split(t, accumulation) for t in it))))
    return batches.prefetch(tf.data.AUTOTUNE)


def test_batches(images, preprocessing, num_classes, batch_size):
    """Returns all images in order, in normalised batches with one-hot labels and weights.

    The weights are number of batches / number of images: with a summed loss, the mean over the
    batches, which Keras reports, is then the mean over all images.
    """
    read = images.reader()
    weight = -(-len(images) // batch_size) / len(images)

    def batch(indices):
        pixels, labels = read(indices)
        weights = tf.fill(tf.shape(indices), tf.constant(weight, tf.float32))
        return preprocessing.normalise(pixels), tf.one_hot(labels, num_classes), weights

    indices = tf.data.Dataset.range(len(images)).batch(batch_size)
    return indices.map(batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
