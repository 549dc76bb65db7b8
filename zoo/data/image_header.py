"""What the first bytes of an encoded image say, read in a graph, before anything is decoded."""

import tensorflow as tf

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WebP")
_MAGIC = {  # of each format: (where, bytes)
    "JPEG": ((0, b"\xff\xd8\xff"),),
    "PNG": ((0, b"\x89PNG\r\n\x1a\n"), (12, b"IHDR")),
    "GIF": ((0, b"GIF8"),),
    "BMP": ((0, b"BM"),),
    "WebP": ((0, b"RIFF"), (8, b"WEBP")),
}
_PNG_PLACES = ((23, 22, 21, 20), (19, 18, 17, 16))  # of height and width, the lowest byte first
_LENGTH = 32  # bytes that are looked at
MAX_PIXELS = 50_000_000  # a file of few bytes can say that it is a picture of many gigabytes


def refusal(data):
    """Why encoded bytes (string tensor []) are not to be decoded: string []; "" if they may be."""
    pixels = tf.reduce_prod(image_size(data))
    known = f"It is in none of the formats {', '.join(FORMATS)}."
    size = f"It should have from 1 to {MAX_PIXELS:,} pixels. It has: "
    size = tf.strings.join([size, tf.strings.as_string(pixels), "."])
    fits = (pixels >= 1) & (pixels <= MAX_PIXELS)
    return tf.where(image_format(data) < 0, known, tf.where(fits, "", size))


def image_format(data):
    """The place in `FORMATS` of what encoded bytes (string tensor []) are: int32 []; -1 for none.

    Source: the formats' specifications: ISO/IEC 10918-1, RFC 2083, GIF89a, RFC 9649.
    """
    header = _header(data)
    found = tf.stack(
        [
            tf.reduce_all([_at(header, place, magic) for place, magic in _MAGIC[name]])
            for name in FORMATS
        ]
    )
    return tf.where(tf.reduce_any(found), tf.argmax(found, output_type=tf.int32), -1)


def image_size(data):
    """(height, width) that encoded bytes (string tensor []) say they have: int64 [2].

    (0, 0) if they are in none of `FORMATS`. Raises InvalidArgumentError if a JPEG has no header.
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


def _at(header, place, magic):
    return tf.reduce_all(header[place : place + len(magic)] == tf.constant([*magic], tf.int64))


def _number(header, places):
    """The number whose bytes stand at these places, the lowest first."""
    return tf.add_n([header[place] * 256**power for power, place in enumerate(places)])


def _signed(header, places):
    number = _number(header, places)
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
