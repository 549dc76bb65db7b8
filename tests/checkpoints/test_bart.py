"""Folders of BART and PEGASUS: what is loaded, what is exported, and what is refused.

tests/parity compares logits, tokens and summaries with the library transformers.
"""

import json
import warnings

import numpy as np
import pytest
from safetensors.numpy import save_file

import zoo
from tests.checkpoints import drawn
from tests.checkpoints.test_tensors import GOLDENS
from tests.checkpoints.test_translators import TWICE
from tests.checkpoints.translation_folders import write_bart, write_json, write_pegasus
from tests.deploy.conftest import caller
from zoo.__main__ import main
from zoo.checkpoints import CheckpointError
from zoo.errors import ExportError, TaskError
from zoo.tasks.text_to_text import TextToTextGenerator

KINDS = json.loads((GOLDENS / "hugging_face_text_to_text.json").read_text())["kinds"]
WRITE = {"bart": write_bart, "pegasus": write_pegasus}
TEXTS = ["The cat. The dog?\nA line", "", "12", "¿Café? 你好 \U0001f600", "x"]


@pytest.mark.parametrize("kind", KINDS)
def test_outputs(kind, tmp_path):
    """Tolerance: 1e-4, as in tests/checkpoints/test_text_checkpoints.py."""
    golden = KINDS[kind]
    WRITE[golden["config"]["model_type"]](tmp_path)
    write_json(tmp_path / "config.json", golden["config"])
    save_file(drawn.tensors(golden["shapes"]), tmp_path / "model.safetensors")
    tokens = drawn.tokens(golden["config"]["vocab_size"])
    found = zoo.load(tmp_path).model({"source": tokens, "target": tokens})
    found = np.asarray(found)[..., : drawn.RECORDED]
    np.testing.assert_allclose(found, golden["outputs"], atol=1e-4)


@pytest.mark.parametrize("name", ["bart", pytest.param("pegasus", marks=pytest.mark.slow)])
def test_texts_are_read_as_a_whole(name, tmp_path):
    WRITE[name](tmp_path)
    with warnings.catch_warnings(action="error"):
        generator = zoo.load(tmp_path)
    assert type(generator) is TextToTextGenerator
    answers = generator(TEXTS)
    assert answers == [best.text for [best] in generator.n_best(TEXTS)]
    assert answers[1] == "" and answers[2] != "12"
    alignment = generator.alignment(TEXTS[0])
    assert alignment.source[-1] == "</s>"
    assert alignment.weights.shape == (len(alignment.target), len(alignment.source))


def test_the_beginning_of_a_long_text(tmp_path, capsys):
    """Its first tokens and the end token; by default on the command line, too."""
    write_bart(tmp_path)
    generator = zoo.load(tmp_path)
    long = "the cat sees a dog. " * 20
    with pytest.raises(TaskError, match="and the model takes 64 tokens. Shorten it, or pass too"):
        generator([long])
    [ids] = generator.source_tokenizer.encode([long])
    [beginning] = generator.target_tokenizer.decode([ids[:63]])
    [expected] = generator([beginning])
    assert generator(["x", long], too_long="truncate")[1] == expected
    assert main(["translate", str(tmp_path), long]) == 0
    assert capsys.readouterr().out == expected + "\n"


def test_the_search_of_the_folder(tmp_path):
    """That of bart-large-cnn; its summaries begin with <s>, of which nothing is seen."""
    write_bart(tmp_path)
    generator = zoo.load(tmp_path)
    assert generator.special_tokens == (2, 2, 1, (0,))
    assert generator.source_tokenizer.prefix == (0,)
    options = {"min_length": 9, "no_repeat_ngram_size": 3, "forced_eos": True}
    assert generator.search_options == options
    assert (generator.beam_size, generator.length_penalty) == (4, 2.0)
    assert (generator.max_length, generator.early_stopping) == (23, True)
    [[best]] = generator.n_best(["the cat"])
    assert len(generator.target_tokenizer.encode([best.text])[0]) >= 7
    assert "<s>" not in best.text


@pytest.mark.parametrize(
    "old, generation, prefix",
    [
        ({"force_bos_token_to_be_generated": True}, None, (0,)),
        ({"force_bos_token_to_be_generated": False}, None, ()),
        ({"force_bos_token_to_be_generated": True}, {}, ()),
        ({"forced_bos_token_id": 5}, None, (5,)),
        ({"forced_bos_token_id": 5}, {"forced_bos_token_id": 6}, (6,)),
    ],
)
def test_the_forced_first_token(old, generation, prefix, tmp_path):
    """It is in generation_config.json, or in config.json, where it had another name."""
    write_bart(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("forced_bos_token_id", "forced_eos_token_id"):
        del config[name]
    write_json(tmp_path / "config.json", config | old)
    if generation is not None:
        write_json(tmp_path / "generation_config.json", generation)
    generator = zoo.load(tmp_path)
    assert generator.special_tokens.prefix == prefix
    # the default of BartConfig, but not of a generation_config.json
    assert generator.options().forced_eos is (generation is None)


@pytest.mark.parametrize("name", WRITE)
def test_pieces_have_the_published_ids(name, tmp_path):
    WRITE[name](tmp_path)
    tokenizer = zoo.load(tmp_path).target_tokenizer
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    if name == "pegasus":
        first = ["<pad>", "</s>", "<mask_1>", "<mask_2>", "<unk_2>", "<unk_3>"]
        assert [tokenizer.tokens[id] for id in (104, 105)] == ["<unk_102>", "<unk>"]
        [ids] = tokenizer.encode(["a<n>b"])
        assert "<n>" in tokenizer.pieces(ids) and tokenizer.decode([ids]) == ["a<n>b"]
    assert [tokenizer.tokens[id] for id in range(len(first))] == first


@pytest.mark.parametrize(
    "name, architecture",
    [("bart", f"BartFor{head}") for head in ("SequenceClassification", "QuestionAnswering")]
    + [("pegasus", "PegasusForCausalLM")],
)
def test_models_with_other_heads_are_refused(name, architecture, tmp_path):
    """Such as bart-large-mnli."""
    WRITE[name](tmp_path, architectures=[architecture])
    with pytest.raises(CheckpointError, match=f"the model is a {architecture}. .* generate texts"):
        zoo.load(tmp_path)


@pytest.mark.parametrize(
    "name, config, message",
    [
        ("bart", {"activation_function": "mish"}, "the activation 'mish' is not supported"),
        ("bart", {"encoder_layers": 2}, "missing: model.encoder.layers.1.self_attn_layer_norm"),
        ("bart", {"tie_word_embeddings": False}, "missing: lm_head.weight"),
        ("bart", {"vocab_size": 390}, r"output_bias the shape \(401,\)"),
        ("pegasus", {"vocab_size": 480}, r"output_bias the shape \(503,\)"),
        ("pegasus", {"decoder_layers": 1}, "no place in the model: model.decoder.layers.1"),
        ("bart", {"model_type": "pegasus"}, "missing: model.encoder.layer_norm.weight"),
        ("pegasus", {"model_type": "bart"}, "missing: model.decoder.embed_positions.weight"),
    ],
)
def test_configs_that_do_not_fit(name, config, message, tmp_path):
    WRITE[name](tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    write_json(tmp_path / "config.json", content | config)
    with pytest.raises(CheckpointError, match=message):
        zoo.load(tmp_path)


@pytest.mark.parametrize("key, value", [("offset", 0), ("mask_token", "<x>")])
def test_other_tokenizers_of_pegasus_are_refused(key, value, tmp_path):
    write_pegasus(tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {key: value})
    with pytest.raises(CheckpointError, match=f"tokenizer_config.json: {key}={value!r} is not"):
        zoo.load(tmp_path)


@pytest.mark.parametrize("content", [None, b"", b"model", TWICE])
def test_a_broken_model_of_sentencepiece(content, tmp_path):
    write_pegasus(tmp_path)
    path = tmp_path / "spiece.model"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"spiece\.model"):
        zoo.load(tmp_path)


def test_names_without_a_prefix(tmp_path):
    """As in the folder of bart-base, whose file is that of a model without a head."""
    tensors = write_bart(tmp_path)
    expected = {weight.path: weight for weight in zoo.load(tmp_path).model.weights}
    del tensors["final_logits_bias"]
    named = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    save_file(named, tmp_path / "model.safetensors")
    found = zoo.load(tmp_path).model.weights
    assert len(found) == len(expected) - 1
    for weight in found:
        np.testing.assert_array_equal(weight, expected[weight.path], err_msg=weight.path)


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("int8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WRITE)
def test_other_dtypes(name, dtype, tmp_path):
    WRITE[name](tmp_path)
    targets = ["the dog", "", "x", "a", "the"]
    expected = zoo.load(tmp_path).score(TEXTS, targets)
    found = zoo.load(tmp_path, dtype=dtype).score(TEXTS, targets)
    np.testing.assert_allclose(found, expected, atol=0.5, rtol=0.05)


@pytest.mark.parametrize(
    "name",
    [pytest.param("bart", marks=pytest.mark.ci), pytest.param("pegasus", marks=pytest.mark.slow)],
)
def test_exported(name, tmp_path):
    """Texts in, the same summaries out."""
    (tmp_path / "model").mkdir()
    WRITE[name](tmp_path / "model")
    generator = zoo.load(tmp_path / "model")
    with pytest.raises(ExportError, match="TextToTextGenerator can be exported as saved_model."):
        zoo.export(generator, tmp_path / "other", format="ctranslate2")
    zoo.export(generator, tmp_path / "export", n_best=2)
    found = caller(tmp_path / "export")(texts=TEXTS)
    for texts, answers in zip(found["translations"], generator.n_best(TEXTS, n=2)):
        assert [text.decode() for text in texts[: len(answers)]] == [text for text, _ in answers]
