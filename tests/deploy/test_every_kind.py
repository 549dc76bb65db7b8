"""SavedModels of every kind: errors one by one, served, alone, and by their README.

Tolerance: 1e-4 on probabilities and scores, for the same float32 operations in another graph; they
differ by about 1e-6.
"""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

import zoo
from tests.deploy.conftest import caller
from tests.deploy.operations import assert_served, saved_operations
from tests.deploy.small_models import small_classifier, small_generator
from tests.server import toys
from zoo.deploy.classifier_signatures import ClassifierSignatures
from zoo.errors import ExportError
from zoo.server.models import load_all
from zoo.tasks.generator import TextGenerator

pytestmark = pytest.mark.ci

KINDS = ("translations", "text_classes", "generations")
TEXT_OUTPUTS = ("translations", "labels", "generated_texts")
TEXTS = ["the cat", "", "a", "The dog sat. " * 2, "¿Cafe\u0301? 你好", "the dog sees a house."]


def assert_answers(found, expected, atol=1e-4):
    """Texts or labels and their numbers; what a search lacks is empty."""
    assert set(found["error"]) <= {b""}
    [all_texts] = [found[name] for name in TEXT_OUTPUTS if name in found]
    [all_numbers] = [found[name] for name in ("scores", "probabilities") if name in found]
    for texts, numbers, answers in zip(all_texts, all_numbers, expected, strict=True):
        assert [text.decode() for text in texts[: len(answers)]] == [text for text, _ in answers]
        expected_numbers = [number for _, number in answers]
        np.testing.assert_allclose(numbers[: len(answers)], expected_numbers, atol=atol)
        assert not any(texts[len(answers) :])


@pytest.fixture(scope="module", params=[*KINDS[:2], pytest.param(KINDS[2], marks=pytest.mark.slow)])
def exported(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def model(exported):
    """As the server loads it."""
    [model] = load_all([exported.folder])
    return model


@pytest.fixture(scope="module")
def loaded(exported):
    return caller(exported.folder)


@pytest.fixture(scope="module")
def call(loaded):
    """Function (texts) -> dict of arrays."""
    return lambda texts: loaded(texts=texts)


def test_a_text_that_is_too_long_does_not_affect_the_others(exported, call):
    tokenizer = getattr(exported.original, "tokenizer", None) or exported.original.source_tokenizer
    long = "the 7, " * (exported.longest * 3 // 2)
    tokens = len(tokenizer.encode([long])[0]) + exported.controls
    found = call([long, "the cat", long * 1000, *TEXTS])
    assert found["error"][0].decode() == (
        f"The text is too long: it has {tokens} tokens. The maximum is {exported.longest} tokens."
    )
    assert b"bytes" in found["error"][2]
    for name, values in found.items():
        assert name == "error" or not values[:3:2].astype(bool).any()
    others = {name: np.delete(values, [0, 2], axis=0) for name, values in found.items()}
    assert_answers(others, exported.answers(["the cat", *TEXTS]))
    [longest] = tokenizer.decode(
        [tokenizer.encode([long])[0][: exported.longest - exported.controls]]
    )
    assert call([longest])["error"].tolist() == [b""]


def test_bytes_that_are_not_utf8_and_no_texts(exported, call):
    broken = [b"the \xff cat", b"\xe2\x82", b"\xc3\x28 man", b"\xf0\x9f\x98"]
    expected = exported.answers([text.decode(errors="replace") for text in broken])
    assert_answers(call(broken), expected)
    assert {len(values) for values in call([]).values()} == {0}


def test_the_folder_says_what_it_is(exported, loaded):
    description = json.loads((exported.folder / "export.json").read_text())
    expected = exported.description
    assert {name: description[name] for name in expected} == expected
    assert description["checked"]["largest_difference"] <= description["checked"]["tolerance"]
    assert description["signatures"].keys() == loaded.signatures.keys()
    for name, described in description["signatures"].items():
        function = loaded.signatures[name]
        for side, specs in (
            ("inputs", function.structured_input_signature[1]),
            ("outputs", function.structured_outputs),
        ):
            assert described[side] == {
                tensor: {"dtype": spec.dtype.name, "shape": spec.shape.as_list()}
                for tensor, spec in specs.items()
            }


def test_a_stock_server_has_its_operations(exported, digits_export):
    """The folder says whose they are."""
    assert "SentencepieceTokenizeOp" in assert_served(saved_operations(exported.folder))
    assert not assert_served(saved_operations(digits_export))
    for folder, needs in (
        (exported.folder, ["tensorflow", "tensorflow-text"]),
        (digits_export, ["tensorflow"]),
    ):
        description = json.loads((folder / "export.json").read_text())
        assert description["needs"] == needs and set(needs) <= description["versions"].keys()
        readme = (folder / "README.md").read_text()
        assert ("import tensorflow_text" in readme) == ("tensorflow-text" in needs)


def test_its_warm_up_requests_are_those_of_tensorflow_serving(exported):
    """Its own messages read them."""
    [path] = exported.folder.glob("assets.extra/tf_serving_warmup_requests")
    found = []
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        assert request.model_spec.signature_name == "serving_default"
        [(name, proto)] = request.inputs.items()
        texts = tf.make_ndarray(proto).tolist()
        assert name == "texts" and len({*texts}) == 1
        found.append(len(texts))
    assert found == [1, 8, 32]


def test_the_server_serves_it(exported, model):
    assert model.signatures["serving_default"].is_batched
    with toys.running([model]) as (url, *_):
        request = {"instances": ["the cat", "the 7, " * 300]}
        first, second = toys.post(url, request, name=model.name).json()["predictions"]
        [texts] = [first[name] for name in TEXT_OUTPUTS if name in first]
        assert texts == [text for text, _ in exported.answers(["the cat"])[0]]
        assert first["error"] == "" and "too long" in second["error"]


def follow_readme(folder):
    """The output of the Python code in the README of an export, without other packages."""
    [code] = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    others = {"zoo", "keras_hub", "tokenizers", "sentencepiece", "PIL", "sklearn"}
    code = f"import sys; sys.modules.update(dict.fromkeys({others}))\n{code}"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.slow
def test_the_readme_is_true(exported):
    text = "The" if exported.description["kind"] == "generator" else "hello world"
    [[(best, _), *_]] = exported.answers([text])
    printed = follow_readme(exported.folder)
    assert best in printed or repr(best.encode())[2:-1] in printed  # as text or as bytes


@pytest.mark.slow
def test_the_readme_of_a_classifier_is_correct(classifier, digits_export, tmp_path):
    folder, image = (
        shutil.copytree(digits_export, tmp_path / "1"),
        np.full((20, 20, 1), 90, np.uint8),
    )
    (folder / "image.jpg").write_bytes(tf.io.encode_jpeg(image).numpy())
    [[(best, _)]] = classifier([folder / "image.jpg"])
    assert f"[[b'{best}'" in follow_readme(folder)


ANOTHER_SCORE = lambda best: best._replace(score=best.score - 1.0)  # noqa: E731
ANOTHER_TEXT = lambda best: best._replace(text=best.text + "a")  # noqa: E731
WRONG = {
    "labels": (small_classifier, ClassifierSignatures, "_compute_outputs", lambda x: x * 1.1),
    "NaN": (small_classifier, ClassifierSignatures, "_compute_outputs", lambda x: x * np.nan),
    "score": (small_generator, TextGenerator, "n_best", ANOTHER_SCORE),
    "text": (small_generator, TextGenerator, "n_best", ANOTHER_TEXT),
}


@pytest.mark.parametrize(
    "wrong",
    ["labels", *(pytest.param(name, marks=pytest.mark.slow) for name in ("NaN", "score", "text"))],
)
def test_an_export_that_answers_otherwise_is_not_kept(wrong, tmp_path, monkeypatch):
    make, owner, name, change = WRONG[wrong]
    right = getattr(owner, name)

    def answer(*args, **options):
        found = right(*args, **options)
        return change(found) if make is small_classifier else [[*map(change, row)] for row in found]

    monkeypatch.setattr(owner, name, answer)
    message = "The answer of the SavedModel to" if wrong == "text" else "of the export differ"
    with pytest.raises(ExportError, match=message):
        zoo.export(make(num_layers=1), tmp_path / "name" / "1")
    assert not [*(tmp_path / "name").iterdir()]
