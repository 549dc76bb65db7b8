"""What is read from the first bytes of an image, beside Pillow."""

import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from zoo.data.image_header import FORMATS, image_format, image_size, refusal
from zoo.data.preprocessing import ImageError, ImagePreprocessing

RANDOM = np.random.default_rng(0)


def encoded(kind, width, height, mode="RGB", **options):
    pixels = Image.fromarray(RANDOM.integers(0, 256, (height, width, 3), dtype=np.uint8))
    file = io.BytesIO()
    pixels.convert(mode).save(file, kind, **options)
    return file.getvalue()


def claimed(width, height):
    """A small PNG file that says it is a picture of this size."""

    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(bytes(100))), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize("size", [(1, 1), (61, 50), (300, 2), (17, 4097)])
@pytest.mark.parametrize(
    "kind, mode, options",
    [
        ("JPEG", "RGB", {}),
        ("JPEG", "L", {"progressive": True}),
        ("JPEG", "CMYK", {}),
        ("PNG", "RGBA", {}),
        ("GIF", "P", {}),
        ("BMP", "RGB", {}),
        ("WebP", "RGB", {}),
        ("WebP", "RGB", {"lossless": True}),
        ("WebP", "RGBA", {"exif": b"Exif\0\0of no meaning"}),
    ],
)
def test_format_and_size_are_read(kind, mode, options, size):
    data = encoded(kind, *size, mode, **options)
    assert FORMATS[int(image_format(data))] == kind
    assert image_size(data).numpy().tolist() == [size[1], size[0]]
    assert refusal(data).numpy() == b""


@pytest.mark.parametrize("data", [b"", b"\x89PN", b"%PDF-1.7", encoded("TIFF", 5, 5)])
def test_what_is_no_image_is_refused(data):
    assert image_format(data) == -1
    assert b"not one of" in refusal(data).numpy()


@pytest.mark.parametrize("size", [(20_000, 20_000), (0, 5), (50_000_001, 1), (2**31, 2**31)])
def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(size, tmp_path):
    (tmp_path / "bomb.png").write_bytes(claimed(*size))
    read = ImagePreprocessing((8, 8), 3, (0.0,) * 3, (1.0,) * 3).read
    with pytest.raises(ImageError, match=r"bomb\.png cannot.* from 1 to 50,000,000 pixels"):
        read(tmp_path / "bomb.png")


@pytest.mark.parametrize("kind, mode", [("GIF", "P"), ("BMP", "RGB"), ("JPEG", "CMYK")])
def test_a_grey_model_reads_formats_that_have_no_grey_decoder(kind, mode):
    read = ImagePreprocessing((8, 8), 1, (0.0,), (1.0,))
    assert read.fit(read.decode(tf.constant(encoded(kind, 9, 12, mode)))).shape == (8, 8, 1)
