"""Every option changes the result, or is refused: none is without an effect in silence."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

from tests.deploy.small_models import (
    random_images,
    small_classifier,
    small_generator,
    small_text_classifier,
    small_translator,
)
from zoo.data.preprocessing import ImagePreprocessing
from zoo.decoding import SearchOptions
from zoo.errors import DataError, TaskError, UserError
from zoo.evaluation.data import read_labels
from zoo.tasks import task
from zoo.tasks.encoder import TextEncoder
from zoo.tasks.translator import Translator
from zoo.training.report_scores import label_scores
from zoo.training.report_translation_scores import translation_scores

TEXTS = ["The cat sat. The dog sat on the mat.", "the dog sat", "a. b c"]
LENGTH = 8  # of outputs
LENGTHS = {  # where others are needed
    ("translator", "forced_eos"): 2,
    ("generator", "forced_eos"): 2,
    ("generator", "min_length"): 30,
}

# A value that has an effect for each option of `SearchOptions`, in beam search, greedy search and
# sampling. A new option needs a value here.
SEARCH_OPTIONS = {
    "min_length": 28,
    "min_new_tokens": 8,
    "no_repeat_ngram_size": 1,
    "repetition_penalty": 3.0,
    "suppress_tokens": range(5, 300),
    "forced_eos": True,
    "renormalize_logits": True,
}
# Values with an effect for the arguments of each method, in addition to `SEARCH_OPTIONS`. A new
# argument needs a value here.
METHODS = {
    "__call__": {"beam_size": 3, "length_penalty": -9.0},
    "n_best": {"n": 2, "beam_size": 3, "length_penalty": 9.0},
    "sample": {"n": 2, "temperature": 0.1, "top_k": 1, "top_p": 0.1, "seed": 1},
}
OF_TRANSLATORS = {"max_length": 2, "too_long": "split", "sentences": None, "target_prefix": "a"}
OF_GENERATORS = {"max_new_tokens": 2}


@pytest.fixture(scope="module")
def tasks():
    translator = small_translator(beam_size=2, max_length=32)
    translator.length_penalty = 1.0
    generator = small_generator(max_length=64)
    end = generator.tokenizer.encode(["a5"])[0][-1]  # a token that it generates soon
    generator.special_tokens = generator.special_tokens._replace(end=end)
    return {"translator": translator, "generator": generator}


def results(method, limit, **options):
    """The answers of a method to `TEXTS`."""
    return method(TEXTS, **{limit: LENGTH, **options})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["translator", "generator"])
@pytest.mark.parametrize("name", METHODS)
def test_arguments_of_searches(tasks, kind, name):
    task = tasks[kind]
    others = OF_TRANSLATORS if kind == "translator" else OF_GENERATORS
    limit = next(iter(others))
    method = getattr(task, name)
    default = results(method, limit)
    parameters = inspect.signature(method).parameters
    values = METHODS[name] | others
    assert parameters.keys() - values.keys() <= {"texts", "prompts", "search_options"}
    for argument, value in values.items():
        if argument == "sentences":
            value = not parameters[argument].default
        if argument == "too_long":
            long = ["the cat " * 40]
            with pytest.raises(TaskError, match="too long"):
                method(long, sentences=False)
            assert method(long, sentences=False, too_long="split")
        elif argument == "length_penalty" and name == "__call__":
            with pytest.raises(TaskError, match="beam_size above 1"):
                results(method, limit, beam_size=1, length_penalty=value)
            beams = results(method, limit, beam_size=4, length_penalty=9.0)
            assert results(method, limit, beam_size=4, length_penalty=value) != beams
        else:
            assert results(method, limit, **{argument: value}) != default, argument


@pytest.mark.parametrize("kind", ["translator", "generator"])
@pytest.mark.parametrize(
    "beam_size",
    [
        pytest.param(1, id="greedy"),
        pytest.param(3, id="beam", marks=pytest.mark.slow),
        pytest.param(None, id="sampling", marks=pytest.mark.slow),
    ],
)
def test_search_options(tasks, kind, beam_size):
    assert SEARCH_OPTIONS.keys() == set(SearchOptions._fields)
    limit = next(iter(OF_TRANSLATORS if kind == "translator" else OF_GENERATORS))
    method = tasks[kind].n_best if beam_size else tasks[kind].sample
    given = {"beam_size": beam_size} if beam_size else {}
    default = results(method, limit, **given)
    for name, value in SEARCH_OPTIONS.items():
        if name.startswith("min_") and kind == "translator":
            value = 9 if name == "min_length" else 8  # the start token counts as a prompt
            given["suppress_tokens"] = range(3, 325)  # of the few that are left, one is the end
        else:
            given.pop("suppress_tokens", None)
        given[limit] = LENGTHS.get((kind, name), LENGTH)
        default = results(method, limit, **given)
        assert results(method, limit, **given, **{name: value}) != default, name
    for name in ("top_k", "temperature", "top_p", "seed", "early_stopping", "num_return_sequences"):
        if name not in METHODS["sample"] or beam_size:
            with pytest.raises(TypeError, match=name):
                results(method, limit, **given, **{name: 1})


@pytest.mark.parametrize("kind", ["translator", "generator"])
def test_options_that_contradict_each_other(tasks, kind):
    task = tasks[kind]
    limit = next(iter(OF_TRANSLATORS if kind == "translator" else OF_GENERATORS))
    for name in ("forced_eos", "renormalize_logits"):
        with pytest.raises(TaskError, match=f"{name} must be True or False"):
            task(TEXTS, **{name: "yes"})
    for name in ("min_length", "min_new_tokens"):
        for method in (task, task.n_best, task.sample):
            with pytest.raises(TaskError, match="at most"):
                method(TEXTS, **{limit: 4, name: 30})


def test_a_minimum_of_new_tokens_after_a_prefix(tasks):
    """It is reached without a maximum, as in transformers, or else refused."""
    translator = tasks["translator"]
    prefix = "The cat sat on"
    [ids] = translator.target_tokenizer.encode([prefix])
    room = translator.model.max_length - len(ids)
    lengths = []
    translator._scored = lambda found: lengths.append((found.tokens[0] != 0).sum()) or [("", 0.0)]
    try:
        for count in (3, room - 1):
            for beam_size in (1, 3):
                translator.n_best(
                    ["the dog"], target_prefix=prefix, min_new_tokens=count, beam_size=beam_size
                )
            translator.sample(["the dog"], target_prefix=prefix, min_new_tokens=count)
            assert min(lengths) >= len(ids) + count
            lengths.clear()
    finally:
        del translator._scored
    with pytest.raises(TaskError, match=f"at most {room} new tokens"):
        translator(["the dog"], target_prefix=prefix, min_new_tokens=room + 1)


def test_a_minimum_of_new_tokens_raises_the_default_maximum():
    generator = small_generator(max_length=128)
    [[found]] = generator.n_best(["the cat"], min_new_tokens=90, suppress_tokens=[4])
    [[usual]] = generator.n_best(["the cat"], min_new_tokens=40, suppress_tokens=[4])
    assert len(found.text) > len(usual.text)


def test_padding_without_a_probability(tasks):
    """The likeliest token has another probability, as in the softmax without padding."""
    translator = tasks["translator"]
    special = translator.special_tokens
    [source] = translator.source_tokenizer.encode(TEXTS[1:2])
    start = np.array([[special.start]], "int32")
    source = np.array([[*source, special.end]], "int32")
    [[logits]] = translator.model({"source": source, "target": start}).numpy()
    logits = np.delete(logits.astype("float64"), [special.start, special.pad])
    expected = logits.max() - np.log(np.exp(logits).sum())
    for beam_size in (1, 2):
        options = {"beam_size": beam_size, "max_length": 1, "length_penalty": 0.0}
        [[best, *_]] = translator.n_best(TEXTS[1:2], renormalize_logits=True, **options)
        [[usual, *_]] = translator.n_best(TEXTS[1:2], **options)
        assert best.score == pytest.approx(expected, abs=1e-5)
        assert usual.score < expected - 1e-3  # padding matters
    usual, _ = translator.score(TEXTS[:2], ["", "cat"])
    translator.search_options = {"renormalize_logits": True}
    try:
        [score] = translator.score(TEXTS[:1], [""])
    finally:
        translator.search_options = {}
    assert score > usual + 1e-3


@pytest.mark.parametrize("create", [small_text_classifier, small_classifier])
def test_arguments_of_classifiers(create):
    classifier = create()
    values = {"top_k": 2, "threshold": 0.01, "too_long": "truncate"}
    parameters = inspect.signature(classifier.__call__).parameters
    assert parameters.keys() - values.keys() <= {"texts", "images"}
    is_image = create is small_classifier
    items = list(random_images(classifier, 2)) if is_image else TEXTS
    for name in ("top_k", "threshold"):
        assert classifier(items, **{name: values[name]}) != classifier(items)
    if not is_image:
        long = ["the cat " * 500]
        with pytest.raises(TaskError, match="too long"):
            classifier(long)
        with pytest.warns(UserWarning, match="truncated"):
            classifier(long, too_long="truncate")


class Texts(list):
    pass


@pytest.mark.parametrize("kind", ["translator", "generator", "text_classifier"])
def test_what_are_texts(tasks, kind):
    task = tasks.get(kind) or small_text_classifier()
    expected = task(TEXTS)
    for texts in (tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, object), Texts(TEXTS)):
        assert task(texts) == expected
    wrong = [set(TEXTS), frozenset(TEXTS), dict.fromkeys(TEXTS), dict.fromkeys(TEXTS).keys()]
    wrong += ["a", b"a", [b"a"], np.array([b"a"]), [None], [["a"]], None, iter(TEXTS), 3, [1.5]]
    wrong += [np.array("a"), np.array([["a"]]), tf.constant(["a"])]
    for texts in wrong:
        with pytest.raises(UserError):
            task(texts)
    if kind == "translator":
        for texts in ({"a"}, {"a": 1}, [None], [b"a"], []):
            with pytest.raises(UserError):
                task(["a"], target_prefix=texts)
            with pytest.raises(UserError):
                task.score(["a"], texts)


def test_what_are_class_names():
    """Names without an order would be those of other classes, in another process."""
    for create in (small_classifier, small_text_classifier):
        task = create()
        names = task.class_names
        parts = [task.preprocessing] if create is small_classifier else [task.tokenizer]
        for right in (tuple(names), np.array(names), iter(names)):
            assert type(task)(task.model, *parts, right).class_names == names
        joined = "abcd"[: len(names)]
        for wrong in (set(names), frozenset(names), dict.fromkeys(names), joined, joined.encode()):
            with pytest.raises(TaskError, match="class_names must be a list, in the order"):
                type(task)(task.model, *parts, wrong)


@pytest.mark.parametrize("name", ["keep_numbers", "keep_signs"])
def test_what_is_true_or_false(tasks, name):
    given = [getattr(tasks["translator"], part) for part in ("model", "source_tokenizer")]
    for wrong in ("no", 0, 1, None):
        with pytest.raises(TaskError, match=f"{name} must be True or False"):
            Translator(*given, tasks["translator"].target_tokenizer, **{name: wrong})


@pytest.mark.parametrize("wrong", ["no", 0, 1])
def test_sentences_are_true_or_false(tasks, wrong):
    with pytest.raises(TaskError, match="sentences must be True or False"):
        tasks["translator"](TEXTS, sentences=wrong)


@pytest.mark.parametrize("tokens", [{5: -100.0}, b"ab", "5", 5, [5.0], [True], [-1]])
def test_what_are_tokens(tasks, tokens):
    for each in tasks.values():
        with pytest.raises(TaskError):
            each(TEXTS, suppress_tokens=tokens)


def test_what_are_statistics_of_channels():
    for wrong in ({0.5, 0.4, 0.3}, {0.1: 1, 0.2: 2, 0.3: 3}, "abc", (0.5, 0.5), (np.nan,)):
        with pytest.raises(ValueError, match="mean must be one number"):
            ImagePreprocessing((8, 8), 3, mean=wrong)
    with pytest.raises(ValueError, match="for std not 0"):
        ImagePreprocessing((8, 8), 3, std=(1.0, 0.0, 1.0))
    with pytest.raises(ValueError, match="interpolation must be one of"):
        ImagePreprocessing((8, 8), 3, interpolation="nearest")


@pytest.mark.parametrize(
    "text",
    ["[1.7, 0]", "[true, false]", "[-1, 0]", "[[1.5], [0]]", "1.7\n0", "[NaN, 1]", "[{}, 1]"],
)
def test_what_are_class_numbers(text, tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text(text)
    with pytest.raises(DataError, match="must be class numbers"):
        read_labels(path, 2)
    for right in ("[1, 0]", "[1.0, 0]", '["1", "0"]', "1\n0", "[[1], [0]]"):
        path.write_text(right)
        assert read_labels(path, 2) == [[1], [0]]


@pytest.mark.parametrize("wrong", [-1, 2, 0.5, np.nan])
def test_what_are_several_labels(wrong):
    """-1, "no label", is not the label 0."""
    with pytest.raises(DataError, match="Each label must be 1 or 0"):
        label_scores([[1, wrong], [0, 1]], [[0.9, 0.2], [0.3, 0.8]], ["a", "b"])


def small_text_encoder():
    classifier = small_text_classifier()
    model = type(classifier.model).from_config({**classifier.model.get_config(), "num_classes": 0})
    return TextEncoder(model, classifier.tokenizer)


@pytest.mark.parametrize("wrong", ["0.5", True, np.nan, None, -0.1, 2, [0.5, np.nan]])
def test_what_are_thresholds(wrong):
    with pytest.raises(TaskError, match="threshold must be a finite number"):
        label_scores([[1, 0], [0, 1]], [[0.9, 0.2], [0.3, 0.8]], ["a", "b"], threshold=wrong)


def test_what_are_translations():
    for translations, references in (("ab", ["a", "b"]), (["a", "b"], "ab"), ({"a"}, ["a"])):
        with pytest.raises(UserError, match="must be a list of str"):
            translation_scores(translations, references)
    assert translation_scores(("a", "b"), np.array(["a", "b"]))["exact_match"] == 1


def test_arguments_of_alignments(tasks):
    translator = tasks["translator"]
    default = translator.alignment("the dog")
    assert translator.alignment("a. b").source != default.source
    assert translator.alignment("the dog", "a").target != default.target
    for texts in (["the dog"], b"a", None):
        with pytest.raises(UserError, match="must be a list of str"):
            translator.alignment(texts)
    with pytest.raises(UserError, match="must be a list of str"):
        translator.alignment("the dog", ["a"])


def test_arguments_of_scores(tasks):
    translator = tasks["translator"]
    [default] = translator.score(["the dog"], ["a"])
    assert translator.score(["the cat"], ["a"]) != [default]
    assert translator.score(["the dog"], ["b"]) != [default]


@pytest.mark.parametrize("wrong", ["no", 1, None])
def test_whether_features_are_normalized(wrong):
    encoder = small_text_encoder()
    with pytest.raises(TaskError, match="normalize must be True or False"):
        TextEncoder(encoder.model, encoder.tokenizer, normalize=wrong)


def test_features_need_no_options():
    encoder = small_text_encoder()
    features = encoder(["a", "b"])
    with pytest.raises(TaskError, match="Features need no options. Received: too_long"):
        encoder.similarity(features, features, too_long="truncate")
    assert encoder.similarity(features, ["a"], too_long="truncate").shape == (2, 1)


def test_what_are_images():
    classifier = small_classifier()
    for images in ({"a.png"}, {"a.png": 1}):
        with pytest.raises(TaskError, match="a list"):
            classifier(images)


@pytest.mark.slow
def test_numbers_are_arguments_of_compiled_functions(monkeypatch):
    """Calls with other numbers share a function; no more functions than a limit are compiled."""
    compiled = []
    original = task._compiled

    def record(function, specs, jit_compile, *args, **constants):
        compiled.append(jit_compile)
        return original(function, specs, None, *args, **constants)

    monkeypatch.setattr(task, "_compiled", record)
    monkeypatch.setattr(task, "JIT_COMPILE", True)
    monkeypatch.setattr(task, "MAX_FUNCTIONS", 5)
    translator = small_translator(beam_size=2, max_length=32)
    for number in range(2, 6):
        translator(
            TEXTS[1:2],
            length_penalty=number / 7,
            min_length=number,
            min_new_tokens=number,
            no_repeat_ngram_size=number,
            repetition_penalty=1 + number / 9,
            suppress_tokens=range(5, 5 + number),
            max_length=10 + number,
        )
        translator.sample(
            TEXTS[1:2], temperature=number / 5, top_k=number, top_p=number / 7, max_length=9
        )
    assert compiled == [True, True]
    for beam_size in range(3, 12):
        translator(TEXTS[1:2], beam_size=beam_size)
        translator(TEXTS[1:2], beam_size=3)  # compiled ones are kept
    assert compiled.count(True) == 5 and len(compiled) == 2 + 9
