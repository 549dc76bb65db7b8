"""The programs that are copied beside ONNX files answer as the zoo does, without the zoo."""

import importlib
import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import zoo
from tests.deploy.small_models import random_images, small_classifier
from zoo.data.preprocessing import ImagePreprocessing

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def classification(tmp_path_factory):
    """(classifier, folder of its export, Classifier of classify.py)."""
    folder, classifier = tmp_path_factory.mktemp("classifier"), small_classifier()
    zoo.export(classifier, folder, format="onnx")
    return classifier, folder, program(folder, "classify").Classifier(folder)


def program(folder, name):
    """A module of an export folder; others may have the names of its modules, as a recipe does."""
    names = [path.stem for path in folder.glob("*.py")]
    others = {other: sys.modules.pop(other) for other in names if other in sys.modules}
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
        for other in names:
            sys.modules.pop(other, None)
        sys.modules.update(others)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size, mode", [((30, 20), "RGB"), ((5, 7), "RGBA"), ((40, 13), "L")])
@pytest.mark.parametrize(
    "resizing", [(None, "bilinear"), (None, "bicubic"), (14, "bicubic"), ((9, 21), "bilinear")]
)
def test_images_are_resized_as_by_the_zoo(classification, tmp_path, size, mode, channels, resizing):
    """Gray of color is rounded in different ways."""
    _, _, driver = classification
    preprocessing = ImagePreprocessing((8, 12), channels, (0.5,), (0.5,), *resizing)
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(tmp_path / "image.png")
    reader = object.__new__(type(driver))
    reader.height, reader.width, reader.channels = 8, 12, channels
    reader._resizing = json.loads(json.dumps(dict(zip(("resize", "interpolation"), resizing))))
    found = reader.read(tmp_path / "image.png").astype(int)
    expected = preprocessing.read(tmp_path / "image.png").astype(int)
    assert found.shape == expected.shape
    # Bicubic values beyond 0..255 are clipped in each color, or in gray.
    in_gray = channels == 1 and mode != "L" and resizing[1] == "bicubic"
    assert np.abs(found - expected).max() <= (20 if in_gray else 1)


def test_classes_are_those_of_the_zoo(tmp_path):
    """Of several labels: those of one are computed in the same way."""
    classifier = small_classifier(num_layers=1)
    classifier.problem = "multi_label"
    zoo.export(classifier, tmp_path, format="onnx")
    driver = program(tmp_path, "classify").Classifier(tmp_path)
    images = list(random_images(classifier, 40))
    for options in (
        {},
        {"top_k": 3},
        {"threshold": 0.7},
        {"threshold": [0.2, 0.9, 0.0, 1.0], "top_k": 2},
    ):
        for found, expected in zip(driver(images, **options), classifier(images, **options)):
            assert [name for name, _ in found] == [name for name, _ in expected]
            shares = [[share for _, share in answer] for answer in (found, expected)]
            np.testing.assert_allclose(*shares, rtol=1e-4, atol=1e-4)  # sums in another order


def test_invalid_images_are_named(classification, tmp_path):
    classifier, _, driver = classification
    [image] = random_images(classifier, 1)
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    for wrong, message in (
        (image[:4], "An array must be uint8 of shape"),
        (tmp_path / "none.png", "none.png"),
        (tmp_path / "broken.jpg", "broken.jpg"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            driver([wrong])
    for wrong in (-0.1, 1.1, np.nan, [0.1, 0.2]):
        with pytest.raises(ValueError):
            driver([image], threshold=wrong)


ALONE = """
import runpy, sys
for name in {blocked}:
    sys.modules[name] = None
sys.argv[:1] = []
sys.path.insert(0, {folder!r})
runpy.run_path({folder!r} + "/" + sys.argv[0], run_name="__main__")
"""
BLOCKED = ["zoo", "tensorflow", "keras", "onnx", "tf2onnx"]


def alone(folder, *arguments, blocked=BLOCKED, **options):
    """Runs a program of a folder where most packages are not."""
    code = ALONE.format(blocked=blocked, folder=str(folder))
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", **options)


def test_classify_runs_alone(classification, tmp_path):
    classifier, folder, _ = classification
    [pixels] = random_images(classifier, 1)
    np.save(tmp_path / "pixels.npy", pixels)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    [[(name, share)]] = classifier([pixels])
    arguments = ("classify.py", tmp_path / "pixels.npy", tmp_path / "image.png")
    done = alone(folder, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"\t{name} {share:.1%}\n") == 2
    done = alone(folder, *arguments[:2], blocked=[*BLOCKED, "PIL"])  # which arrays do not need
    assert done.returncode == 0, done.stderr
