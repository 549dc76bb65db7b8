"""From an image, whatever it comes as, to what a model takes.

Axes: H image height, W image width, C channels.
"""

import dataclasses
import os

import numpy as np
import tensorflow as tf

from zoo.data.image_header import refusal
from zoo.errors import UserError


class ImageError(UserError):
    """An image that cannot be used; the message names it and says why."""


@dataclasses.dataclass(frozen=True)
class ImagePreprocessing:
    """Resizes so that the shorter side fits, crops the centre, normalises by channel.

    Training, evaluation and `zoo.load` all use this one description, saved with the model.

    Args:
        image_size: (H, W) in pixels.
        channels: C: 1, grey, or 3, RGB. Colour images are turned into grey ones and the reverse.
        mean: of each channel, subtracted from pixels in [0, 1].
        std: of each channel, divides what is left.
    """

    image_size: tuple[int, int]
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def read(self, image):
        """Opens one image and brings it to size.

        Args:
            image: path of a JPEG, PNG, BMP, GIF (first frame) or WebP file; PIL image; or array
                [H, W] or [H, W, C] of values in 0..255.

        Returns:
            uint8 [H, W, C] of this size and number of channels.

        Raises:
            FileNotFoundError: if there is no such file.
            ImageError: if it is no image.
        """
        if isinstance(image, (str, os.PathLike)):
            pixels = self._decode_file(os.fspath(image))
        elif hasattr(image, "convert"):
            pixels = np.asarray(image.convert("L" if self.channels == 1 else "RGB"))
        else:
            pixels = _checked(np.asarray(image))
        if pixels.ndim == 2:
            pixels = pixels[:, :, None]
        return self.fit(tf.convert_to_tensor(pixels)).numpy()

    def decode(self, data):
        """Bytes of an encoded image (string tensor) -> uint8 [its height, its width, 3].

        Raises InvalidArgumentError if they are no image, or one that is too large to be decoded.
        """
        reason = refusal(data)
        check = tf.debugging.Assert(reason == "", [reason])
        with tf.control_dependencies([] if check is None else [check]):
            # Not all formats have a decoder that makes grey of colour: all are decoded in colour.
            pixels = tf.io.decode_image(data, channels=3, expand_animations=False)
        return tf.ensure_shape(pixels, (None, None, 3))

    def fit(self, pixels):
        """uint8 [any height, any width, 1, 3 or 4] -> uint8 [H, W, C]."""
        pixels = pixels[..., :3]  # transparency is dropped
        size = tf.constant(self.image_size)
        if not tf.executing_eagerly() or tuple(pixels.shape[:2]) != tuple(self.image_size):
            own = tf.cast(tf.shape(pixels)[:2], tf.float64)
            resized = tf.round(own * tf.reduce_max(tf.cast(size, tf.float64) / own))
            resized = tf.maximum(size, tf.cast(resized, tf.int32))
            # `tf.image.resize` with antialiasing, but only of what the crop leaves
            pixels = tf.raw_ops.ScaleAndTranslate(
                images=pixels[None],
                size=size,
                scale=tf.cast(resized, tf.float32) / tf.cast(own, tf.float32),
                translation=-tf.cast((resized - size) // 2, tf.float32),
                kernel_type="triangle",
                antialias=True,
            )[0]
            pixels = tf.cast(tf.clip_by_value(tf.round(pixels), 0.0, 255.0), tf.uint8)
        pixels = _with_channels(pixels, self.channels)  # of the few pixels that are left
        return tf.ensure_shape(pixels, (*self.image_size, self.channels))

    def normalise(self, pixels):
        """[..., C] of values in 0..255 -> float32, as the model takes them."""
        mean, std = (tf.constant(v, tf.float32) for v in (self.mean, self.std))
        return (tf.cast(pixels, tf.float32) / 255.0 - mean) / std

    def to_dict(self):
        """The settings as JSON can hold them."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, settings):
        """The opposite of `to_dict`."""
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()})

    def _decode_file(self, path):
        if not os.path.exists(path):
            raise FileNotFoundError(f"There is no image {path}.")
        try:
            data = tf.io.read_file(path)
            reason = refusal(data).numpy().decode()
            if not reason:
                return self.decode(data).numpy()
        except tf.errors.OpError as error:
            what = error.message.splitlines()[0].split("}} ")[-1].split(" [Op:")[0]
            reason = f"It is damaged, or of an unusual kind: {what}."
        raise ImageError(f"{path} cannot be read as an image: {reason}")


def _checked(pixels):
    """An array of a user's, as uint8."""
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4)):
        raise ImageError(
            f"An image array is [H, W] or [H, W, C] with 1, 3 or 4 channels. "
            f"Received one of shape {pixels.shape}."
        )
    if not pixels.size:
        raise ImageError(f"An image must have pixels. Received an array of shape {pixels.shape}.")
    if pixels.dtype != np.uint8:
        low, high = pixels.min(), pixels.max()
        if not (np.issubdtype(pixels.dtype, np.number) and low >= 0 and 1 < high <= 255):
            raise ImageError(
                "An image array holds values in 0..255. "
                f"Received {pixels.dtype} from {low} to {high}."
            )
        pixels = np.round(pixels).astype(np.uint8)
    return pixels


def _with_channels(pixels, channels):
    """uint8 [H, W, 1 or 3] -> [H, W, channels]."""
    if pixels.shape[-1] == channels:
        return pixels
    if channels == 1:
        return tf.image.rgb_to_grayscale(pixels)
    return tf.image.grayscale_to_rgb(pixels)
