"""Exported SavedModels beside what they were exported from.

Tolerance: 1e-4 on probabilities, scores and features, for the same float32 operations in another
graph; they differ by about 1e-6.
"""

import io
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import zoo
from tests.checkpoints.test_text_checkpoints import folder_of
from tests.deploy.conftest import caller
from tests.deploy.small_models import LINES, small_classifier, small_translator
from tests.deploy.test_every_kind import TEXTS, assert_answers
from tests.tasks.test_encoder import sentence_encoder
from zoo.__main__ import main
from zoo.data.phrasebook import phrasebook_pairs
from zoo.deploy.translator_signatures import TranslatorSignatures
from zoo.errors import ExportError
from zoo.models.attention_rollout import attention_rollout
from zoo.tasks.padded_batches import BATCH_SIZES

pytestmark = pytest.mark.ci

RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module")
def translator(phrasebook_translator):
    return phrasebook_translator


@pytest.fixture(scope="module")
def classify(digits_export):
    """Function (images, signature) -> dict of arrays."""
    call = caller(digits_export)
    return lambda images, signature="serving_default": call(
        signature, **{"pixels" if signature == "pixels" else "image_bytes": images}
    )


@pytest.fixture(scope="module")
def translate(phrasebook_export):
    return caller(phrasebook_export)


@pytest.fixture(scope="module")
def sentences():
    return [source for source, _ in phrasebook_pairs(40, seed=1)]


def encoded(kind="PNG", mode="RGB", size=(30, 20), **options):
    coarse = Image.fromarray(RANDOM.integers(0, 256, (3, 4, 3), dtype=np.uint8))
    file = io.BytesIO()
    coarse.resize(size).convert(mode).save(file, kind, **options)
    return file.getvalue()


GOOD = {
    "digit.png": encoded("PNG", "L", (8, 8)),
    "one pixel.png": encoded("PNG", "L", (1, 1)),
    "wide.jpg": encoded("JPEG", "RGB", (400, 9)),
    "transparent.png": encoded("PNG", "RGBA"),
}


def test_files_are_classified_as_the_zoo_does(classifier, classify, tmp_path):
    for name, data in GOOD.items():
        (tmp_path / name).write_bytes(data)
    expected = classifier([tmp_path / name for name in GOOD], top_k=3)
    found = classify([*GOOD.values()])
    assert found["error"].tolist() == [b""] * len(GOOD)
    for row, labels, probabilities in zip(expected, found["labels"], found["probabilities"]):
        assert [label.decode() for label in labels] == [label for label, _ in row]
        np.testing.assert_allclose(probabilities, [p for _, p in row], atol=1e-4)


@pytest.mark.parametrize("signature", ["serving_default", "attention"])
def test_an_empty_batch_has_empty_answers(classify, signature):
    found = classify(np.asarray([], object), signature)
    assert {len(values) for values in found.values()} == {0}


@pytest.mark.parametrize("size", [(8, 8), (1, 1), (5, 40)])
def test_pixels_of_any_size_are_classified_as_the_zoo_does(classifier, classify, size):
    pixels = RANDOM.integers(0, 256, (3, *size, 1), dtype=np.uint8)
    expected, found = classifier.probabilities(list(pixels)), classify(pixels, "pixels")
    np.testing.assert_allclose(found["probabilities"], np.sort(expected)[:, :-4:-1], atol=1e-4)
    best = [classifier.class_names[index] for index in expected.argmax(axis=1)]
    assert [label.decode() for label in found["labels"][:, 0]] == best


def test_a_large_batch_is_computed_in_parts(classify):
    """The answers are those of each image alone; one that cannot be read stays in its place."""
    files, count = [], 100
    for index in range(count):
        file = io.BytesIO()
        Image.fromarray(RANDOM.integers(0, 256, (8, 8), dtype=np.uint8)).save(file, "PNG")
        files.append(file.getvalue() if index % 7 != 3 else b"no image")
    whole = classify(files)
    assert [bool(error) for error in whole["error"]] == [i % 7 == 3 for i in range(count)]
    for index in (0, 3, count // 2, count - 1):
        alone = classify([files[index]])
        for name, values in whole.items():
            if values.dtype == object:
                np.testing.assert_array_equal(values[index], alone[name][0])
            else:
                np.testing.assert_allclose(values[index], alone[name][0], atol=1e-4)
    pixels = classify(files, "attention")["pixels"]
    assert pixels.shape == (count, 8, 8, 1)


def test_images_without_pixels_are_named(classify):
    with pytest.raises(tf.errors.InvalidArgumentError, match="multiples of 1, not 0"):
        classify(np.zeros((4, 0, 9, 1), np.uint8), "pixels")


def test_attention_is_that_of_the_model(classifier, classify, tmp_path):
    (tmp_path / "wide.jpg").write_bytes(GOOD["wide.jpg"])
    inputs = classifier.preprocess([tmp_path / "wide.jpg"])
    found = classify([GOOD["wide.jpg"]], "attention")
    np.testing.assert_allclose(
        found["attention"], attention_rollout(classifier.model, inputs), atol=1e-4
    )
    seen = classifier.preprocessing.normalize(found["pixels"])
    np.testing.assert_allclose(seen, inputs, atol=1e-6)


ODD = [
    "",
    " \t\u3000\n",
    "HELLO   world!!",
    "e\u0301le\u0300ve",
    "\U0001f600 \u4f60\u597d",
    "\u05e9\u05dc\u05d5\u05dd \u202eabc",
    "a\0b\x07\x1b[31m",
    "\ufffd\ufffe",
    "#" * 40,
]


@pytest.mark.parametrize("signature", ["serving_default", "uncompiled"])
def test_texts_are_translated_as_the_zoo_does(translator, translate, signature, sentences):
    texts = [*sentences, *ODD]
    texts += [" ".join(sentences[:3]) + "\r\n\t" + sentences[3] + "\u3000", "Ab. " * 257]
    expected = translator.n_best(texts[:-1], n=2, sentences=True)
    found = translate(signature, texts=texts)
    assert found["error"][-1].decode() == "The text has more than 256 sentences."
    assert not any(found["translations"][-1]) and not found["scores"][-1].any()
    assert_answers({name: values[:-1] for name, values in found.items()}, expected)
    if signature == "uncompiled":
        assert_answers(translate(signature, texts=texts[:1]), expected[:1])


def test_a_huge_text_is_refused_before_it_is_split(translate, sentences):
    """Splitting 30 MB would take a minute. The other texts of the batch are translated."""
    texts = [sentences[0], "A dog. " * 300_000, "\n" * 300_000, b"\xff" * 300_000, "a" * 300_000]
    found = translate("uncompiled", texts=texts)
    assert [error.decode() for error in found["error"]] == [
        "",
        "The text is too long: it has 2100000 bytes. The maximum is 131072.",
        *["The text is too long: it has 300000 bytes. The maximum is 131072."] * 3,
    ]
    assert found["translations"][0, 0] and not any(found["translations"][1:].ravel())


@pytest.mark.xla
def test_texts_can_be_translated_as_they_are(tmp_path):
    """An option of the export. XLA compiles one of its graphs, unlike those of other tests."""
    small = small_translator(num_layers=1, max_length=16)  # one width to compile for
    texts = ["a.  b.\n c.", "", "the cat", " ", "---", "12:30", "$ 5."]
    small.save(tmp_path / "run")
    folders = [str(tmp_path / "run"), str(tmp_path / "whole")]
    assert main(["export", *folders, "--beam-size", "1", "--no-sentences"]) == 0
    expected = small.n_best(texts, beam_size=1, sentences=False)
    call = caller(tmp_path / "whole")
    for signature in ("serving_default", "uncompiled"):
        assert_answers(call(signature, texts=texts), expected)
    described = json.loads((tmp_path / "whole" / "export.json").read_text())
    assert described["search"]["sentences"] is False
    with pytest.raises(ExportError, match="ImageClassifier has no option sentences"):
        zoo.export(small_classifier(), tmp_path / "1", sentences=False)


def test_cross_attention_is_that_of_the_model(translator, translate, sentences):
    texts = sentences[:5]
    answers = [answer[:40] for answer in translator(texts)]  # it may repeat itself
    found = translate("attention", texts=texts, translations=answers)
    for index, (text, answer) in enumerate(zip(texts, answers)):
        expected = translator.alignment(text, answer)
        rows, columns = expected.weights.shape
        weights = found["attention"][index]
        np.testing.assert_allclose(weights[:rows, :columns], expected.weights, atol=1e-4)
        assert not weights[rows:].any() and not weights[:, columns:].any()
        for side, shown in (("source", expected.source), ("target", expected.target)):
            labels = [label.decode() for label in found[f"{side}_tokens"][index]]
            assert labels == shown + [""] * (len(labels) - len(shown))


def test_the_model_computes_a_few_texts_at_once(monkeypatch):
    """So that memory grows by the answer alone; and no answer depends on the other texts."""
    small = small_translator(num_layers=1)
    signatures = TranslatorSignatures(small, 1, 1, 0.0)
    texts = ["a cat " * (1 + index % 9) for index in range(70)]
    given, largest = {"texts": texts, "translations": texts[::-1]}, []
    [block] = small.model.encoder_blocks
    call = block.call

    def watched(inputs, *args, **options):
        largest.append(len(inputs))
        return call(inputs, *args, **options)

    monkeypatch.setattr(block, "call", watched)
    function = signatures.attention  # not a graph, so that shapes are known
    found = function(*map(tf.constant, given.values()))
    assert max(largest) == max(BATCH_SIZES)
    for index in (0, 13, 69):
        alone = function(*(tf.constant(side[index : index + 1]) for side in given.values()))
        for name, expected in alone.items():
            mine = found[name].numpy()[index : index + 1]
            mine = mine[(slice(None), *map(slice, expected.shape[1:]))]
            if mine.dtype == np.float32:
                np.testing.assert_allclose(mine, expected, atol=1e-5)
            else:
                np.testing.assert_array_equal(mine, expected)


def test_pairs_must_be_pairs(translate):
    with pytest.raises(tf.errors.InvalidArgumentError, match="one translation"):
        translate("attention", texts=["a", "b"], translations=["a"])


CLASSIFIED = [*LINES, "", "a", "The cat, the dog. " * 3, "¿Cafe\u0301? 你好", "the cat"]


def test_texts_are_classified_as_by_the_model(text_classes):
    """Many groups of texts."""
    classifier, call = text_classes.original, caller(text_classes.folder)
    assert_answers(call(texts=CLASSIFIED * 40), classifier(CLASSIFIED, top_k=2) * 40)


def test_features_of_an_encoder_of_images(tmp_path):
    small_classifier().save(tmp_path / "run")
    encoder = zoo.load(tmp_path / "run", num_classes=0)
    call = caller(zoo.export(encoder, tmp_path / "1"))
    for name, data in GOOD.items():
        (tmp_path / name).write_bytes(data)
    found = call(image_bytes=[b"no image", *GOOD.values()])
    assert [bool(error) for error in found["error"]] == [True] + [False] * len(GOOD)
    assert not found["features"][0].any()
    expected = encoder([tmp_path / name for name in GOOD])
    np.testing.assert_allclose(found["features"][1:], expected, atol=1e-4)
    pixels = RANDOM.integers(0, 256, (2, 16, 24, 3), dtype=np.uint8)
    found = call("pixels", pixels=pixels)["features"]
    np.testing.assert_allclose(found, encoder(list(pixels)), atol=1e-4)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("roberta", marks=pytest.mark.slow),
        "xlm-roberta, no head",
        pytest.param("distilbert", marks=pytest.mark.slow),
    ],
)
def test_published_models_of_texts(kind, tmp_path):
    task = zoo.load(folder_of(tmp_path, kind))
    found = caller(zoo.export(task, tmp_path / "1"))(texts=TEXTS)
    if "no head" in kind:
        np.testing.assert_allclose(found["features"], task(TEXTS), atol=1e-4)
    else:
        expected = [answer[0] for answer in task(TEXTS)]
        assert [label[0].decode() for label in found["labels"]] == [name for name, _ in expected]
        probabilities = [probability for _, probability in expected]
        np.testing.assert_allclose(found["probabilities"][:, 0], probabilities, atol=1e-4)


def test_features_of_an_encoder_of_texts(tmp_path):
    modules = ("Transformer", "Pooling", "Normalize")
    lengths = {"max_seq_length": 24}
    encoder = zoo.load(sentence_encoder(tmp_path, modules, sentence_bert_config=lengths))
    folder = zoo.export(encoder, tmp_path / "1")
    found = caller(folder)(texts=["the cat " * 40, *TEXTS])
    assert b"The maximum is 24 tokens." in found["error"][0] and not found["features"][0].any()
    np.testing.assert_allclose(found["features"][1:], encoder(TEXTS), atol=1e-4)
    assert "24 tokens" in (folder / "README.md").read_text()
    with pytest.raises(ExportError, match="A TextEncoder can be exported as saved_model."):
        zoo.export(encoder, tmp_path / "2", format="onnx")
    with pytest.raises(ExportError, match="A TextEncoder has no option top_k"):
        zoo.export(encoder, tmp_path / "2", top_k=1)
