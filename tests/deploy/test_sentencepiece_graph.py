"""The graph of a SentencePiece model beside the library `sentencepiece`."""

import random

import pytest
import tensorflow as tf

pytest.importorskip("sentencepiece")

from tests.checkpoints.translation_folders import pieces, spm  # noqa: E402
from zoo.data.phrasebook import phrasebook_pairs  # noqa: E402
from zoo.deploy.errors import ExportError  # noqa: E402
from zoo.deploy.text_graph import TextGraph  # noqa: E402
from zoo.errors import TokenizerError  # noqa: E402
from zoo.text.saved_tokenizers import load_tokenizer  # noqa: E402
from zoo.text.sentencepiece import SentencePieceTokenizer  # noqa: E402

pytestmark = pytest.mark.ci

TEXTS = [
    "",
    " ",
    "  two   spaces ",
    "\u2581 \u2581\u2581x\u2581",
    "cafe\u0301 a\u0323\u0301 \u0300x \u1112\u1161\u11ab",
    "\ufb01 \u00bd \u2460 \uff71 \u337f \u00a8 \u00b4x",
    "tab\tnew\nline\u3000wide\u200b\u200d\ufeff",
    "\U0001f600 \U0001f600\U0001f603 \U0001f468\u200d\U0001f469",
    "the cat " * 40,
    "x" * 300,
    "abc" * 5000,
    ">>es<< the cat",
    ">>none<< the cat",
    ">>es the cat",
    "</s> <unk>",
]
CHARACTERS = "abcdefghi ABC ,.!?  \u2581\xe9\xf1\xfc\xdf\u4f60\u597d\u041f\U0001f600\u0301\u0323"
CHARACTERS += "\ufb01\xbd\xa8\u200b\t"


def tokenizer_of(kind, rules="nmt_nfkc", **options):
    """The vocabulary has other ids than the model, and lacks some of its pieces."""
    lines = [line for pair in phrasebook_pairs(300) for line in pair]
    model = spm(lines, kind, rules)
    tokens = ["</s>", "<unk>", *pieces(model)[5:], "\U0001f600", ">>es<<", "<pad>"]
    vocab = {token: id for id, token in enumerate(tokens)}
    control = ("</s>", "<unk>", "<pad>")
    return SentencePieceTokenizer(model, vocab, 1, control, len(vocab) + 3, **options)


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request):
    return tokenizer_of(request.param, language_prefixes=request.param == "unigram")


def drawn(count):
    """Texts of characters that rules replace, and of any characters."""
    draw = random.Random(0)
    every = [*range(1, 0xD800), *range(0xE000, 0x1FFFF)]
    for _ in range(count):
        yield "".join(draw.choices(CHARACTERS, k=draw.randint(1, 60)))
        yield "".join(map(chr, draw.choices(every, k=draw.randint(1, 30))))


def test_texts_have_the_same_ids(tokenizer):
    texts = [*TEXTS, *drawn(100), *(source for source, _ in phrasebook_pairs(300))]
    graph = TextGraph(tokenizer)
    assert graph.encode(tf.constant(texts)).to_list() == tokenizer.encode(texts)
    ids = [
        [draw.randrange(tokenizer.vocab_size) for _ in range(9)] for draw in [random.Random(1)] * 50
    ]
    decoded = [text.decode() for text in graph.decode(tf.constant(ids)).numpy()]
    assert decoded == tokenizer.decode(ids)
    labels = [label.decode() for label in graph.pieces(tf.constant(ids[0])).numpy()]
    assert labels == tokenizer.pieces(ids[0])


def test_without_rules():
    tokenizer = tokenizer_of("unigram", "identity")
    texts = [*TEXTS, *drawn(50)]
    graph = TextGraph(tokenizer)
    found = graph.encode(tf.constant(texts)).to_list()
    assert found == tokenizer.encode(texts)


def test_invalid_utf8_is_replaced():
    tokenizer = tokenizer_of("unigram", "identity")
    graph = TextGraph(tokenizer)
    found = graph.encode(tf.constant([b"a\xffb"])).to_list()
    assert found == tokenizer.encode(["a\ufffdb"])


def test_options_that_the_graph_does_not_cover():
    tokenizer = tokenizer_of("unigram", "identity")
    proto = tokenizer.proto
    proto.normalizer_spec.remove_extra_whitespaces = False
    changed = SentencePieceTokenizer(proto.SerializeToString(), {}, 0, (), 5)
    with pytest.raises(ExportError, match="no remove_extra_whitespaces"):
        TextGraph(changed)


def test_saved_and_loaded(tokenizer, tmp_path):
    tokenizer.with_prefix(3).save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert loaded == tokenizer.with_prefix(3) != tokenizer
    assert loaded.encode(["the cat"]) == [[3, *tokenizer.encode(["the cat"])[0]]]
    (tmp_path / "tokenizer.json").write_text('{"kind": "sentencepiece"}')
    with pytest.raises(TokenizerError, match="SentencePiece model cannot be read"):
        load_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda t: t.encode("text"), "must be a list"),
        (lambda t: t.encode(["\ud800"]), "not valid Unicode"),
        (lambda t: t.decode([[t.vocab_size]]), "is not in the vocabulary"),
    ],
)
def test_bad_input(tokenizer, call, message):
    with pytest.raises(TokenizerError, match=message):
        call(tokenizer)
