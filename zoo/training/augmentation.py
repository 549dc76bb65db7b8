"""Image augmentation for training Vision Transformers on little data, as a pure function.

Follows Touvron et al. 2020, "Training data-efficient image transformers" (DeiT), with the crop and
erasing of Lee et al. 2021, "Vision Transformer for Small-Size Datasets": crop and flip,
RandAugment, random erasing, Mixup or CutMix.

Images are float32 [batch, height, width, channels] in 0..255 with any number of channels, labels
float32 [batch, classes] whose rows sum to one, and a seed an int32 pair [2]. Every choice is drawn
per image from the seed, so an epoch can be replayed with any number of workers. Keras's random
layers take no seed tensor, and some of them (RandomCrop, RandAugment, Equalization) make one choice
per batch, so only Keras's deterministic operations are used.
"""

import dataclasses
import math

import tensorflow as tf

from zoo.training.rand_augment import rand_augment, size, uniform, warp


def _box(images, top, left, height, width):
    """Returns a mask [batch, height, width, 1] of each box, clipped to its image."""
    rows, columns = size(images)
    row = tf.range(rows)[None, :, None, None] - top
    column = tf.range(columns)[None, None, :, None] - left
    return (row >= 0) & (row < height) & (column >= 0) & (column < width)


def crop_and_flip(images, seed, padding, flip_probability):
    """Crops at random after padding with `padding` black pixels, and flips left to right."""
    seeds = tf.unstack(tf.random.split(seed, 3))
    x, y = (tf.floor(uniform(s, images, -padding, padding + 1)) for s in seeds[:2])
    flip = tf.where(uniform(seeds[2], images) < flip_probability, -1.0, 1.0)
    return warp(images, xx=flip, x=x, y=y, fill=0.0, kind="nearest")


def erase(images, seed, probability):
    """Zhong et al. 2020, "Random Erasing", algorithm 1: noise in a box of 2 % to 40 %.

    A box that is larger than the image is clipped instead of being drawn again.
    """
    seeds = tf.unstack(tf.random.split(seed, 6))
    rows, columns = size(images)
    area = uniform(seeds[0], images, 0.02, 0.4) * rows * columns
    aspect = uniform(seeds[1], images, 0.3, 1.0 / 0.3)
    height = tf.minimum(tf.round(tf.sqrt(area * aspect)), rows)
    width = tf.minimum(tf.round(tf.sqrt(area / aspect)), columns)
    top = tf.floor(uniform(seeds[2], images) * (rows - height + 1.0))
    left = tf.floor(uniform(seeds[3], images) * (columns - width + 1.0))
    chosen = uniform(seeds[4], images) < probability
    noise = tf.random.stateless_uniform(tf.shape(images), seeds[5], 0.0, 255.0)
    return tf.where(chosen & _box(images, top, left, height, width), noise, images)


def mix(images, labels, seed, mixup_alpha, cutmix_alpha, mix_probability, cutmix_probability):
    """Mixup (Zhang et al. 2018, section 2) or CutMix (Yun et al. 2019, section 3.1).

    Both use a map of the share of each pixel that is kept: constant for Mixup, 0 in a box and 1
    elsewhere for CutMix. The label's share is the mean of the map, so a clipped box counts with
    its real area. An alpha of 0 disables that operation, whatever `cutmix_probability`; at least
    one alpha must be positive.
    """
    seeds = tf.unstack(tf.random.split(seed, 7))
    if not mixup_alpha or not cutmix_alpha:
        cutmix_probability = 1.0 if cutmix_alpha else 0.0
    cut = uniform(seeds[0], images) < cutmix_probability
    alpha = tf.where(cut, cutmix_alpha, mixup_alpha)
    ours, theirs = (tf.random.stateless_gamma(tf.shape(alpha), s, alpha) for s in seeds[1:3])
    share = tf.math.divide_no_nan(ours, ours + theirs)
    rows, columns = size(images)
    height, width = (tf.round(side * tf.sqrt(1.0 - share)) for side in (rows, columns))
    top = tf.round(uniform(seeds[3], images) * rows - height / 2.0)
    left = tf.round(uniform(seeds[4], images) * columns - width / 2.0)
    kept = tf.where(cut & _box(images, top, left, height, width), 0.0, 1.0)
    kept = tf.where(cut, kept, share)
    kept = tf.where(uniform(seeds[5], images) < mix_probability, kept, 1.0)
    partner = tf.random.experimental.stateless_shuffle(tf.range(tf.shape(images)[0]), seeds[6])
    share = tf.reduce_mean(kept, axis=(1, 2, 3))[:, None]
    images = kept * images + (1.0 - kept) * tf.gather(images, partner)
    return images, share * labels + (1.0 - share) * tf.gather(labels, partner)


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Augments a batch: call it with (images, labels, seed).

    Images may have any numeric dtype; each row of labels must sum to one. Returns float32 images
    and labels as described at the top of this module.

    Args:
        crop_padding: pixels by which a crop may be shifted; 0 disables cropping.
        flip_probability: probability that an image is flipped left to right.
        randaugment_num_ops: operations applied to an image; 0 disables RandAugment.
        randaugment_magnitude: strength of the operations, 0 to 1.
        randaugment_probability: probability that an operation is applied: 0.5 in DeiT, 1 in the
            RandAugment paper.
        erase_probability: probability that a box of an image is replaced by noise.
        mixup_alpha, cutmix_alpha: the share of an image that is kept is drawn from
            Beta(alpha, alpha); 0 disables the operation.
        mix_probability: probability that an image is mixed with another.
        cutmix_probability: probability that a mixed image uses CutMix instead of Mixup.
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
                allowed, good = ("an integer of at least 0", isinstance(value, int) and value >= 0)
            elif name.endswith("_alpha"):
                allowed, good = "finite and at least 0", 0.0 <= value < math.inf
            else:
                allowed, good = "from 0 to 1", 0.0 <= value <= 1.0
            if not good:
                raise ValueError(f"{name} must be {allowed}. Received: {name}={value!r}.")

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
