"""Decodes images: JPEG and PNG by TensorFlow, also in graphs; other formats by Pillow.

A small file can take gigabytes or minutes to decode. Such files are recognized by their headers and
refused before they are decoded.
"""

import io
import os
import reprlib

import numpy as np
import tensorflow as tf

from zoo.errors import UserError, describe_string, missing_package

_BY_PILLOW = ("GIF", "BMP", "WEBP")
_MAX_PIXELS = 50_000_000
_SIZE = f"An image must have from 1 to {_MAX_PIXELS:,} pixels. This one has: "
_JPEG = b"\xff\xd8\xff"  # at the beginning of a file
_PNG = b"\x89PNG\r\n\x1a\n"
_OTHERS = {  # offset and bytes in files of formats that graphs do not decode
    "GIF": (0, b"GIF8"),
    "BMP": (0, b"BM"),
    "WebP": (8, b"WEBP"),
    "TIFF": (0, b"II*\0"),
    "HEIC or AVIF": (4, b"ftyp"),
    "Base64 of a JPEG": (0, b"/9j/"),
    "Base64 of a PNG": (0, b"iVBORw0KGgo"),
    "a data URL": (0, b"data:"),
}
_HEADER = 24  # bytes
_MAX_SCANS = 100  # of a JPEG
_MAX_SCANNED = 1_000_000_000  # pixels of all scans of a JPEG; each is a pass over the image
_MAX_MARKERS = 1000  # of scans, including those in embedded thumbnails and videos
_MAX_TEXTS = 10  # of a PNG; each can expand to 8 MB


class ImageError(UserError):
    """An image cannot be read; the message names it and says why."""


def read_file(path):
    """Decodes an image file: uint8 [height, width, 3]; raises `ImageError` if it cannot be read."""
    path = os.path.expanduser(path)
    if not os.path.exists(path):
        name = str(path)
        what = describe_string(name)
        advice = f" It {what}: pass a file, a PIL image or an array." if what else ""
        if len(name) >= 300:
            name = reprlib.repr(name)
        raise FileNotFoundError(f"There is no image {name}.{advice}")
    try:
        with open(path, "rb") as file:
            return read_image(tf.constant(file.read()), path)
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror}.") from None


def read_image(data, name):
    """Decodes an encoded image, string []: uint8 [height, width, 3]; `name` is for messages."""
    try:
        if not _is_jpeg_or_png(data):
            return _read_with_pillow(data.numpy())
        reason = refusal(data).numpy().decode()
        if not reason:
            return decode(data).numpy()
    except ImageError as error:
        reason = str(error)
    except tf.errors.OpError as error:
        cause = error.message.splitlines()[0].split("}} ")[-1].split(" [Op:")[0]
        reason = f"It is damaged or uses an unsupported feature: {cause}."
    raise ImageError(f"{name} cannot be read as an image: {reason}")


def decoded(data):
    """Decodes an encoded image, string [], in a graph: uint8 [height, width, 3].

    Raises `tf.errors.OpError` if it cannot be read. Formats other than JPEG and PNG are decoded in
    Python, which an exported graph cannot do: there, use `refusal` and `decode`.
    """

    def by_pillow():
        pixels = tf.numpy_function(_read_with_pillow, [data], tf.uint8, stateful=False)
        return tf.ensure_shape(pixels, (None, None, 3))

    return tf.cond(_is_jpeg_or_png(data), lambda: decode(accepted(data)), by_pillow)


def accepted(data):
    """Returns an encoded JPEG or PNG, string []; raises InvalidArgumentError if it is refused."""
    reason = refusal(data)
    with tf.control_dependencies([tf.debugging.Assert(reason == "", [reason])]):
        return tf.identity(data)


def _read_with_pillow(data):
    """Decodes the bytes of a GIF (first frame), BMP or WebP: uint8 [height, width, 3]."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        reason = f"It is neither JPEG nor PNG. {missing_package('PIL')}"
        raise ImageError(reason) from None
    if not isinstance(data, bytes):  # if TensorFlow is eager, an array
        data = data.item()
    try:
        with Image.open(io.BytesIO(data), formats=_BY_PILLOW) as image:
            pixels = image.width * image.height
            if pixels > _MAX_PIXELS:
                raise ValueError(f"{_SIZE}{pixels}.")
            return np.asarray(image.convert("RGB"))
    except UnidentifiedImageError:
        what = describe_string(data[:200].decode(errors="replace"))
        if not what:
            formats = ", ".join(("JPEG", "PNG", *_BY_PILLOW))
            what = f"is damaged, or the format is not one of {formats}: convert it to PNG"
        reason = f"It {what}."
    except (Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        reason = str(error)
    raise ImageError(reason)


def _is_jpeg_or_png(data):
    """Whether an encoded image, string [], begins like a JPEG or PNG file."""
    return _at(data, 0, _JPEG) | _at(data, 0, _PNG)


def refusal(data):
    """Returns why an encoded image, string [], must not be decoded, or "": string [].

    Source: ISO/IEC 10918-1 and RFC 2083. Raises InvalidArgumentError for some damaged files.
    """
    head = _head(data)
    pixels, reason = tf.case(
        [
            (_at(head, 0, _JPEG), lambda: _jpeg(data)),
            (_at(head, 0, _PNG) & _at(head, 12, b"IHDR"), lambda: _png(data, head)),
        ],
        default=lambda: (tf.constant(1, tf.int64), _other(head)),
    )
    wrong_size = tf.strings.join([_SIZE, tf.strings.as_string(pixels), "."])
    return tf.where((pixels >= 1) & (pixels <= _MAX_PIXELS), reason, wrong_size)


def decode(data):
    """Decodes an image, string [], for which `refusal` returns "": uint8 [height, width, 3]."""
    return tf.ensure_shape(
        tf.io.decode_image(data, channels=3, expand_animations=False), (None, None, 3)
    )


def _head(data):
    """The first bytes of an image, padded with zeros."""
    padded = tf.strings.join([tf.strings.substr(data, 0, _HEADER), b"\0" * _HEADER])
    return tf.strings.substr(padded, 0, _HEADER)


def _at(head, offset, magic):
    """Whether a file has these bytes at an offset: bool []."""
    return tf.strings.substr(head, offset, len(magic)) == magic


def _other(head):
    """The refusal of a file of another format, string []."""
    name = tf.constant("unknown")
    for other, place in _OTHERS.items():
        name = tf.where(_at(head, *place), other, name)
    advice = ". Only JPEG and PNG can be read here: convert the image, or pass its pixels."
    return tf.strings.join(["Its format is ", name, advice])


def _jpeg(data):
    """Returns the number of pixels of a JPEG, int64 [], and its refusal, string []."""
    pixels = tf.reduce_prod(tf.io.extract_jpeg_shape(data, output_type=tf.int64)[:2])
    # The header of a scan: FF DA, its length in two bytes, and the number of components.
    after = tf.strings.split(data, b"\xff\xda", maxsplit=_MAX_MARKERS)[1:]
    headers = [bytes([0, 6 + 2 * components, components]) for components in (1, 2, 3, 4)]
    scans = tf.math.count_nonzero(tf.strings.substr(after, 0, 3)[:, None] == headers)
    too_many = (scans > _MAX_SCANS) | (scans * pixels > _MAX_SCANNED)
    too_many |= tf.size(after) == _MAX_MARKERS
    limit = f"A JPEG must have at most {_MAX_SCANS} scans, of {_MAX_SCANNED:,} pixels in all."
    return pixels, tf.where(too_many, limit, "")


def _png(data, head):
    """Returns the number of pixels of a PNG, int64 [], and its refusal, string []."""
    sides = tf.io.decode_raw(tf.strings.substr(head, 16, 8), tf.int32, little_endian=False)
    pixels = tf.reduce_prod(tf.cast(sides, tf.int64) % 2**32)
    parts = tf.strings.split(data, "TXt", maxsplit=_MAX_TEXTS + 1)  # chunks zTXt and iTXt
    limit = f"A PNG must have at most {_MAX_TEXTS} compressed texts."
    return pixels, tf.where(tf.size(parts) - 1 > _MAX_TEXTS, limit, "")
