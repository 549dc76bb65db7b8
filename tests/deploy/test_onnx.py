"""ONNX files answer as the zoo does, and so do the programs beside them, without the zoo."""

import copy
import importlib
import itertools
import json
import shutil
import subprocess
import sys

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tokenizers import Tokenizer as Library

import zoo
from tests.deploy.small_models import small_classifier, small_translator
from tests.test_decoding import SPECIAL, Table, _Position, as_numpy
from tests.text.test_tokenizer import ALL, KINDS, SAMPLE
from zoo.data.preprocessing import ImagePreprocessing
from zoo.decoding import greedy_search
from zoo.deploy import checks, onnx_format
from zoo.deploy.errors import ExportError
from zoo.errors import UserError
from zoo.layers import KeyValue
from zoo.text import BOS_ID, EOS_ID

pytestmark = pytest.mark.ci

# Sums of a few dozen float32 numbers of the order of 1 to 10, in another order.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
TEXTS = ["the cat sat on the mat", "12", "", "¿Dónde?", " \n", "😀👍🏽", "e\u0301 \u0301", "on on"]
MANY = TEXTS + [" ".join(["sat"] * n) for n in range(1, 30, 2)] + [str(n) for n in range(8)]


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def random_images(classifier, count):
    shape = (count, *classifier.model.input_shape)
    return np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize(
    "options",
    [
        {"num_registers": 2, "layer_scale": 0.3},
        *(
            pytest.param(settings, marks=pytest.mark.slow)
            for settings in (
                {"pool": "mean", "norm": "post", "image": (8, 8, 1), "num_layers": 1},
                {"make": zoo.resnet},
                {"attention": "linear", "positions": "rotary"},
            )
        ),
        {"attention": "blockwise", "positions": "relative", "image": (24, 24, 3), "patch_size": 1},
    ],
)
def test_a_classifier(tmp_path, options):
    classifier = small_classifier(**options)
    report = onnx_format.write(classifier, tmp_path)
    assert report["checked"]["largest_difference"] <= report["checked"]["tolerance"]
    model = session(tmp_path / "model.onnx")
    assert [(i.name, i.type, i.shape) for i in model.get_inputs()] == [
        ("pixels", "tensor(uint8)", ["B", *classifier.model.input_shape])
    ]
    assert [(o.name, o.type, o.shape) for o in model.get_outputs()] == [
        ("probabilities", "tensor(float)", ["B", 4])
    ]
    for count in (1, 7):
        images = random_images(classifier, count)
        [found] = model.run(None, {"pixels": images})
        np.testing.assert_allclose(found, classifier.probabilities(list(images)), **TOLERANCE)
    labels = json.loads(model.get_modelmeta().custom_metadata_map["labels"])
    assert labels == classifier.class_names
    assert (tmp_path / "labels.txt").read_text("utf-8").splitlines()[1:3] == labels[1:3]
    assert {node.domain for node in onnx.load(tmp_path / "model.onnx").graph.node} == {""}


def test_layer_normalization_is_one_operation(tmp_path):
    """Of ONNX Runtime, which finds it by its parts."""
    zoo.export(small_classifier(), tmp_path / "1", format="onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(tmp_path / "1" / "model.onnx", options)
    operations = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert operations.count("LayerNormalization") == 2 * 2 + 1  # of two blocks and after them


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_is_exported_in_float32(tmp_path, precision):
    classifier = small_classifier(precision, num_layers=1)
    onnx_format.write(classifier, tmp_path)
    images = random_images(classifier, 5)
    [found] = session(tmp_path / "model.onnx").run(None, {"pixels": images})
    assert found.dtype == np.float32
    exact = small_classifier(num_layers=1)
    exact.model.set_weights(classifier.model.get_weights())
    np.testing.assert_allclose(found, exact.probabilities(list(images)), **TOLERANCE)


@pytest.mark.parametrize(
    "options",
    [
        {"positions": "sinusoidal", "norm": "post", "shared": "target", "activation": "relu"},
        *(
            pytest.param(settings, marks=pytest.mark.slow)  # tests/deploy/test_litert.py has them
            for settings in (
                {
                    "positions": "learned",
                    "shared": "all",
                    "activation": "gelu",
                    "num_decoder_layers": 2,
                },
                {"positions": "relative", "shared": "none", "activation": "silu"},
            )
        ),
        pytest.param({"positions": "rotary", "norm": "pre"}, marks=pytest.mark.slow),
        pytest.param({"precision": "mixed_bfloat16"}, marks=pytest.mark.slow),
    ],
)
def test_steps_equal_the_whole(tmp_path, options):
    """Target tokens one by one, in a buffer larger than needed, and the model's call on all."""
    options = {"num_layers": 1, **options}
    translator = small_translator(**options)
    report = onnx_format.write(translator, tmp_path)
    encoder, decoder = (session(tmp_path / name) for name in ("encoder.onnx", "decoder.onnx"))
    for name, found in (("encoder.onnx", encoder), ("decoder.onnx", decoder)):
        assert_is_described(found, report["signatures"][name])
    if translator.model.shared != "none":  # the embedding, which is the output layer, is held once
        shape = {translator.model.target_vocab_size, translator.model.embed_dim}
        held = onnx.load(tmp_path / "decoder.onnx").graph.initializer
        assert sum(set(matrix.dims) == shape for matrix in held) == 1
    random, size = np.random.default_rng(5), translator.source_tokenizer.vocab_size
    source, target = (random.integers(3, size, (2, length), np.int32) for length in (7, 6))
    source[1, 4:], target[:, 0] = 0, BOS_ID
    exact = small_translator(**{**options, "precision": "float32"}).model
    exact.set_weights(translator.model.get_weights())
    expected = keras.ops.log_softmax(exact({"source": source, "target": target}))
    outputs = [o.name for o in encoder.get_outputs()]
    memory = dict(zip(outputs, encoder.run(outputs, {"source": source})))
    state = {"paths": np.zeros((2, 1, 9), np.int32)}
    for name in outputs:
        if name != "memory_mask":
            state[name.replace("memory", "target")] = np.zeros((2, 2, 9, 8), np.float32)
    outputs = [o.name for o in decoder.get_outputs()]
    for position in range(6):
        feeds = {"tokens": target[:, position : position + 1]}
        feeds["position"] = np.array(position, np.int32)
        results = dict(zip(outputs, decoder.run(outputs, {**feeds, **state, **memory})))
        np.testing.assert_allclose(results["log_probs"][:, 0], expected[:, position], **TOLERANCE)
        state = {name: results[f"next_{name}"] for name in state}


def assert_is_described(model, signature):
    """The report says what the file has: names, types and axes."""
    types = {"int32": "tensor(int32)", "float32": "tensor(float)", "bool": "tensor(bool)"}
    for side, tensors in (("inputs", model.get_inputs()), ("outputs", model.get_outputs())):
        described = {n: (types[t["dtype"]], t["shape"]) for n, t in signature[side].items()}
        assert {t.name: (t.type, t.shape) for t in tensors} == described


# The largest size, of that in float32, and the largest mean shifted probability.
LOW_PRECISION = {"float16": (0.65, 5e-3), "int8": (0.45, 0.1)}


@pytest.mark.parametrize("dtype", LOW_PRECISION)
@pytest.mark.parametrize("make", [small_classifier, small_translator])
def test_low_precision(make, dtype, tmp_path):
    """Smaller by far, and a little different."""
    original = make(embed_dim=64, ff_dim=256, num_layers=1)
    largest, shifted = LOW_PRECISION[dtype]
    checked = onnx_format.write(original, tmp_path, dtype)["checked"]
    assert 1e-6 < checked["mean_shifted_probability"] < shifted
    files = list(tmp_path.glob("*.onnx"))
    size = sum(file.stat().st_size for file in files)
    assert size < largest * 4 * original.model.count_params()


def test_wrong_answers_are_noticed():
    classifier = small_classifier()

    def answer(pixels):
        return classifier.probabilities(list(pixels))

    def check(answer, dtype="float32"):
        runners = {"run": lambda inputs: {"probabilities": answer(inputs["pixels"])}}
        return checks.check(classifier, runners, [], "it", dtype)

    assert check(answer)["largest_difference"] < 1e-6
    check(lambda pixels: answer(pixels) + 2e-4, dtype="int8")
    for wrong in (
        lambda pixels: answer(pixels) + 2e-4,
        lambda pixels: answer(pixels) * np.nan,
        lambda pixels: answer(pixels[::-1]),
    ):
        with pytest.raises(ExportError, match="it: the outputs of the export differ"):
            check(wrong)
    with pytest.raises(ExportError, match="it: the outputs of the export differ"):
        check(lambda pixels: answer(pixels)[:, ::-1], dtype="int8")


def test_what_cannot_be_exported_is_said(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(onnx_format, "_LARGEST", 1000)
        with pytest.raises(ExportError, match="too large for ONNX"):
            onnx_format.write(small_classifier(), tmp_path)
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(UserError, match="package tf2onnx is not installed"):
        onnx_format.write(small_classifier(), tmp_path)


# --- the programs that are copied into the folder ------------------------------------------------


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
    onnx_format.write(classifier, folder)
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


def assert_same_ids(both_tokenizers, text):
    tokenizer, driver = both_tokenizers
    found = [ids for _, ids in driver._sources([text])]
    assert found == [[*ids, EOS_ID] for ids in tokenizer.encode([text]) if text.strip()]


@pytest.mark.parametrize("text", SAMPLE, ids=range(len(SAMPLE)))
def test_ids_are_those_of_the_zoo(both_tokenizers, text):
    assert_same_ids(both_tokenizers, text)


@given(text=st.text())
@settings(deadline=None)
def test_ids_of_any_text(both_tokenizers, text):
    assert_same_ids(both_tokenizers, text)


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
    np.testing.assert_allclose(*shares, **TOLERANCE)
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
