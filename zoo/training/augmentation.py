"""Image augmentation for training Vision Transformers on little data, as a pure function.

Follows Touvron et al. 2020, "Training data-efficient image transformers" (DeiT), with the crop and
erasing of Lee et al. 2021, "Vision Transformer for Small-Size Datasets": crop and flip,
RandAugment, random erasing, Mixup or CutMix.

Images are float32 [batch, height, width, channels] in 0..255 with any number of channels, labels
float32 [batch, classes] from 0 to 1, and a seed an int32 pair [2]. Every choice is drawn
per image from the seed and the image's row in its batch, so any number of workers can compute parts
of a batch, and an epoch can be replayed. Keras's random layers take no seed tensor, and some of
them (RandomCrop, RandAugment, Equalization) make one choice per batch, so only Keras's
deterministic operations are used.
"""

import dataclasses

import tensorflow as tf

from zoo.data.image_batches import GROUP_SIZE, BatchRows
from zoo.training.rand_augment import rand_augment, size, uniform, warp

_PIXELS = 2**20  # of the images that are augmented together, to bound the memory for float32


def _box(images, top, left, height, width):
    """Returns masks of boxes, bool [batch, height, width, 1], clipped to the images."""
    rows, columns = size(images)
    row = tf.range(rows)[None, :, None, None] - top
    column = tf.range(columns)[None, None, :, None] - left
    return (row >= 0) & (row < height) & (column >= 0) & (column < width)


def _change_some(images, selected, change):
    """Changes only the selected images (bool [batch, 1, 1, 1]), which takes less time than all.

    `change` is a function of the selected images and their indices in the batch.
    """
    selected = tf.cast(tf.reshape(selected, [-1]), tf.int32)
    places = tf.dynamic_partition(tf.range(tf.shape(images)[0]), selected, 2)
    others, images_to_change = tf.dynamic_partition(images, selected, 2)
    parts = [others, change(images_to_change, places[1])]
    return tf.ensure_shape(tf.dynamic_stitch(places, parts), images.shape)


def _partners(seed, rows):
    """Draws a permutation of the rows of each group without fixed points: indices int32 [batch]."""
    groups = rows.indices // GROUP_SIZE
    places = rows.indices % GROUP_SIZE  # within the group
    draws = tf.cast(groups, tf.float32) + tf.reshape(uniform(seed, rows), [-1])
    order = tf.argsort(draws, stable=True)  # groups in sequence, at random within each group
    # The partner of a row is the next row in this order; of the last row of a group, its first row.
    group_sizes = tf.minimum(GROUP_SIZE, rows.batch_size - GROUP_SIZE * groups)
    following = tf.range(tf.size(order)) - places + (places + 1) % group_sizes
    return tf.scatter_nd(order[:, None], tf.gather(order, following), tf.shape(order))


def _gamma(seed, rows, alpha):
    """Draws from Gamma(alpha) for each row: [batch, 1, 1, 1], like `alpha`."""
    # Numbers are drawn for all rows of the batch: the same, whichever rows a worker has.
    alphas = tf.scatter_nd(rows.indices[:, None], alpha - 1.0, [rows.batch_size, 1, 1, 1]) + 1.0
    draws = tf.random.stateless_gamma(tf.shape(alphas), seed, alphas)
    return tf.gather(draws, rows.indices)


def _array_of_parts(tensor, num_parts):
    """A `tf.TensorArray` for parts of the rows of a tensor."""
    shape = [None, *tensor.shape[1:]]
    return tf.TensorArray(tensor.dtype, num_parts, infer_shape=False, element_shape=shape)


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Augments a batch or some of its rows: call it with (images, labels, seed, rows).

    Images are uint8 [batch, height, width, channels]. `rows` are the `BatchRows` of the images,
    whole groups of `GROUP_SIZE` rows; all rows by default. Returns uint8 images and float32 labels.

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

    @property
    def _mixes(self):
        return self.mix_probability and (self.mixup_alpha or self.cutmix_alpha)

    def __call__(self, images, labels, seed, rows=None):
        labels = tf.cast(labels, tf.float32)
        count = tf.shape(images)[0]
        if rows is None:
            rows = BatchRows(tf.range(count), count)
        pixels = tf.reduce_prod(tf.shape(images)[1:3])
        part_size = tf.maximum(_PIXELS // pixels // GROUP_SIZE, 1) * GROUP_SIZE
        num_parts = -(-count // part_size)

        def augment_part(part, all_images, all_labels):
            own = slice(part * part_size, (part + 1) * part_size)
            own_rows = BatchRows(rows.indices[own], rows.batch_size)
            new_images, new_labels = self._augment(images[own], labels[own], seed, own_rows)
            return part + 1, all_images.write(part, new_images), all_labels.write(part, new_labels)

        _, all_images, all_labels = tf.while_loop(
            lambda part, *_: part < num_parts,
            augment_part,
            (0, _array_of_parts(images, num_parts), _array_of_parts(labels, num_parts)),
            parallel_iterations=1,
        )
        images = tf.ensure_shape(all_images.concat(), images.shape)
        labels = tf.ensure_shape(all_labels.concat(), labels.shape)
        return images, labels

    def _augment(self, images, labels, seed, rows):
        seeds = tf.unstack(tf.random.split(seed, 4))
        if self.crop_padding or self.flip_probability:
            images = self.crop_and_flip(images, seeds[0], rows)
        if not (self.randaugment_num_ops or self.erase_probability or self._mixes):
            return images, labels
        images = tf.cast(images, tf.float32)
        images = rand_augment(
            images,
            seeds[1],
            rows,
            self.randaugment_num_ops,
            self.randaugment_magnitude,
            self.randaugment_probability,
        )
        if self.erase_probability:
            images = self.erase(images, seeds[2], rows)
        if self._mixes:
            images, labels = self.mix(images, labels, seeds[3], rows)
        return tf.cast(tf.round(tf.clip_by_value(images, 0.0, 255.0)), tf.uint8), labels

    def crop_and_flip(self, images, seed, rows):
        """Crops at random after padding with black pixels, and flips left to right."""
        padding = self.crop_padding
        seeds = tf.unstack(tf.random.split(seed, 3))
        x = tf.floor(uniform(seeds[0], rows, -padding, padding + 1))
        y = tf.floor(uniform(seeds[1], rows, -padding, padding + 1))
        flips = uniform(seeds[2], rows) < self.flip_probability
        if not padding:
            return _change_some(images, flips, lambda some, _: tf.reverse(some, [2]))
        direction = tf.where(flips, -1.0, 1.0)
        moved = warp(
            tf.cast(images, tf.float32), xx=direction, x=x, y=y, fill=0.0, interpolation="nearest"
        )
        return tf.cast(moved, images.dtype)

    def erase(self, images, seed, rows):
        """Replaces a box of 2 % to 40 % of the image by noise.

        A box that is larger than the image is clipped instead of being drawn again. Source: Zhong
        et al. 2020, "Random Erasing", algorithm 1.
        """
        seeds = tf.unstack(tf.random.split(seed, 6))
        full_height, full_width = size(images)
        area = uniform(seeds[0], rows, 0.02, 0.4) * full_height * full_width
        aspect = uniform(seeds[1], rows, 0.3, 1.0 / 0.3)
        height = tf.minimum(tf.round(tf.sqrt(area * aspect)), full_height)
        width = tf.minimum(tf.round(tf.sqrt(area / aspect)), full_width)
        top = tf.floor(uniform(seeds[2], rows) * (full_height - height + 1.0))
        left = tf.floor(uniform(seeds[3], rows) * (full_width - width + 1.0))

        def noise(number):
            own = tf.random.fold_in(seeds[5], number)
            return tf.random.stateless_uniform(tf.shape(images)[1:], own, 0.0, 255.0)

        def fill(some, places):
            spec = tf.TensorSpec(images.shape[1:])
            drawn = tf.map_fn(noise, tf.gather(rows.indices, places), fn_output_signature=spec)
            box = _box(
                some,
                top=tf.gather(top, places),
                left=tf.gather(left, places),
                height=tf.gather(height, places),
                width=tf.gather(width, places),
            )
            return tf.where(box, drawn, some)

        return _change_some(images, uniform(seeds[4], rows) < self.erase_probability, fill)

    def mix(self, images, labels, seed, rows):
        """Mixup (Zhang et al. 2018, section 2) or CutMix (Yun et al. 2019, section 3.1).

        Both use a map of the share of each pixel that is kept: constant for Mixup, 0 in a box and 1
        elsewhere for CutMix. The label's share is the mean of the map, so a clipped box counts with
        its real area. An alpha of 0 disables that operation, whatever `cutmix_probability`; at
        least one alpha must be positive.

        The other image is one of the same group, so that no worker needs all rows of a batch:
        `rows` must have whole groups of `GROUP_SIZE` rows.
        """
        seeds = tf.unstack(tf.random.split(seed, 7))
        cutmix_probability = self.cutmix_probability
        if not self.mixup_alpha or not self.cutmix_alpha:
            cutmix_probability = 1.0 if self.cutmix_alpha else 0.0
        cut = uniform(seeds[0], rows) < cutmix_probability
        alpha = tf.where(cut, self.cutmix_alpha, self.mixup_alpha)
        ours = _gamma(seeds[1], rows, alpha)
        theirs = _gamma(seeds[2], rows, alpha)
        share = tf.math.divide_no_nan(ours, ours + theirs)  # Beta(alpha, alpha)
        full_height, full_width = size(images)
        height = tf.round(full_height * tf.sqrt(1.0 - share))
        width = tf.round(full_width * tf.sqrt(1.0 - share))
        top = tf.round(uniform(seeds[3], rows) * full_height - height / 2.0)
        left = tf.round(uniform(seeds[4], rows) * full_width - width / 2.0)
        kept = tf.where(_box(images, top, left, height, width), 0.0, 1.0)  # of CutMix
        kept = tf.where(cut, kept, share)  # [batch, height, width, 1]
        mixes = uniform(seeds[5], rows) < self.mix_probability
        kept = tf.where(mixes, kept, 1.0)
        partner = _partners(seeds[6], rows)

        def blend(some, places):
            kept_of_some = tf.gather(kept, places)
            others = tf.gather(images, tf.gather(partner, places))
            return kept_of_some * some + (1.0 - kept_of_some) * others

        kept_label = tf.reduce_mean(kept, axis=(1, 2, 3))[:, None]  # [batch, 1]
        labels = kept_label * labels + (1.0 - kept_label) * tf.gather(labels, partner)
        return _change_some(images, mixes, blend), labels
