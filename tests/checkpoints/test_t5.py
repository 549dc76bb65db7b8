"""T5's kin: what is loaded, and what is refused; tests/parity compares with transformers."""

import json

import numpy as np
import pytest

import zoo
from tests.checkpoints.test_save_translators import check_same
from tests.checkpoints.translation_folders import T5_KINDS, write_json, write_t5
from zoo.checkpoints import CheckpointError
from zoo.tasks.text_to_text import TextToTextGenerator
from zoo.tasks.translator import Translator

TEXT = "The night is long. The cat sleeps."


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of each kind."""
    root = tmp_path_factory.mktemp("t5")
    for kind in T5_KINDS:
        (root / kind).mkdir()
        write_t5(root / kind, kind)
    return root


@pytest.mark.parametrize("kind", T5_KINDS)
def test_every_weight_is_used_and_nothing_is_added(folders, kind, tmp_path):
    generator = zoo.load(folders / kind)
    assert type(generator) is TextToTextGenerator
    tensors = write_t5(tmp_path, kind)
    assert generator.model.count_params() == sum(tensor.size for tensor in tensors.values())


def test_saved_and_loaded(folders, tmp_path):
    for kind in ("flan", "byt5"):
        generator = zoo.load(folders / kind)
        generator.save(tmp_path / kind)
        again = zoo.load(tmp_path / kind)
        assert type(again) is TextToTextGenerator
        check_same(again, generator)


def test_a_text_is_read_as_a_whole(folders):
    generator = zoo.load(folders / "t5")
    assert generator([TEXT]) == generator([TEXT], sentences=False)
    assert generator([TEXT]) != generator([TEXT], sentences=True)
    assert generator(["1 + 1"]) != ["1 + 1"]


def test_a_language_of_madlad(folders):
    plain = zoo.load(folders / "madlad")
    german = zoo.load(folders / "madlad", tgt_lang="de")
    assert type(german) is Translator
    texts = ["The night is long.", "naïve 你好"]
    tokens = german.source_tokenizer.encode(texts)
    assert plain.source_tokenizer.encode([f"<2de> {text}" for text in texts]) == tokens
    assert german.special_tokens.start == plain.special_tokens.start == 1
    with pytest.raises(CheckpointError, match="one of de, es"):
        zoo.load(folders / "madlad", tgt_lang="fr")
    with pytest.raises(CheckpointError, match="has no tokens of languages"):
        zoo.load(folders / "t5", tgt_lang="de")


def test_sentinels_are_tokens_of_texts_and_not_of_outputs(folders):
    tokenizer = zoo.load(folders / "t5").source_tokenizer
    [ids] = tokenizer.encode(["The <extra_id_0> sleeps <extra_id_99>."])
    last = len(tokenizer.vocab) - 1
    assert last in ids and last - 99 in ids
    assert tokenizer.decode([ids]) == ["The sleeps."]


def test_bytes(folders):
    tokenizer = zoo.load(folders / "byt5").source_tokenizer
    text = "naïve\t你好 \U0001f600"
    assert tokenizer.encode([text]) == [[byte + 3 for byte in text.encode()]]
    assert tokenizer.decode(tokenizer.encode([text])) == [text]


@pytest.mark.parametrize("dtype", ["float16", "mixed_float16"])
def test_float16_is_refused(folders, dtype):
    with pytest.raises(CheckpointError, match="exceed the range of float16"):
        zoo.load(folders / "t5", dtype=dtype)


def test_bfloat16(folders):
    """Within the rounding of the sums of two blocks: a share of the logits' deviation."""
    tokens = np.random.default_rng(0).integers(3, 300, (2, 9))
    inputs = {"source": tokens, "target": tokens}
    exact = zoo.load(folders / "flan").model(inputs).numpy()
    rounded = zoo.load(folders / "flan", dtype="mixed_bfloat16").model(inputs).numpy()
    assert np.abs(rounded - exact).mean() < 0.1 * exact.std()


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"relative_attention_num_buckets": 64}, "relative_attention_num_buckets=64"),
        ({"relative_attention_max_distance": 20}, "relative_attention_max_distance=20"),
        ({"feed_forward_proj": "gated-relu"}, "feed_forward_proj='gated-relu'"),
        ({"feed_forward_proj": "mish"}, "the activation 'mish'"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder=False"),
        ({"num_layers": 3}, "Tensors that are missing"),
        ({"vocab_size": 500}, "500"),
        ({"d_kv": 5}, "Its shape in the model"),
    ],
)
def test_refused_settings(tmp_path, changed, message):
    write_t5(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    write_json(tmp_path / "config.json", {**config, **changed})
    with pytest.raises(CheckpointError, match=message):
        zoo.load(tmp_path)


def test_missing_files(tmp_path):
    write_t5(tmp_path)
    (tmp_path / "spiece.model").unlink()
    with pytest.raises(CheckpointError, match="spiece.model"):
        zoo.load(tmp_path)
