"""`zoo.save_hf` of translators: what is written, and what is refused.

tests/parity compares the folders with the library transformers.
"""

import dataclasses
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import zoo
from tests.checkpoints.translation_folders import (
    write_bart,
    write_m2m100,
    write_marian,
    write_t5,
)
from zoo.checkpoints import CheckpointError
from zoo.tasks.translator import Translator
from zoo.text.sentencepiece import train_tokenizer


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """(tensors, folder, translator)."""
    folder = tmp_path_factory.mktemp("marian")
    return write_marian(folder, attention_dropout=0.25), folder, zoo.load(folder)


def check_same(found, expected, **written):
    """Weights to the last bit, settings, but for those `written`, and tokenizers."""
    assert found.description() == expected.description()
    assert found.source_tokenizer == expected.source_tokenizer
    assert found.target_tokenizer == expected.target_tokenizer
    settings, others = (translator.model.get_config() for translator in (found, expected))
    assert {**settings, "positions": None} == {**others, "positions": None, **written}
    for one, other in zip(found.model.weights, expected.model.weights, strict=True):
        assert one.path == other.path
        np.testing.assert_array_equal(one, other, err_msg=one.path)


def test_loaded_models_are_saved_unchanged(case, tmp_path):
    tensors, folder, translator = case
    zoo.save_hf(translator, tmp_path / "hf")
    found = load_file(tmp_path / "hf" / "model.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)
    for name in ("source.spm", "target.spm"):
        assert (tmp_path / "hf" / name).read_bytes() == (folder / name).read_bytes()
    for name in ("config.json", "vocab.json"):
        found, given = (json.loads((at / name).read_text()) for at in (tmp_path / "hf", folder))
        if name == "config.json":
            given["activation_function"] = "silu"  # another name of "swish"
            found |= json.loads((tmp_path / "hf" / "generation_config.json").read_text())
        assert {**found, **given} == found
    check_same(zoo.load(tmp_path / "hf"), translator)
    with pytest.raises(CheckpointError, match="hf is a file or not empty"):
        zoo.save_hf(translator, tmp_path / "hf")


def test_the_target_language_is_kept(case, tmp_path):
    translator = zoo.load(case[1], tgt_lang="es")
    zoo.save_hf(translator, tmp_path / "hf")
    check_same(zoo.load(tmp_path / "hf"), translator)
    french = zoo.load(tmp_path / "hf", tgt_lang="fr")
    assert french.source_tokenizer.prefix == (translator.source_tokenizer.vocab[">>fr<<"],)


def separate(published, shared):
    """A new translator whose target has more tokens than its source."""
    settings = {**published.model.get_config(), "shared": shared, "decoder_ff_dim": None}
    settings |= {"target_vocab_size": published.model.target_vocab_size + 3, "ff_dim": None}
    model = zoo.models.Transformer.from_config({**settings, "logits_bias": False})
    model.build()
    vocab = {**published.target_tokenizer.vocab, "another": model.target_vocab_size - 1}
    changed = {"vocab": vocab, "vocab_size": model.target_vocab_size}
    target = dataclasses.replace(published.target_tokenizer, **changed)
    options = {
        name: getattr(published, name) for name in ("special_tokens", *published.saved_arguments)
    }
    options |= {"early_stopping": "never", "length_penalty": 0.5}
    return Translator(model, published.source_tokenizer, target, **options)


@pytest.mark.parametrize("shared", ["target", "none"])
def test_separate_embeddings_and_vocabularies(case, tmp_path, shared):
    translator = separate(case[2], shared)
    zoo.save_hf(translator, tmp_path / "hf")
    width = 4 * translator.model.embed_dim  # the default
    check_same(zoo.load(tmp_path / "hf"), translator, ff_dim=width, decoder_ff_dim=width)


def test_what_marian_does_not_have_is_named(tmp_path):
    (tmp_path / "m2m100").mkdir()
    write_m2m100(tmp_path / "m2m100")
    other = zoo.load(tmp_path / "m2m100", src_lang="en", tgt_lang="es")
    with pytest.raises(CheckpointError) as raised:
        zoo.save_hf(other, tmp_path / "hf")
    for what in ("norm='pre'", "'offset': 2", "special_tokens.prefix", "the source tokenizer"):
        assert what in str(raised.value)
    trained = train_tokenizer(["a b"])
    model = zoo.transformer(
        source_vocab_size=trained.vocab_size,
        target_vocab_size=trained.vocab_size,
        embed_dim=8,
        num_heads=2,
        num_layers=1,
        activation="swiglu",
        positions="rotary",
        epsilon=1e-5,
        norm_type="rms",
    )
    with pytest.raises(CheckpointError) as raised:
        zoo.save_hf(Translator(model, trained, trained), tmp_path / "hf")
    assert str(raised.value) == (
        "transformers' Marian has no counterpart of norm_type='rms', activation='swiglu', "
        "positions='rotary', "
        "length_offset=5.0, the source tokenizer, the target tokenizer."
    )
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize("write, kind", [(write_bart, ()), (write_t5, ("byt5",))])
def test_models_with_a_tokenizer_of_another_library(write, kind, tmp_path):
    write(tmp_path, *kind)
    with pytest.raises(CheckpointError, match="no counterpart of .*, the source tokenizer, the ta"):
        zoo.save_hf(zoo.load(tmp_path), tmp_path / "hf")


def test_a_prefix_that_is_not_a_language(case, tmp_path):
    published = case[2]
    tokenizers = published.source_tokenizer.with_prefix(5), published.target_tokenizer
    options = {
        name: getattr(published, name) for name in ("special_tokens", *published.saved_arguments)
    }
    with pytest.raises(CheckpointError, match="the prefix .* of the source tokenizer"):
        zoo.save_hf(Translator(published.model, *tokenizers, **options), tmp_path / "hf")
