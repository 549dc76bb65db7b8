"""Random crops that are cut out of an image while it is decoded."""

import tensorflow as tf

from zoo.data.image_header import jpeg_refusal
from zoo.data.preprocessing import accepted, decoded, with_channels

_RATIOS = (3 / 4, 4 / 3)  # of width and height


def random_resized_crop(image, seed, image_size, channels, min_area):
    """Cuts a random part out of an image and resizes it.

    Of a JPEG, only this part is decoded. Source: Szegedy et al. 2015, "Going Deeper with
    Convolutions", section 6, with `min_area` 0.08. As in the code of big_vision, parts are resized
    bilinearly without antialiasing, which takes a third of the time.

    Args:
        image: encoded image, string [], or uint8 [any height, any width, 1 or 3].
        seed: int [2].
        image_size: (H, W) of the result.
        channels: C, 1 or 3.
        min_area: least share of the image that is cut out; the largest is 1.

    Returns:
        uint8 [H, W, C].
    """
    if image.dtype == tf.string:
        is_jpeg = tf.io.is_jpeg(image)
        part = tf.cond(
            is_jpeg,
            lambda: _part_of_jpeg(accepted(image, jpeg_refusal(image)), seed, min_area),
            lambda: _part(decoded(image), seed, min_area),
        )
    else:
        part = _part(image, seed, min_area)
    resized = tf.image.resize(part, image_size)
    resized = with_channels(tf.cast(tf.round(resized), tf.uint8), channels)
    return tf.ensure_shape(resized, (*image_size, channels))


def _part_of_jpeg(data, seed, min_area):
    box = _box(tf.io.extract_jpeg_shape(data), seed, min_area)
    return tf.io.decode_and_crop_jpeg(data, box, channels=3, dct_method="INTEGER_FAST")


def _part(pixels, seed, min_area):
    top, left, height, width = tf.unstack(_box(tf.shape(pixels), seed, min_area))
    return pixels[top : top + height, left : left + width]


def _box(shape, seed, min_area):
    """Draws (top, left, height, width), int32 [4]; the whole image if no drawn part fits."""
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros([1, 0, 4]),
        seed,
        min_object_covered=0.0,
        aspect_ratio_range=_RATIOS,
        area_range=(min_area, 1.0),
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], size[:2]], axis=0)
