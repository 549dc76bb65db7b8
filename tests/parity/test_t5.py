"""T5, Flan-T5, mT5, MADLAD-400 and ByT5 beside the library transformers.

Tolerance of logits: 1e-3 of their largest value, for float32 operations in another order. T5's
scores are not scaled: with weights as large as here, softmaxes are steep and rounding grows.
"""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

import zoo  # noqa: E402
from tests.checkpoints.translation_folders import T5_KINDS, write_t5  # noqa: E402
from zoo.data.phrasebook import phrasebook_pairs  # noqa: E402

torch.set_num_threads(1)

SOURCES = [
    *(source for source, _ in phrasebook_pairs(58)),
    "hello",
    "naïve café \U0001f600 你好",
    "translate English to German: The house is wonderful.",
    "  two   spaces ",
    "The <extra_id_0> sleeps in <extra_id_1> house.",
    " ".join(source for source, _ in phrasebook_pairs(12)),
]
LENGTH = 12


# Other kinds have the same parts.
SLOW = ("mt5", "silu")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(kind, marks=pytest.mark.slow) if kind in SLOW else kind for kind in T5_KINDS
    ],
)
def case(request, tmp_path_factory):
    """(model of transformers, generator)."""
    folder = tmp_path_factory.mktemp(request.param)
    write_t5(folder, request.param)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return model, zoo.load(folder)


def encoded(generator):
    special = generator.special_tokens
    rows = [[*row, special.end] for row in generator.source_tokenizer.encode(SOURCES)]
    width = max(map(len, rows))
    source = torch.tensor([row + [special.pad] * (width - len(row)) for row in rows])
    return {"input_ids": source, "attention_mask": (source != special.pad).long()}


def test_logits(case):
    model, generator = case
    inputs = encoded(generator)
    size = generator.model.target_vocab_size
    target = np.random.default_rng(0).integers(3, size, (len(SOURCES), 40))
    target[:, 0] = generator.special_tokens.start
    with torch.no_grad():
        expected = model(**inputs, decoder_input_ids=torch.tensor(target)).logits.numpy()
    found = generator.model({"source": inputs["input_ids"].numpy(), "target": target}).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("beam_size", [1, 4])
def test_outputs(case, beam_size):
    model, generator = case
    pad = generator.special_tokens.pad
    outputs = model.generate(
        **encoded(generator),
        num_beams=beam_size,
        max_length=LENGTH + 1,
        bad_words_ids=[[pad]],
    )
    control = (*generator.special_tokens[:3],)
    expected = [[id for id in row if id not in control] for row in outputs.tolist()]
    found = generator(SOURCES, beam_size=beam_size, max_length=LENGTH)
    assert found == generator.target_tokenizer.decode(expected)


def test_tokens(tmp_path):
    write_t5(tmp_path)
    theirs = transformers.T5Tokenizer.from_pretrained(tmp_path)
    texts = [*SOURCES, "", "tab\tnew\nline", "x" * 300]
    expected = [theirs(text).input_ids[:-1] for text in texts]
    assert zoo.load(tmp_path).source_tokenizer.encode(texts) == expected
    (tmp_path / "spiece.model").unlink()
    theirs.save_pretrained(tmp_path)  # tokenizer.json, with which sentinels are no text
    found = zoo.load(tmp_path).source_tokenizer.encode(texts)
    for text, ids, other in zip(texts, found, expected):
        assert ids == other or "extra_id" in text


def test_tokens_of_bytes(tmp_path):
    write_t5(tmp_path, "byt5")
    theirs = transformers.ByT5Tokenizer()
    texts = [text for text in SOURCES if "extra_id" not in text]  # here, sentinels are no text
    ours = zoo.load(tmp_path).source_tokenizer
    assert ours.encode(texts) == [theirs(text).input_ids[:-1] for text in texts]
