"""Every kind of image file is read alike, or refused alike, by all that reads images.

These are `zoo.load`, training and, JPEG and PNG only, SavedModels. The reference is Pillow.
Tolerance: JPEG only. TensorFlow's decoder uses a faster cosine transform, whose coefficients are
rounded to 8 bits, and CMYK is rounded once more: up to 6 levels in each pixel of a smooth picture.
"""

import base64
import io
import struct
import sys
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.deploy.small_models import small_classifier
from zoo.data.image_files import ImageError, decoded, refusal
from zoo.data.images import Images
from zoo.data.preprocessing import ImagePreprocessing, random_resized_crop
from zoo.deploy.classifier_signatures import ClassifierSignatures
from zoo.errors import DataError

HEIGHT, WIDTH = 20, 30
RANDOM = np.random.default_rng(0)
COARSE = Image.fromarray(RANDOM.integers(0, 256, (3, 4, 3), dtype=np.uint8))
PICTURE = COARSE.resize((WIDTH, HEIGHT))
OPACITY = Image.fromarray(RANDOM.integers(0, 256, (HEIGHT, WIDTH), dtype=np.uint8))
SEE_THROUGH = PICTURE.copy()
SEE_THROUGH.putalpha(OPACITY)
FRAMES = [Image.fromarray(np.roll(PICTURE, shift, axis=1)) for shift in (5, 9)]
TURNED = Image.Exif()
TURNED[0x112] = 6  # by 90 degrees
TURNED = {"exif": TURNED.tobytes()}
MOVING = {"save_all": True, "append_images": FRAMES}


def saved(kind, image=PICTURE, mode=None, **options):
    file = io.BytesIO()
    (image if mode is None else image.convert(mode)).save(file, kind, **options)
    return file.getvalue()


def chunk(name, data=b""):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


WHOLE = [(0, 0, 1, 1)]  # left, top, step to the right, step down
INTERLACED = [  # the passes of Adam7
    *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)),
    (0, 1, 1, 2),
]


def png(bits, color, *chunks, size=(WIDTH, HEIGHT), compressed=None, passes=WHOLE):
    """A PNG of random bytes; `color` is 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGBA."""
    if compressed is None:
        pixel = bits * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
        widths = [
            -(-pixel * len(range(left, size[0], right)) // 8)
            for left, top, right, down in passes
            for _ in range(top, size[1], down)
        ]
        compressed = zlib.compress(b"".join(b"\0" + RANDOM.bytes(width) for width in widths))
    kind = bits, color, 0, 0, passes is INTERLACED
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", *size, *kind))]
    parts += [chunk(b"PLTE", RANDOM.bytes(3 * 2**bits))] if color == 3 else []
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [*parts, *chunks, chunk(b"IDAT", compressed), chunk(b"IEND")]
    )


def changed(data, position, values):
    return data[:position] + values + data[position + len(values) :]


def jpeg_of_size(data, width, height):
    """The same scans under another size."""
    start = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
    return changed(data, start + 5, struct.pack(">HH", height, width))


JPEG, PROGRESSIVE = saved("JPEG"), saved("JPEG", progressive=True)
CMYK = saved("JPEG", mode="CMYK")
LAST_SCAN = PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xda") : -2]
TEXT = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(7_000_000)))
COLORS = [(0, 1), (0, 4), (0, 16), (2, 8), (2, 16), (3, 2), (3, 8), (4, 8), (6, 16)]

READ = {
    "baseline.jpg": JPEG,
    "progressive.jpg": PROGRESSIVE,
    "110 scans.jpg": PROGRESSIVE[:-2] + 90 * LAST_SCAN + b"\xff\xd9",
    "gray.jpg": saved("JPEG", mode="L"),
    "cmyk.jpg": CMYK,
    "ycck.jpg": changed(CMYK, CMYK.index(b"Adobe") + 11, b"\2"),
    "turned.jpg": saved("JPEG", **TURNED),
    "thumbnail.jpg": JPEG[:2] + b"\xff\xe1" + struct.pack(">H", len(JPEG) + 2) + JPEG + JPEG[2:],
    "many comments.jpg": JPEG[:2] + 10_000 * b"\xff\xfe\0\2" + JPEG[2:],
    **{f"color {color}, {bits} bits.png": png(bits, color) for color, bits in COLORS},
    "interlaced.png": png(8, 2, passes=INTERLACED),
    "transparent palette.png": png(4, 3, chunk(b"tRNS", b"\0\x40\xff")),
    "transparent color.png": png(8, 2, chunk(b"tRNS", b"\0\x10\0\x10\0\x10")),
    "gamma.png": png(8, 2, chunk(b"gAMA", struct.pack(">I", 100_000))),
    "animated.png": saved("PNG", **MOVING),
    "animated, other first.png": saved("PNG", **MOVING, default_image=True),
    "many chunks.png": png(8, 2, 5000 * chunk(b"tEXt", b"a\0")),
    "animated.gif": saved("GIF", **MOVING),
    "palette.bmp": saved("BMP", mode="P"),
    "transparent.webp": saved("WebP", SEE_THROUGH, lossless=True),
    "animated.webp": saved("WebP", **MOVING),
}
LARGE = "from 1 to 50,000,000 pixels"
REFUSED = {  # name: file, part of the message
    "empty.jpg": (b"", "not one of"),
    "page.tiff": (saved("TIFF"), "not one of JPEG, PNG, GIF, BMP"),
    "phone.heic": (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100), "not one of"),
    "Base64.png": (base64.b64encode(saved("PNG")), "looks like Base64"),
    "cut off.jpg": (JPEG[:-100], "damaged|truncated|Truncated"),
    "claims 60 MP.jpg": (jpeg_of_size(JPEG, 10_000, 6000), LARGE),
    "200 scans.jpg": (PROGRESSIVE[:-2] + 200 * LAST_SCAN + b"\xff\xd9", "at most 100 scans"),
    "30 scans of 49 MP.jpg": (
        jpeg_of_size(
            PROGRESSIVE[:2] + 4 * (b"\xff\xfe\xff\xff" + bytes(65533)) + PROGRESSIVE[2:-2],
            7000,
            7000,
        )
        + 20 * LAST_SCAN
        + b"\xff\xd9",
        "at most 100 scans, of 1,000,000,000 pixels",
    ),
    "two headers.jpg": (
        JPEG.replace(b"\xff\xda", JPEG[JPEG.index(b"\xff\xc0") :][:19] + b"\xff\xda"),
        "damaged|broken",
    ),
    "no width.png": (png(8, 2, size=(0, 5), compressed=b""), f"{LARGE}|damaged"),
    "2,000,000 texts.png": (png(8, 2) + 2_000_000 * b"zTXt", "at most 10 compressed texts"),
    "cut off.png": (png(8, 2)[:200], "damaged|truncated"),
    "claims 60 MP.png": (png(8, 2, size=(10_000, 6000), compressed=b""), LARGE),
    "long texts.png": (png(8, 2, *11 * [TEXT]), "at most 10 compressed texts|too large"),
    "60 MP.bmp": (changed(saved("BMP"), 18, struct.pack("<ii", 10_000, 6000)), LARGE),
    "cut off.gif": (saved("GIF")[:-20], "cut off|truncated"),
}

RGB = ImagePreprocessing((HEIGHT, WIDTH), 3, (0.0,) * 3, (1.0,) * 3)


@pytest.fixture(scope="module")
def signatures():
    """Function (files, signature) -> dict of arrays, of a classifier of images of this size."""
    classifier = small_classifier(image=(HEIGHT, WIDTH, 3), patch_size=10)
    made = ClassifierSignatures(classifier, 2)
    functions = {
        name: tf.function(signature.function, signature.inputs, autograph=False)
        for name, signature in made.signatures().items()
    }
    return lambda images, signature="serving_default": {
        name: tensor.numpy() for name, tensor in functions[signature](tf.constant(images)).items()
    }


@pytest.fixture(scope="module")
def trained_on():
    """The files that training reads, as {name: pixels}."""
    every = [*READ.values(), *(data for data, _ in REFUSED.values())]
    files = tf.constant(every)
    stream = Images(np.arange(len(every)), lambda n: (files[n], n), str, RGB)
    with pytest.raises(DataError, match=f"^{len(REFUSED)} of {len(every)} images cannot be read"):
        stream.check()
    return dict(zip(READ, stream.subset(np.arange(len(READ))).in_memory().pixels))


def reference(data):
    image = Image.open(io.BytesIO(data))
    if image.mode == "I;16":
        return np.stack([np.asarray(image) >> 8] * 3, axis=-1)
    return np.asarray(image.convert("RGB"))


@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
@pytest.mark.parametrize("name", READ)
def test_files_are_read_alike(name, trained_on, tmp_path):
    (tmp_path / name).write_bytes(READ[name])
    expected = reference(READ[name]).astype(int)
    assert expected.shape == (HEIGHT, WIDTH, 3)
    pixels = RGB.read(tmp_path / name)
    assert np.abs(pixels - expected).max() <= (6 if name.endswith(".jpg") else 0)
    np.testing.assert_array_equal(trained_on[name], pixels)
    np.testing.assert_array_equal(decoded(tf.constant(READ[name])), pixels)
    np.testing.assert_array_equal(RGB.read(Image.open(tmp_path / name)), expected)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_files_are_refused_alike(name, tmp_path):
    data, message = REFUSED[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ImageError, match=f"{name} cannot be read as an image: .*({message})"):
        RGB.read(tmp_path / name)
    if name.endswith(".jpg"):
        with pytest.raises((tf.errors.OpError, ImageError)):
            random_resized_crop(tf.constant(data), [1, 2], (8, 8, 3), 0.1)


def test_millions_of_what_looks_like_a_scan_are_refused():
    scans = JPEG[:-2] + 2_000_000 * b"\xff\xda" + b"\xff\xd9"
    assert b"at most 100 scans" in refusal(tf.constant(scans)).numpy()


def test_without_pillow_only_jpeg_and_png_are_read(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(saved("PNG"))
    (tmp_path / "a.gif").write_bytes(saved("GIF"))
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert RGB.read(tmp_path / "a.png").shape == (HEIGHT, WIDTH, 3)
    message = (
        "a.gif cannot be read as an image: .* package pillow is not installed. Run `pip install"
    )
    with pytest.raises(ImageError, match=message):
        RGB.read(tmp_path / "a.gif")


def test_exported_graphs_decode_jpeg_and_png_and_name_other_formats(signatures):
    every = {**READ, **{name: data for name, (data, _) in REFUSED.items()}}
    found = signatures([*every.values()], "attention")
    for name, pixels, error in zip(every, found["pixels"], found["error"]):
        kind = next((kind for kind in ("GIF", "BMP", "WebP") if kind.lower() in name), None)
        if name in READ and kind is None:
            assert error == b""
            if "jpg" not in name:
                np.testing.assert_array_equal(pixels, reference(READ[name]))
        else:
            assert error and not pixels.any()
            message = f"Its format is {kind}. Only JPEG and PNG can be read here: convert"
            assert kind is None or error.decode().startswith(message)
            assert name != "Base64.png" or error.startswith(b"Its format is Base64 of a PNG. ")


def test_refused_images_do_not_run_through_the_model(signatures):
    """The valid ones have the answers that they have alone, to the bit."""
    good, bad = [*READ.values()][:6], [data for data, _ in REFUSED.values()][:6]
    mixed = [data for pair in zip(bad, good) for data in pair]
    for signature in ("serving_default", "attention"):
        found, alone = signatures(mixed, signature), signatures(good, signature)
        for name, values in alone.items():
            assert found[name].dtype == values.dtype
            np.testing.assert_array_equal(found[name][1::2], values)
            assert name == "error" or not found[name][::2].astype(bool).any()


@pytest.mark.parametrize("name", ["cmyk.jpg", "transparent palette.png", "color 4, 8 bits.png"])
def test_a_gray_model_reads_colors(name):
    gray = ImagePreprocessing((8, 8), 1)
    assert gray.fit(decoded(tf.constant(READ[name]))).shape == (8, 8, 1)


@pytest.mark.parametrize(
    "mode, scale", [("I;16", 256), ("I", 1), ("F", 1), ("L", 1), ("1", 1), ("LA", 1), ("CMYK", 1)]
)
def test_pil_images_of_every_mode(mode, scale):
    gray = np.asarray(PICTURE.convert("L"))
    if mode in ("I;16", "I", "F"):
        kind = {"I;16": "uint16", "I": "int32", "F": "float32"}[mode]
        image = Image.fromarray(gray.astype(kind) * np.array(scale, kind))
    else:
        image = PICTURE.convert(mode)
    assert image.mode == mode
    expected = np.stack([gray] * 3, axis=-1)
    if mode in ("1", "CMYK"):
        expected = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(RGB.read(image), expected)
    if mode in ("I", "F"):
        with pytest.raises(ImageError, match="0..255"):
            RGB.read(Image.fromarray(gray.astype(kind) * np.array(256, kind)))
