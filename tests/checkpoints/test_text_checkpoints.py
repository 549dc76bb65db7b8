"""Published GPT-2, BERT and its kin: what transformers computes, and what is loaded or refused.

The goldens were recorded by tests/parity/record_hugging_face.py; tests/parity compares more.
"""

import json
import pathlib

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file
from tokenizers import models, normalizers, pre_tokenizers

import zoo
from tests.checkpoints import drawn
from tests.checkpoints.text_folders import (
    LINES,
    ODD_TEXTS,
    bert_tokenizer,
    gpt2_tokenizer,
    roberta_tokenizer,
    write,
    write_files,
    xlm_roberta_tokenizer,
)
from zoo.checkpoints import CheckpointError
from zoo.checkpoints.hugging_face_tokenizers import byte_level_bpe, encoder_tokenizer
from zoo.text.library_tokenizer import LibraryTokenizer
from zoo.text.sentencepiece import SentencePieceTokenizer

GOLDENS = json.loads(
    (pathlib.Path(__file__).parent / "goldens" / "hugging_face_text.json").read_text()
)
KINDS = GOLDENS["kinds"]
TOKENIZERS = {
    "gpt2": gpt2_tokenizer,
    "bert": bert_tokenizer,
    "roberta": roberta_tokenizer,
    "xlm-roberta": xlm_roberta_tokenizer,
    "distilbert": bert_tokenizer,
}
# Sums of a few hundred float32 products of numbers around 1.
TOLERANCE = 1e-4


def folder_of(folder, kind, **settings):
    golden = KINDS[kind]
    tokenizer = TOKENIZERS[kind.split(",")[0]]()
    return write(folder / "model", golden["config"], golden["shapes"], tokenizer, **settings)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """{kind: (folder, what is loaded)}."""
    folders = {kind: folder_of(tmp_path_factory.mktemp(kind), kind) for kind in ("gpt2", "bert")}
    return {kind: (folder, zoo.load(folder)) for kind, folder in folders.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_outputs(kind, tmp_path):
    folder = folder_of(tmp_path, kind)
    golden = KINDS[kind]
    tokens = drawn.tokens(golden["config"]["vocab_size"])
    if "no head" in kind:
        pooled = np.asarray(zoo.load(folder).model(tokens))[..., : drawn.RECORDED]
        np.testing.assert_allclose(pooled, np.mean(golden["outputs"], axis=1), atol=TOLERANCE)
        found = zoo.load(folder, num_classes=3).model.features(tokens)
    else:
        found = zoo.load(folder).model(tokens)
    outputs = np.asarray(found)[..., : drawn.RECORDED]
    np.testing.assert_allclose(outputs, golden["outputs"], atol=TOLERANCE)


def test_an_older_file_of_roberta(tmp_path):
    """It also has a pooler, which the head does not use, and the numbers of the positions."""
    folder = folder_of(tmp_path, "roberta")
    expected = zoo.load(folder).model.get_weights()
    tensors = drawn.tensors(KINDS["roberta"]["shapes"])
    tensors["roberta.pooler.dense.weight"] = np.ones((24, 24), "float32")
    tensors["roberta.pooler.dense.bias"] = np.ones(24, "float32")
    tensors["roberta.embeddings.position_ids"] = np.arange(34)[None]
    save_file(tensors, folder / "model.safetensors")
    for found, weights in zip(zoo.load(folder).model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(found, weights)


def test_a_new_head(loaded, capsys):
    classifier = zoo.load(loaded["bert"][0], num_classes=2, dropout=0.0)
    assert "the classification head is new" in capsys.readouterr().out
    assert classifier.class_names == ["0", "1"] and classifier.model.dropout == 0.0


OUT = "classifier.out_proj"


@pytest.mark.parametrize(
    "kind, changed, message",
    [
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights=False is not supported"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention=True is not supported"),
        ("gpt2", {"activation_function": "mish"}, "the activation 'mish' is not supported"),
        ("gpt2", {"n_layer": 3}, "Tensors that are missing: h.2.ln_1"),
        ("gpt2", {"n_layer": 1}, "no place in the model: h.1.attn"),
        ("gpt2", {"n_head": 5}, "num_heads must divide embed_dim"),
        ("gpt2", {"n_positions": 64}, r"wpe.weight \(32, 24\) would give decoder_embedding/pos"),
        ("gpt2", {"vocab_size": 500}, r"wte.weight \(400, 24\) would give decoder_embedding/tok"),
        ("gpt2", {"eos_token_id": 50256}, "special_tokens.end"),
        ("gpt2", {"eos_token_id": [0, 1]}, "special_tokens.end"),
        ("gpt2", {"tie_word_embeddings": False}, "missing: lm_head.weight"),
        ("bert", {"is_decoder": True}, "is_decoder=True is not supported"),
        ("bert", {"position_embedding_type": "relative_key"}, "'relative_key' is not supported"),
        ("bert", {"problem_type": "regression"}, "problem_type 'regression': it does not choose"),
        ("bert", {"architectures": ["BertForTokenClassification"]}, "of BertForTokenClass"),
        ("bert", {"id2label": {"0": "a", "1": "b"}}, "would give head/kernel the shape"),
        ("bert", {"intermediate_size": 48}, "would give encoder_0/feed_forward"),
        ("bert", {"without": ["classifier.bias"]}, "missing: classifier.bias"),
        ("bert", {"without": ["classifier.weight"]}, "missing: classifier.weight"),
        ("roberta", {"is_decoder": True}, "is_decoder=True is not supported"),
        ("roberta", {"position_embedding_type": "relative_key"}, "'relative_key' is not supported"),
        ("roberta", {"pad_token_id": 2}, "pad_token_id must be 1, as in the tokenizer"),
        (
            "roberta",
            {"max_position_embeddings": 64},
            r"position_embeddings.weight \(34, 24\)",
        ),
        ("roberta", {"max_position_embeddings": 2}, "max_length must be an integer from 1"),
        ("roberta", {"without": [f"{OUT}.bias"]}, "missing: classifier.out_proj.bias"),
        ("roberta", {"without": [f"{OUT}.weight"]}, "missing: classifier.out_proj.weight"),
        ("roberta", {"without": ["classifier.dense.weight"]}, "no classifier.dense.weight, which"),
        ("distilbert", {"activation": "mish"}, "the activation 'mish' is not supported"),
        ("distilbert", {"without": ["classifier.weight"]}, "missing: classifier.weight"),
        ("distilbert", {"without": ["pre_classifier.weight"]}, "no pre_classifier.weight, which"),
        ("distilbert", {"n_layers": 1}, "no place in the model: transformer.layer.1.attention"),
        (
            "distilbert",
            {"architectures": ["DistilBertForMultipleChoice"]},
            "of DistilBertForMul",
        ),
    ],
)
def test_configurations_that_do_not_fit(kind, changed, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        zoo.load(folder_of(tmp_path, kind, **changed))


@pytest.mark.parametrize(
    "kind, name, changed, message",
    [
        ("gpt2", "merges.txt", None, "contains no merges.txt"),
        ("gpt2", "vocab.json", None, "contains no vocab.json and no tokenizer.json"),
        ("gpt2", "tokenizer_config.json", {"add_eos_token": True}, "add_eos_token=True is not"),
        ("bert", "vocab.txt", None, "no vocab.txt, no vocab.json, no sent.* and no tok"),
        ("bert", "model.safetensors", None, "contains no weights"),
        *(
            ("bert", "tokenizer_config.json", {name: value}, f"{name}={value!r} is not supported")
            for name, value in (
                ("tokenizer_class", "BertJapaneseTokenizer"),
                ("word_tokenizer_type", "mecab"),
                ("do_basic_tokenize", False),
            )
        ),
        *(
            (
                "bert",
                "tokenizer_config.json",
                {name: "[nope]"},
                rf"the {name} '\[nope\]' is not in the vocabulary. Check tok",
            )
            for name in ("cls_token", "sep_token", "pad_token", "unk_token")
        ),
    ],
)
def test_files_that_cannot_be_used(kind, name, changed, message, tmp_path):
    """Missing ones, and those of tokenizers that only look like BERT's."""
    path = folder_of(tmp_path, kind) / name
    if changed is None:
        path.unlink()
    else:
        settings = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps({**settings, **changed}))
    with pytest.raises(CheckpointError, match=message):
        zoo.load(path.parent)


def tokenizer_json(kind, **parts):
    """The content of a tokenizer.json with the same tokens, and other `parts`."""
    files = gpt2_tokenizer() if kind == "gpt2" else bert_tokenizer()
    if kind == "gpt2":
        merges = [tuple(line.split()) for line in files["merges.txt"].split("\n")[1:-1]]
        library = tokenizers.Tokenizer(models.BPE(json.loads(files["vocab.json"]), merges))
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        vocab = {token: id for id, token in enumerate(files["vocab.txt"].split("\n")[:-1])}
        library = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
        library.normalizer = normalizers.BertNormalizer()
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        # As in the files of sentence encoders, which pad and truncate to a length.
        library.enable_truncation(8)
        library.enable_padding(length=20)
    return {**json.loads(library.to_str()), **parts}


def without_older_files(folder):
    for name in ("vocab.json", "merges.txt", "vocab.txt"):
        (folder / name).unlink(missing_ok=True)


BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
ADDS_NONE = {"type": "TemplateProcessing", "pair": [], "special_tokens": {}}
ADDS_NONE["single"] = [{"Sequence": {"id": "A", "type_id": 0}}]
WORDS = {"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##"}
WORDS["max_input_chars_per_word"] = 100
START = "<|endoftext|>"
ADDS_START = {
    **ADDS_NONE,
    "single": [{"SpecialToken": {"id": START, "type_id": 0}}, *ADDS_NONE["single"]],
    "special_tokens": {START: {"id": START, "ids": [0], "tokens": [START]}},
}
WORD_LEVEL = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
ADDED = {"id": 7, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


@pytest.mark.parametrize(
    "kind, changed, message",
    [
        ("gpt2", {}, None),
        ("bert", {}, None),
        ("gpt2", {"post_processor": ADDS_NONE}, None),
        ("gpt2", {"post_processor": BYTES}, None),
        ("gpt2", {"pre_tokenizer": None}, "A BPE tokenizer must be of bytes"),
        (
            "gpt2",
            {"model": {"type": "BPE", "vocab": {}}},
            "tokenizer.json cannot be used: Missing vocab.merges",
        ),
        ("gpt2", {"post_processor": ADDS_START}, "post_processor TemplateProc"),
        ("gpt2", {"added_tokens": [{**ADDED, "content": "Zoo", "special": False}]}, "token 'Zoo'"),
        (
            "bert",
            {"model": {"type": "BPE", "vocab": {}}},
            "tokenizer.json cannot be used: Missing vocab.merges",
        ),
        ("bert", {"model": WORD_LEVEL}, "must be one of .* Received: WordLevel"),
        ("bert", {"model": {"type": "Unigram", "vocab": [["a", 0.0]]}}, "cls_token '<s>' is not"),
        ("bert", {"model": WORDS | {"vocab": {"a": 0}}}, r"cls_token '\[CLS\]' is not in"),
    ],
)
def test_tokenizer_json(kind, changed, message, tmp_path):
    """It gives the tokens of the older files, which tests/parity compares with transformers."""
    folder = folder_of(tmp_path, kind)
    expected = zoo.load(folder).tokenizer.encode(ODD_TEXTS)
    without_older_files(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(kind, **changed)))
    if message is None:
        assert zoo.load(folder).tokenizer.encode(ODD_TEXTS) == expected
    else:
        with pytest.raises(CheckpointError, match=message):
            zoo.load(folder)


SPLIT = {"type": "Split", "pattern": {"Regex": " ?[a-z]{1,3}"}, "behavior": "Isolated"}
SPLIT["invert"] = False
SEQUENCE = {"type": "Sequence", "pretokenizers": [SPLIT, {**BYTES, "use_regex": False}]}


@pytest.mark.parametrize(
    "kind, changed",
    [
        ("gpt2", {"normalizer": {"type": "NFC"}}),
        ("gpt2", {"pre_tokenizer": SEQUENCE}),
        ("bert", {"normalizer": {"type": "Lowercase"}}),
        ("bert", {"pre_tokenizer": {"type": "Whitespace"}}),
    ],
)
def test_what_the_library_reads_is_read(kind, changed, tmp_path):
    """Such as the tokenizers of other models that are made of the same parts."""
    folder = folder_of(tmp_path, kind)
    expected = zoo.load(folder).tokenizer.encode(ODD_TEXTS)
    without_older_files(folder)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(tokenizer_json(kind, **changed)))
    library = tokenizers.Tokenizer.from_file(str(path))
    library.no_truncation()
    library.no_padding()
    ids = zoo.load(folder).tokenizer.encode(ODD_TEXTS)
    assert ids == [library.encode(text).ids for text in ODD_TEXTS] != expected


@pytest.mark.parametrize(
    "own, in_config, expected",
    [
        ("GPT2Tokenizer", None, False),
        ("TokenizersBackend", None, True),
        (None, None, False),
        ("GPT2Tokenizer", True, True),
    ],
)
def test_the_space_before_a_text(own, in_config, expected, tmp_path):
    """GPT-2's own class does not ask tokenizer.json for it, that of any tokenizer does."""
    folder = folder_of(tmp_path, "gpt2")
    found = tokenizer_json("gpt2", pre_tokenizer=BYTES)
    (folder / "tokenizer.json").write_text(json.dumps(found))
    settings = {"tokenizer_class": own}
    if in_config is not None:
        settings["add_prefix_space"] = in_config
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = zoo.load(folder).tokenizer
    assert (tokenizer.encode(["a"]) == tokenizer.encode([" a"])) is expected


def test_merges_that_end_early(tmp_path):
    """At any line: texts would become other tokens."""
    path = folder_of(tmp_path, "gpt2") / "merges.txt"
    lines = path.read_text().splitlines(keepends=True)
    for count in range(len(lines)):
        path.write_text("".join(lines[:count]))
        with pytest.raises(CheckpointError, match=f"{path.parent.name}: .*not made by any merge"):
            zoo.load(path.parent)


@pytest.mark.parametrize("line", ["word", "three words here"])
def test_a_merge_is_two_tokens(line, tmp_path):
    path = folder_of(tmp_path, "gpt2") / "merges.txt"
    lines = path.read_text().splitlines()
    lines[2] = line
    path.write_text("\n".join(lines))
    with pytest.raises(CheckpointError, match=f"merges.txt, line 3: .* Received: '{line}'"):
        zoo.load(path.parent)


def test_a_vocabulary_without_merges_of_special_tokens(tmp_path):
    """As that of a tokenizer trained anew, in which no file names them as special."""
    path = folder_of(tmp_path, "gpt2") / "vocab.json"
    vocab = json.loads(path.read_text())
    path.write_text(json.dumps({**vocab, "<mask>": len(vocab)}))
    tokenizer, _ = byte_level_bpe(path.parent, len(vocab) + 1)
    assert tokenizer.vocab["<mask>"] == len(vocab)


@pytest.mark.parametrize("size", [401, 402, 410])
def test_the_tokenizer_of_roberta(size, tmp_path):
    """Without <mask> if the model does not have it, as bart-large-cnn; texts hold no <s>."""
    write_files(tmp_path, roberta_tokenizer())
    tokenizer, special = encoder_tokenizer(tmp_path, size)
    assert special == (0, 2, 1, ())
    assert tokenizer.vocab_size == size and ("<mask>" in tokenizer.vocab) == (size > 401)
    rows = tokenizer.encode(ODD_TEXTS)
    assert tokenizer.decode([[0, *row, 2, 1] for row in rows]) == ODD_TEXTS
    assert tokenizer.with_prefix(0).encode(ODD_TEXTS) == [[0, *row] for row in rows]
    assert tokenizer.pieces([0, *tokenizer.encode([" é</s>"])[0]])[:2] == ["<s>", " "]
    assert min(id for row in rows for id in row) > 3


AROUND = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}
AROUND |= {"trim_offsets": True, "add_prefix_space": False}


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"post_processor": AROUND}, None),
        ({"post_processor": AROUND | {"cls": ["<unk>", 3]}}, "adds the ids .3, 2. to texts"),
        ({"added_tokens": [{**ADDED, "content": "Zoo", "special": False}]}, "token 'Zoo' is text"),
        ({"model": WORDS | {"vocab": {"a": 0}}, "added_tokens": []}, r"cls_token '\[CLS\]' is not"),
    ],
)
def test_tokenizer_json_of_roberta(changed, message, tmp_path):
    write_files(tmp_path, roberta_tokenizer())
    expected, _ = encoder_tokenizer(tmp_path, 402)
    content = json.loads(expected.content)
    (tmp_path / "tokenizer.json").write_text(json.dumps({**content, **changed}))
    if message is None:
        tokenizer, special = encoder_tokenizer(tmp_path, 402)
        assert special == (0, 2, 1, ())
        assert tokenizer.encode(ODD_TEXTS) == expected.encode(ODD_TEXTS)
    else:
        with pytest.raises(CheckpointError, match=message):
            encoder_tokenizer(tmp_path, 402)


CONTROL = ["<s>", "a</s>b", "<pad> <unk>", "<mask>", " <mask> ", "[unused 305]"]


@pytest.mark.parametrize("size", [302, 310])
def test_the_tokenizer_of_xlm_roberta(size, tmp_path):
    """Ids are those of the pieces plus 1; control tokens in a text are text."""
    write_files(tmp_path, xlm_roberta_tokenizer())
    tokenizer, special = encoder_tokenizer(tmp_path, size)
    assert special == (0, 2, 1, ()) and tokenizer.vocab_size == size
    library = SentencePieceTokenizer((tmp_path / "sentencepiece.bpe.model").read_bytes())
    texts = [*LINES, "", "  two   spaces ", "a\nb\tc", "中文 😀"]
    expected = [[id + 1 if id else 3 for id in row] for row in library.encode(texts)]
    assert tokenizer.encode(texts) == expected
    assert tokenizer.decode(tokenizer.encode(LINES[:1])) == LINES[:1]
    for row in tokenizer.encode(CONTROL):
        assert row and not {0, 1, 2, *range(301, size)}.intersection(row)
    again = LibraryTokenizer(tokenizer.content)
    assert again.encode(texts) == expected and again.token_bytes[:4] == [b""] * 4


@pytest.mark.parametrize(
    "options, settings, message",
    [
        ({"kind": "bpe"}, {}, "must be a Unigram model without symbols"),
        ({"byte_fallback": True, "size": 400}, {}, "must be a Unigram model without symbols and b"),
        ({"user_defined_symbols": ["<user>"]}, {}, "must be a Unigram model without symbols"),
        ({}, {"tokenizer_class": "CamembertTokenizer"}, "tokenizer_class='CamembertTokenizer' is"),
        ({}, {"add_prefix_space": False}, "add_prefix_space=False is not supported"),
        ({}, {"bos_token": "[CLS]"}, r"the cls_token '\[CLS\]' is not in the vocabulary"),
    ],
)
def test_tokenizers_that_are_not_those_of_xlm_roberta(options, settings, message, tmp_path):
    write_files(tmp_path, xlm_roberta_tokenizer(**options))
    write_files(tmp_path, {"tokenizer_config.json": json.dumps(settings)})
    with pytest.raises(CheckpointError, match=message):
        encoder_tokenizer(tmp_path, 500)


def test_a_vocabulary_that_ends_early_is_told(tmp_path, capsys):
    """There are published models with unused ids at the end, so it is not an error."""
    path = folder_of(tmp_path, "bert") / "vocab.txt"
    tokens = path.read_text().split("\n")[:100]
    path.write_text("\n".join(tokens))
    classifier = zoo.load(path.parent)
    size = classifier.model.vocab_size
    assert classifier.tokenizer.tokens[100] == "[unused 100]"
    expected = f"{path.parent}: the vocabulary has 100 tokens, the model {size}.\n"
    assert capsys.readouterr().out == expected


def test_tensors_of_integers(tmp_path):
    """Such as quantized ones."""
    folder = folder_of(tmp_path, "gpt2")
    tensors = drawn.tensors(KINDS["gpt2"]["shapes"])
    name = next(name for name in tensors if name.endswith("ln_f.weight"))
    save_file({**tensors, name: tensors[name].astype("int8")}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="ln_f.weight must have floats, not int8"):
        zoo.load(folder)
