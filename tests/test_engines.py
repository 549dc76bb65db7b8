"""`zoo.load` with an engine: the answers are those of TensorFlow."""

import json
import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import zoo
from tests.deploy.small_models import (
    LINES,
    small_classifier,
    small_generator,
    small_text_classifier,
    small_translator,
)
from zoo.__main__ import main
from zoo.decoding import SpecialTokens
from zoo.engines import create_engine
from zoo.errors import TaskError, UserError
from zoo.tasks.translator import Translator
from zoo.text import BOS_ID, EOS_ID, PAD_ID

pytestmark = pytest.mark.ci

IMAGES = [*np.random.default_rng(0).integers(0, 256, (70, 8, 12, 3), dtype=np.uint8)]
TEXTS = ["dog", "", "The cat sat.", "ñandú\u0301 你好"]
SPECIAL = {
    "as trained": {},
    "Marian": {"special_tokens": SpecialTokens(PAD_ID, EOS_ID, PAD_ID), "length_offset": 0.0},
    "mBART": {"special_tokens": SpecialTokens(EOS_ID, EOS_ID, PAD_ID, prefix=(7,))},
}


def certain_translator(settings):
    """A translator that does not search among padding and start: CTranslate2 shares out theirs."""
    small = small_translator(logits_bias=True, num_layers=1)
    bias = np.zeros(small.model.target_vocab_size)
    bias[[PAD_ID, BOS_ID]] = -30.0
    small.model.output_bias.assign(bias)
    return Translator(small.model, *[small.source_tokenizer] * 2, **settings)


# engine: a lower precision, and the largest difference of probabilities that it may make
LOW = {"onnxruntime": ("int8", 0.1), "openvino": ("bfloat16", 0.02)}  # 7 bits; 8 bits in each layer


@pytest.mark.parametrize("engine", LOW)
def test_an_engine_gives_the_probabilities_of_the_model(engine, tmp_path):
    original = small_classifier(num_layers=1)
    original.save(tmp_path)
    images = [*np.resize(np.stack(IMAGES), (70, *original.model.input_shape))]
    expected = original.probabilities(images)
    loaded = zoo.load(tmp_path, engine=engine)
    for count in (1, 70):
        found = loaded.probabilities(images[:count])
        np.testing.assert_allclose(found, expected[:count], atol=1e-5)  # sums in another order
    dtype, largest = LOW[engine]
    low = zoo.load(tmp_path, engine=engine, dtype=dtype).probabilities(images)
    assert low.shape == expected.shape and low.dtype == np.float32
    np.testing.assert_allclose(low, expected, atol=largest)
    cpu = pathlib.Path("/proc/cpuinfo")
    if dtype == "int8" or (cpu.exists() and "avx512_bf16" in cpu.read_text()):
        assert np.abs(low - expected).max() > 1e-4
    assert loaded([]) == []
    loaded.problem = "multi_label"
    assert loaded.engine is None, "another problem or model is computed without it"


def test_an_engine_computes_in_float32_what_was_trained_in_bfloat16(tmp_path):
    original = small_classifier("mixed_bfloat16", num_layers=1)
    original.problem = "multi_label"
    original.save(tmp_path)
    found = zoo.load(tmp_path, engine="onnxruntime").probabilities(IMAGES[:9])
    exact = zoo.load(tmp_path, dtype="float32").probabilities(IMAGES[:9])
    assert exact.sum(axis=1).max() > 1.1
    np.testing.assert_allclose(found, exact, atol=1e-5)


@pytest.mark.parametrize("engine", LOW)
def test_an_engine_computes_for_several_threads(engine):
    small = small_classifier(num_layers=1)
    batches = [IMAGES[:n] for n in (1, 5, 70, 3)]
    expected = [small.probabilities(batch) for batch in batches]
    small.engine = create_engine(small, engine, "float32")
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(small.probabilities, batches * 4))
    for mine, other in zip(found, expected * 4, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)


@pytest.mark.parametrize("name, beam_size", [("Marian", 3), ("mBART", 1)])
def test_ctranslate2_finds_the_translations_of_the_model(name, beam_size):
    """With scores of the zoo's length penalty, which for `Marian` is that of CTranslate2.

    Beam searches with another length penalty may differ; with none, those of these texts do not.
    """
    translator = certain_translator(SPECIAL[name])
    options = {"n": beam_size, "beam_size": beam_size, "length_penalty": 0.0}
    expected = translator.n_best(TEXTS, **options)
    translator.engine = create_engine(translator, "ctranslate2", "float32")
    assert_same(translator.n_best(TEXTS, **options), expected)
    greedy = {"beam_size": 1, "length_penalty": 0.8, "max_length": 7}
    found = translator.n_best(TEXTS, **greedy)
    translator.engine = None
    assert_same(found, translator.n_best(TEXTS, **greedy))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["as trained", "mBART"])
def test_ctranslate2_obeys_search_options(name):
    """Greedy search; `repetition_penalty` differs where the start token occurs again."""
    translator = certain_translator(SPECIAL[name])
    engine = create_engine(translator, "ctranslate2", "float32")
    for options in (
        {"no_repeat_ngram_size": 2, "suppress_tokens": range(20, 150)},
        {"target_prefix": "the cat", "min_length": 9, "forced_eos": True},
        {"target_prefix": ["the", *["the cat"] * (len(TEXTS) - 1)], "min_new_tokens": 4},
    ):
        options |= {"beam_size": 1, "max_length": 12}
        translator.engine = None
        expected = translator(TEXTS, **options)
        translator.engine = engine
        assert translator(TEXTS, **options) == expected


@pytest.mark.parametrize(
    "name, early_stopping",
    [pytest.param("as trained", False, marks=pytest.mark.slow), ("mBART", "never")],
)
def test_ctranslate2_finds_all_translations_of_few_tokens(name, early_stopping):
    """In the order of the zoo: by default, those that were cut off come last.

    There are at most as many of one token as tokens that can be generated, and one that is forced.
    """
    translator = certain_translator({**SPECIAL[name], "early_stopping": early_stopping})
    engine = create_engine(translator, "ctranslate2", "float32")
    for options in (
        {"max_length": 1, "n": 310, "length_penalty": 1.3},
        {"max_length": 2, "n": 2, "beam_size": 310, "length_penalty": 0.0},
    ):
        translator.engine = None
        expected = translator.n_best(["The cat sat."], **options)
        translator.engine = engine
        assert_same(translator.n_best(["The cat sat."], **options), expected)


def assert_same(found, expected):
    for mine, other in zip(found, expected, strict=True):
        assert [text for text, _ in mine] == [text for text, _ in other]
        np.testing.assert_allclose([s for _, s in mine], [s for _, s in other], rtol=1e-4)


def test_translations_are_sorted_by_their_scores():
    small = small_translator(num_layers=1)
    loaded = Translator(small.model, *[small.source_tokenizer] * 2, early_stopping=True)
    for dtype in ("float32", "int8"):
        loaded.engine = create_engine(loaded, "ctranslate2", dtype)
        for found in loaded.n_best([text for text in TEXTS if text], n=3, length_penalty=2.0):
            scores = [score for _, score in found]
            assert len(scores) == 3 and scores == sorted(scores, reverse=True) and scores[0] < 0


def test_what_an_engine_does_not_compute_is_computed_by_the_model(tmp_path):
    original = small_translator(num_layers=1)
    original.save(tmp_path)
    loaded = zoo.load(tmp_path, engine="ctranslate2")
    assert loaded.score(LINES, LINES[::-1]) == original.score(LINES, LINES[::-1])
    assert loaded.sample(LINES, seed=3) == original.sample(LINES, seed=3)
    long = ["The cat sat. " * 40]
    assert loaded(long) == loaded(long, too_long="split", sentences=False)
    with pytest.raises(TaskError, match="too long"):
        loaded(long, sentences=False)


def test_an_export_is_that_of_the_model(tmp_path):
    small = small_classifier(num_layers=1)
    small.engine = engine = create_engine(small, "onnxruntime", "int8")
    folder = zoo.export(small, tmp_path / "1", format="onnx")
    checked = json.loads((folder / "export.json").read_text())["checked"]
    assert checked["largest_difference"] < 1e-5 and small.engine is engine


def test_a_model_that_computes_nan_has_no_translation():
    small = small_translator(num_layers=1)
    kernel = small.model.output_projection.kernel
    kernel.assign(np.full(kernel.shape, np.nan))
    small.engine = create_engine(small, "ctranslate2", "float32")
    with pytest.raises(TaskError, match="There is no result"):
        small(["The cat sat."], beam_size=1, max_length=8)


def test_errors(tmp_path, monkeypatch):
    small_classifier(num_layers=1).save(tmp_path / "classifier")
    for engine in ("onnx", ""):
        with pytest.raises(UserError, match=f"engine must be one of .* engine='{engine}'"):
            zoo.load(tmp_path / "there is none", engine=engine)
    with pytest.raises(UserError, match="type Translator. Received: ImageClassifier"):
        zoo.load(tmp_path / "classifier", engine="ctranslate2")
    for engine, dtype in (("onnxruntime", "bfloat16"), ("openvino", "int8")):
        with pytest.raises(UserError, match=f"with engine='{engine}'. Received: dtype='{dtype}'"):
            zoo.load(tmp_path / "classifier", engine=engine, dtype=dtype)
    for make in (small_text_classifier, small_generator):
        make(num_layers=1).save(tmp_path / make.__name__)
        with pytest.raises(UserError, match="type ImageClassifier. Received: Text"):
            zoo.load(tmp_path / make.__name__, engine="onnxruntime")
    small_translator(num_layers=1, positions="rotary").save(tmp_path / "rotary")
    with pytest.raises(UserError, match="positions='rotary'"):
        zoo.load(tmp_path / "rotary", engine="ctranslate2")
    for engine in LOW:
        monkeypatch.setitem(sys.modules, engine, None)
        with pytest.raises(UserError, match=f"{engine} is not installed"):
            zoo.load(tmp_path / "classifier", engine=engine)


def test_the_command_line(tmp_path, capsys):
    certain_translator({}).save(tmp_path)
    arguments = ["translate", str(tmp_path), *TEXTS[2:], "--beam-size", "1"]
    assert main(arguments) == 0
    expected = capsys.readouterr().out
    assert main([*arguments, "--engine", "ctranslate2"]) == 0
    assert capsys.readouterr().out == expected
    assert main([*arguments, "--engine", "onnxruntime"]) == 2
    assert "engine='onnxruntime' computes" in capsys.readouterr().err
