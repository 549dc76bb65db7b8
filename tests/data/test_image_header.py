"""What is read from the first bytes of an image, beside Pillow."""

import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from zoo.data import image_header
from zoo.data.image_header import inspect
from zoo.data.preprocessing import ImageError, ImagePreprocessing, decoded

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
def test_format_and_size_are_read(kind, mode, options, size, monkeypatch):
    data = encoded(kind, *size, mode, **options)
    image, refusal = inspect(data)
    assert refusal.numpy() == b""
    assert decoded(image).shape == (size[1], size[0], 3)
    monkeypatch.setattr(image_header, "MAX_PIXELS", size[0] * size[1] - 1)
    assert f"This one has: {size[0] * size[1]}.".encode() in inspect(data)[1].numpy()


@pytest.mark.parametrize("data", [b"", b"\x89PN", b"%PDF-1.7", encoded("TIFF", 5, 5)])
def test_a_file_of_another_format_is_refused(data):
    assert b"not one of" in inspect(data)[1].numpy()


@pytest.mark.parametrize("size", [(20_000, 20_000), (0, 5), (50_000_001, 1), (2**31, 2**31)])
def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(size, tmp_path):
    (tmp_path / "bomb.png").write_bytes(claimed(*size))
    read = ImagePreprocessing((8, 8), 3, (0.0,) * 3, (1.0,) * 3).read
    with pytest.raises(ImageError, match=r"bomb\.png cannot.* from 1 to 50,000,000 pixels"):
        read(tmp_path / "bomb.png")


@pytest.mark.parametrize(
    "kind, mode", [("GIF", "P"), ("BMP", "RGB"), ("JPEG", "CMYK"), ("PNG", "RGBA"), ("PNG", "1")]
)
def test_a_gray_model_reads_formats_that_have_no_gray_decoder(kind, mode):
    read = ImagePreprocessing((8, 8), 1, (0.0,), (1.0,))
    assert read.fit(decoded(tf.constant(encoded(kind, 9, 12, mode)))).shape == (8, 8, 1)


@pytest.mark.parametrize(
    "kind, name, part, message",
    [
        ("GIF", b"\x2c\0\0\0\0", 1_000_000 * b"!\xfe\0", "fewer than 1,000 blocks"),
        (
            "GIF",
            b"\x2c\0\0\0\0",
            b"!\xfe" + 500_000 * b"\1a\2aa" + b"\0",
            "fewer than 1,000 blocks",
        ),
        ("JPEG", b"\xff\xd9", 2_000_000 * b"\xff\xda", "at most 100 scans"),
        ("PNG", b"IEND", 2_000_000 * b"zTXt", "at most 10 long texts"),
    ],
)
def test_what_takes_long_to_inspect_is_refused(kind, name, part, message):
    """Millions of small parts."""
    data = encoded(kind, 30, 20)
    place = data.rindex(name)
    assert message in inspect(data[:place] + part + data[place:])[1].numpy().decode()
