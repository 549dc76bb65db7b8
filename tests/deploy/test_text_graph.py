"""The tokenizer in a graph gives the ids and texts that the tokenizer gives in Python."""

import itertools
import json
import pathlib
import random
import re
import tempfile

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkpoints import text_folders
from tests.checkpoints.text_folders import ODD_TEXTS, bert_tokenizer, gpt2_tokenizer, write_files
from tests.checkpoints.translation_folders import pieces, spm
from tests.deploy.operations import assert_served, operations
from tests.text.library import byte_level_bpe, learned_byte_level_bpe, wordpiece
from tests.text.samples import LINES, SAMPLE
from zoo.checkpoints.hugging_face_tokenizers import encoder_tokenizer
from zoo.deploy.text_graph import TextGraph
from zoo.errors import ExportError, UserError
from zoo.text.library_tokenizer import BYTE_ALPHABET, LibraryTokenizer
from zoo.text.sentencepiece import KINDS, SentencePieceTokenizer, train_tokenizer

pytestmark = pytest.mark.ci


def marian(**options):
    """The vocabulary has other ids than the model, and lacks some of its pieces."""
    model = spm(LINES * 9, rules="nmt_nfkc")
    tokens = ["</s>", "<unk>", *pieces(model)[5:], "😀", ">>es<<", "<pad>"]
    vocab, control = {token: id for id, token in enumerate(tokens)}, ("</s>", "<unk>", "<pad>")
    return SentencePieceTokenizer(model, vocab, 1, control, len(vocab) + 3, **options)


def with_symbols():
    """User-defined and control symbols, no byte fallback, and spaces kept."""
    model = spm(
        LINES,
        user_defined_symbols=["<user>", "🇪🇸"],
        control_symbols=["<control>"],
        remove_extra_whitespaces=False,
    )
    return SentencePieceTokenizer(model)


def bert(**options):
    tokens = bert_tokenizer(options["lowercase"])["vocab.txt"].split("\n")[:-1]
    vocab = {token: id for id, token in enumerate(tokens)}
    return wordpiece(vocab, ["[PAD]", "[SEP]"], **options)


def gpt2(**options):
    files = gpt2_tokenizer()
    vocab, merges = json.loads(files["vocab.json"]), files["merges.txt"].split("\n")[1:-1]
    vocab["<unknown>"] = len(vocab)
    return byte_level_bpe(vocab, map(str.split, merges), ["<|endoftext|>", "<unknown>"], **options)


def xlm_roberta():
    """With tokens for all characters of the samples, of different frequencies."""
    lines = [
        text for count, text in enumerate([*SAMPLE, *text_folders.LINES], 1) for _ in range(count)
    ]
    size = {"size": 900, "character_coverage": 1.0}
    with tempfile.TemporaryDirectory() as folder:
        files = text_folders.xlm_roberta_tokenizer(lines, **size)
        write_files(pathlib.Path(folder), files)
        return encoder_tokenizer(pathlib.Path(folder), 905)[0]


def roberta():
    with tempfile.TemporaryDirectory() as folder:
        write_files(pathlib.Path(folder), text_folders.roberta_tokenizer())
        return encoder_tokenizer(pathlib.Path(folder), 402)[0]


# What SentencePiece and the library `tokenizers` encode differently: accents that follow a letter,
# parts of Korean syllables, and repetitions, such as VIII, of which several segmentations have the
# same score.
DIFFERENT = re.compile(r"[\u0300-\u036f\u1100-\u11ff\u2167]|(.)\1{2,}")
# Their graphs are made anew in each test: TensorFlow drops their models when a seed is set.
TOKENIZERS = {kind: train_tokenizer(LINES, kind, 400) for kind in KINDS}
TOKENIZERS |= {
    "identity": train_tokenizer(LINES, "bpe", 400, "identity"),
    "identity, digits": train_tokenizer(["12 34 567 89 0"] * 9, "bpe", 300, "identity"),
    "folded": train_tokenizer(LINES, "unigram", 400, "nmt_nfkc_cf"),
    "marian": marian(),
    "languages": marian(language_prefixes=True),
    "symbols": with_symbols(),
    "bert": bert(lowercase=True),
    "bert, accents": bert(lowercase=True, strip_accents=False),
    "bert, cased": bert(lowercase=False),
    "gpt2": gpt2(),
    "gpt2, space": gpt2(add_prefix_space=True),
    "roberta": roberta(),
    "xlm-r": xlm_roberta(),
}


def encode(graph, texts):
    return graph.encode(tf.constant(texts, tf.string)).to_list()


def decoded(texts):
    return [text.decode() for text in texts.numpy()]


def drawn(count):
    draw = random.Random(0)
    letters = "abcdefghi ABC ,.!?'12  \u2581éñüß你好П😀\u0301\u0323ﬁ½¨\u200b\t\n"
    return ["".join(draw.choices(letters, k=draw.randint(1, 60))) for _ in range(count)]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_tokenizer_and_the_graph_agree(name):
    """The operations are those of a stock server; ids outside the vocabulary are skipped."""
    tokenizer, graph = TOKENIZERS[name], TextGraph(TOKENIZERS[name])
    languages = [">>es<< the cat", ">>none<< the cat", ">>es the cat", "a >>es<<"]
    symbols = ["<user><control> 🇪🇸<user>", "x" * 101]
    odd = [text for text in ODD_TEXTS if "\U0001e944" not in text]  # which is new to tokenizers
    texts = [*SAMPLE, *odd, *languages, *symbols, *drawn(100)]
    if name == "xlm-r":
        texts = [DIFFERENT.sub("", text) for text in texts]
    expected = tokenizer.encode(texts)
    assert encode(graph, texts) == expected
    padded = tf.ragged.constant(expected, tf.int32, ragged_rank=1).to_tensor(-1)
    assert decoded(graph.decode(padded)) == tokenizer.decode(expected)
    ids, draw = range(tokenizer.vocab_size), random.Random(0)
    rows = [draw.choices(ids, k=draw.randint(0, 12)) for _ in range(80)]  # not always UTF-8
    others = [-1, tokenizer.vocab_size, 2**31 - 1, -(2**31)]
    padded = tf.ragged.constant([[*row, *others] for row in rows], tf.int32, ragged_rank=1)
    assert decoded(graph.decode(padded.to_tensor(-1))) == tokenizer.decode(rows)
    traced = graph.encode.get_concrete_function().graph.as_graph_def()
    found, of_bert = assert_served(operations(traced)), "FastWordpieceTokenizeWithOffsets"
    assert found and (of_bert in found) == name.startswith("bert")


@pytest.mark.parametrize("name", ["bpe", "languages", "bert", "gpt2"])
def test_shapes(name):
    graph = TextGraph(TOKENIZERS[name])
    [text] = TOKENIZERS[name].decode(TOKENIZERS[name].encode(["the cat"]))
    assert encode(graph, []) == [] and encode(graph, ["", ""]) == [[], []]
    assert graph.decode(tf.zeros([0, 5], tf.int32)).shape == [0]
    assert decoded(graph.decode(tf.zeros([2, 0], tf.int32))) == ["", ""]
    ids = graph.encode(["the cat"]).to_tensor()[None]
    assert graph.decode(tf.tile(ids, [2, 3, 1])).numpy().tolist() == [[text.encode()] * 3] * 2


def broken():
    """Short sequences of bytes: more where the rules of UTF-8 change."""
    edges = bytes.fromhex("20 41 80 8f 90 bf c1 c2 e0 e1 ed ef f0 f4 f5 ff")
    for size in (1, 2, 3):
        yield from map(bytes, itertools.product(edges, repeat=size))


@pytest.mark.parametrize("name", ["identity", "marian", "bert", "gpt2", "xlm-r"])
def test_bytes_that_are_not_utf8_are_replaced_as_in_python(name):
    sequences = [*broken()]
    expected = TOKENIZERS[name].encode([b.decode(errors="replace") for b in sequences])
    assert encode(TextGraph(TOKENIZERS[name]), sequences) == expected


@settings(deadline=None, max_examples=5)
@given(st.lists(st.text("abc", min_size=1, max_size=30), min_size=1, max_size=60))
def test_any_learned_merges(words):
    tokenizer = learned_byte_level_bpe(words, 320)
    words = [*words, "abc" * 20, "a" * 31]
    assert encode(TextGraph(tokenizer), words) == tokenizer.encode(words)


def test_what_cannot_be_exported(monkeypatch):
    for kind, part, changed, message in (
        (
            "bert",
            "normalizer",
            {"handle_chinese_chars": False},
            "handle_chinese_chars=False cannot",
        ),
        ("bert", "normalizer", {"type": "Lowercase"}, "normalizer has type='Lowercase'"),
        ("bert", "normalizer", None, "normalizer has type=None cannot be exported"),
        ("bert", "pre_tokenizer", {"type": "Whitespace"}, "pre_tokenizer has type='Whitespace'"),
        ("bert", "model", {"max_input_chars_per_word": 200}, "supports only 100"),
        ("gpt2", "normalizer", {"type": "NFC"}, "normalizer has type='NFC' .* only None"),
        ("gpt2", "pre_tokenizer", {"use_regex": False}, "use_regex=False cannot"),
        ("gpt2", "model", {"ignore_merges": True}, "model has ignore_merges=True"),
        ("xlm-r", "normalizer", {"type": "NFC"}, r"the steps \['NFC', .* cannot be exported"),
        ("xlm-r", "normalizer", None, "the first must be Precompiled"),
    ):
        content = json.loads(TOKENIZERS[kind].content)
        content[part] = changed and {**(content[part] or {}), **changed}
        with pytest.raises(ExportError, match=message):
            TextGraph(LibraryTokenizer(json.dumps(content)))
    for merges in (["ab", "bc", "ab c", "a bc"], ["bc", "ab", "ab c"]):
        merges = [merge.split() if " " in merge else [*merge] for merge in merges]
        vocab = dict.fromkeys([*BYTE_ALPHABET, *map("".join, merges)])
        tokenizer = byte_level_bpe({token: id for id, token in enumerate(vocab)}, merges)
        with pytest.raises(ExportError, match="merges .* contradict each other"):
            TextGraph(tokenizer)
    monkeypatch.setitem(__import__("sys").modules, "tensorflow_text", None)
    for name in ("bpe", "gpt2", "xlm-r"):
        with pytest.raises(UserError, match="package tensorflow-text is not installed"):
            TextGraph(TOKENIZERS[name])
