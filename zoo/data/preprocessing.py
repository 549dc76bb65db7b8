"""Image preprocessing: files, arrays and PIL images to model inputs, and random crops.

Axes: H image height, W image width, C channels.
"""

import dataclasses
import math
import numbers
import os
from collections.abc import Mapping, Set

import numpy as np
import tensorflow as tf

from zoo.data.image_files import ImageError, accepted, decoded, read_file, read_image
from zoo.errors import check_choice

MAX_SIDE = 2**14  # of images after resizing, in pixels
_CROP_RATIOS = (3 / 4, 4 / 3)  # width / height of random crops
_KERNELS = {"bilinear": "triangle", "bicubic": "keyscubic"}  # of `tf.raw_ops.ScaleAndTranslate`


@dataclasses.dataclass(frozen=True)
class ImagePreprocessing:
    """Resizes images, crops the center, and normalizes each channel.

    Used for training, evaluation and inference, and saved with the model.

    Args:
        image_size: (H, W) in pixels.
        channels: C: 1 for gray or 3 for RGB; images are converted as needed. With another number,
            only arrays [H, W, C] are accepted.
        mean: mean of each channel, or one for all, of pixels scaled to [0, 1].
        std: standard deviation of each channel, or one for all.
        resize: size before the crop: the length of the shorter side; or (height, width), which may
            distort images. By default, the smallest size that covers `image_size`.
        interpolation: "bilinear" or "bicubic".
        antialias: whether to use an antialiasing filter when images shrink, as Pillow does.
        crop_size: (height, width) of the crop, if only its top left part of `image_size` is used.

    Raises:
        ValueError: if `mean` or `std` has another number of values than `channels`, or values that
            give no pixels, a side is not from 1 to 16,384 pixels, or the interpolation is unknown.
    """

    image_size: tuple[int, int]
    channels: int
    mean: float | tuple[float, ...] = (0.0,)
    std: float | tuple[float, ...] = (1.0,)
    resize: int | tuple[int, int] | None = None
    interpolation: str = "bilinear"
    antialias: bool = True
    crop_size: tuple[int, int] | None = None

    def __post_init__(self):
        for name in ("image_size", "resize", "crop_size"):
            sides = np.ravel(getattr(self, name) or 1)
            if not all(0 < side <= MAX_SIDE for side in sides):
                raise ValueError(
                    f"The sides of images must be from 1 to {MAX_SIDE:,} pixels. Received: "
                    f"{name}={getattr(self, name)}."
                )
        for name in ("mean", "std"):
            values = getattr(self, name)
            if isinstance(values, numbers.Real):
                values = (values,)
                object.__setattr__(self, name, values)  # the dataclass is frozen
            valid = all(isinstance(x, numbers.Real) and math.isfinite(x) for x in values)
            valid &= name == "mean" or 0 not in values
            valid &= not isinstance(values, (Set, Mapping))  # they have no order of channels
            if not valid or len(values) not in (1, self.channels):
                raise ValueError(
                    f"{name} must be one number, or one for each of {self.channels} channels, "
                    f"finite and for std not 0. Received: {name}={values}."
                )
        check_choice("interpolation", self.interpolation, (*_KERNELS,))

    def read(self, image):
        """Reads one image, resizes and crops it.

        Args:
            image: path of a JPEG, PNG, GIF (first frame), BMP or WebP file, or its bytes; a PIL
                image; or an array [height, width] or [height, width, channels] with values in
                0..255. Transparency and the orientation in EXIF metadata are ignored.

        Returns:
            uint8 [H, W, C].

        Raises:
            FileNotFoundError: if there is no such file.
            ImageError: if it is not a readable image.
        """
        if isinstance(image, (str, os.PathLike)):
            pixels = read_file(os.fspath(image))
        elif isinstance(image, bytes):
            pixels = read_image(tf.constant(image), "An encoded image")
        else:
            pixels = _pil_pixels(image) if hasattr(image, "convert") else np.asarray(image)
            pixels = _as_pixels(pixels, self.channels)
        return self.fit(tf.convert_to_tensor(pixels)).numpy()

    def fit(self, pixels):
        """Resizes and crops uint8 [height, width, 1, 3 or 4] to uint8 [H, W, C]."""
        if pixels.shape[-1] != self.channels:
            pixels = pixels[..., :3]  # transparency is dropped
        has_size = tf.reduce_all(tf.shape(pixels)[:2] == self.image_size)
        fits = has_size & (self.resize is None and self.crop_size is None)
        pixels = tf.cond(fits, lambda: pixels, lambda: self._resampled(pixels))
        pixels = with_channels(pixels, self.channels)  # after resizing, as there are fewer pixels
        return tf.ensure_shape(pixels, (*self.image_size, self.channels))

    def _resampled(self, pixels):
        """Like `tf.image.resize`, but only the crop is computed."""
        size = tf.constant(self.image_size)
        own = tf.shape(pixels)[:2]  # height and width of the image
        resized = self._resized(tf.cast(own, tf.float64))
        scale = tf.cast(resized, tf.float32) / tf.cast(own, tf.float32)
        shift = -tf.cast((resized - self._crop_size) // 2, tf.float32)
        for axes in self._passes(own, resized):
            floats = tf.raw_ops.ScaleAndTranslate(
                images=pixels[None],
                size=tf.where(axes, size, tf.shape(pixels)[:2]),
                scale=tf.where(axes, scale, 1.0),
                translation=tf.where(axes, shift, 0.0),
                kernel_type=_KERNELS[self.interpolation],
                antialias=self.antialias,
            )[0]
            # Half a level is rounded up, as in Pillow, also where it is just below in float32.
            pixels = tf.cast(tf.clip_by_value(tf.floor(floats + 0.5001), 0.0, 255.0), tf.uint8)
        return pixels

    def _resized(self, own):
        """The size before the crop, at least that of the crop: int32 [2]."""
        if isinstance(self.resize, tuple):
            return tf.constant(self.resize)
        if self.resize is None:
            factor = tf.reduce_max(tf.cast(self._crop_size, tf.float64) / own)
            resized = tf.cast(tf.round(own * factor), tf.int32)
        else:
            resized = tf.cast(self.resize * own / tf.reduce_min(own), tf.int32)
        return tf.maximum(self._crop_size, resized)

    @property
    def _crop_size(self):
        return self.crop_size or self.image_size

    def _passes(self, own, resized):
        """The axes that are resized in each pass, a list of bool [2].

        Pillow resizes one axis after the other and clips to 0..255 in between, which affects
        bicubic results. Bilinear ones differ by at most one level: both axes are resized at once.
        """
        if self.interpolation == "bilinear":
            return [tf.constant([True, True])]
        shrunk = own - resized
        # the order of Pillow 13, found by comparing results
        rows_first = shrunk[0] > 2 * tf.maximum(shrunk[1], 0)
        first = tf.stack([rows_first, ~rows_first])
        return [first, ~first]

    def with_shape(self, input_shape):
        """Returns the preprocessing for images of another shape, (H, W, C), resized in proportion.

        For one channel, mean and deviation are averaged; for more channels, they are repeated.
        """
        *image_size, channels = input_shape
        scales = [new / old for new, old in zip(image_size, self.image_size)]
        resize = self.resize
        crop_size = self.crop_size
        if crop_size is not None:
            crop_size = tuple(round(side * scale) for side, scale in zip(crop_size, scales))
        if isinstance(resize, tuple):
            resize = tuple(round(side * scale) for side, scale in zip(resize, scales))
        elif resize is not None:
            resize = round(resize * max(scales))
        return dataclasses.replace(
            self,
            image_size=tuple(image_size),
            channels=channels,
            resize=resize,
            crop_size=crop_size,
            mean=_of_channels(self.mean, channels),
            std=_of_channels(self.std, channels),
        )

    def normalize(self, pixels):
        """Normalizes [..., C] of values in 0..255 to float32 model inputs."""
        mean = tf.constant(self.mean, tf.float32)
        std = tf.constant(self.std, tf.float32)
        return (tf.cast(pixels, tf.float32) / 255.0 - mean) / std

    def to_dict(self):
        """Returns the arguments as a dict that can be stored as JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, description):
        """The inverse of `to_dict`."""
        arguments = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in description.items()
        }
        return cls(**arguments)


def _of_channels(values, channels):
    """Converts the means or deviations of channels to another number of channels."""
    if channels == 1:
        return (sum(values) / len(values),)
    if len(values) == 1:
        return values
    return tuple(values[index % len(values)] for index in range(channels))


def _pil_pixels(image):
    """Converts a PIL image as if it were read from a file: [H, W] or uint8 [H, W, 3]."""
    if image.mode.startswith("I;16"):
        return (np.asarray(image) // 256).astype(np.uint8)
    if image.mode not in ("I", "F"):  # which are of any range, as arrays are
        try:
            image = image.convert("RGB")
        except OSError as error:  # of a file that is read now
            raise ImageError(f"The image cannot be read: {error}.") from None
    return np.asarray(image)


def _as_pixels(pixels, channels):
    """Converts an array [H, W] or [H, W, C] to uint8 [H, W, C]; raises `ImageError` for others."""
    known = (1, 3, 4, channels)
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in known):
        raise ImageError(
            "An image array must have the shape [H, W] or [H, W, C] with 1, 3 or 4 channels. "
            f"Received an array of shape {pixels.shape}."
        )
    if not pixels.size:
        raise ImageError(f"An image must have pixels. Received an array of shape {pixels.shape}.")
    if pixels.dtype != np.uint8:
        low = pixels.min()
        high = pixels.max()
        if not (np.issubdtype(pixels.dtype, np.number) and low >= 0 and 1 < high <= 255):
            raise ImageError(
                "An image array must have values in 0..255. "
                f"Received {pixels.dtype} from {low} to {high}."
            )
        pixels = np.round(pixels).astype(np.uint8)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    return pixels


def with_channels(pixels, channels):
    """Converts uint8 [H, W, 1 or 3] to [H, W, channels]; raises `ImageError` if it cannot."""
    if pixels.shape[-1] == channels:
        return pixels
    if channels == 1:
        return tf.image.rgb_to_grayscale(pixels)
    if channels != 3:
        raise ImageError(
            f"The model takes arrays of {channels} channels, [H, W, {channels}]. Received an image "
            f"with {pixels.shape[-1]} channels."
        )
    return tf.image.grayscale_to_rgb(pixels)


def random_resized_crop(image, seed, shape, min_area):
    """Crops a random part of an image and resizes it.

    Only this part of a JPEG is decoded. Source: Szegedy et al. 2015, "Going Deeper with
    Convolutions", section 6, with `min_area` 0.08. As in the code of big_vision, crops are resized
    bilinearly without antialiasing, which takes a third of the time.

    Args:
        image: encoded image, string [].
        seed: int [2].
        shape: (H, W, C) of the result; C is 1 or 3.
        min_area: smallest share of the image that a crop covers; the largest is 1.

    Returns:
        uint8 [H, W, C].
    """

    def part_of_jpeg():
        data = accepted(image)
        box = _box(tf.io.extract_jpeg_shape(data), seed, min_area)
        return tf.io.decode_and_crop_jpeg(data, box, channels=3, dct_method="INTEGER_FAST")

    def part_of_others():
        pixels = decoded(image)
        top, left, height, width = tf.unstack(_box(tf.shape(pixels), seed, min_area))
        return pixels[top : top + height, left : left + width]

    part = tf.cond(tf.io.is_jpeg(image), part_of_jpeg, part_of_others)
    resized = tf.cast(tf.round(tf.image.resize(part, shape[:2])), tf.uint8)
    return tf.ensure_shape(with_channels(resized, shape[2]), shape)


def _box(shape, seed, min_area):
    """Draws a box (top, left, height, width), int32 [4]; the whole image if none of ten fits."""
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros([1, 0, 4]),
        seed,
        min_object_covered=0.0,
        aspect_ratio_range=_CROP_RATIOS,
        area_range=(min_area, 1.0),
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], size[:2]], axis=0)
