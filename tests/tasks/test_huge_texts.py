"""Huge texts, which are refused by their size before they are split or tokenized."""

import pytest

from tests.deploy.small_models import small_generator, small_text_classifier, small_translator
from zoo.errors import TaskError
from zoo.tasks.encoder import TextEncoder
from zoo.text.sentencepiece import SentencePieceTokenizer

HUGE = "The cat sat. " * 1_000_000


@pytest.fixture(scope="module")
def tasks():
    classifier = small_text_classifier()
    without_classes = {**classifier.model.get_config(), "num_classes": 0}
    return {
        "generator": small_generator(num_layers=1),
        "classifier": classifier,
        "encoder": TextEncoder(
            type(classifier.model).from_config(without_classes), classifier.tokenizer
        ),
        "translator": small_translator(num_layers=1),
    }


@pytest.mark.parametrize(
    "name, call",
    [
        ("generator", lambda task: task([HUGE])),
        ("generator", lambda task: task.sample([HUGE])),
        ("classifier", lambda task: task([HUGE])),
        ("encoder", lambda task: task([HUGE])),
        ("translator", lambda task: task([HUGE])),
        ("translator", lambda task: task([HUGE], sentences=False)),
        ("translator", lambda task: task([HUGE], too_long="split")),
        ("translator", lambda task: task.sample([HUGE])),
        ("translator", lambda task: task.score([HUGE], ["a"])),
        ("translator", lambda task: task.score(["a"], [HUGE])),
        ("translator", lambda task: task.alignment(HUGE)),
    ],
)
def test_huge_texts_are_refused_before_they_are_tokenized(tasks, monkeypatch, name, call):
    encode = SentencePieceTokenizer.encode

    def encode_small(self, texts):
        assert max(map(len, texts)) < 10_000
        return encode(self, texts)

    monkeypatch.setattr(SentencePieceTokenizer, "encode", encode_small)
    monkeypatch.setattr("zoo.text.encoding.split_sentences", pytest.fail)
    with pytest.raises(TaskError, match="13,?000,?000 characters"):
        call(tasks[name])


def test_the_beginning_of_a_huge_text(tasks):
    classifier = tasks["classifier"]
    [expected] = classifier.encode([HUGE[:10_000]], too_long="truncate")
    assert classifier.encode([HUGE], too_long="truncate") == [expected]
    with pytest.warns(UserWarning, match="1 of 2 texts are truncated"):  # spaces are no tokens
        classifier.encode(["The cat", "The cat" + " " * 100_000 + "sat."], too_long="truncate")
