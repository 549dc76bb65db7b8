"""Published translation models: what is loaded, what is exported, and what is refused.

tests/parity compares logits, tokens and translations with the library transformers.
"""

import json
import shutil
import warnings

import numpy as np
import pytest

import zoo
from tests.checkpoints.test_save_translators import check_same
from tests.checkpoints.translation_folders import (
    spm,
    write_bart,
    write_json,
    write_m2m100,
    write_marian,
    write_mbart50,
    write_pegasus,
    write_t5,
)
from zoo.__main__ import main
from zoo.checkpoints import CheckpointError, generation_config, languages

CASES = {
    "marian": (write_marian, {}),
    "m2m100": (write_m2m100, {"src_lang": "en", "tgt_lang": "es"}),
    "mbart50": (write_mbart50, {"src_lang": "en_XX", "tgt_lang": "es_XX"}),
    "bart": (write_bart, {}),
    "pegasus": (write_pegasus, {}),
}
ALL = {**CASES, "t5": (write_t5, {})}


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """(tensors, translator)."""
    write, options = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    return write(folder), zoo.load(folder, **options)


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    """The folder of a model of Marian."""
    folder = tmp_path_factory.mktemp("marian")
    write_marian(folder)
    return folder


def test_every_tensor_has_its_place(case):
    tensors, translator = case
    found = {
        variable.path.split("/", 1)[1]: variable.numpy() for variable in translator.model.weights
    }
    name = "model.decoder.layers.1"
    path = "decoder_1"
    qkv = [tensors[f"{name}.self_attn.{letter}_proj.weight"].T for letter in "qkv"]
    np.testing.assert_array_equal(found[f"{path}/self_attention/qkv/kernel"], np.hstack(qkv))
    key_value = [tensors[f"{name}.encoder_attn.{letter}_proj.bias"] for letter in "kv"]
    np.testing.assert_array_equal(
        found[f"{path}/cross_attention/key_value/bias"], np.concatenate(key_value)
    )
    np.testing.assert_array_equal(
        found["decoder_embedding/tokens/embeddings"], tensors["model.shared.weight"]
    )
    if "model.decoder.embed_positions.weight" in tensors:
        positions = tensors["model.decoder.embed_positions.weight"][2:]
        np.testing.assert_array_equal(found["decoder_embedding/positions/embeddings"], positions)
    assert sum(map(np.size, found.values())) == sum(
        tensor.size - (2 * tensor.shape[1] if name.endswith("embed_positions.weight") else 0)
        for name, tensor in tensors.items()
    )


def test_saved_and_loaded(case, tmp_path):
    _, translator = case
    translator.save(tmp_path)
    check_same(zoo.load(tmp_path), translator)


def test_language_prefixes(marian):
    plain = zoo.load(marian)
    spanish = zoo.load(marian, tgt_lang="es")
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


def test_a_model_of_one_language_pair(marian, tmp_path):
    shutil.copytree(marian, tmp_path, dirs_exist_ok=True)
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


@pytest.mark.parametrize(
    "key, value",
    [("eos_token", {"content": "a"}), ("unk_token", "a"), ("sp_model_kwargs", {"alpha": 0.1})],
)
@pytest.mark.parametrize("name", ["marian", "m2m100", "pegasus"])
def test_other_settings_of_tokenizers_are_refused(name, key, value, tmp_path):
    write, options = CASES[name]
    write(tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {key: value})
    with pytest.raises(CheckpointError, match=f"tokenizer_config.json: {key}="):
        zoo.load(tmp_path, **options)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "added_tokens.json"])
@pytest.mark.parametrize("name", ALL)
def test_added_tokens_that_are_text_are_refused(name, file, tmp_path):
    """Such as "{" of a fine-tuned T5, which would be read as unknown; pieces are no problem."""
    write, options = ALL[name]
    write(tmp_path)
    tokens = {"</s>": 2, "<x>": 400}
    if file == "tokenizer_config.json":
        tokens = {str(id): {"content": token, "special": False} for token, id in tokens.items()}
        tokens = {"added_tokens_decoder": tokens}
        tokens["added_tokens_decoder"]["2"]["special"] = True
        tokens["eos_token"] = "</s>"
    else:
        write_json(tmp_path / "special_tokens_map.json", {"eos_token": "</s>"})
    write_json(tmp_path / file, tokens)
    with pytest.raises(CheckpointError, match="the added token '<x>' is text"):
        zoo.load(tmp_path, **options)


@pytest.mark.parametrize("name", ALL)
def test_control_tokens_are_those_of_the_tokenizer(name, tmp_path):
    """Texts and outputs end with the same token, and no text contains the padding."""
    write, options = ALL[name]
    write(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    write_json(path, {**config, "eos_token_id": 4})
    with pytest.raises(
        CheckpointError, match="eos_token_id in config.json is 4, but the tokenizer"
    ):
        zoo.load(tmp_path, **options)
    write_json(path, {**config, "pad_token_id": 120})
    with pytest.raises(CheckpointError, match="pad_token_id in config.json, 120, is text"):
        zoo.load(tmp_path, **options)


@pytest.mark.parametrize("name", ALL)
def test_special_tokens_without_an_id_are_named(name, tmp_path):
    write, options = ALL[name]
    write(tmp_path)
    known = {"eos_token": {"content": "</s>"}, "unk_token": "<unk>", "sp_model_kwargs": {}}
    known["additional_special_tokens"] = ["<unk>", {"content": "</s>"}]
    write_json(tmp_path / "special_tokens_map.json", known)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        zoo.load(tmp_path, **options)
    write_json(tmp_path / "tokenizer_config.json", {"extra_special_tokens": {"name": "<x>"}})
    with pytest.warns(UserWarning, match=r"extra_special_tokens that are not .* \['<x>'\]"):
        zoo.load(tmp_path, **options)


TWICE = 2 * spm(["the cat", "a dog"], "char")  # is a protocol buffer as well
FILES = ("source.spm", "target.spm", "vocab.json")


@pytest.mark.parametrize(
    "name, content, message",
    [
        *((name, None, f"contains no {name}") for name in FILES),
        *((name, TWICE, f"{name}: The SentencePiece model is not") for name in FILES[:2]),
        ("source.spm", b"\xff\xff no model", "source.spm: It is not a SentencePiece model"),
        ("vocab.json", '{">>fr<<": 7, ">>es<<": 7}', "source.spm: .* have the same id"),
        ("config.json", '{"model_type": "marian"}', "there is no 'vocab_size'"),
        ("generation_config.json", '{"no_repeat_ngram_size": -1}', "/model"),
        ("generation_config.json", '{"repetition_penalty": "x"}', "/model"),
        ("generation_config.json", '{"bad_words_ids": [[1000000]]}', "/model"),
    ],
)
def test_files_that_cannot_be_used(name, content, message, marian, tmp_path):
    folder = shutil.copytree(marian, tmp_path / "model")
    if content is None:
        (folder / name).unlink()
    elif name == "vocab.json":  # is added to
        vocab = {**json.loads((folder / name).read_text()), **json.loads(content)}
        write_json(folder / name, vocab)
    else:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CheckpointError, match=message):
        zoo.load(folder)


def test_earlier_mbart_models_are_refused(tmp_path):
    write_mbart50(tmp_path, vocab_size=140)
    with pytest.raises(CheckpointError, match="Earlier mBART models are not supported"):
        zoo.load(tmp_path, src_lang="en_XX", tgt_lang="ro_RO")


@pytest.mark.parametrize("name", [*generation_config._NEUTRAL])
def test_each_setting_of_the_search_is_applied_or_named(tmp_path, name):
    write_marian(tmp_path)
    path = tmp_path / "generation_config.json"
    path.write_text("{}")
    default = zoo.load(tmp_path).description()
    values = {"suppress_tokens": [9], "bad_words_ids": [[7]], "forced_eos_token_id": 0}
    values |= dict.fromkeys(("early_stopping", "renormalize_logits"), True)
    path.write_text(json.dumps({name: values.get(name, 3)}))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        changed = zoo.load(tmp_path).description()
    assert changed != default or f"{name}=" in str(warned[0].message)


def test_the_settings_of_the_search(tmp_path):
    """`generation_config.json` is used; ignored settings that affect texts are named."""
    write_marian(tmp_path)
    obeyed = {"num_beams": 2, "length_penalty": 0.7, "max_length": 9, "no_repeat_ngram_size": 2}
    obeyed |= {"min_length": 3, "min_new_tokens": 4, "repetition_penalty": 1.5}
    obeyed |= {"suppress_tokens": [9, 8], "forced_eos_token_id": 0, "renormalize_logits": True}
    neutral = {"do_sample": False, "top_k": 50, "temperature": 1.0, "typical_p": 1, "new": None}
    neutral |= {"use_cache": True, "transformers_version": "4", "bos_token_id": 0}
    words = {"bad_words_ids": [[7], [0], [5, 6]]}
    ignored = {"num_beam_groups": 2, "do_sample": True, "temperature": 0.5, "new": 3}
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({**neutral, **obeyed}))
    with warnings.catch_warnings(action="error"):
        translator = zoo.load(tmp_path)
    options = {"no_repeat_ngram_size": 2, "min_new_tokens": 4, "repetition_penalty": 1.5}
    options |= {"suppress_tokens": [9, 8], "forced_eos": True, "renormalize_logits": True}
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
