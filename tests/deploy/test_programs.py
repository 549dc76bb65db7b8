"""The programs that are copied beside ONNX files answer as the zoo does, without the zoo."""

import copy
import importlib
import itertools
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from tokenizers import Tokenizer as Library

import zoo
from tests.deploy.small_models import random_images, small_classifier, small_translator
from tests.test_decoding import SPECIAL, Table, _Position, as_numpy
from tests.text.test_tokenizer import ALL, KINDS, SAMPLE
from zoo.data.preprocessing import ImagePreprocessing
from zoo.decoding import greedy_search
from zoo.layers import KeyValue
from zoo.text import EOS_ID

pytestmark = pytest.mark.ci

TEXTS = ["the cat sat on the mat", "12", "", "¿Dónde?", " \n", "😀👍🏽", "e\u0301 \u0301", "on on"]
MANY = TEXTS + [" ".join(["sat"] * n) for n in range(1, 30, 2)] + [str(n) for n in range(8)]


@pytest.fixture(scope="module")
def translation(tmp_path_factory):
    """(translator, folder of its export, Translator of translate.py)."""
    folder, translator = tmp_path_factory.mktemp("translator"), small_translator()
    zoo.export(translator, folder, format="onnx")
    return translator, folder, program(folder, "translate").Translator(folder)


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


def test_export_leaves_the_model_as_it_was(translation):
    model, same = translation[0].model, small_translator().model
    for weight, expected in zip(model.weights, same.weights, strict=True):
        np.testing.assert_array_equal(weight, expected)
    cache = model.start(np.array([[5, EOS_ID]]), 2)
    assert {type(block.target) for block in cache.blocks} == {KeyValue}


@pytest.mark.parametrize("beam_size", [1, 3])
def test_translations_are_those_of_the_zoo(translation, beam_size):
    """Strings are equal. Scores are sums of dozens of log-probabilities."""
    translator, _, driver = translation
    options = {"n": beam_size, "beam_size": beam_size, "length_penalty": 0.8}
    expected, found = translator.n_best(MANY, **options), driver.n_best(MANY, **options)
    lengths = set()
    for theirs, ours in zip(expected, found, strict=True):
        assert [text for text, _ in ours] == [text for text, _ in theirs]
        np.testing.assert_allclose([s for _, s in ours], [s for _, s in theirs], atol=1e-3)
        lengths |= {len(ids) for ids in translator.target_tokenizer.encode([t for t, _ in theirs])}
    assert len(lengths) > 5  # some end soon, some do not
    assert driver([]) == []


def test_the_search_stops_where_that_of_the_zoo_does(translation):
    """A step function by table, with beams narrower than the search space."""
    search = program(translation[1], "search")
    random = np.random.default_rng(0)
    for beam_size, alpha, _ in itertools.product((1, 2, 4), (0.0, 0.6, 1.5), range(8)):
        logits = random.normal(0.0, 3.0, size=(7, 7, 7))
        logits[..., EOS_ID] += 1.0
        table = Table(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))
        found = search.beam_search(_Steps(table), (1, beam_size), 7, alpha)
        if beam_size > 1:
            expected = table.search(beam_size, alpha)
        else:
            start = _Position.first()
            expected = as_numpy(greedy_search(table.step, start, 1, SPECIAL, 7, alpha))
        np.testing.assert_array_equal(found.tokens, expected.tokens)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-6)


class _Steps:
    """The interface of the program's `Steps` for a table."""

    def __init__(self, table):
        self._table, self._position = table.log_probs, 0

    def log_probs(self, tokens):
        self._position += 1
        return self._table[self._position - 1][tokens]

    def follow(self, parents):
        pass


def test_options_left_out_are_those_of_the_zoo(translation):
    translator, _, driver = translation
    assert translator.beam_size == 3
    assert driver(MANY) == translator(MANY)
    assert driver(TEXTS[:3], max_length=2) == translator(TEXTS[:3], max_length=2)


@pytest.mark.parametrize(
    "texts, options, message",
    [
        ("hello", {}, "texts must be a list"),
        (["a", 1], {}, "Text 1 is of type int"),
        (["a", "\ud800"], {}, "Text 1: Invalid Unicode"),
        (["z" * 10**6], {}, "Text 0 is too long: it has at least"),
        (
            ["", "z" * 41],
            {},
            "Text 1 is too long: it has at least 43 tokens, the maximum is 40",
        ),
        (["a"], {"n": 2, "beam_size": 1}, "beam_size must be at least 2"),
        (["a"], {"n": 0}, "n must be at least 1"),
        (["a"], {"length_penalty": np.nan}, "length_penalty must be finite"),
        (["a"], {"max_length": 41}, "max_length must be from 1 to 40"),
    ],
)
def test_invalid_texts_and_options(translation, texts, options, message):
    with pytest.raises(ValueError, match=message):
        translation[2].n_best(texts, **options)


@pytest.fixture(scope="module", params=KINDS)
def both_tokenizers(request, translation):
    """(the zoo's tokenizer, the program's translator with the file of this tokenizer)."""
    tokenizer, other = ALL[request.param], copy.copy(translation[2])
    other.source_tokenizer = Library.from_str(tokenizer.to_tokenizer_json())
    other.search = {"max_length": 10_000}
    return tokenizer, other


@given(texts=st.lists(st.text(), max_size=10))
@example(texts=SAMPLE)
@settings(deadline=None)
def test_ids_are_those_of_the_zoo(both_tokenizers, texts):
    tokenizer, driver = both_tokenizers
    expected = enumerate(tokenizer.encode(texts))
    found = dict(driver._sources(texts))
    assert found == {n: [*ids, EOS_ID] for n, ids in expected if texts[n].strip()}


@pytest.mark.parametrize("content", [None, "", "[]", '{"version": "1.0", "model": {}}'])
def test_invalid_tokenizer_files(translation, tmp_path, content):
    shutil.copytree(translation[1], tmp_path, dirs_exist_ok=True)
    path = tmp_path / "target_tokenizer.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match="target_tokenizer.json cannot be read"):
        program(tmp_path, "translate").Translator(tmp_path)


def assert_damage_is_said(folder, copied, name):
    """By the program translate.py, whose engine reads a file of this name."""
    shutil.copytree(folder, copied, dirs_exist_ok=True)
    for content in (b"", b"{}", (folder / name).read_bytes()[:-9]):
        (copied / name).write_bytes(content)
        with pytest.raises(ValueError, match="is not a whole export of a translator: "):
            program(copied, "translate").Translator(copied)
    (copied / name).unlink()
    with pytest.raises(ValueError, match=name):
        program(copied, "translate").Translator(copied)


@pytest.mark.parametrize("name", ["export.json", "encoder.onnx", "decoder.onnx"])
def test_damaged_exports(translation, tmp_path, name):
    assert_damage_is_said(translation[1], tmp_path, name)


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


def test_classes_are_those_of_the_zoo(classification, tmp_path):
    classifier, _, driver = classification
    images = list(random_images(classifier, 40))
    found, expected = driver(images, top_k=3), classifier(images, top_k=3)
    assert [[name for name, _ in a] for a in found] == [[name for name, _ in a] for a in expected]
    shares = [[[share for _, share in a] for a in answer] for answer in (found, expected)]
    np.testing.assert_allclose(*shares, rtol=1e-4, atol=1e-4)  # sums in another order
    (tmp_path / "empty.npy").write_bytes(b"")
    with open(tmp_path / "several.npy", "wb") as file:
        np.savez(file, images[0], images[1])
    for wrong, message in (
        (images[0][:4], "The array must be uint8 of shape"),
        (tmp_path / "none.png", "There is no image"),
        (tmp_path / "none.npy", "cannot be read as an array"),
        (tmp_path / "empty.npy", "cannot be read as an array"),
        (tmp_path / "several.npy", "cannot be read as an array: it is an archive"),
    ):
        with pytest.raises(ValueError, match=message):
            driver([wrong])
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match="broken.jpg cannot be read as an image"):
        driver([tmp_path / "broken.jpg"])


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


def test_translate_runs_alone(translation, tmp_path):
    _, folder, driver = translation
    description = json.loads((folder / "export.json").read_text())
    assert description["needs"] == ["onnxruntime", "numpy", "tokenizers"]
    texts = TEXTS[:2] + ["", "¿Dónde está?"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", "utf-8")
    done = alone(folder, "translate.py", "--file", tmp_path / "texts.txt", "--beam-size", 2)
    assert done.returncode == 0, done.stderr
    expected = "".join(f"{text}\n" for text in driver(texts, beam_size=2))
    # Translations that make no sense may have line breaks of any kind in them.
    assert done.stdout.splitlines() == expected.splitlines()
    done = alone(folder, "translate.py", "the cat", "--n-best", 2)
    scores = [line.partition("\t")[0] for line in done.stdout.splitlines() if "\t" in line]
    [best] = driver.n_best(["the cat"], n=2)
    assert float(scores[0]) == pytest.approx(best[0].score, abs=1e-3)
    assert alone(folder, "translate.py", "--help").returncode == 0
    done = alone(folder, "translate.py", "z" * 50)
    assert done.returncode == 2 and done.stderr.startswith("error: Text 0 is too long")


def test_translate_takes_the_defaults_of_the_export(translation, tmp_path):
    translator, _, driver = translation
    options = {"beam_size": 1, "length_penalty": 2.0}
    folder = zoo.export(translator, tmp_path / "1", format="onnx", n_best=1, **options)
    expected = driver.n_best(["the cat"], **options)
    exported = program(folder, "translate").Translator(folder)
    assert exported.n_best(["the cat"]) == expected != driver.n_best(["the cat"])
    assert exported.search["n_best"] == 1


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
    done = alone(folder, *arguments, blocked=[*BLOCKED, "PIL"])
    assert done.returncode == 2 and "needs Pillow" in done.stderr
    assert done.stdout.count(f"\t{name} {share:.1%}\n") == 1
