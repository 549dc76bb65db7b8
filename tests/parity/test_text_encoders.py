"""RoBERTa, XLM-RoBERTa and DistilBERT beside the libraries transformers and sentence-transformers.

Tolerance of logits: 1e-4, for the same float32 operations in another order.
"""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch")

import json  # noqa: E402

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import zoo  # noqa: E402
from tests.checkpoints.text_folders import (  # noqa: E402
    LINES,
    ODD_TEXTS,
    bert_tokenizer,
    roberta_tokenizer,
    write_files,
    xlm_roberta_tokenizer,
)
from tests.parity.test_text_models import expected_logits, write  # noqa: E402
from tests.text.samples import SAMPLE  # noqa: E402
from zoo.checkpoints import CheckpointError  # noqa: E402

SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "num_labels": 5}
SIZES |= {"intermediate_size": 40, "max_position_embeddings": 66, "initializer_range": 0.4}
SIZES |= {"type_vocab_size": 1, "layer_norm_eps": 1e-5}
DISTIL = {"dim": 24, "n_layers": 3, "n_heads": 4, "hidden_dim": 40, "num_labels": 5}
DISTIL |= {"max_position_embeddings": 64, "initializer_range": 0.4, "vocab_size": 300}
FAMILIES = {
    "Roberta": (roberta_tokenizer, {**SIZES, "vocab_size": 402}),
    "XLMRoberta": (xlm_roberta_tokenizer, {**SIZES, "vocab_size": 302}),
    "DistilBert": (bert_tokenizer, DISTIL),
}
SMALL = {"num_attention_heads": 2, "num_hidden_layers": 1, "hidden_act": "relu"}
SMALL |= {"type_vocab_size": 3, "layer_norm_eps": 1e-2}
OTHERS = {
    "Roberta": SMALL | {"pad_token_id": 1, "vocab_size": 411},
    "XLMRoberta": SMALL | {"vocab_size": 337},
    "DistilBert": {"n_heads": 3, "n_layers": 1, "activation": "relu", "sinusoidal_pos_embds": True},
}
# No control tokens, which transformers finds in texts, even with `split_special_tokens`, if they
# are pieces; and no letters that are new to the library `tokenizers`.
CONTROL = ["<pad> <s> </s> <unk> <0xE2> [PAD] ▁ Ġ Ċ", "<pad>", "</s>", "a <mask> b", "<s>a"]
TEXTS = [
    *LINES,
    *[text for text in SAMPLE if text not in CONTROL],
    *ODD_TEXTS,
    *("x" * 300, " ".join(LINES), "a\r\nb", "\u1112\u1161\u11ab\u1100\u1173\u11af", "1️⃣ 2", "▁a▁"),
]
each_family = pytest.mark.parametrize("family", FAMILIES)

torch.set_num_threads(1)


def published(family, kind="ForSequenceClassification", **changed):
    """A model of transformers and the files of its tokenizer."""
    torch.manual_seed(0)
    tokenizer, config = FAMILIES[family]
    making = {"add_pooling_layer": False} if changed.pop("no_pooler", False) else {}
    config = getattr(transformers, f"{family}Config")(**{**config, **changed})
    return getattr(transformers, f"{family}{kind}")(config, **making), tokenizer()


def their_tokenizer(family, folder):
    name = {"DistilBert": "BertTokenizer"}.get(family, f"{family}Tokenizer")
    return getattr(transformers, name).from_pretrained(folder)


@pytest.fixture(scope="module", params=FAMILIES)
def classifier(request, tmp_path_factory):
    """(family, folder, model of transformers, classifier)."""
    folder = tmp_path_factory.mktemp(request.param)
    model = write(folder, *published(request.param))
    return request.param, folder, model, zoo.load(folder)


def test_logits(classifier):
    """Alone and in a batch, up to the largest length."""
    _, _, model, classifier = classifier
    assert classifier.model.max_length == 64 and classifier.model.num_classes == 5
    rows = classifier.encode(TEXTS, "truncate")
    assert max(map(len, rows)) == 64
    expected = expected_logits(model, rows)
    assert np.ptp(expected) > 1
    padded = tf.ragged.constant(rows).to_tensor(classifier.special_tokens.pad)
    np.testing.assert_allclose(classifier.model(padded), expected, atol=1e-4)
    for row, logits in zip(rows[:4], expected):
        np.testing.assert_allclose(classifier.model(np.array([row]))[0], logits, atol=1e-4)


def test_tokens(classifier, tmp_path):
    """From older files and from tokenizer.json."""
    family, folder, _, classifier = classifier
    theirs = their_tokenizer(family, folder)
    settings = {"split_special_tokens": True, "truncation": True, "max_length": 64}
    expected = [theirs(text, **settings)["input_ids"] for text in TEXTS]
    assert classifier.encode(TEXTS, "truncate") == expected
    special = {*theirs.all_special_ids} - {theirs.unk_token_id}
    for row in classifier.tokenizer.encode(CONTROL):  # is text
        assert row and not special.intersection(row)
    [path] = write(tmp_path, *published(family)) and [tmp_path]
    for name in FAMILIES[family][0]():
        (path / name).unlink()
    theirs.save_pretrained(path)
    again = zoo.load(path)
    assert again.encode(TEXTS, "truncate") == expected
    assert again.tokenizer.encode(CONTROL) == classifier.tokenizer.encode(CONTROL)
    texts = [text for text in LINES if text.isascii()]
    decoded = [theirs.decode(row, skip_special_tokens=True) for row in theirs(texts)["input_ids"]]
    if family != "DistilBert":
        assert again.tokenizer.decode(again.tokenizer.encode(texts)) == decoded


@each_family
def test_other_sizes(family, tmp_path):
    model = write(tmp_path, *published(family, **OTHERS[family]), torch.bfloat16)
    classifier = zoo.load(tmp_path)
    rows = classifier.encode(LINES[:8], "truncate")
    expected = expected_logits(model, rows)
    padded = tf.ragged.constant(rows).to_tensor(classifier.special_tokens.pad)
    np.testing.assert_allclose(classifier.model(padded), expected, atol=1e-4)


def test_half_precision(classifier):
    """The mean error is that of rounding weights and sums around 1."""
    _, folder, _, classifier = classifier
    expected = classifier.probabilities(LINES[:8], too_long="truncate")
    for dtype in ("bfloat16", "float16", "mixed_bfloat16"):
        found = zoo.load(folder, dtype=dtype).probabilities(LINES[:8], too_long="truncate")
        assert np.isfinite(found).all() and np.abs(found - expected).mean() < 0.05


@each_family
def test_several_labels(family, tmp_path):
    problem = {"problem_type": "multi_label_classification"}
    model = write(tmp_path, *published(family, num_labels=1, **problem))
    classifier = zoo.load(tmp_path)
    expected = expected_logits(model, classifier.encode(LINES[:4], "truncate"))
    found = classifier.probabilities(LINES[:4], too_long="truncate")
    np.testing.assert_allclose(found, torch.tensor(expected).sigmoid(), atol=1e-5)


def states(model, rows):
    with torch.no_grad():
        return [model(torch.tensor([row])).last_hidden_state[0].numpy() for row in rows]


@each_family
@pytest.mark.parametrize("kind", ["Model", "ForMaskedLM", "ForTokenClassification"])
def test_other_heads(family, kind, tmp_path):
    """They give encoders by the mean of the tokens, and classifiers with a new head."""
    changed = {"no_pooler": True} if kind == "Model" and family == "XLMRoberta" else {}
    model = write(tmp_path, *published(family, kind, **changed))
    base = getattr(model, model.base_model_prefix, model)
    if kind == "ForTokenClassification":
        with pytest.raises(CheckpointError, match="Pass num_classes"):
            zoo.load(tmp_path)
    encoder = zoo.load(tmp_path, num_classes=0)
    rows = encoder.encode(LINES[:6], "truncate")
    expected = states(base, rows)
    means = [x.mean(axis=0) for x in expected]
    np.testing.assert_allclose(encoder(LINES[:6], too_long="truncate"), means, atol=1e-5)
    classifier = zoo.load(tmp_path, num_classes=3)
    assert classifier.class_names == ["0", "1", "2"]
    for row, tokens in zip(rows, expected):
        ids = np.array([row])
        np.testing.assert_allclose(classifier.model.features(ids)[0], tokens, atol=1e-4)
        pooled = tokens[0]
        if getattr(base, "pooler", None) is not None:
            pooled = base.pooler(torch.tensor(tokens[None])).detach().numpy()[0]
        np.testing.assert_allclose(classifier.model.pooled_features(ids)[0], pooled, atol=1e-4)


def test_a_new_head(classifier):
    """The layer before the head is kept."""
    family, folder, model, classifier = classifier
    found = zoo.load(folder, num_classes=2)
    ids = np.array(classifier.encode(LINES[:1], "truncate"))
    expected = classifier.model.pooled_features(ids)
    np.testing.assert_allclose(found.model.pooled_features(ids), expected, atol=1e-6)
    assert found.model.num_classes == 2


def sentence_transformer(folder, family, pool, length, normalize):
    """Writes a folder of sentence-transformers; returns the library's model."""
    library = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    model, files = published(family, "Model")
    write(folder / "bert", model, files)
    their_tokenizer(family, folder / "bert").save_pretrained(folder / "bert")
    for name in files:
        (folder / "bert" / name).unlink(missing_ok=True)
    transformer = modules.Transformer(str(folder / "bert"), max_seq_length=length)
    parts = [transformer, modules.Pooling(24, pooling_mode=pool)]
    if normalize:
        parts.append(modules.Normalize())
    library.SentenceTransformer(modules=parts, device="cpu").save(str(folder / "saved"))
    return library.SentenceTransformer(str(folder / "saved"), device="cpu")


@each_family
@pytest.mark.parametrize("pool, normalize", [("mean", True), ("cls", False)])
def test_sentence_encoders(family, pool, normalize, tmp_path):
    theirs = sentence_transformer(tmp_path, family, pool, 20, normalize)
    encoder = zoo.load(tmp_path / "saved")
    assert encoder.model.max_length == 20
    texts = [*LINES, *SAMPLE[:12], "", "query: 👍🏽", "  two  spaces\nand lines "]
    expected = theirs.encode(texts)
    np.testing.assert_allclose(encoder(texts, too_long="truncate"), expected, atol=1e-4)
    similarity = theirs.similarity(expected[:5], expected).numpy()
    found = encoder.similarity(texts[:5], texts, too_long="truncate")
    np.testing.assert_allclose(found, similarity, atol=1e-5)


def test_a_bert_with_the_tokenizer_of_xlm_roberta(tmp_path):
    """As paraphrase-multilingual-MiniLM-L12-v2 and multilingual-e5-small."""
    config = {**SIZES, "vocab_size": 337, "type_vocab_size": 2, "max_position_embeddings": 64}
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**config))
    model = write(tmp_path, model, xlm_roberta_tokenizer())
    settings = {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 32}
    write_files(tmp_path, {"tokenizer_config.json": json.dumps(settings)})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    encoder = zoo.load(tmp_path)
    limit = {"truncation": True, "max_length": 32}
    rows = [theirs(text, **limit)["input_ids"] for text in LINES]
    assert encoder.encode(LINES, "truncate") == rows
    expected = [x.mean(axis=0) for x in states(model, rows)]
    np.testing.assert_allclose(encoder(LINES, too_long="truncate"), expected, atol=1e-5)
