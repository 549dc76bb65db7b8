"""Sentence pairs as ids: what comes back."""

import numpy as np
import pytest

from zoo.data.text_rows import TextDataset
from zoo.data.tokenized_corpus import (
    encode_pairs,
    keeps_numbers,
    load_corpus,
    train_tokenizers,
    write_corpus,
)
from zoo.decoding import SpecialTokens
from zoo.errors import DataError
from zoo.text import BOS_ID, EOS_ID, PAD_ID
from zoo.text.special_tokens import SPECIAL_TOKENS


class Letters:
    """A tokenizer of one id for each letter."""

    def __init__(self, first_id=3):
        self.first_id = first_id

    def encode(self, texts):
        return [[ord(letter) - ord("a") + self.first_id for letter in text] for text in texts]


def encode(pairs, max_length=20, name="train"):
    return encode_pairs(pairs, Letters(), Letters(50), max_length, name)


def test_a_batch():
    pairs = encode([("abc", "a"), ("b", "bcd")])
    inputs, labels, weights = pairs.batch(np.array([1, 0]), (3, 5))
    empty = [PAD_ID] * 5
    source = [[4, EOS_ID, 0, 0, 0], [3, 4, 5, EOS_ID, 0], empty]
    target = [[BOS_ID, 51, 52, 53, 0], [BOS_ID, 50, 0, 0, 0], empty]
    np.testing.assert_array_equal(inputs["source"], source)
    np.testing.assert_array_equal(inputs["target"], target)
    np.testing.assert_array_equal(labels, [[51, 52, 53, EOS_ID, 0], [50, EOS_ID, 0, 0, 0], empty])
    np.testing.assert_array_equal(weights, labels != PAD_ID)
    assert {a.dtype for a in (inputs["source"], inputs["target"], labels)} == {np.dtype("int32")}
    assert weights.dtype == np.float32


def test_other_special_tokens():
    """Those of M2M100: the end token starts, and the first label is a language code."""
    special = SpecialTokens(start=2, end=2, pad=1, prefix=(99,))
    given = [("abc", "a"), ("b", "bcde"), ("a", "bcd")]
    pairs = encode_pairs(given, Letters(), Letters(50), 5, "train", special)
    assert (len(pairs), pairs.num_tokens) == (2, 8)
    inputs, labels, weights = pairs.batch(np.array([0, 1]), (3, 6))
    source = [[3, 4, 5, 2, 1, 1], [3, 2, 1, 1, 1, 1], [1] * 6]
    target = [[2, 99, 50, 1, 1, 1], [2, 99, 51, 52, 53, 1], [1] * 6]
    expected = [[99, 50, 2, 1, 1, 1], [99, 51, 52, 53, 2, 1], [1] * 6]
    np.testing.assert_array_equal(inputs["source"], source)
    np.testing.assert_array_equal(inputs["target"], target)
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_array_equal(weights, labels != 1)


def test_pairs_by_length():
    pairs = encode([("ab", "a"), ("a", "abcd"), ("abcde", "a"), ("a", "bc"), ("", "")])
    np.testing.assert_array_equal(pairs.length_counts, [0, 1, 0, 2, 0, 1, 1])
    np.testing.assert_array_equal(pairs.shortest_first, [4, 3, 0, 1, 2])
    assert pairs.num_tokens == 2 + 5 + 2 + 3 + 1, "with the end token"


def test_pairs_with_a_long_side_are_left_out():
    fits, long = "a" * 9, "a" * 10
    given = [(fits, fits), (long, "a"), ("a", long), (fits, "b"), (long, long)]
    pairs = encode(given, max_length=10)
    assert len(pairs) == 2 and len(pairs.length_counts) == 11
    inputs, _, _ = pairs.batch(np.arange(2), (2, 10))
    assert (inputs["source"][:, -1] == EOS_ID).all()


def random_pairs(count, seed=0):
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield tuple(
            "".join(map(chr, random.integers(97, 123, random.integers(1, 15)))) for _ in range(2)
        )


@pytest.mark.parametrize("count", [1, 4500])  # blocks are of 2,000
def test_what_was_encoded_is_found_again(count):
    pairs = encode([*random_pairs(count)])
    assert len(pairs) == count
    inputs, labels, _ = pairs.batch(np.arange(count), (count, 16))
    for row, (source, target) in enumerate(random_pairs(count)):
        [source], [target] = Letters().encode([source]), Letters(50).encode([target])
        assert inputs["source"][row].tolist()[: len(source) + 1] == [*source, EOS_ID]
        assert labels[row].tolist()[: len(target) + 1] == [*target, EOS_ID]
        assert not inputs["source"][row, len(source) + 1 :].any()


def test_nothing_to_encode():
    with pytest.raises(DataError, match="valid split has 0 sentence pairs"):
        encode([], name="valid")
    with pytest.raises(
        DataError, match="train split has 2 sentence pairs, none of at most 3 tokens"
    ):
        encode([("abc", "a"), ("a", "abc")], max_length=3)


def test_a_damaged_folder_is_named(tmp_path):
    pairs = [(f"the number {number}", f"el número {number}") for number in range(40)]
    text = TextDataset(train=pairs[:30], valid=pairs[30:35], test=pairs[35:], notes=())
    tokenizers = train_tokenizers(text, "bpe", 300, "identity", "identity", "joint")
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_corpus(folder, text, tokenizers, 128, SPECIAL_TOKENS)
    data, _ = load_corpus(folder, SPECIAL_TOKENS)
    assert data.test == pairs[35:]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) >= 7
    for path in files:
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(DataError, match="corpus is damaged: .* Delete it"):
            load_corpus(folder, SPECIAL_TOKENS)
        for damaged in (content[: len(content) // 2], b"", b"{}", b"[]"):
            path.write_bytes(damaged)
            with pytest.raises(DataError, match=r"corpus is damaged: .*[^.]\. Delete it"):
                load_corpus(folder, SPECIAL_TOKENS)
        path.write_bytes(content)


def test_numbers_are_translated_if_the_training_pairs_do_so():
    kept, translated = [("12", "12"), ("a", "b"), ("3.5", "3,5")], [("12", "zwölf"), ("a", "a")]
    assert keeps_numbers(kept) and keeps_numbers([("a", "b")])
    assert not keeps_numbers(translated)
