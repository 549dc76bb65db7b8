"""The SavedModel of a text generator: strings in, the same continuations and draws out."""

import json

import numpy as np
import pytest
import tensorflow as tf

import zoo
from tests.deploy.conftest import SEARCH, caller
from tests.deploy.small_models import LINES
from tests.deploy.test_every_kind import assert_answers
from tests.deploy.test_text_graph import gpt2
from zoo.decoding import SpecialTokens
from zoo.tasks.generator import TextGenerator
from zoo.text import BOS_ID, PAD_ID

pytestmark = pytest.mark.ci

SHORT = ["", "The", "the \ue000\u0301 5", "The cat", "on the mat,"]
# more tokens than are read at once, as many as they can be, and all in one batch with short ones
TEXTS = [*SHORT, LINES[0][:30], "7, " * 5 + "the", "x" * 33]
FIRST_BYTE = 4  # token of the byte 0


@pytest.fixture(scope="module")
def generator(generations):
    return generations.original


@pytest.fixture(scope="module")
def call(generations):
    """Function (texts, signature, other inputs) -> dict of arrays."""
    call = caller(generations.folder)

    def call_with_settings(texts, signature="uncompiled", temperature=None, top_p=None, seed=None):
        if signature != "sample":
            return call(signature, texts=texts)
        settings = {
            name: np.broadcast_to(np.float32(value), len(texts))
            for name, value in (("temperature", temperature), ("top_p", top_p))
        }
        return call(signature, texts=texts, **settings, seed=seed)

    return call_with_settings


def test_texts_are_continued_as_by_the_model(generator, call):
    expected = generator.n_best(TEXTS, n=2, **SEARCH)
    assert_answers(call(TEXTS * 5), expected * 5)
    assert_answers(call(SHORT, "serving_default"), expected[: len(SHORT)])
    lengths = {len(ids) + 1 for ids in generator.tokenizer.encode(TEXTS)}
    assert {1, 17, 35} <= lengths and max(lengths) == 35


def test_draws_depend_on_their_own_seed_alone(call):
    texts = ["The", "The", "The", TEXTS[6], "The"]
    found = call(texts, "sample", 1.0, 1.0, [1, 1, 2, 1, -3])["generated_texts"]
    first, again, other, longer, negative = (tuple(row) for row in found)
    assert len({first, other, negative}) == 3 and first == again
    assert first[0] != first[1], "the draws of one text"
    for text, seed, expected in (("The", 1, first), (texts[3], 1, longer)):
        alone = call([text], "sample", 1.0, 1.0, [seed])["generated_texts"]
        assert tuple(alone[0]) == expected and expected[0].startswith(text.strip().encode())


def test_draws_follow_temperature_and_top_p(generator, call):
    texts = ["The", "The cat", TEXTS[6], "The", "on"]
    greedy = generator(texts, max_new_tokens=6)
    found = call(texts, "sample", [1e-3, 1, 1e-3, 9, 1], [1, 1e-6, 0.5, 1, 1], [1, 2, 3, 4, 5])
    same = [texts[0].decode() == best for texts, best in zip(found["generated_texts"], greedy)]
    assert same == [True, True, True, False, False]


def test_draws_follow_the_distribution(generator, call):
    found = call(["The"] * 300, "sample", 0.5, 1.0, range(300))
    [ids] = generator.tokenizer.encode(["The"])
    logits = np.array(generator.model(np.array([[BOS_ID, *ids]])))[0, -1] / 0.5
    logits[[PAD_ID, BOS_ID]] = -np.inf  # never generated
    likely = FIRST_BYTE + np.argsort(-logits[FIRST_BYTE:][:32])[:3]  # control characters
    drawn = [text.decode()[len("The") :] for text in found["generated_texts"].flat]
    shares = [np.mean([text[:1] == chr(id - FIRST_BYTE) for text in drawn]) for id in likely]
    expected = np.exp(logits[likely]) / np.exp(logits).sum()
    # 4 standard deviations of 600 draws
    np.testing.assert_allclose(shares, expected, atol=4 * np.sqrt(0.1 * 0.9 / 600))


def test_wrong_settings_of_draws_are_errors_of_their_text(call):
    found = call(["a"] * 6, "sample", [0, 1, np.nan, np.inf, 1, 1], [1, 0, 1, 1, 1.1, 1], [0] * 6)
    assert [b"temperature" in error for error in found["error"]] == [1, 0, 1, 1, 0, 0]
    assert [b"top_p" in error for error in found["error"]] == [0, 1, 0, 0, 1, 0]
    assert [any(row) for row in found["generated_texts"]] == [0, 0, 0, 0, 0, 1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="one value for each text"):
        call(["a", "b"], "sample", 1, 1, [1])


@pytest.mark.slow
def test_an_export_of_gpt2(tmp_path):
    """Its special token is one that would be decoded to text, which is left out."""
    tokenizer = gpt2()
    sizes = {"embed_dim": 16, "num_heads": 2, "num_layers": 1, "ff_dim": 24, "max_length": 20}
    model = zoo.causal_lm(vocab_size=tokenizer.vocab_size, **sizes)
    generator = TextGenerator(model, tokenizer, SpecialTokens(5, 5, 5), add_start_token=False)
    folder = zoo.export(generator, tmp_path / "1", max_new_tokens=2)
    needs = json.loads((folder / "export.json").read_text())["needs"]
    assert needs == ["tensorflow", "tensorflow-text"]
