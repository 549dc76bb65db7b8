"""What is written is loaded; files that are not what they should be are named."""

import copy
import json
import pickle
import sys

import pytest
import sentencepiece
import tokenizers

from tests.text.library import byte_level_bpe, wordpiece
from tests.text.samples import LINES, SAMPLE
from zoo.errors import TokenizerError, UserError
from zoo.text.encoding import unknown_signs
from zoo.text.library_tokenizer import BYTE_ALPHABET, LibraryTokenizer
from zoo.text.saved_tokenizers import checksum, load_tokenizer, save_tokenizer
from zoo.text.sentencepiece import SentencePieceTokenizer, train_tokenizer

TRAINED = train_tokenizer(LINES, vocab_size=400)
_VOCAB = {token: id for id, token in enumerate([*TRAINED.tokens.values(), "<lang>"][::-1])}
_BYTES = {token: id for id, token in enumerate([*BYTE_ALPHABET, "th", "the", "<|end|>"])}
_WORDS = {w: id for id, w in enumerate(["[UNK]", "the", "cat", "##s", "[SEP]"])}
TOKENIZERS = {
    "trained": TRAINED,
    "trained, prefix": TRAINED.with_prefix(5, 6),
    "published": SentencePieceTokenizer(
        TRAINED.model, _VOCAB, 5, ("<lang>",), len(_VOCAB), (0,), language_prefixes=True
    ),
    "more ids": SentencePieceTokenizer(TRAINED.model, vocab_size=403),
    "gpt2": byte_level_bpe(_BYTES, [("t", "h"), ("th", "e")], ["<|end|>"]),
    "bart": byte_level_bpe(_BYTES, [("t", "h"), ("th", "e")], ["<|end|>"]).with_prefix(258),
    "bert": wordpiece(_WORDS, ["[UNK]", "[SEP]"], lowercase=False),
}
FILES = {"trained": ["a.spm"], "published": ["a.spm", "a.json"]}
FILES["trained, prefix"] = FILES["published"]
FILES["more ids"] = FILES["published"]
FILES["bart"] = ["a.tokenizer.json", "a.json"]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_saved_tokenizer_is_the_same(name, tmp_path):
    tokenizer = TOKENIZERS[name]
    files = save_tokenizer(tokenizer, tmp_path, "a")
    assert files == FILES.get(name, ["a.tokenizer.json"])
    assert {path.name for path in tmp_path.iterdir()} == {*files}
    loaded = load_tokenizer(tmp_path, "a")
    assert loaded == tokenizer and checksum(loaded) == checksum(tokenizer)
    ids = loaded.encode(SAMPLE)
    assert ids == tokenizer.encode(SAMPLE)
    assert loaded.decode(ids) == tokenizer.decode(ids)
    if "a.spm" in files:
        assert len(sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "a.spm"))) == 400
    else:
        library = tokenizers.Tokenizer.from_file(str(tmp_path / "a.tokenizer.json"))
        assert library.get_vocab() == tokenizer.vocab


@pytest.mark.parametrize("name", TOKENIZERS)
def test_copies_encode_the_same(name):
    tokenizer, texts = TOKENIZERS[name], [*SAMPLE, "the<|end|>", "cat [SEP]"]
    for other in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert other == tokenizer and other.encode(texts) == tokenizer.encode(texts)


def test_the_checksum_is_of_all_that_a_tokenizer_does():
    others = [
        train_tokenizer(LINES, vocab_size=399),
        TOKENIZERS["published"],
        TOKENIZERS["published"].with_prefix(1),
        wordpiece(_WORDS, ["[UNK]", "[SEP]"]),
        *TOKENIZERS.values(),
    ]
    assert len({checksum(other) for other in others}) == 10
    assert checksum(TRAINED, others[0]) != checksum(others[0], TRAINED)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\xff\xfe", b'{"vocab": {"a": "b"}}', b'{"vocab": {"a": 9}, "vocab_size": 3}'],
)
def test_a_broken_table_is_named(tmp_path, content):
    for name, file in (("published", "a.json"), ("bert", "a.tokenizer.json")):
        save_tokenizer(TOKENIZERS[name], tmp_path, "a")
        (tmp_path / file).write_bytes(content)
        with pytest.raises(TokenizerError, match="The tokenizer a in .* is not valid"):
            load_tokenizer(tmp_path, "a")


def test_a_broken_or_missing_model_is_named(tmp_path, capfd):
    with pytest.raises(TokenizerError, match=r"a\.spm cannot be read: No such file"):
        load_tokenizer(tmp_path, "a")
    for content in (b"", b"model", TRAINED.model[:500]):
        (tmp_path / "a.spm").write_bytes(content)
        with pytest.raises(TokenizerError, match="The tokenizer a in .* is not valid: .*model"):
            load_tokenizer(tmp_path, "a")
    assert capfd.readouterr() == ("", "")


def test_another_tokenizer_of_the_same_name_is_replaced(tmp_path):
    for name in ("published", "bart", "bert", "trained", "bart", "published"):
        files = save_tokenizer(TOKENIZERS[name], tmp_path, "a")
        assert {path.name for path in tmp_path.iterdir()} == {*files}
        assert load_tokenizer(tmp_path, "a") == TOKENIZERS[name]


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    save_tokenizer(TOKENIZERS["bert"], tmp_path, "a")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        UserError, match="^The package tokenizers is not installed. Run `pip install"
    ):
        load_tokenizer(tmp_path, "a")


@pytest.mark.parametrize(
    "name, vocab, message",
    [
        ("bert", {**_WORDS, "dog": 1}, "must be 0, 1, 2 and so on, each once"),
        ("bert", {**_WORDS, "dog": 9}, "must be 0, 1, 2 and so on, each once"),
        ("bert", {"[SEP]": 0}, r"no token '\[UNK\]'"),
        ("gpt2", {**_BYTES, BYTE_ALPHABET[0]: "a"}, "not a tokenizer.json"),
        ("gpt2", {t: id - 1 for t, id in _BYTES.items() if id}, "no token 'Ā'"),
    ],
)
def test_vocabularies_that_contradict_themselves(name, vocab, message):
    content = json.loads(TOKENIZERS[name].content)
    content["model"]["vocab"] = vocab
    content["added_tokens"] = []
    with pytest.raises(TokenizerError, match=message):
        LibraryTokenizer(json.dumps(content))


def test_unknown_is_the_id_of_what_is_not_in_the_vocabulary():
    assert TOKENIZERS["gpt2"].unknown is None
    bert = TOKENIZERS["bert"]
    assert bert.encode(["☃"]) == [[bert.unknown]]
    unigram = tokenizers.Tokenizer(tokenizers.models.Unigram([("▁a", 0.0), ("?", -1.0)], 1))
    unigram.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    unigram = LibraryTokenizer(unigram.to_str())
    assert unigram.encode(["a ☃"])[0][-1] == unigram.unknown == 1
    assert unknown_signs(unigram, "a ☃") == {"☃"}


def test_another_kind_of_library_tokenizer():
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a"))
    untyped = json.loads(TOKENIZERS["bert"].content)
    del untyped["model"]["type"]
    for content in (words.to_str(), json.dumps(untyped)):
        with pytest.raises(TokenizerError, match="must be one of"):
            LibraryTokenizer(content)
    unigram = tokenizers.Tokenizer(tokenizers.models.Unigram([("a", 0.0)]))
    with pytest.raises(TokenizerError, match="must have the pre_tokenizer Metaspace"):
        LibraryTokenizer(unigram.to_str())
    unigram.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    with pytest.raises(TokenizerError, match="must have an unk_id, and no byte_fallback"):
        LibraryTokenizer(unigram.to_str())
    without = json.loads(TOKENIZERS["bert"].content)
    del without["added_tokens"]
    assert LibraryTokenizer(json.dumps(without)).decode([[1, 4]]) == ["the [SEP]"]


def test_a_tokenizer_as_robertas():
    """Special tokens around a text, padding and truncation in its file are not used."""
    vocab = {token: id for id, token in enumerate(["<s>", "</s>", *_BYTES, "<mask>"])}
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [("t", "h"), ("th", "e")]))
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    mask = tokenizers.AddedToken("<mask>", lstrip=True, special=True)
    library.add_special_tokens(["<s>", "</s>", "<|end|>", mask])
    library.enable_truncation(4)
    library.enable_padding(length=9)
    tokenizer = LibraryTokenizer(library.to_str())
    library.no_truncation()
    library.no_padding()
    library.encode_special_tokens = True
    texts = [*SAMPLE, "the <mask> <s>"]
    ids = tokenizer.encode(texts)
    assert ids == [library.encode(text, add_special_tokens=False).ids for text in texts]
    assert tokenizer.decode(ids) == texts
    assert tokenizer.decode([[0, *row, 1] for row in ids]) == texts


@pytest.mark.parametrize(
    "part, changed, message",
    [
        ("pre_tokenizer", None, "A BPE tokenizer must be of bytes"),
        ("model", {"dropout": 0.1}, "dropout=0.1 of BPE is not supported"),
        ("model", {"end_of_word_suffix": "</w>"}, "end_of_word_suffix='</w>' of BPE"),
    ],
)
def test_byte_pairs_that_are_not_of_bytes(part, changed, message):
    content = json.loads(TOKENIZERS["gpt2"].content)
    content[part] = changed and {**content[part], **changed}
    with pytest.raises(TokenizerError, match=message):
        LibraryTokenizer(json.dumps(content))
