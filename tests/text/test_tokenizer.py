"""Tokenizers: nothing is lost, nothing is taken for a control id, the same lines give the same."""

import json
import math
import os
import subprocess
import sys
import unicodedata
from collections import Counter

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zoo.text import BOS_ID, EOS_ID, PAD_ID
from zoo.text.tokenizer import (
    BYTE_ALPHABET,
    SPLIT_PATTERNS,
    Tokenizer,
    TokenizerError,
    train_tokenizer,
)

KINDS = list(SPLIT_PATTERNS)
LINES = [  # what the tokenizers learn from: English and Spanish
    "The cat sat on the mat, and the dog sat on the cat.",
    "Where is the cat? The cat is on the mat; the dog is not.",
    "I'm reading a book about the history of the city.",
    "The children are reading the books of the city in 2024.",
    "¿Dónde está el gato? El gato está en la alfombra.",
    "¡Qué día! Los niños están leyendo los libros de la ciudad.",
    "El perro está en la ciudad, y el gato también.",
    "La niña leyó 12 libros en 2024; el niño, 24.",
]
SAMPLE = [
    *LINES[:2],
    "¿Cuántos pingüinos comían piñas el año pasado?",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "نص حكيم له سر قاطع وذو شأن عظيم",
    "می‌خواهم کتاب بخوانم",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "我能吞下玻璃而不伤身体。",
    "いろはにほへと ちりぬるを ガギグゲゴ",
    "키스의 고유조건은 입술끼리 만나야 하고",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 1️⃣ 🇪🇸",
    "e\u0301 n\u0303 a\u0323\u0302 \u1100\u1161\u11a8 \u0301alone q\u0307\u0323",
    "∀x ∈ ℝ: ⌈x⌉ = −⌊−x⌋, ∫₀^∞ e^{−x²} dx = ½√π",
    "Å Ω ﬁ ① ٣ Ⅷ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "\x00\x01\x07\x1b[0m\x7f\x85",
    "\ufeff bom \ufffd \U0010ffff \ue000",
    "no\u00a0break\u2003em\u2028line\u3000wide\u200bzero",
    "",
    " ",
    "   leading and trailing   ",
    "two  spaces",
    "\ttab\tand\nnew\r\nline\v\f",
    "\n",
    "<pad> <s> </s> <unk> <0xE2> [PAD] ▁ Ġ Ċ",
    "<pad>",
    "</s>",
    BYTE_ALPHABET,
    "a" * 1000,
    "don't e-mail me@example.org: https://example.org/?q=1,000.50",
]


def nfc(text):
    return unicodedata.normalize("NFC", text)


ALL = {kind: train_tokenizer(LINES, kind, vocab_size=400) for kind in KINDS}


@pytest.fixture(params=KINDS)
def tokenizer(request):
    return ALL[request.param]


def assert_the_library_gives_the_same(tokenizer, text, ids):
    library = tokenizers.Tokenizer.from_str(tokenizer.to_tokenizer_json())
    assert library.encode(nfc(text)).ids == tokenizer.encode([text])[0]
    assert library.decode(ids) == tokenizer.decode([ids])[0]


@settings(deadline=None)
@given(st.text(), st.lists(st.integers(0, 259 + 3)), st.sampled_from(KINDS))
def test_the_library_reads_what_is_written_for_it(text, ids, kind):
    assert_the_library_gives_the_same(ALL[kind], text, ids)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=30)
@given(texts=st.lists(st.text(), max_size=4))
@example(texts=SAMPLE)
def test_any_text_survives(texts, kind):
    tokenizer = ALL[kind]
    ids = tokenizer.encode(texts)
    for text, row in zip(SAMPLE, ids if texts == SAMPLE else ()):
        assert_the_library_gives_the_same(tokenizer, text, [BOS_ID, *row, EOS_ID, PAD_ID])
    assert tokenizer.decode(ids) == [nfc(text) for text in texts]
    assert all(EOS_ID < id < tokenizer.vocab_size for row in ids for id in row)
    assert ids == tokenizer.encode([nfc(text) for text in texts])
    assert ids == [tokenizer.encode([text])[0] for text in texts], "the batch does not matter"


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 300), max_size=30), max_size=3), st.sampled_from(KINDS))
def test_any_ids_are_decoded(ids, kind):
    tokenizer = ALL[kind]
    ids = [[id % tokenizer.vocab_size for id in row] for row in ids]
    texts = tokenizer.decode(ids)
    assert [type(text) for text in texts] == [str] * len(ids)
    assert texts == tokenizer.decode([[id for id in row if id > EOS_ID] for row in ids])
    assert [len(tokenizer.pieces(row)) for row in ids] == [len(row) for row in ids]


def test_ids_come_as_lists_arrays_and_iterators(tokenizer):
    ids = np.asarray(tokenizer.encode(["The cat"]), "int32")
    for same in (ids.tolist(), ids, tuple(ids), (iter(row) for row in ids)):
        assert tokenizer.decode(same) == ["The cat"]
    assert tokenizer.decode([]) == tokenizer.encode([]) == []
    assert all(type(id) is int for id in tokenizer.encode(["The cat"])[0])


def test_bytes_that_are_not_utf8_become_replacement_characters(tokenizer):
    first, second = (3 + byte for byte in "é".encode())
    assert tokenizer.decode([[first, second], [first], [second, second]]) == ["é", "�", "��"]
    assert tokenizer.pieces([first, PAD_ID, 3 + ord("a"), 3 + ord("\n"), BOS_ID, EOS_ID]) == [
        *("<0xC3>", "<pad>", "a", "<0x0A>", "<s>", "</s>")
    ]


def test_pieces_are_the_text(tokenizer):
    text = "The cat is on the city's mat."
    pieces = tokenizer.pieces(tokenizer.encode([text])[0])
    assert "".join(pieces) == f" {text}"


def test_unknown_characters_are_spelled_in_bytes(tokenizer):
    assert tokenizer.pieces(tokenizer.encode(["漢"])[0])[-3:] == ["<0xE6>", "<0xBC>", "<0xA2>"]


def test_the_first_word_is_the_word_it_is_elsewhere():
    for kind in ("subword", "word", "wordpiece", "unigram"):
        encode = ALL[kind].encode
        [cat, two, spaced] = encode(["cat", "the cat", "the  cat"])
        assert two == encode(["the"])[0] + cat
        assert spaced[-len(cat) :] == cat, "also after two spaces"


def test_a_word_tokenizer_has_an_id_for_each_known_word():
    tokenizer = train_tokenizer(LINES, "word")
    words = {word for line in LINES for word in line.split() if nfc(word).isalpha()}
    assert len(words) > 30
    for word, ids in zip(words, tokenizer.encode(words)):
        assert tokenizer.pieces(ids) == [f" {word}"]
    [known, unknown] = tokenizer.encode(["the cat", "the cats"])
    assert len(known) == 2 and len(unknown) == 1 + len(" cats")


def test_a_word_tokenizer_keeps_the_most_frequent_words():
    lines = ["bb aa cc", "bb cc", "bb dd"]
    assert train_tokenizer(lines, "word", 259 + 1).tokens == ("Ġbb",)
    assert train_tokenizer(lines, "word", 259 + 3).tokens == ("Ġbb", "Ġcc", "Ġaa")


def test_a_character_tokenizer_has_an_id_for_each_known_character():
    tokenizer = train_tokenizer(LINES, "character")
    known = Counter(nfc("".join(LINES)))
    letters = [c for c in known if not c.isascii()]
    assert len(letters) > 5 and tokenizer.vocab_size == 259 + len(letters)
    assert all(len(ids) == 1 + len(nfc(line)) for line, ids in zip(LINES, tokenizer.encode(LINES)))
    [top] = train_tokenizer(LINES, "character", 260).tokens
    [character] = bytes(BYTE_ALPHABET.index(c) for c in top).decode()
    assert known[character] == max(known[c] for c in letters)


@pytest.mark.parametrize("kind", ["subword", "wordpiece", "unigram"])
def test_subwords_shorten_what_they_have_seen(kind):
    sizes = [259, 280, 320, 400]
    lengths = [sum(map(len, train_tokenizer(LINES, kind, size).encode(LINES))) for size in sizes]
    assert lengths == sorted(lengths, reverse=True) and lengths[-1] < 0.7 * lengths[0]
    assert lengths[0] == sum(1 + len(nfc(line).encode()) for line in LINES), "bytes alone"


def test_a_merge_is_learned_from_the_most_frequent_pair():
    tokenizer = train_tokenizer(["xyxyxy xy zz"], "subword", 260)
    assert (tokenizer.tokens, tokenizer.merges) == (("xy",), (("x", "y"),))
    assert train_tokenizer(["abcdefgh"], "subword").merges == (), "once is not a pattern"


def test_a_word_is_split_into_the_longest_tokens_from_left_to_right():
    tokens = ("un", "unw", "##ant", "##wanted", "##an", "##ted", "Ġun")
    tokenizer = Tokenizer("wordpiece", tokens)
    pieces = [tokenizer.pieces(ids) for ids in tokenizer.encode(["unwanted", "ant", "1unwant"])]
    assert pieces[0] == [" un", "wanted"]
    assert pieces[1] == [" ", "ant"], "which continues the word of the space"
    assert pieces[2] == [" ", "1", "unw", "ant"], "a token at the start, one inside"
    [ids] = tokenizer.encode(["##ant ##wanted"])
    assert tokenizer.pieces(ids) == [*" ##ant ##w", "ant", *"ed"], "no mark"


SYLLABLES = ("ab", "ba", "abc", "bca", "cab", "abab", "Ġa", "Ġab")
SCORES = st.sampled_from([-1.0, -1.5, -2.0, -3.0])


@settings(deadline=None)
@given(st.lists(SCORES, min_size=12, max_size=12), st.text("abc", min_size=1, max_size=9))
def test_a_word_is_split_into_the_most_probable_tokens(some, word):
    """Few different scores, so that many splits have the same sum."""
    scores = {**dict.fromkeys((*BYTE_ALPHABET, *SYLLABLES), -3.0), **dict(zip("Ġabc", some))}
    scores.update(zip(SYLLABLES, some[4:]))
    tokenizer = Tokenizer("unigram", SYLLABLES, scores=tuple(scores.values()))

    def sums(rest):
        if not rest:
            yield 0.0
        for end in range(1, len(rest) + 1):
            if rest[:end] in scores:
                yield from (scores[rest[:end]] + others for others in sums(rest[end:]))

    [ids] = tokenizer.encode([word])
    assert sum(tokenizer.scores[id - 3] for id in ids) == max(sums("Ġ" + word))


def test_unigram_scores_are_log_probabilities_of_the_corpus():
    tokenizer = ALL["unigram"]
    scores = dict(zip((*BYTE_ALPHABET, *tokenizer.tokens), tokenizer.scores))
    assert scores["e"] > scores["Z"] == min(scores.values())
    seen = [scores[token] for token in scores if token in tokenizer.tokens or token.isalpha()]
    assert 0.5 < sum(map(math.exp, seen)) < 1.5
    assert [*tokenizer.scores[256:]] == sorted(tokenizer.scores[256:], reverse=True)


def test_long_words_are_split_in_training():
    assert max(map(len, train_tokenizer(["ab" * 500], "subword").tokens)) > 200
    assert max(map(len, train_tokenizer(["ab" * 50_000], "subword").tokens)) <= 1000


def test_words_of_any_length_survive(tokenizer):
    for text in ("z" * 50_000, "ab1" * 10_000, "!" * 50_000):
        assert tokenizer.decode(tokenizer.encode([text])) == [text]


@pytest.mark.parametrize("kind", KINDS)
def test_sizes(kind):
    for size in (259, 262, 275):
        tokenizer = train_tokenizer(LINES, kind, size)
        expected = min(size, train_tokenizer(LINES, kind).vocab_size)
        assert tokenizer.vocab_size == expected == 259 + len(tokenizer.tokens)
        assert tokenizer.decode(tokenizer.encode(SAMPLE)) == [nfc(text) for text in SAMPLE]
    assert 259 < train_tokenizer(LINES, kind).vocab_size < 8000, "little text gives fewer"


@pytest.mark.parametrize("kind", KINDS)
def test_lines_are_gone_through_once_and_their_order_does_not_matter(kind):
    given_out = []

    def stream():
        for line in reversed(LINES):
            given_out.append(line)
            yield line

    assert train_tokenizer(stream(), kind, 350) == train_tokenizer(LINES, kind, 350)
    assert given_out == LINES[::-1]


def test_another_process_learns_the_same():
    # many pairs, words and characters of one frequency, of which the size takes some
    lines = [f"{a}{b}ñ{chr(0x400 + i)} {b}{a}" for i in range(3) for a in "abcdef" for b in "uvwx"]
    code = (
        "import json, sys; from zoo.text.tokenizer import train_tokenizer;"
        "lines, kinds = json.load(sys.stdin);"
        "print(json.dumps([train_tokenizer(lines, kind, 262).to_dict() for kind in kinds]))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([lines, KINDS]),
        capture_output=True,
        text=True,
    )
    assert process.stderr == ""
    learned = [train_tokenizer(lines, kind, 262) for kind in KINDS]
    assert [tokenizer.to_dict() for tokenizer in learned] == json.loads(process.stdout)
    assert all(len(tokenizer.tokens) == 3 for tokenizer in learned)


def test_normalization(tokenizer):
    [composed, decomposed] = tokenizer.encode(["está niño", "esta\u0301 nin\u0303o"])
    assert composed == decomposed
    learned = train_tokenizer([unicodedata.normalize("NFD", line) for line in LINES], "word")
    assert learned == train_tokenizer(LINES, "word")


def test_a_saved_tokenizer_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded == tokenizer and loaded.vocab_size == tokenizer.vocab_size
    assert loaded.encode(SAMPLE) == tokenizer.encode(SAMPLE)
    assert Tokenizer.from_dict(json.loads(json.dumps(tokenizer.to_dict()))) == tokenizer


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda table: table.pop("merges"), "keys version, kind, tokens and merges"),
        (lambda table: table.update(version=99), "version is 99"),
        (lambda table: table.update(kind="sentence"), "kind 'sentence'.*subword, word, character"),
        (lambda table: table.update(tokens="abc"), "tokens must be a list of strings"),
        (lambda table: table.update(merges=[["a", "b"]]), "merges must be a list of strings"),
        (lambda table: table.update(merges=["a"]), "two tokens separated by a space"),
        (lambda table: table.update(merges=["q w"]), "merge of 'q' and 'w'"),
        (lambda table: table["tokens"].append(table["tokens"][0]), "occurs twice"),
        (lambda table: table["tokens"].append("a b"), "'a b' is not a token"),
        (lambda table: table["tokens"].append("a"), "'a' is not a token"),
        (lambda table: table.update(kind="word"), 'Only "subword" has merges'),
        (
            lambda table: table.update(kind="unigram", merges=[]),
            "needs .* scores here",
        ),
        (lambda table: table.update(scores=[0.0]), "needs 0 scores here. Received: 1"),
        (lambda table: table.update(scores=[float("nan")]), "scores must be a list of finite"),
        (lambda table: table.update(scores="0"), "scores must be a list of finite"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused_by_its_file(tmp_path, change, message):
    table = ALL["subword"].to_dict()
    change(table)
    path = tmp_path / "table.json"
    path.write_text(json.dumps(table))
    with pytest.raises(TokenizerError, match=rf"table\.json is not a valid tokenizer.*{message}"):
        Tokenizer.load(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"model": {"type": "BPE"}}'])
def test_a_broken_or_foreign_file_is_named(tmp_path, content):
    (tmp_path / "broken.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"broken\.json is not a valid tokenizer file"):
        Tokenizer.load(tmp_path / "broken.json")
    with pytest.raises(TokenizerError, match=r"missing\.json cannot be read: No such file"):
        Tokenizer.load(tmp_path / "missing.json")


def test_invalid_texts(tokenizer):
    for texts, message in (
        ("one text", r"texts must be a list.*\[text\]"),
        (b"bytes", "texts must be a list"),
        (["good", None], "Item 1 is of type NoneType"),
        ([b"bytes"], "Item 0 is of type bytes"),
        (["good", "bad \ud800"], "Item 1 is not valid Unicode.*character 4"),
    ):
        with pytest.raises(TokenizerError, match=message):
            tokenizer.encode(texts)
        with pytest.raises(TokenizerError, match=message):
            train_tokenizer(texts, tokenizer.kind)


def test_invalid_ids(tokenizer):
    size = tokenizer.vocab_size
    for ids in ([[5, size]], [[-1]], [[2**70]], np.array([[5, size]])):
        with pytest.raises(TokenizerError, match=f"is not in the vocabulary, which has {size} ids"):
            tokenizer.decode(ids)
    for ids in ([5], [[5.0]], np.zeros((2, 2)), ["text"], [[[5]]], [None]):
        with pytest.raises(TokenizerError, match="sequence of integers"):
            tokenizer.decode(ids)


def test_settings_that_cannot_be():
    with pytest.raises(TokenizerError, match="kind 'sentence'.*subword, word, character"):
        train_tokenizer(LINES, "sentence")
    for size in (258, 0, 300.0):
        with pytest.raises(TokenizerError, match="at least 259"):
            train_tokenizer(LINES, vocab_size=size)
    for kind in KINDS:
        for lines in ([], ["", ""], iter(())):
            with pytest.raises(TokenizerError, match="no text to train"):
                train_tokenizer(lines, kind)


def test_what_goes_wrong_in_the_stream_is_not_hidden():
    def stream():
        yield from LINES
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        train_tokenizer(stream())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_process_encodes_without_a_warning():
    """Older versions of the library warned of deadlocks; see that this one has none."""
    code = """
import os
from zoo.text.tokenizer import train_tokenizer

texts = ["hello there"] * 100
tokenizer = train_tokenizer(texts)
expected = tokenizer.encode(texts)  # in threads
child = os.fork()
if not child:
    os._exit(0 if tokenizer.encode(texts) == expected else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=30
    )
    assert (process.returncode, process.stderr) == (0, "")


def test_the_ids_need_no_library():
    code = "import sys, zoo.text; print([m for m in ('tokenizers', 'numpy') if m in sys.modules])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.stdout.strip() == "[]", process.stderr
    assert len({PAD_ID, BOS_ID, EOS_ID}) == 3
