"""Which encoded images may be decoded, in a TensorFlow graph.

A file of a few bytes can take gigabytes or minutes to decode, and TensorFlow decodes some files to
wrong pixels. Both show in the bytes of the file, before it is decoded.
"""

import functools

import tensorflow as tf

_FORMATS = {  # (offset, bytes) that each begins with
    "JPEG": ((0, b"\xff\xd8\xff"),),
    "PNG": ((0, b"\x89PNG\r\n\x1a\n"), (12, b"IHDR")),
    "GIF": ((0, b"GIF8"), (5, b"a")),
    "BMP": ((0, b"BM"),),
    "WebP": ((0, b"RIFF"), (8, b"WEBPVP8")),
}
_LENGTH = 34  # bytes of the header that are read
MAX_PIXELS = 50_000_000
_MAX_SCANS = 100  # of a JPEG
_MAX_SCANNED = 1_000_000_000  # pixels of all scans together, as each is a pass over the image
_MOST_MARKERS = 1000  # that look like scans, as those of embedded thumbnails do
_MOST_PIXELS_PER_BYTE = 512  # of a JPEG: a block of 8 x 8 takes at least a bit
_MAX_TEXTS = 10  # of a PNG; each can expand to 8 MB
_MAX_BLOCKS = 1000  # of a GIF up to the end of its first frame; a run of one length counts once
_RUN = 4096  # blocks of one length that are skipped at once


def inspect(data):
    """Decides whether an encoded image (string tensor []) may be decoded.

    Source: the formats' specifications: ISO/IEC 10918-1, RFC 2083, GIF89a, RFC 9649.

    Returns:
        Two strings []: the image to decode, `data` or, of a GIF, its first frame alone; and why
        it must not be decoded, "" if it may be. Raises InvalidArgumentError for some damaged files.
    """
    head = tf.strings.substr(data, 0, _LENGTH)
    head = tf.strings.substr(tf.strings.join([head, b"\0" * _LENGTH]), 0, _LENGTH)
    number = tf.constant(-1)
    for index, magic in enumerate(_FORMATS.values()):
        matches = [_at(head, *place) for place in magic]
        number = tf.where(functools.reduce(tf.logical_and, matches), index, number)
    unknown = f"The format is not one of {', '.join(_FORMATS)}."
    image, pixels, refusal = tf.switch_case(
        number,
        [functools.partial(read, data, head) for read in (_jpeg, _png, _gif, _bmp, _webp)],
        lambda: (data, tf.constant(1, tf.int64), tf.constant(unknown)),
    )
    return image, _checked_size(pixels, refusal)


def jpeg_refusal(data):
    """Why a JPEG must not be decoded, string [], "" if it may be, as from `inspect`, but faster."""
    return _checked_size(*_jpeg(data)[1:])


def decode_inspected(image):
    """Decodes what `inspect` has returned without a refusal: uint8 [its height, its width, 3].

    An animated WebP must not get here: TensorFlow writes its pixels beyond the end of their memory.
    """

    def decode(channels):
        pixels = tf.io.decode_image(image, channels=channels, expand_animations=False)
        return tf.ensure_shape(pixels[..., :3], (None, None, 3))

    # Other decoders know gray or 3 channels, that of WebP the channels of the file.
    return tf.cond(tf.strings.substr(image, 0, 4) == b"RIFF", lambda: decode(0), lambda: decode(3))


def _at(head, offset, magic):
    return tf.strings.substr(head, offset, len(magic)) == magic


def _numbers(data, offset, length, dtype, **order):
    """Reads integers from so many bytes: int64 [any]."""
    values = tf.io.decode_raw(tf.strings.substr(data, offset, length), dtype, **order)
    return tf.cast(values, tf.int64)


def _checked_size(pixels, refusal):
    size = f"An image must have from 1 to {MAX_PIXELS:,} pixels. This one has: "
    size = tf.strings.join([size, tf.strings.as_string(pixels), "."])
    return tf.where((pixels >= 1) & (pixels <= MAX_PIXELS), refusal, size)


# Each of these returns the image to decode, its number of pixels, and a refusal; see `inspect`.


def _jpeg(data, _=None):
    pixels = tf.reduce_prod(tf.io.extract_jpeg_shape(data, output_type=tf.int64)[:2])
    # The header of a scan: FF DA, its length in two bytes, and the number of components.
    after = tf.strings.split(data, b"\xff\xda", maxsplit=_MOST_MARKERS)[1:]
    headers = [bytes([0, 6 + 2 * components, components]) for components in (1, 2, 3, 4)]
    scans = tf.math.count_nonzero(tf.strings.substr(after, 0, 3)[:, None] == headers)
    many = (scans > _MAX_SCANS) | (scans * pixels > _MAX_SCANNED)
    many |= tf.size(after) == _MOST_MARKERS
    short = tf.strings.length(data) < tf.cast(pixels, tf.int32) // _MOST_PIXELS_PER_BYTE
    refusal = tf.where(short, "It is too short for its size in pixels.", "")
    most = f"A JPEG must have at most {_MAX_SCANS} scans, of {_MAX_SCANNED:,} pixels in all."
    return data, pixels, tf.where(many, most, refusal)


def _png(data, head):
    sides = _numbers(head, 16, 8, tf.int32, little_endian=False) % 2**32
    texts = tf.strings.split(data, "TXt", maxsplit=_MAX_TEXTS + 1)  # after zTXt and iTXt
    refusal = f"A PNG must have at most {_MAX_TEXTS} long texts."
    return data, tf.reduce_prod(sides), tf.where(tf.size(texts) - 1 > _MAX_TEXTS, refusal, "")


def _bmp(data, head):
    places = (14, 4, tf.int32), (28, 2, tf.uint16), (30, 4, tf.int32)
    header, bits, compression = (_numbers(head, *place)[0] for place in places)
    valid = (header >= 40) & ((bits == 24) | (bits == 32)) & (compression == 0)
    refusal = tf.where(valid, "", "A BMP must have 24 or 32 bits per pixel and no compression.")
    return data, tf.abs(tf.reduce_prod(_numbers(head, 18, 8, tf.int32))), refusal


def _webp(data, head):
    def extended():
        parts = tf.reshape(_numbers(head, 24, 6, tf.uint8), [2, 3])
        return tf.reduce_sum(parts * [1, 2**8, 2**16], axis=1) + 1

    def lossless():
        number = _numbers(head, 21, 4, tf.int32)[0]  # 14 bits of width - 1, 14 of height - 1
        return tf.stack([number // 2**14, number]) % 2**14 + 1

    sides = tf.case(
        [
            (_at(head, 12, b"VP8X"), extended),
            (_at(head, 12, b"VP8L"), lossless),
            (_at(head, 12, b"VP8 "), lambda: _numbers(head, 26, 4, tf.uint16) % 2**14),
        ],
        default=lambda: tf.zeros([2], tf.int64),
    )
    flags = _numbers(head, 20, 1, tf.uint8)[0]
    animated = _at(head, 12, b"VP8X") & (flags // 2 % 2 == 1)
    return data, tf.reduce_prod(sides), tf.where(animated, "A WebP must not be animated.", "")


def _gif(data, head):
    """The image is the header and the first frame, without the extensions before it."""
    codes = tf.io.decode_raw(data, tf.uint8)
    size = tf.size(codes)

    def at(position):
        return tf.cast(codes[tf.minimum(position, size - 1)], tf.int32)

    def colors(flags):
        """Bytes of a table of colors."""
        return tf.where(flags >= 128, 3 * 2 ** (flags % 8 + 1), 0)

    def unfinished(position, count):
        return (position < size) & (count < _MAX_BLOCKS)

    def skip(position, count):
        step = at(position) + 1
        lengths = codes[position : position + _RUN * step : step]
        run = tf.reduce_sum(tf.math.cumprod(tf.cast(lengths == codes[position], tf.int32)))
        return position + tf.reshape(run, ()) * step, count + 1

    def after_blocks(position, count):
        """Skips blocks, each of a length and as many bytes, and the 0 that ends them."""
        position, count = tf.while_loop(
            lambda position, count: unfinished(position, count) & (at(position) != 0),
            skip,
            (position, count),
        )
        return position + 1, count + 1

    table = 13 + colors(at(10))
    frame, count = tf.while_loop(
        lambda position, count: unfinished(position, count) & (at(position) == 0x21),
        lambda position, count: after_blocks(position + 2, count),
        (table, 0),
    )
    end, count = after_blocks(frame + 11 + colors(at(frame + 9)), count)
    place = tf.strings.substr(tf.strings.join([data, b"\0" * 9]), tf.minimum(frame, size), 9)
    whole = tf.strings.join([b"\x2c\0\0\0\0", tf.strings.substr(head, 6, 4)])
    refusal = tf.where(place == whole, "", "The first frame of a GIF must have its full size.")
    refusal = tf.where(end > size, "It is cut off.", refusal)
    many = f"A GIF must have fewer than {_MAX_BLOCKS:,} blocks."
    refusal = tf.where(count < _MAX_BLOCKS, refusal, many)
    frame, end = tf.minimum(frame, size), tf.minimum(end, size)
    parts = [tf.strings.substr(data, 0, tf.minimum(table, size))]
    parts += [tf.strings.substr(data, frame, end - frame), b";"]
    return tf.strings.join(parts), tf.reduce_prod(_numbers(head, 6, 4, tf.uint16)), refusal
