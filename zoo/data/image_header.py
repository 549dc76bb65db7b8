"""Reads format and size of an encoded image from its header, in a TensorFlow graph."""

import tensorflow as tf

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WebP")
_MAGIC = {  # format: (offset, bytes)
    "JPEG": ((0, b"\xff\xd8\xff"),),
    "PNG": ((0, b"\x89PNG\r\n\x1a\n"), (12, b"IHDR")),
    "GIF": ((0, b"GIF8"),),
    "BMP": ((0, b"BM"),),
    "WebP": ((0, b"RIFF"), (8, b"WEBP")),
}
_LENGTH = 32  # bytes of the header that are read
MAX_PIXELS = 50_000_000  # a file of a few bytes can decode to many gigabytes


def refusal(data):
    """Why an encoded image (string tensor []) must not be decoded: string []; "" if it may be."""
    pixels = tf.reduce_prod(image_size(data))
    unknown = f"The format is not one of {', '.join(FORMATS)}."
    size = f"An image must have from 1 to {MAX_PIXELS:,} pixels. This one has: "
    size = tf.strings.join([size, tf.strings.as_string(pixels), "."])
    fits = (pixels >= 1) & (pixels <= MAX_PIXELS)
    return tf.where(image_format(data) < 0, unknown, tf.where(fits, "", size))


def image_format(data):
    """Index in `FORMATS` of an encoded image (string tensor []): int32 []; -1 if unknown.

    Source: the formats' specifications: ISO/IEC 10918-1, RFC 2083, GIF89a, RFC 9649.
    """
    header = _header(data)
    found = tf.stack(
        [
            tf.reduce_all([_at(header, offset, magic) for offset, magic in _MAGIC[name]])
            for name in FORMATS
        ]
    )
    return tf.where(tf.reduce_any(found), tf.argmax(found, output_type=tf.int32), -1)


def image_size(data):
    """Reads (height, width) from the header of an encoded image (string tensor []): int64 [2].

    Returns (0, 0) for unknown formats. Raises InvalidArgumentError if a JPEG has no header.
    """
    header = _header(data)
    readers = {
        0: lambda: tf.io.extract_jpeg_shape(data, output_type=tf.int64)[:2],
        1: lambda: tf.stack(
            [_number(header, range(23, 19, -1)), _number(header, range(19, 15, -1))]
        ),
        2: lambda: tf.stack([_number(header, (8, 9)), _number(header, (6, 7))]),
        3: lambda: tf.abs(
            tf.stack([_signed(header, range(22, 26)), _signed(header, range(18, 22))])
        ),
        4: lambda: _webp_size(header),
    }
    return tf.switch_case(image_format(data), readers, default=lambda: tf.zeros([2], tf.int64))


def _header(data):
    padded = tf.strings.join([tf.strings.substr(data, 0, _LENGTH), b"\0" * _LENGTH])
    return tf.cast(tf.io.decode_raw(tf.strings.substr(padded, 0, _LENGTH), tf.uint8), tf.int64)


def _at(header, offset, magic):
    return tf.reduce_all(header[offset : offset + len(magic)] == tf.constant([*magic], tf.int64))


def _number(header, offsets):
    """Reads an unsigned integer from the bytes at these offsets, lowest byte first."""
    return tf.add_n([header[offset] * 256**power for power, offset in enumerate(offsets)])


def _signed(header, offsets):
    number = _number(header, offsets)
    return tf.where(number >= 2**31, number - 2**32, number)


def _webp_size(header):
    lossless = _number(header, range(21, 25))  # 14 bits of width - 1, 14 bits of height - 1
    extended = tf.stack([_number(header, (27, 28, 29)), _number(header, (24, 25, 26))]) + 1
    simple = tf.stack([_number(header, (28, 29)), _number(header, (26, 27))]) % 2**14
    return tf.case(
        [
            (_at(header, 12, b"VP8L"), lambda: tf.stack([lossless // 2**14, lossless]) % 2**14 + 1),
            (_at(header, 12, b"VP8X"), lambda: extended),
        ],
        default=lambda: simple,
    )
