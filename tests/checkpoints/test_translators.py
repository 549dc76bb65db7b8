"""Published translation models: what is loaded, what is exported, and what is refused.

tests/parity compares logits, tokens and translations with the library transformers.
"""

import json
import warnings

import numpy as np
import pytest
import tensorflow as tf

import zoo
from tests.checkpoints.test_save_translators import check_same
from tests.checkpoints.translation_folders import (
    spm,
    write_json,
    write_m2m100,
    write_marian,
    write_mbart50,
)
from zoo.__main__ import main
from zoo.checkpoints import CheckpointError, languages

CASES = {
    "marian": (write_marian, {}),
    "m2m100": (write_m2m100, {"src_lang": "en", "tgt_lang": "es"}),
    "mbart50": (write_mbart50, {"src_lang": "en_XX", "tgt_lang": "es_XX"}),
}


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """(tensors, translator)."""
    write, options = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    return write(folder), zoo.load(folder, **options)


def test_every_tensor_has_its_place(case):
    tensors, translator = case
    found = {
        variable.path.split("/", 1)[1]: variable.numpy() for variable in translator.model.weights
    }
    name, path = "model.decoder.layers.1", "decoder_1"
    qkv = [tensors[f"{name}.self_attn.{letter}_proj.weight"].T for letter in "qkv"]
    np.testing.assert_array_equal(found[f"{path}/self_attention/qkv/kernel"], np.hstack(qkv))
    key_value = [tensors[f"{name}.encoder_attn.{letter}_proj.bias"] for letter in "kv"]
    np.testing.assert_array_equal(
        found[f"{path}/cross_attention/key_value/bias"], np.concatenate(key_value)
    )
    np.testing.assert_array_equal(
        found["target_embedding/embeddings"], tensors["model.shared.weight"]
    )
    if "model.decoder.embed_positions.weight" in tensors:
        positions = tensors["model.decoder.embed_positions.weight"][2:]
        np.testing.assert_array_equal(found["target_positions/embeddings"], positions)
    assert sum(map(np.size, found.values())) == sum(
        tensor.size - (2 * tensor.shape[1] if name.endswith("embed_positions.weight") else 0)
        for name, tensor in tensors.items()
    )


def test_saved_and_loaded(case, tmp_path):
    _, translator = case
    translator.save(tmp_path)
    check_same(zoo.load(tmp_path), translator)


@pytest.mark.slow
def test_the_saved_model_aligns_pairs_alike(case, tmp_path):
    """The export itself compares translations."""
    _, translator = case
    model = tf.saved_model.load(zoo.export(translator, tmp_path / "1"))
    text, translation = "a dog \U0001f600", "un perro"
    pair = {"texts": tf.constant([text]), "translations": tf.constant([translation])}
    [weights] = model.signatures["attention"](**pair)["attention"]
    expected = translator.alignment(text, translation).weights
    np.testing.assert_allclose(weights, expected, atol=1e-4)


def test_language_prefixes(tmp_path):
    write_marian(tmp_path)
    plain, spanish = zoo.load(tmp_path), zoo.load(tmp_path, tgt_lang="es")
    vocab = plain.source_tokenizer.vocab
    [ids] = plain.source_tokenizer.encode([">>es<< the cat"])
    assert ids[0] == vocab[">>es<<"] and [ids] == spanish.source_tokenizer.encode([" the cat"])
    text = "the cat.\n the dog? the cat"
    assert plain([f">>es<< {text}"]) == spanish([text])


def test_languages_have_the_published_ids():
    """Of facebook/m2m100_418M, facebook/nllb-200-distilled-600M and mbart-large-50."""
    assert 128004 + languages.M2M100.index("fr") == 128028
    assert 256001 + languages.NLLB.index("eng_Latn") == 256047
    assert 256001 + languages.NLLB.index("fra_Latn") == 256057
    assert 250001 + languages.MBART50.index("en_XX") == 250004
    assert 250001 + languages.MBART50.index("ro_RO") == 250020
    known = (languages.M2M100, languages.NLLB, languages.MBART50)
    assert [len({*codes}) for codes in known] == [100, 202, 52]


def test_the_command_line_takes_languages(tmp_path, capsys):
    write_m2m100(tmp_path)
    codes = ["--src-lang", "en", "--tgt-lang", "es"]
    assert main(["translate", str(tmp_path), "the cat", *codes]) == 0
    [expected] = zoo.load(tmp_path, src_lang="en", tgt_lang="es")(["the cat"])
    assert capsys.readouterr().out == expected + "\n"
    assert main(["info", str(tmp_path), *codes]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["model_type"] == "m2m_100"
    assert main(["info", str(tmp_path)]) == 2
    assert "needs the language src_lang (--src-lang), one of af" in capsys.readouterr().err


def test_a_model_of_one_language_pair(tmp_path):
    write_marian(tmp_path)
    vocab = json.loads((tmp_path / "vocab.json").read_text())
    write_json(tmp_path / "vocab.json", {t.replace(">>", "__"): id for t, id in vocab.items()})
    with pytest.raises(CheckpointError, match="has one language pair. Received: tgt_lang='es'"):
        zoo.load(tmp_path, tgt_lang="es")


@pytest.mark.parametrize(
    "write, options, message",
    [
        (write_marian, {"tgt_lang": "de"}, "one of es, fr. Received: tgt_lang='de'"),
        (write_marian, {"src_lang": "en"}, "src_lang=.en. .*not an option of this model"),
        (write_m2m100, {}, "src_lang .--src-lang., one of af, am,.*Received: no src_lang"),
        (write_m2m100, {"src_lang": "en", "tgt_lang": "spa"}, "Received: tgt_lang='spa'"),
        (write_mbart50, {"src_lang": "en_XX", "tgt_lang": "es_XX", "beam": 2}, "beam=2 .*Unrec"),
    ],
)
def test_bad_options(tmp_path, write, options, message):
    write(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        zoo.load(tmp_path, **options)


def test_a_language_code_after_the_text_is_refused(tmp_path):
    """As in the first release of NLLB's tokenizer, on request."""
    write_mbart50(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    saved = json.loads(path.read_text()) if path.is_file() else {}
    write_json(path, {**saved, "legacy_behaviour": True})
    with pytest.raises(CheckpointError, match="tokenizer_config.json: legacy_behaviour=True"):
        zoo.load(tmp_path, src_lang="en_XX", tgt_lang="es_XX")


@pytest.mark.parametrize("name", ["source.spm", "target.spm", "vocab.json"])
def test_missing_files(tmp_path, name):
    write_marian(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(CheckpointError, match=f"contains no {name}"):
        zoo.load(tmp_path)


def test_a_damaged_sentencepiece_model(tmp_path):
    write_marian(tmp_path)
    (tmp_path / "source.spm").write_bytes(b"\xff\xff no model")
    with pytest.raises(CheckpointError, match="source.spm: It is not a SentencePiece model"):
        zoo.load(tmp_path)
    written = spm(["the cat", "a dog"], "char")
    for side in ("source", "target"):
        write_marian(tmp_path)
        (tmp_path / f"{side}.spm").write_bytes(written * 2)  # is a protocol buffer as well
        with pytest.raises(CheckpointError, match=f"{side}.spm: The SentencePiece model is not"):
            zoo.load(tmp_path)


def test_two_tokens_with_one_id(tmp_path):
    write_marian(tmp_path)
    vocab = json.loads((tmp_path / "vocab.json").read_text())
    write_json(tmp_path / "vocab.json", {**vocab, ">>fr<<": vocab[">>es<<"]})
    with pytest.raises(CheckpointError, match="source.spm: .* '>>fr<<' have the same id"):
        zoo.load(tmp_path)


def test_an_incomplete_configuration(tmp_path):
    write_marian(tmp_path)
    write_json(tmp_path / "config.json", {"model_type": "marian"})
    with pytest.raises(CheckpointError, match="there is no 'vocab_size'"):
        zoo.load(tmp_path)


def test_earlier_mbart_models_are_refused(tmp_path):
    write_mbart50(tmp_path, vocab_size=140)
    with pytest.raises(CheckpointError, match="Earlier mBART models are not supported"):
        zoo.load(tmp_path, src_lang="en_XX", tgt_lang="ro_RO")


def test_the_settings_of_the_search(tmp_path):
    """`generation_config.json` is used; ignored settings that affect texts are named."""
    write_marian(tmp_path)
    obeyed = {"num_beams": 2, "length_penalty": 0.7, "max_length": 9, "no_repeat_ngram_size": 2}
    obeyed |= {"min_length": 3, "min_new_tokens": 4, "repetition_penalty": 1.5}
    obeyed |= {"suppress_tokens": [9, 8], "forced_eos_token_id": 0}
    neutral = {"do_sample": False, "top_k": 50, "temperature": 1.0, "typical_p": 1, "new": None}
    neutral |= {"use_cache": True, "transformers_version": "4", "bos_token_id": 0}
    words = {"bad_words_ids": [[7], [0], [5, 6]]}
    ignored = {"num_beam_groups": 2, "do_sample": True, "temperature": 0.5, "new": 3}
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({**neutral, **obeyed}))
    with warnings.catch_warnings(action="error"):
        translator = zoo.load(tmp_path)
    options = {"no_repeat_ngram_size": 2, "min_new_tokens": 4, "repetition_penalty": 1.5}
    options |= {"suppress_tokens": [9, 8], "forced_eos": True}
    assert translator.search_options == options
    assert (translator.beam_size, translator.length_penalty, translator.max_length) == (2, 0.7, 8)
    path.write_text(json.dumps({**neutral, **obeyed, **words, **ignored}))
    with pytest.warns(UserWarning) as warned:
        translator = zoo.load(tmp_path)
    [message] = [str(one.message) for one in warned]
    assert message.endswith(
        "ignored: bad_words_ids=[[7], [0], [5, 6]], do_sample=True, new=3, num_beam_groups=2, "
        "temperature=0.5."
    )
    assert translator.search_options == {**options, "suppress_tokens": [7, 8, 9]}
    translator.save(tmp_path / "run")
    assert zoo.load(tmp_path / "run").description() == translator.description()
    zoo.save_hf(translator, tmp_path / "hf")
    assert zoo.load(tmp_path / "hf").options() == translator.options()


@pytest.mark.parametrize(
    "wrong",
    [{"no_repeat_ngram_size": -1}, {"repetition_penalty": "x"}, {"bad_words_ids": [[10**6]]}],
)
def test_settings_of_the_search_that_are_wrong(tmp_path, wrong):
    write_marian(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps(wrong))
    with pytest.raises(CheckpointError, match=tmp_path.name):
        zoo.load(tmp_path)
