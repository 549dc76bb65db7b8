"""BERT beside the library transformers.

Tolerance of logits: 1e-4, for the same float32 operations in another order.
"""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch")

import shutil  # noqa: E402

import numpy as np  # noqa: E402

import zoo  # noqa: E402
from tests.checkpoints.text_folders import LINES, bert_tokenizer  # noqa: E402
from tests.text.samples import SAMPLE  # noqa: E402

ODD_TEXTS = [
    *SAMPLE,
    " ".join(LINES),  # is cut off
    "[CLS] a [SEP][MASK] [PAD] [UNK] ##s",
    "ΟΔΟΣ İstanbul ǅ ß ẞ Ångström",
    "e\u0301\u0323x \U0001e944\U0001e94a",
    "中文abc，。",
    "x" * 100 + " " + "x" * 101,
]
SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 40, "max_position_embeddings": 64, "initializer_range": 0.4}
CLASSIFIER = "BertForSequenceClassification"

torch.set_num_threads(1)


def write(folder, kind=CLASSIFIER, lowercase=True, saving=(), making=(), tokenizer=(), **changed):
    """A folder of a random model with the files of its tokenizer; returns the model."""
    folder.mkdir()
    for name, text in bert_tokenizer(lowercase, **dict(tokenizer)).items():
        (folder / name).write_text(text, encoding="utf-8")
    torch.manual_seed(0)
    config = transformers.BertConfig(**{"vocab_size": 300, **SIZES, "num_labels": 5, **changed})
    model = getattr(transformers, kind)(config, **dict(making)).eval()
    with torch.no_grad():  # biases and norms matter as well
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    model.save_pretrained(folder, **dict(saving))
    return model


def expected_logits(model, rows):
    """One text at a time, without padding."""
    with torch.no_grad():
        return np.concatenate([model(torch.tensor([row])).logits.numpy() for row in rows])


def found_logits(classifier, rows):
    """In one padded batch."""
    padded = [row + [classifier.special_tokens.pad] * (64 - len(row)) for row in rows]
    return np.asarray(classifier.model(np.array(padded, np.int32)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert") / "model"
    return folder, write(folder)


@pytest.fixture(scope="module")
def classifier(folder):
    return zoo.load(folder[0])


def test_logits(folder, classifier):
    rows = classifier.encode(LINES[:8], "truncate")
    expected = expected_logits(folder[1], rows)
    assert np.abs(expected - found_logits(classifier, rows)).max() < 1e-4 < 1 < expected.max()
    probabilities = torch.tensor(expected).softmax(-1)
    np.testing.assert_allclose(classifier.probabilities(LINES[:8]), probabilities, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lowercase": False},
        {"lowercase": False, "tokenizer": {"strip_accents": True}},
        {"tokenizer": {"strip_accents": False, "tokenize_chinese_chars": False}},
    ],
    ids=["uncased", "cased", "without accents", "with accents"],
)
def test_tokens_are_those_of_the_published_tokenizer(tmp_path, options):
    """A special token in a text is ordinary text: `split_special_tokens` of transformers."""
    folder, texts = tmp_path / "model", LINES[:50] + ODD_TEXTS
    write(folder, **options)
    published = transformers.BertTokenizer.from_pretrained(folder)
    settings = {"split_special_tokens": True, "truncation": True, "max_length": 64}
    expected = [published(text, **settings)["input_ids"] for text in texts]
    assert max(map(len, expected)) == 64
    assert zoo.load(folder).encode(texts, "truncate") == expected
    (folder / "vocab.txt").unlink()
    published.save_pretrained(folder)  # tokenizer.json
    assert zoo.load(folder).encode(texts, "truncate") == expected


@pytest.mark.parametrize(
    "options",
    [
        {"num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 307, "num_labels": 2},
        {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3, "type_vocab_size": 3},
        {"saving": {"max_shard_size": "20KB"}},
    ],
    ids=["other sizes", "other options", "several files"],
)
def test_other_folders(tmp_path, options):
    model = write(tmp_path / "model", **options)
    classifier = zoo.load(tmp_path / "model")
    rows = classifier.encode(LINES[:8], "truncate")
    expected = expected_logits(model, rows)
    assert np.abs(expected - found_logits(classifier, rows)).max() < 1e-4


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "BertModel"},
        {"kind": "BertModel", "making": {"add_pooling_layer": False}},
        {"kind": "BertForMaskedLM"},
        {"kind": "BertForPreTraining"},
        {"kind": "BertForTokenClassification"},
        {"kind": "BertForQuestionAnswering"},
    ],
    ids=lambda options: options["kind"],
)
def test_other_heads(tmp_path, options):
    model = write(tmp_path / "model", **options)
    with pytest.raises(zoo.checkpoints.CheckpointError, match="Pass num_classes"):
        zoo.load(tmp_path / "model")
    classifier = zoo.load(tmp_path / "model", num_classes=3)
    encoder = getattr(model, "bert", model)
    rows = classifier.encode(LINES[:2])
    for row in rows:
        with torch.no_grad():
            expected = encoder(torch.tensor([row]))
        tokens = np.array([row], np.int32)
        states = expected.last_hidden_state.numpy()
        np.testing.assert_allclose(classifier.model.features(tokens), states, atol=1e-4)
        pooled = states[:, 0] if encoder.pooler is None else expected.pooler_output.numpy()
        np.testing.assert_allclose(classifier.model.pooled_features(tokens), pooled, atol=1e-4)


def test_old_files(folder, classifier, tmp_path):
    """Pickled, with gamma and beta, and the numbers of the positions."""
    copy = tmp_path / "model"
    shutil.copytree(folder[0], copy)
    (copy / "model.safetensors").unlink()
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in folder[1].state_dict().items()
    }
    tensors["bert.embeddings.position_ids"] = torch.arange(64)[None]
    torch.save(tensors, copy / "pytorch_model.bin")
    texts = LINES[:4]
    assert np.array_equal(zoo.load(copy).probabilities(texts), classifier.probabilities(texts))
