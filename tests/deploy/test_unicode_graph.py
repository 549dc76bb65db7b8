"""NFC in a graph says what `unicodedata` says, of every character and of long runs of marks."""

import collections
import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.deploy.unicode_graph import (
    LARGEST_SHRINKAGE,
    NormalFormC,
    _tables,
    character_ranges,
)

pytestmark = pytest.mark.ci


def characters():
    return map(chr, (*range(0xD800), *range(0xE000, 0x110000)))


MARKS = list(filter(unicodedata.combining, characters()))
PAIRS = _tables().pairs
SECONDS = sorted({second for _, second in PAIRS})
HANGUL = "\u1100\u1112\u1161\u1175\u11a8\u11c2가힣각"


def nfc(text):
    return unicodedata.normalize("NFC", text)


def nfd(text):
    return unicodedata.normalize("NFD", text)


@pytest.fixture(scope="module")
def normalize():
    graph = tf.function(NormalFormC(), input_signature=[tf.TensorSpec([None], tf.string)])
    return lambda texts: [text.decode() for text in graph(tf.constant(texts, tf.string)).numpy()]


def test_every_character(normalize):
    assert normalize([*characters()]) == [*map(nfc, characters())]
    decomposed = [*map(nfd, characters())]
    assert normalize(decomposed) == [*map(nfc, decomposed)]


def test_every_pair_of_a_starter_and_what_it_may_absorb(normalize):
    starters = sorted(
        {first for first, _ in PAIRS if not "가" <= first <= "힣"} | {"각", "x", "\0"}
    )
    texts = [first + second for first in starters for second in SECONDS]
    assert len(texts) > 30_000
    assert normalize(texts) == [*map(nfc, texts)]


def test_every_two_marks_that_can_be_absorbed(normalize):
    """A mark that is not absorbed blocks those of its class, and no others."""
    marks = [*filter(unicodedata.combining, SECONDS), "\u0310", "\u0316"]
    texts = [starter + a + b for starter in "aeU<ι\u0928\u0dd9" for a in marks for b in marks]
    assert normalize(texts) == [*map(nfc, texts)]


# Whole classes of characters, and few of some, so that what can be joined often meets.
MARKED = st.lists(
    st.one_of(
        st.sampled_from("aeiouAι\u0391<\u0915\u09c7\u0dd9\u1025" + HANGUL),
        st.sampled_from("\u0300\u0301\u0308\u0313\u0323\u0327\u0345\u093c\u09be\u0dca\u0dcf"),
        st.sampled_from(SECONDS),
        st.sampled_from(MARKS),
        st.sampled_from([*_tables().decompositions]),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=12,
).map("".join)


@settings(deadline=None, max_examples=40)
@given(texts=st.lists(MARKED, max_size=50))
def test_any_texts(normalize, texts):
    assert normalize(texts) == [*map(nfc, texts)]


@pytest.mark.parametrize(
    "text",
    [
        "\u0301" * 2000,
        "a" + "\u0301\u0323\u0327\u0315" * 1000,
        "".join(MARKS[::-1]) * 2,
        "\u1100\u1161\u11a8" * 1000,
        "\u0dd9" + "\u0dcf\u0dca" * 500,
        nfd("ộ ΐ ᾂ 각 " * 200),
    ],
)
def test_long_runs(normalize, text):
    assert normalize([text, "", "plain", text]) == [nfc(text), "", "plain", nfc(text)]


def test_texts_do_not_flow_into_each_other(normalize):
    assert normalize(["e", "\u0301", "\u0323a", "\u0301"]) == ["e", "\u0301", "\u0323a", "\u0301"]
    assert normalize(["e", "\u0301\u0323", "\u1100", "\u1161"]) == [
        *("e", "\u0323\u0301", "\u1100", "\u1161")
    ]
    assert normalize([]) == []


def test_bytes_that_are_not_utf8_are_replaced_as_in_python(normalize):
    texts = [
        b"e\xcc\x81",
        b"e\xcc",
        b"\xcc\x81\xe2\x82",
        b"\xed\xa0\x80",
        b"\xc0\x80a",
        b"\xff" * 9,
    ]
    assert normalize(texts) == [nfc(text.decode(errors="replace")) for text in texts]


def test_a_text_in_form_c_is_not_touched():
    """The short way takes them: also Arabic, Hebrew and Hindi, whose marks are in order."""
    texts = [
        "naïve ¿Dónde?",
        "日本語 각 힣",
        "مُحَمَّد",
        "שָׁלוֹם",
        "ऋषियों",
        "😀 👩‍👩‍👧‍👦",
        "\0\n\ufffd",
        "",
    ]
    texts = [*map(nfc, texts)]
    matches = tf.strings.regex_full_match(texts, _tables().pattern).numpy()
    assert matches.all(), [text for text, match in zip(texts, matches) if not match]
    others = ["e\u0301", "\u212b", "\u0301\u0323", "\u1100\u1161", "가\u11a8", "\u0958"]
    assert not tf.strings.regex_full_match(others, _tables().pattern).numpy().any()


def test_unicode_is_such_that_passes_do_what_the_standard_does():
    """What the docstring of `_compose` says of Unicode, in the tables of this Python."""
    starters = {second for second in SECONDS if not unicodedata.combining(second)}
    assert starters and not starters & {first for first, _ in PAIRS}
    last_absorbed = {composed: second for (_, second), composed in PAIRS.items()}
    for (first, second), composed in PAIRS.items():
        assert unicodedata.combining(first) == unicodedata.combining(composed) == 0
        assert nfc(first + second) == composed
        if first in last_absorbed and second not in starters:
            passed_over = unicodedata.combining(last_absorbed[first])
            assert unicodedata.combining(second) >= passed_over


def test_how_much_a_text_can_shrink():
    """Each code point that is left of one character may come from a longer one."""
    longest = collections.Counter()
    for character in characters():
        if len(parts := nfd(character)) == 1:
            longest[parts] = max(longest[parts], len(character.encode()))
    for character in characters():
        most = sum(longest[part] for part in nfd(character))
        assert len(character.encode()) <= most
        if nfc(character) == character:
            assert most <= LARGEST_SHRINKAGE * len(character.encode())
    assert len(nfc("\u1fbe\u0308\u0301").encode()) * LARGEST_SHRINKAGE == 7


def test_ranges():
    assert character_ranges("abcxz") == r"\x{61}-\x{63}\x{78}-\x{78}\x{7A}-\x{7A}"
