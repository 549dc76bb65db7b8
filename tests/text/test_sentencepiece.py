"""SentencePiece: what is trained here is lossless, published models are as in the library."""

import json
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.checkpoints.translation_folders import spm
from tests.text.samples import LINES, SAMPLE
from zoo.errors import TokenizerError
from zoo.text import BOS_ID, EOS_ID, PAD_ID
from zoo.text.saved_tokenizers import checksum
from zoo.text.sentencepiece import KINDS, SPACE, SentencePieceTokenizer, train_tokenizer

FIRST = 4 + 256  # the first learned piece
EXACT = {kind: train_tokenizer(LINES, kind, 400, "identity") for kind in KINDS}
NFKC = {kind: train_tokenizer(LINES, kind, 400, "nfkc") for kind in KINDS}
kinds = pytest.mark.parametrize("kind", KINDS)


def one_space(text):
    return " ".join(part for part in text.split(" ") if part)


@kinds
@settings(deadline=None, max_examples=15)
@given(texts=st.lists(st.text(), max_size=4))
@example(texts=SAMPLE)
def test_any_text_survives(texts, kind):
    tokenizer = EXACT[kind]
    if kind == "word":  # which separates words by it
        texts = [text.replace(SPACE, "") for text in texts]
    ids = tokenizer.encode(texts)
    expected = [one_space(text) if kind == "word" else text for text in texts]
    assert tokenizer.decode(ids) == [text.replace(SPACE, " ") for text in expected]
    assert all(3 < id < tokenizer.vocab_size for row in ids for id in row), "no control ids"
    assert ids == [tokenizer.encode([text])[0] for text in texts], "the batch does not matter"


@kinds
def test_normalization(kind):
    texts = [text for text in SAMPLE if SPACE not in text and "alone" not in text]
    normal = NFKC[kind].decode(NFKC[kind].encode(texts))
    assert normal == [one_space(unicodedata.normalize("NFKC", text)) for text in texts]
    folded = train_tokenizer(LINES, kind, 400, "nmt_nfkc_cf")
    assert folded.decode(folded.encode(["Ä\nB\u200b"])) == ["ä b"]


@kinds
def test_another_normalization_of_the_same_pieces(kind):
    texts = [text for text in SAMPLE if SPACE not in text and "alone" not in text]
    changed = EXACT[kind].with_normalization("nfkc")
    assert [piece.piece for piece in changed.proto.pieces] == [*EXACT[kind].tokens.values()]
    assert changed.decode(changed.encode(texts)) == NFKC[kind].decode(NFKC[kind].encode(texts))
    assert changed.with_normalization("identity") == EXACT[kind]
    assert NFKC[kind].with_normalization("nfkc") == NFKC[kind]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(0, 300), max_size=30), max_size=3), st.sampled_from([*KINDS]))
def test_any_ids_are_decoded(ids, kind):
    tokenizer = EXACT[kind]
    ids = [[id % tokenizer.vocab_size for id in row] for row in ids]
    texts = tokenizer.decode(ids)
    assert [type(text) for text in texts] == [str] * len(ids)
    # Within a row, a control id ends a character that is spelled in bytes, as in the library.
    assert texts == tokenizer.decode([[BOS_ID, *row, EOS_ID, PAD_ID] for row in ids])
    assert [len(tokenizer.pieces(row)) for row in ids] == [len(row) for row in ids]


@kinds
def test_the_library_reads_the_model_and_gives_the_same(kind):
    tokenizer = EXACT[kind]
    library = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    assert tokenizer.encode(SAMPLE) == library.encode(SAMPLE)
    assert [library.pad_id(), library.bos_id(), library.eos_id()] == [PAD_ID, BOS_ID, EOS_ID]
    assert tokenizer.vocab_size == len(library) and tokenizer.unknown == library.unk_id() == 3
    assert tokenizer.control == ("<pad>", "<s>", "</s>")


def test_ids_come_as_lists_arrays_and_iterators():
    tokenizer = EXACT["bpe"]
    ids = np.asarray(tokenizer.encode(["The cat"]), "int32")
    for same in (ids.tolist(), ids, (iter(row) for row in ids)):
        assert tokenizer.decode(same) == ["The cat"]
    assert tokenizer.decode([]) == tokenizer.encode([]) == []
    assert type(tokenizer.encode(["The cat"])[0][0]) is int


@kinds
def test_pieces_are_the_text_or_bytes(kind):
    tokenizer = EXACT[kind]
    text = "The cat is on the mat; the dog is not."
    assert "".join(tokenizer.pieces(tokenizer.encode([text])[0])) == f" {text}"
    [ids] = tokenizer.encode(["漢"])
    assert tokenizer.pieces([*ids[-3:], PAD_ID, EOS_ID]) == [
        *("<0xE6>", "<0xBC>", "<0xA2>", "<pad>", "</s>")
    ]
    assert tokenizer.decode([ids[-3:], ids[-2:]]) == ["漢", "��"]


def test_what_each_kind_learns():
    word, character = EXACT["word"], EXACT["character"]
    known = {word for line in LINES for word in line.split()}
    assert all(len(ids) == 1 for ids in word.encode([*known]))
    assert all(len(ids) == 1 + len(line) for line, ids in zip(LINES, character.encode(LINES)))


@kinds
def test_long_lines_and_words(kind):
    for text in ("z" * 50_000, "ab1" * 10_000, "the cat " * 5000):
        tokenizer = train_tokenizer([text], kind, 300, "identity")
        assert tokenizer.vocab_size > FIRST
        text = text.strip()
        assert tokenizer.decode(tokenizer.encode([text])) == [text]


def test_lines_are_gone_through_once_and_give_the_same_model_in_another_process():
    # Many pairs, words and characters of one frequency, of which the size takes some
    lines = [f"{a}{b}ñ{chr(0x400 + i)} {b}{a}" for i in range(3) for a in "abcdef" for b in "uvwx"]
    code = (
        "import json, sys; from zoo.text.saved_tokenizers import checksum;"
        "from zoo.text.sentencepiece import train_tokenizer; lines, kinds = json.load(sys.stdin);"
        "print(checksum(*(train_tokenizer(lines, kind, 290) for kind in kinds)))"
    )
    given = json.dumps([lines, [*KINDS]])
    ran = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, text=True)
    learned = [train_tokenizer(iter(lines), kind, 290) for kind in KINDS]
    assert (ran.stderr, ran.stdout) == ("", checksum(*learned) + "\n")


@kinds
def test_a_small_corpus_gives_fewer_pieces(kind, capfd):
    tokenizer = train_tokenizer(["ab ab", "", " "], kind)
    assert FIRST < tokenizer.vocab_size < FIRST + 9
    assert capfd.readouterr() == ("", "")


def test_what_cannot_be_trained(capfd):
    for arguments, message in (
        ((["", " \n"],), "no text"),
        ((LINES, "subword"), "kind must be one of .*unigram.*bpe.*word.*'subword'"),
        ((LINES, "bpe", 8000, "nfd"), "normalization must be one of .*nmt_nfkc.*'nfd'"),
        ((LINES, "bpe", 259), "integer from 260, .*Received: 259"),
        ((LINES, "bpe", 2**31), "to 100000000. Received: 2147483648"),
        ((LINES, "bpe", 261), r"cannot be trained: Voc.* 261 vs .*Increase vocab_size\.$"),
        ((["good", None],), "Item 1 is of type NoneType"),
        ((["good", "\ud800"],), "Text 1 is not valid Unicode"),
    ):
        with pytest.raises(ValueError, match=message):
            train_tokenizer(*arguments)
    assert capfd.readouterr() == ("", "")


def test_invalid_texts_and_ids():
    tokenizer = EXACT["bpe"]
    for texts, message in (
        ("one text", r"must be a list.*\[text\].* 'one text'"),
        (iter(["a"]), "must be a list"),
        (["good", 5], "Item 1 is of type int"),
        (["\ud800"], "Text 0 is not valid Unicode"),
    ):
        with pytest.raises(TokenizerError, match=message):
            tokenizer.encode(texts)
    for ids, message in (
        ([[tokenizer.vocab_size]], "is not in the vocabulary"),
        ([[-1]], "The id -1 is not"),
        ([5], "sequence of integers"),
        ([[1.0]], "sequence of integers"),
    ):
        with pytest.raises(TokenizerError, match=message):
            tokenizer.decode(ids)


def test_a_model_that_ends_anywhere_earlier(capfd):
    """Also between two pieces, where the rest would be a model of fewer pieces."""
    model = EXACT["character"].model
    for size in range(0, len(model), 7):
        with pytest.raises(TokenizerError, match="not a SentencePiece model|not complete"):
            SentencePieceTokenizer(model[:size])
    assert capfd.readouterr() == ("", "")


@pytest.fixture(scope="module")
def published():
    """A model with bytes, a symbol that users define and a control symbol, and another vocabulary.

    Its ids are the reverse of the model's, one piece is missing, and one is not in the model.
    """
    symbols = {"user_defined_symbols": "<sep>", "control_symbols": "<mask>"}
    model = spm(LINES, rules="nmt_nfkc", size=340, byte_fallback=True, **symbols)
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokens = [library.id_to_piece(id) for id in reversed(range(len(library)))][1:]
    vocab = {token: id for id, token in enumerate([*tokens, ">>es<<", "<pad>"])}
    control = ("<unk>", "<s>", "</s>", "<mask>", "<pad>")
    options = {"vocab_size": len(vocab) + 3, "language_prefixes": True}
    return library, SentencePieceTokenizer(model, vocab, vocab["<unk>"], control, **options)


def test_published_symbols_are_as_in_the_library(published):
    library, tokenizer = published
    texts = [*SAMPLE, "the<sep>cat <mask> a漢b", "<sep>"]
    rows = tokenizer.encode(texts)
    pieces = library.encode(texts, out_type=str)
    known = [[tokenizer.vocab.get(piece, tokenizer.unknown) for piece in row] for row in pieces]
    assert rows == known
    for row, found, text in zip(rows, tokenizer.decode(rows), library.decode(pieces)):
        assert found == text.strip(" ") or tokenizer.unknown in row
    [row] = tokenizer.encode(["the<sep>漢"])
    assert tokenizer.pieces(row)[-4:] == ["<sep>", "<0xE6>", "<0xBC>", "<0xA2>"]
    proto, own = tokenizer.proto, SentencePieceTokenizer(tokenizer.model)
    proto.denormalizer_spec.precompiled_charsmap = b"rules"
    with pytest.raises(TokenizerError, match="with denormalization is not supported"):
        SentencePieceTokenizer(proto.SerializeToString())
    assert own.encode(texts) == library.encode(texts)
    assert own.control == ("<s>", "</s>", "<mask>")


def test_a_language_code_and_a_prefix(published):
    tokenizer = published[1]
    spanish = tokenizer.with_prefix(tokenizer.vocab[">>es<<"])
    assert tokenizer.encode([">>es<<the cat"]) == spanish.encode(["the cat"])
    assert tokenizer.encode([">>no<<"])[0] == [tokenizer.unknown]
    assert tokenizer.decode(spanish.encode(["the cat"])) == [">>es<< the cat"]
