"""RandAugment with different random operations for each image of a batch.

Source: Cubuk et al. 2020, "RandAugment", section 3. Keras's RandAugment layer draws the same
operations for a whole batch, computes all of them, and takes no seed tensor.

Images are float32 [batch, height, width, channels] in 0..255, with any number of channels. A seed
is an int32 pair [2].
"""

import math

import tensorflow as tf
from keras import ops


def uniform(seed, rows, low=0.0, high=1.0):
    """Draws a number from [low, high) for each of the `BatchRows`: [batch, 1, 1, 1]."""
    draws = tf.random.stateless_uniform([rows.batch_size, 1, 1, 1], seed, low, high)
    return tf.gather(draws, rows.indices)


def size(images):
    """Returns height and width as float tensors, also if they are dynamic."""
    return tf.unstack(tf.cast(tf.shape(images)[1:3], tf.float32))


def warp(
    images, xx=1.0, xy=0.0, yx=0.0, yy=1.0, x=0.0, y=0.0, fill=128.0, interpolation="bilinear"
):
    """Applies an affine transform to each image.

    The output pixel at (column, row), relative to the center, is the input pixel at
    (xx * column + xy * row + x, yx * column + yy * row + y).
    """
    height, width = size(images)
    middle_x = (width - 1.0) / 2.0
    middle_y = (height - 1.0) / 2.0
    x += middle_x - xx * middle_x - xy * middle_y
    y += middle_y - yx * middle_x - yy * middle_y
    batch = tf.shape(images)[:1]
    entries = (xx, xy, x, yx, yy, y, 0.0, 0.0)
    columns = [tf.broadcast_to(tf.reshape(entry, [-1]), batch) for entry in entries]
    transforms = tf.stack(columns, axis=1)  # [batch, 8]
    return ops.image.affine_transform(
        images,
        transforms,
        interpolation,
        fill_mode="constant",
        fill_value=fill,
        data_format="channels_last",
    )


def _rotate(images, strength):
    angle = math.radians(30.0) * strength
    cosine = tf.cos(angle)
    sine = tf.sin(angle)
    return warp(images, xx=cosine, xy=-sine, yx=sine, yy=cosine)


def _blend(images, degenerate, strength):
    """Moves away from a degenerate image (strength > 0) or towards it (strength < 0)."""
    return tf.clip_by_value(images + 0.9 * strength * (images - degenerate), 0.0, 255.0)


def _gray(images):
    if images.shape[-1] != 3:
        return images
    return ops.image.rgb_to_grayscale(images, data_format="channels_last")


def _smooth(images):
    # PIL's kernel (1 1 1; 1 5 1; 1 1 1) / 13. Average pooling does not darken the border, unlike a
    # zero-padded convolution.
    return (9.0 * tf.nn.avg_pool2d(images, 3, 1, "SAME") + 4.0 * images) / 13.0


def _posterize(images, strength):
    step = 2.0 ** tf.round(4.0 * abs(strength))
    return tf.floor(images / step) * step


def _autocontrast(images, strength):
    # Not keras.layers.AutoContrast, which fails on an empty batch.
    low = tf.reduce_min(images, axis=(1, 2), keepdims=True)
    spread = tf.reduce_max(images, axis=(1, 2), keepdims=True) - low
    scale = tf.math.divide_no_nan(255.0, spread)
    return tf.where(spread > 0.0, tf.minimum((images - low) * scale, 255.0), images)


def _equalize(images, strength):
    """Equalizes the histogram of each channel of each image."""
    channels = tf.cast(tf.transpose(tf.round(images), [0, 3, 1, 2]), tf.int32)
    pixels = tf.reduce_prod(tf.shape(images)[1:3])
    values = tf.reshape(channels, [-1, pixels])  # [batch * channels, pixels]
    histogram = tf.math.bincount(values, minlength=256, maxlength=256, axis=-1)
    upto = tf.cast(tf.cumsum(histogram, axis=-1), tf.float32)  # [batch * channels, 256]
    darkest = tf.reduce_min(values, axis=-1, keepdims=True)
    lowest = tf.gather(upto, darkest, batch_dims=1)
    table = 255.0 * (upto - lowest) / tf.maximum(upto[:, -1:] - lowest, 1.0)
    # A channel with a single value is left unchanged.
    table = tf.where(upto[:, -1:] > lowest, table, tf.cast(darkest, tf.float32))
    equal = tf.gather(table, values, batch_dims=1)  # [batch * channels, pixels]
    equal = tf.reshape(equal, tf.shape(channels))  # [batch, channels, height, width]
    return tf.ensure_shape(tf.transpose(equal, [0, 2, 3, 1]), images.shape)


# The operations of Cubuk et al. 2020, section 3, with the ranges of Cubuk et al. 2019,
# "AutoAugment", table 6. Strengths are [batch, 1, 1, 1] in -1..1; strength 0 leaves integer pixel
# values unchanged. Solarize and posterize ignore the sign. The first three ignore the strength.
OPERATIONS = {
    "identity": lambda images, strength: images,
    "autocontrast": _autocontrast,
    "equalize": _equalize,
    "rotate": _rotate,
    "solarize": lambda images, strength: tf.where(
        images < 256.0 * (1.0 - abs(strength)), images, 255.0 - images
    ),
    "color": lambda images, strength: _blend(images, _gray(images), strength),
    "posterize": _posterize,
    "contrast": lambda images, strength: _blend(
        images, tf.reduce_mean(_gray(images), axis=(1, 2, 3), keepdims=True), strength
    ),
    "brightness": lambda images, strength: _blend(images, 0.0, strength),
    "sharpness": lambda images, strength: _blend(images, _smooth(images), strength),
    "shear_x": lambda images, strength: warp(images, xy=0.3 * strength),
    "shear_y": lambda images, strength: warp(images, yx=0.3 * strength),
    "translate_x": lambda images, strength: warp(images, x=0.45 * strength * size(images)[1]),
    "translate_y": lambda images, strength: warp(images, y=0.45 * strength * size(images)[0]),
}


def rand_augment(images, seed, rows, num_ops, magnitude, probability):
    """Applies `num_ops` random operations in sequence: Cubuk et al. 2020, section 3."""
    shape = images.shape
    names = list(OPERATIONS)
    for turn in range(num_ops):
        seeds = tf.unstack(tf.random.split(tf.random.fold_in(seed, turn), 3))
        drawn = tf.cast(uniform(seeds[0], rows, 0.0, len(names)), tf.int32)
        applies = uniform(seeds[1], rows) < probability
        drawn = tf.reshape(tf.where(applies, drawn, names.index("identity")), [-1])  # [batch]
        strengths = magnitude * tf.where(uniform(seeds[2], rows) < 0.5, -1.0, 1.0)
        # Each operation is applied only to the images that drew it. To apply all operations to all
        # images and select afterwards would take as many times as long as there are operations.
        places = tf.dynamic_partition(tf.range(tf.shape(images)[0]), drawn, len(names))
        parts = tf.dynamic_partition(images, drawn, len(names))
        strengths = tf.dynamic_partition(strengths, drawn, len(names))
        changed = [
            OPERATIONS[name](part, strength)
            for name, part, strength in zip(names, parts, strengths, strict=True)
        ]
        images = tf.ensure_shape(tf.dynamic_stitch(places, changed), shape)
    return images
