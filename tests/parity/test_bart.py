"""BART and PEGASUS beside the library transformers.

Tolerance of logits: 1e-3, as transformers' own in float32 differ by up to 3e-4 from those in
float64 for these large weights. Tokens of searches are the same: scores of competing hypotheses
differ by far more than float32 rounds.
"""

import json

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

import zoo  # noqa: E402
from tests.checkpoints import text_folders  # noqa: E402
from tests.checkpoints.translation_folders import LENGTH, write_bart, write_pegasus  # noqa: E402
from tests.parity.test_translators import ODD_TEXTS, assert_same_loss, padded, strip  # noqa: E402
from zoo.data.phrasebook import phrasebook_pairs  # noqa: E402

torch.set_num_threads(1)

WRITE = {"bart": write_bart, "pegasus": write_pegasus}
LINES = [line for pair in phrasebook_pairs(24) for line in pair]
TEXTS = [*LINES, *text_folders.ODD_TEXTS, *ODD_TEXTS]
SOURCES = [text for text in TEXTS if text.strip()] + ["a", "cat", "the cat " * 6, "x" * 50]


def written(name, folder, **changed):
    """Writes a folder whose summaries differ, and end at several lengths; returns the tensors."""
    tensors = WRITE[name](folder, **changed)
    for key in tensors:
        if key.endswith(("norm.weight", "layernorm_embedding.weight")):
            tensors[key] += 2.0
    tensors["final_logits_bias"][0, 2 if name == "bart" else 1] += 9.0 if name == "bart" else 7.0
    save_file(tensors, folder / "model.safetensors")
    return tensors


@pytest.fixture(scope="module", params=WRITE)
def case(request, tmp_path_factory):
    """(folder, model of transformers, its tokenizer, what `zoo.load` returns)."""
    folder = tmp_path_factory.mktemp(request.param)
    written(request.param, folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return folder, model, tokenizer, zoo.load(folder)


def difference(model, generator):
    """The largest difference of logits for drawn tokens, one source padded; and their size."""
    special = generator.special_tokens
    size = model.config.vocab_size
    random = np.random.default_rng(0)
    source = random.integers(3, size, (3, 40))
    source[1, 25:] = special.pad
    target = random.integers(3, size, (3, 30))
    target[:, 0] = special.start
    with torch.no_grad():
        expected = model(
            input_ids=torch.tensor(source),
            attention_mask=torch.tensor(source != special.pad).long(),
            decoder_input_ids=torch.tensor(target),
        ).logits.numpy()
    found = np.asarray(generator.model({"source": source, "target": target}))
    return np.abs(found - expected).max(), np.abs(expected).max()


SMALL = {"d_model": 48, "encoder_layers": 3, "decoder_layers": 2, "encoder_ffn_dim": 80}
SMALL |= {"decoder_ffn_dim": 72, "encoder_attention_heads": 4, "decoder_attention_heads": 6}
SMALL |= {"max_position_embeddings": 40, "init_std": 0.4}
CONFIGS = {
    "bart": ("bart", {}),
    "bart, with <mask>": ("bart", {"vocab_size": 402}),
    "bart, scaled": ("bart", {"scale_embedding": True, "activation_function": "relu"}),
    "bart, unused ids": ("bart", {"vocab_size": 417, "encoder_layers": 1, "decoder_layers": 4}),
    "bart, untied": ("bart", {"tie_word_embeddings": False}),
    "bart, no head": ("bart", {}),
    "bart, half": ("bart", {}),
    "pegasus": ("pegasus", {}),
    "pegasus, not scaled": ("pegasus", {"scale_embedding": False, "activation_function": "gelu"}),
    "pegasus, untied": ("pegasus", {"tie_word_embeddings": False, "encoder_layers": 1}),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_of_other_configs(name, tmp_path):
    """Large weights, written by transformers; without a head, as in the folder of bart-base."""
    kind, changed = CONFIGS[name]
    WRITE[kind](tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "model.safetensors").unlink()
    config = transformers.AutoConfig.for_model(**{**config, **SMALL, **changed})
    torch.manual_seed(0)
    model = transformers.AutoModelForSeq2SeqLM.from_config(config).eval()
    model.final_logits_bias.normal_(0, 3.0)
    for value in model.state_dict().values():
        if value.ndim == 1:  # biases and norms
            value.add_(0.3 * torch.randn(value.shape))
    saved = model
    if name == "bart, no head":
        model.final_logits_bias.zero_()
        saved = model.model
    if name == "bart, half":
        saved = model.bfloat16()
    saved.save_pretrained(tmp_path, max_shard_size="50KB")
    model = model.float()
    found, size = difference(model, zoo.load(tmp_path))
    assert found < 1e-3 < 5 < size


def test_tokens(case):
    """A special token in a text is ordinary text: `split_special_tokens` of transformers."""
    folder, _, tokenizer, generator = case
    texts = [*text_folders.ODD_TEXTS[:-4], *ODD_TEXTS, "a<n>b <n> c.<n> d"]
    if generator.target_tokenizer.kind == "sentencepiece":
        texts = [text.strip() for text in texts]  # as transformers 5 does not
    expected = [tokenizer(text, split_special_tokens=True)["input_ids"] for text in texts]
    end = generator.special_tokens.end
    assert [[*row, end] for row in generator.source_tokenizer.encode(texts)] == expected
    ids = np.random.default_rng(0).integers(0, len(tokenizer) - 1, (50, 8))
    published = tokenizer.batch_decode(
        ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    found = generator.target_tokenizer.decode(ids)
    assert [text.strip() for text in found] == [text.strip() for text in published]


def test_tokens_of_tokenizer_json(case, tmp_path):
    """As transformers 5 writes it for BART."""
    folder, _, tokenizer, generator = case
    if generator.target_tokenizer.kind == "sentencepiece":
        pytest.skip("PEGASUS is read from spiece.model")
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    tokenizer.save_pretrained(tmp_path)
    found = zoo.load(tmp_path).source_tokenizer
    assert found.encode(TEXTS) == generator.source_tokenizer.encode(TEXTS)


SEARCHES = {
    "of the folder": {},
    "4 beams": {"num_beams": 4, "length_penalty": 1.0, "max_length": 17},
    "greedy": {"num_beams": 1},
    "long": {"min_length": 20, "max_length": 41, "no_repeat_ngram_size": 2},
}


def sources_of(generator):
    """64 texts, one of them of as many tokens as the model takes."""
    end = generator.special_tokens.end
    longest = LINES[0]
    while len(generator.source_tokenizer.encode([longest + " a"])[0]) < LENGTH:
        longest += " a"
    rows = [[*row, end] for row in generator.source_tokenizer.encode([longest, *SOURCES])]
    pairs = [(text, row) for text, row in zip([longest, *SOURCES], rows) if len(row) <= LENGTH]
    return [*zip(*pairs[:64])]


@pytest.mark.parametrize("name", SEARCHES)
def test_summaries_are_those_of_generate(name, case):
    """Token by token; the padding token is never generated here."""
    _, model, _, generator = case
    special = generator.special_tokens
    texts, rows = sources_of(generator)
    assert len(texts) == 64 and max(map(len, rows)) == LENGTH
    source = padded(rows, special.pad)
    tokens = model.generate(
        input_ids=source,
        attention_mask=(source != special.pad).long(),
        bad_words_ids=[[special.pad]],
        **SEARCHES[name],
    )
    expected = [strip(row[1:].tolist(), special) for row in tokens]
    options = dict(SEARCHES[name])
    if "num_beams" in options:
        options["beam_size"] = options.pop("num_beams")
    if "max_length" in options:
        options["max_length"] -= 1  # transformers counts the start token
    arrays = []
    compute = generator.map_batches
    generator.map_batches = lambda *args: arrays.extend(compute(*args)) or arrays
    try:
        answers = generator(list(texts), **options)
    finally:
        del generator.map_batches
    assert [strip(tokens[0].tolist(), special) for tokens, *_ in arrays] == expected
    assert answers == generator.target_tokenizer.decode(expected)
    assert len({*map(len, expected)}) > 2 and len({*map(tuple, expected)}) > 12


def test_the_loss_of_training(case):
    _, model, _, generator = case
    texts = [*zip(LINES[:4], LINES[4:8]), ("the " * 12, "y"), ("x", "el " * 10)]
    assert_same_loss(model, generator, texts)


def test_old_files(tmp_path):
    """Sinusoids beside the weights, and the shared embedding under each of its names."""
    tensors = written("pegasus", tmp_path)
    expected = zoo.load(tmp_path)(["the cat"])
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    assert {*model.state_dict()} - {*tensors} > {"model.encoder.embed_positions.weight"}
    assert zoo.load(tmp_path)(["the cat"]) == expected
    for coder in (model.model.encoder, model.model.decoder):  # other positions are read, too
        coder.embed_positions.weight.data.mul_(3)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    found, size = difference(model.eval(), zoo.load(tmp_path))
    assert found < 1e-3 < 5 < size
