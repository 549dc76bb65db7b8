"""The tokenizer in a graph gives the ids, texts and labels that the tokenizer gives."""

import functools
import itertools
import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.test_tokenizer import SAMPLE
from zoo.data.phrasebook import phrasebook_pairs
from zoo.deploy.merge_graph import ByteMerges
from zoo.deploy.text_graph import TextGraph
from zoo.text.tokenizer import (
    BYTE_ALPHABET,
    CONTINUATION,
    LONGEST_WORD,
    SPLIT_PATTERNS,
    Tokenizer,
    train_tokenizer,
)

pytestmark = pytest.mark.ci

EDGES = [
    "نص حكيم له سر قاطع وذو شأن عظيم مُحَمَّد",
    unicodedata.normalize("NFD", "¿Cuántos pingüinos comían piñas? ộ ΐ 각"),
    *("\0 <pad> </s>", "hola" * 500, "1" * 1000, "\u0301" * 500),
]
SCRIPTS = [*SAMPLE, *EDGES]


@functools.cache
def lines():
    return [line for pair in phrasebook_pairs(200) for line in pair]


@functools.cache
def tokenizer_of(kind):
    return train_tokenizer(lines() + 2 * SCRIPTS, kind, vocab_size=700)


@functools.cache
def graph_of(kind):
    return TextGraph(tokenizer_of(kind))


kinds = pytest.mark.parametrize("kind", SPLIT_PATTERNS)


def encode(graph, texts):
    return graph.encode(tf.constant(texts, tf.string)).to_list()


def decoded(texts):
    return [text.decode() for text in texts.numpy()]


@kinds
def test_the_tokenizer_and_the_graph_agree(kind):
    texts = lines() + SCRIPTS
    ids = graph_of(kind).encode(tf.constant(texts))
    assert ids.dtype == tf.int32
    assert ids.to_list() == tokenizer_of(kind).encode(texts)
    padded = ids.to_tensor()
    assert decoded(graph_of(kind).decode(padded)) == tokenizer_of(kind).decode(padded)
    assert decoded(graph_of(kind).decode(padded)) == [
        unicodedata.normalize("NFC", t) for t in texts
    ]


WORDS = st.sampled_from(
    [
        *"ab 1٣.\t\n\r\v\f\0\x85\xa0\u3000\ufffd\u0301\u0323",
        "日本",
        "👩‍👧",
        " the",
        "está",
        "\u1100\u1161",
    ]
)
TEXT = st.lists(st.one_of(WORDS, st.text(max_size=3)), max_size=15).map("".join)


@kinds
@settings(deadline=None, max_examples=15)
@given(texts=st.lists(TEXT, max_size=40))
def test_any_texts(kind, texts):
    assert encode(graph_of(kind), texts) == tokenizer_of(kind).encode(texts)


def test_every_letter_and_digit_is_cut_where_the_tokenizer_cuts():
    """Also those of which TensorFlow, unlike the library, does not know that they are letters."""
    planes = [*map(chr, (*range(0xD800), *range(0xF900, 0x34000), *range(0xE0000, 0xE0200)))]
    texts = [" 1a".join(planes[start : start + 500]) for start in range(0, len(planes), 500)]
    assert encode(graph_of("word"), texts) == tokenizer_of("word").encode(texts)
    newer = "\u1c89\U00010d40"  # a letter and a digit of Unicode 16
    cut = tf.strings.regex_replace(newer, graph_of("word")._mark._pattern, "-").numpy().decode()
    assert cut == "--"


def broken():
    """Short sequences of bytes: all of one or two, and more where the rules of UTF-8 change."""
    edges = bytes.fromhex("00 20 41 7f 80 8f 90 9f a0 bf c1 c2 df e0 e1 ec ed ef f0 f1 f4 f5 ff")
    fewer = bytes.fromhex("41 80 8f 90 bf c2 e0 ed f0 f4")
    for size, values in ((1, range(256)), (2, range(256)), (3, edges), (4, fewer)):
        yield from map(bytes, itertools.product(values, repeat=size))


def test_bytes_that_are_not_utf8_are_replaced_as_in_python():
    sequences = [*broken()]
    ids = tf.ragged.constant([[3 + byte for byte in b] for b in sequences], tf.int32).to_tensor()
    expected = [b.removeprefix(b" ").decode(errors="replace") for b in sequences]
    assert decoded(graph_of("word").decode(ids)) == expected
    texts = [b.decode(errors="replace") for b in sequences]
    assert encode(graph_of("word"), sequences) == tokenizer_of("word").encode(texts)


@kinds
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_any_ids(kind, data):
    tokenizer, graph = tokenizer_of(kind), graph_of(kind)
    some_bytes = st.binary(max_size=12).map(lambda b: [3 + byte for byte in b])
    some_ids = st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=12)
    rows = data.draw(st.lists(st.one_of(some_bytes, some_ids), min_size=1, max_size=40))
    ids = tf.ragged.constant(rows, tf.int32, ragged_rank=1).to_tensor()
    assert decoded(graph.decode(ids)) == tokenizer.decode(ids)
    assert [decoded(row) for row in graph.pieces(ids)] == [tokenizer.pieces(row) for row in ids]


@kinds
def test_every_piece(kind):
    ids = range(tokenizer_of(kind).vocab_size)
    assert decoded(graph_of(kind).pieces(tf.constant(ids))) == tokenizer_of(kind).pieces(ids)


@kinds
def test_shapes(kind):
    graph = graph_of(kind)
    assert encode(graph, []) == [] and encode(graph, ["", ""]) == [[], []]
    assert graph.decode(tf.zeros([0, 5], tf.int32)).shape == [0]
    assert decoded(graph.decode(tf.zeros([2, 0], tf.int32))) == ["", ""]
    ids = tf.reshape(graph.encode(["a b"]).to_tensor(), [1, 1, -1])
    assert graph.decode(tf.tile(ids, [2, 3, 1])).numpy().tolist() == [[b"a b"] * 3] * 2
    assert graph.pieces(tf.tile(ids, [2, 3, 1])).shape == [2, 3, ids.shape[-1]]
    assert graph.pieces(tf.zeros([0, 4], tf.int32)).shape == [0, 4]


@kinds
def test_invalid_ids_are_skipped(kind):
    ids = tf.constant([[-1, 3 + ord("a"), tokenizer_of(kind).vocab_size, 2**31 - 1, -(2**31)]])
    assert decoded(graph_of(kind).decode(ids)) == ["a"]
    assert decoded(graph_of(kind).pieces(ids)[0]) == ["<pad>", "a", "<pad>", "<pad>", "<pad>"]


@kinds
def test_a_short_text_cannot_have_fewer_tokens_than_its_bytes_say(kind):
    texts = [line for line in lines() + SCRIPTS if line] + ["\u1fbe\u0308\u0301" * 50]
    lengths = graph_of(kind).encode(tf.constant(texts)).row_lengths().numpy()
    for text, length in zip(texts, lengths):
        assert length >= len(text.encode()) / graph_of(kind).longest_token


@st.composite
def merge_tables(draw):
    """Any merges of a few letters: out of order, listed twice, several for one token."""
    known, tokens, merges = ["a", "b", "c"], [], []
    for _ in range(draw(st.integers(1, 14))):
        left, right = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        merges.append((left, right))
        if left + right not in known:
            known.append(left + right)
            tokens.append(left + right)
    return Tokenizer("subword", tuple(tokens), tuple(draw(st.permutations(merges))))


@settings(deadline=None, max_examples=25)
@given(merge_tables(), st.lists(st.text("abc", min_size=1, max_size=30), max_size=60))
def test_any_merges(tokenizer, words):
    words = [f" {word}" for word in (*words, "abc" * 20, "a" * 31)]
    ids = ByteMerges(tokenizer)(tf.constant(words))
    assert ids.to_list() == tokenizer.encode([word[1:] for word in words])


TOKENS = st.sets(st.text("abc", min_size=2, max_size=4), min_size=1).map(sorted)
LETTERS = st.lists(st.text("abc", max_size=30), max_size=60)


def long_words(kind):
    """Words of about the length after which words are split, and multiples of it."""
    return ["abcab"[:start] + "abc" * LONGEST_WORD[kind] for start in range(4)] + [
        "ab" * (LONGEST_WORD[kind] // 2 + more) for more in (-1, 0, 1)
    ]


@settings(deadline=None, max_examples=2)
@given(TOKENS, st.data(), LETTERS)
def test_any_longest_matches(tokens, data, words):
    tokens = [data.draw(st.sampled_from(["", CONTINUATION, "Ġ"])) + token for token in tokens]
    tokenizer, words = Tokenizer("wordpiece", tuple(tokens)), words + long_words("wordpiece")
    assert encode(TextGraph(tokenizer), words) == tokenizer.encode(words)


@settings(deadline=None, max_examples=2)
@given(TOKENS, st.data(), LETTERS)
def test_any_scores(tokens, data, words):
    """Few different scores, so that many splits have the same sum, or nearly."""
    some = st.sampled_from([-0.1, -0.2, -0.3, -1.0, -1.1, -7.7])
    scores = [*[-1.1] * 256, *(data.draw(some) for _ in tokens)]
    for byte in b" abc":
        scores[byte] = data.draw(some)
    tokenizer = Tokenizer("unigram", tuple(tokens), scores=tuple(scores))
    words = words + long_words("unigram")
    assert encode(TextGraph(tokenizer), words) == tokenizer.encode(words)


def test_a_token_with_two_merges_is_made_place_by_place():
    """The first "abc", by the last merge, opens a pair that goes before the second "abc"."""
    merges = (("a", "b"), ("b", "c"), ("a", "bc"), ("abc", "ab"), ("ab", "c"))
    tokenizer = Tokenizer("subword", ("ab", "bc", "abc", "abcab"), merges)
    [ids] = encode(TextGraph(tokenizer), ["abcabc"])
    assert tokenizer.pieces(ids) == [" ", "abcab", "c"]
    assert [ids] == tokenizer.encode(["abcabc"])


def test_a_token_that_is_a_word_is_not_used_if_its_merges_pass_it_by():
    merges = (("a", "b"), ("Ġ", "a"), ("Ġa", "b"))
    tokenizer = Tokenizer("subword", ("ab", "Ġa", "Ġab"), merges)
    [ids] = encode(TextGraph(tokenizer), ["ab"])
    assert tokenizer.pieces(ids) == [" ", "ab"]
    assert [ids] == tokenizer.encode(["ab"])


@kinds
def test_a_tokenizer_that_has_learned_nothing(kind):
    tokenizer = train_tokenizer(["a"], kind, 259)
    assert not tokenizer.tokens
    graph = TextGraph(tokenizer)
    assert encode(graph, SCRIPTS) == tokenizer.encode(SCRIPTS)
    assert decoded(graph.decode(tf.constant([[3 + ord("a")]]))) == ["a"]


def test_a_word_of_every_byte_is_cut_as_others():
    graph, text = graph_of("subword"), BYTE_ALPHABET * 20
    assert encode(graph, [text, "x", text]) == tokenizer_of("subword").encode([text, "x", text])
