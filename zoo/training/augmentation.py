"""Image augmentation for training vision transformers on small data, as a pure function.

The recipe of Touvron et al. 2021, "Training data-efficient image transformers" (DeiT,
table 9), with the padded crop that Lee et al. 2021, "Vision Transformer for Small-Size
Datasets", train on CIFAR with: crop and flip, RandAugment, random erasing, and Mixup or
CutMix.

Throughout, images are float32 [batch, height, width, channels] in 0..255 with any number
of channels, labels float32 [batch, classes] whose rows sum to one, and a seed an int32
pair [2]. Every choice is drawn from the seed for each image on its own, so that an epoch
can be replayed whatever the number of workers. Keras's random layers take no seed tensor,
and its RandomCrop, RandAugment and Equalization treat a batch as one; hence only the
functions beneath them are used.
"""

import dataclasses
import math

import tensorflow as tf
from keras import ops


def _uniform(seed, images, low=0.0, high=1.0):
    """One number for each image, shaped to broadcast against them."""
    return tf.random.stateless_uniform([tf.shape(images)[0], 1, 1, 1], seed, low, high)


def _size(images):
    """Height and width as floats, known or not when the graph is traced."""
    return tf.unstack(tf.cast(tf.shape(images)[1:3], tf.float32))


def _box(images, top, left, height, width):
    """Mask [batch, height, width, 1] of the part of each box that lies in its image."""
    rows, columns = _size(images)
    row = tf.range(rows)[None, :, None, None] - top
    column = tf.range(columns)[None, None, :, None] - left
    return (row >= 0) & (row < height) & (column >= 0) & (column < width)


def _warp(images, xx=1.0, xy=0.0, yx=0.0, yy=1.0, x=0.0, y=0.0, fill=128.0, kind="bilinear"):
    """Let the pixel at (column, row), seen from the centre, show what was at
    (xx * column + xy * row + x, yx * column + yy * row + y)."""
    height, width = _size(images)
    middle_x, middle_y = (width - 1.0) / 2.0, (height - 1.0) / 2.0
    x += middle_x - xx * middle_x - xy * middle_y
    y += middle_y - yx * middle_x - yy * middle_y
    matrix = [
        tf.broadcast_to(tf.reshape(entry, [-1]), tf.shape(images)[:1])
        for entry in (xx, xy, x, yx, yy, y, 0.0, 0.0)
    ]
    return ops.image.affine_transform(
        images, tf.stack(matrix, axis=1), kind, fill_mode="constant", fill_value=fill
    )


def _rotate(images, strength):
    cosine, sine = (wave(math.radians(30.0) * strength) for wave in (tf.cos, tf.sin))
    return _warp(images, xx=cosine, xy=-sine, yx=sine, yy=cosine)


def _blend(images, degenerate, strength):
    """Move away from a degenerate image (strength > 0) or towards it (strength < 0)."""
    return tf.clip_by_value(images + 0.9 * strength * (images - degenerate), 0.0, 255.0)


def _grey(images):
    return ops.image.rgb_to_grayscale(images) if images.shape[-1] == 3 else images


def _smooth(images):
    # PIL's kernel (1 1 1; 1 5 1; 1 1 1) / 13 written as an average, which, unlike a
    # convolution with zeros around the image, leaves the border as bright as it was.
    return (9.0 * tf.nn.avg_pool2d(images, 3, 1, "SAME") + 4.0 * images) / 13.0


def _posterize(images, strength):
    step = 2.0 ** tf.round(4.0 * abs(strength))
    return tf.floor(images / step) * step


def _autocontrast(images, strength):
    # Not keras.layers.AutoContrast: that one refuses a batch of no images.
    low = tf.reduce_min(images, axis=(1, 2), keepdims=True)
    spread = tf.reduce_max(images, axis=(1, 2), keepdims=True) - low
    scale = tf.math.divide_no_nan(255.0, spread)
    return tf.where(spread > 0.0, tf.minimum((images - low) * scale, 255.0), images)


def _equalize(images, strength):
    """Flatten the histogram of each channel of each image."""
    channels = tf.transpose(tf.cast(tf.round(images), tf.int32), [0, 3, 1, 2])
    values = tf.reshape(channels, [-1, tf.reduce_prod(tf.shape(images)[1:3])])
    histogram = tf.math.bincount(values, minlength=256, maxlength=256, axis=-1)
    upto = tf.cast(tf.cumsum(histogram, axis=-1), tf.float32)
    darkest = tf.reduce_min(values, axis=-1, keepdims=True)
    lowest = tf.gather(upto, darkest, batch_dims=1)
    table = 255.0 * (upto - lowest) / tf.maximum(upto[:, -1:] - lowest, 1.0)
    # A channel of one value has nothing to spread and stays as it is.
    table = tf.where(upto[:, -1:] > lowest, table, tf.cast(darkest, tf.float32))
    equal = tf.reshape(tf.gather(table, values, batch_dims=1), tf.shape(channels))
    return tf.ensure_shape(tf.transpose(equal, [0, 2, 3, 1]), images.shape)


# The operations of Cubuk et al. 2020, section 3, with the ranges of Cubuk et al. 2019,
# "AutoAugment", table 6. Strengths are [batch, 1, 1, 1] in -1..1; at 0 an operation that
# has a strength changes no whole numbers. Solarize and posterize ignore the sign.
OPERATIONS = {
    "identity": lambda images, strength: images,
    "autocontrast": _autocontrast,
    "equalize": _equalize,
    "rotate": _rotate,
    "solarize": lambda images, strength: tf.where(
        images < 256.0 * (1.0 - abs(strength)), images, 255.0 - images
    ),
    "color": lambda images, strength: _blend(images, _grey(images), strength),
    "posterize": _posterize,
    "contrast": lambda images, strength: _blend(
        images, tf.reduce_mean(_grey(images), axis=(1, 2, 3), keepdims=True), strength
    ),
    "brightness": lambda images, strength: _blend(images, 0.0, strength),
    "sharpness": lambda images, strength: _blend(images, _smooth(images), strength),
    "shear_x": lambda images, strength: _warp(images, xy=0.3 * strength),
    "shear_y": lambda images, strength: _warp(images, yx=0.3 * strength),
    "translate_x": lambda images, strength: _warp(images, x=0.45 * strength * _size(images)[1]),
    "translate_y": lambda images, strength: _warp(images, y=0.45 * strength * _size(images)[0]),
}


def crop_and_flip(images, seed, padding, flip_probability):
    """Crop out of the image with `padding` black pixels around it, and flip left to right."""
    seeds = tf.unstack(tf.random.split(seed, 3))
    x, y = (tf.floor(_uniform(s, images, -padding, padding + 1)) for s in seeds[:2])
    flip = tf.where(_uniform(seeds[2], images) < flip_probability, -1.0, 1.0)
    return _warp(images, xx=flip, x=x, y=y, fill=0.0, kind="nearest")


def rand_augment(images, seed, num_ops, magnitude, probability):
    """Cubuk et al. 2020, "RandAugment", section 3: `num_ops` random operations in a row."""
    names, shape = list(OPERATIONS), images.shape
    for turn in range(num_ops):
        seeds = tf.unstack(tf.random.split(tf.random.fold_in(seed, turn), 3))
        chosen = tf.cast(_uniform(seeds[0], images, 0.0, len(names)), tf.int32)
        done = _uniform(seeds[1], images) < probability
        chosen = tf.reshape(tf.where(done, chosen, names.index("identity")), [-1])
        strength = magnitude * tf.where(_uniform(seeds[2], images) < 0.5, -1.0, 1.0)
        # Each operation gets its own images only: to compute all of them for all images
        # and choose afterwards would cost the sum of the operations, not their mean.
        places, parts, strengths = (
            tf.dynamic_partition(values, chosen, len(names))
            for values in (tf.range(tf.shape(images)[0]), images, strength)
        )
        results = [
            OPERATIONS[name](*pair) for name, *pair in zip(names, parts, strengths, strict=True)
        ]
        images = tf.ensure_shape(tf.dynamic_stitch(places, results), shape)
    return images


def erase(images, seed, probability):
    """Zhong et al. 2020, "Random Erasing", algorithm 1: noise in a box of 2 % to 40 %.

    A box that is too long for the image is cut to it instead of being drawn again.
    """
    seeds = tf.unstack(tf.random.split(seed, 6))
    rows, columns = _size(images)
    area = _uniform(seeds[0], images, 0.02, 0.4) * rows * columns
    aspect = _uniform(seeds[1], images, 0.3, 1.0 / 0.3)
    height = tf.minimum(tf.round(tf.sqrt(area * aspect)), rows)
    width = tf.minimum(tf.round(tf.sqrt(area / aspect)), columns)
    top = tf.floor(_uniform(seeds[2], images) * (rows - height + 1.0))
    left = tf.floor(_uniform(seeds[3], images) * (columns - width + 1.0))
    chosen = _uniform(seeds[4], images) < probability
    noise = tf.random.stateless_uniform(tf.shape(images), seeds[5], 0.0, 255.0)
    return tf.where(chosen & _box(images, top, left, height, width), noise, images)


def mix(images, labels, seed, mixup_alpha, cutmix_alpha, mix_probability, cutmix_probability):
    """Mixup (Zhang et al. 2018, section 2) or CutMix (Yun et al. 2019, section 3.1).

    Both are a map of how much of an image is kept, the same everywhere or one box of its
    partner. The mean of the map is the label's share, so a box cut by the border counts as
    it is. An alpha of 0 turns that kind off, whatever `cutmix_probability`; both are
    not to be 0.
    """
    seeds = tf.unstack(tf.random.split(seed, 7))
    if not mixup_alpha or not cutmix_alpha:
        cutmix_probability = 1.0 if cutmix_alpha else 0.0
    cut = _uniform(seeds[0], images) < cutmix_probability
    alpha = tf.where(cut, cutmix_alpha, mixup_alpha)
    ours, theirs = (tf.random.stateless_gamma(tf.shape(alpha), s, alpha) for s in seeds[1:3])
    share = tf.math.divide_no_nan(ours, ours + theirs)
    rows, columns = _size(images)
    height, width = (tf.round(side * tf.sqrt(1.0 - share)) for side in (rows, columns))
    top = tf.round(_uniform(seeds[3], images) * rows - height / 2.0)
    left = tf.round(_uniform(seeds[4], images) * columns - width / 2.0)
    kept = tf.where(cut & _box(images, top, left, height, width), 0.0, 1.0)
    kept = tf.where(cut, kept, share)
    kept = tf.where(_uniform(seeds[5], images) < mix_probability, kept, 1.0)
    partner = tf.random.experimental.stateless_shuffle(tf.range(tf.shape(images)[0]), seeds[6])
    share = tf.reduce_mean(kept, axis=(1, 2, 3))[:, None]
    images = kept * images + (1.0 - kept) * tf.gather(images, partner)
    return images, share * labels + (1.0 - share) * tf.gather(labels, partner)


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """The settings of the recipe, called with (images, labels, seed).

    The images may be of any number type, the labels must be one-hot or otherwise sum to
    one. Returns new images and labels as described at the top. Label smoothing, which the
    recipe has too, belongs to the loss.

    Attributes:
      crop_padding: pixels by which a crop may be shifted; 0 turns cropping off.
      flip_probability: share of images flipped left to right.
      randaugment_num_ops: operations applied to an image; 0 turns RandAugment off.
      randaugment_magnitude: their strength as a part, 0 to 1, of its range.
      randaugment_probability: share of the operations that are applied and not left out;
        DeiT leaves half of them out, the paper of RandAugment none.
      erase_probability: share of images with a box of noise.
      mixup_alpha, cutmix_alpha: of the Beta(alpha, alpha) that draws how much of an image
        is kept; 0 turns that kind of mixing off.
      mix_probability: share of images mixed with another one.
      cutmix_probability: share of the mixed images where that is CutMix and not Mixup.
    """

    crop_padding: int = 4
    flip_probability: float = 0.5
    randaugment_num_ops: int = 2
    randaugment_magnitude: float = 0.9
    randaugment_probability: float = 0.5
    erase_probability: float = 0.25
    mixup_alpha: float = 0.8
    cutmix_alpha: float = 1.0
    mix_probability: float = 1.0
    cutmix_probability: float = 0.5

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            if name in ("crop_padding", "randaugment_num_ops"):
                allowed, good = ("a whole number from 0", isinstance(value, int) and value >= 0)
            elif name.endswith("_alpha"):
                allowed, good = "a finite number from 0", 0.0 <= value < math.inf
            else:
                allowed, good = "from 0 to 1", 0.0 <= value <= 1.0
            if not good:
                raise ValueError(f"{name} must be {allowed}, not {value!r}")

    def __call__(self, images, labels, seed):
        images, labels = tf.cast(images, tf.float32), tf.cast(labels, tf.float32)
        seeds = tf.unstack(tf.random.split(seed, 4))
        if self.crop_padding or self.flip_probability:
            images = crop_and_flip(images, seeds[0], self.crop_padding, self.flip_probability)
        images = rand_augment(
            images,
            seeds[1],
            self.randaugment_num_ops,
            self.randaugment_magnitude,
            self.randaugment_probability,
        )
        if self.erase_probability:
            images = erase(images, seeds[2], self.erase_probability)
        if self.mix_probability and (self.mixup_alpha or self.cutmix_alpha):
            images, labels = mix(
                images,
                labels,
                seeds[3],
                self.mixup_alpha,
                self.cutmix_alpha,
                self.mix_probability,
                self.cutmix_probability,
            )
        return images, labels
