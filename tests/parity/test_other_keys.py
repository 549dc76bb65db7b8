"""Keys of generation_config.json, tokenizer_config.json and preprocessor_config.json are read.

Each key by which the results of transformers change also changes those of zoo, or it is refused, or
named in a warning.
"""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch")

import inspect  # noqa: E402
import json  # noqa: E402
import warnings  # noqa: E402

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

import zoo  # noqa: E402
from tests.checkpoints.text_folders import bert_tokenizer, gpt2_tokenizer  # noqa: E402
from tests.checkpoints.translation_folders import (  # noqa: E402
    write_bart,
    write_m2m100,
    write_marian,
    write_pegasus,
)
from tests.parity.test_text_encoders import FAMILIES, published  # noqa: E402
from tests.parity.test_text_models import bert, gpt2, write  # noqa: E402
from zoo.checkpoints.hugging_face_config import preprocessing  # noqa: E402
from zoo.errors import UserError  # noqa: E402

# Without special tokens: zoo reads those of texts as text. "q" is a token of each vocabulary.
TEXTS = ["The cat sat on  the mat. ÑANDÚ 中文 a"]
# A value with an effect for each setting, but for max_time, by which a result depends on the load.
GENERATION = {
    "max_length": 9,
    "max_new_tokens": 5,
    "min_length": 14,
    "min_new_tokens": 12,
    "early_stopping": True,
    "do_sample": True,
    "num_beams": 3,
    "temperature": 0.5,
    "top_k": 2,
    "top_p": 0.5,
    "min_p": 0.5,
    "top_h": 0.5,
    "typical_p": 0.5,
    "epsilon_cutoff": 0.5,
    "eta_cutoff": 0.5,
    "repetition_penalty": 3.0,
    "encoder_repetition_penalty": 3.0,
    "length_penalty": -3.0,
    "no_repeat_ngram_size": 1,
    "renormalize_logits": True,
    "remove_invalid_values": True,
    "exponential_decay_length_penalty": [3, 9.0],
    "guidance_scale": 3.0,
    "encoder_no_repeat_ngram_size": 1,
    "penalty_alpha": 0.5,
    "diversity_penalty": 0.5,
    "num_beam_groups": 2,
    "num_return_sequences": 2,
    "use_cache": False,
    "stop_strings": ["e"],
    "token_healing": True,
    "prompt_lookup_num_tokens": 3,
    "dola_layers": "high",
}
# Settings of speed and of what else is returned, and what a model has beside its texts.
UNRELATED = {
    "use_mtp", "cache_implementation", "cache_config", "max_cache_len", "watermarking_config",
    "output_attentions", "output_hidden_states", "output_scores", "output_logits",
    "return_dict_in_generate", "is_assistant", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "assistant_confidence_threshold", "max_matching_ngram_size",
    "assistant_early_exit", "assistant_lookbehind", "target_lookbehind",
    "assistant_ensemble_weight", "speculation_type", "compile_config", "disable_compile",
    "continuous_batching_config", "low_memory", "prefill_chunk_size", "_from_model_config",
    "transformers_version", "pad_token_id", "bos_token_id", "max_time", "constraints",
}  # fmt: skip
IDS = ("forced_bos_token_id", "forced_eos_token_id", "eos_token_id", "decoder_start_token_id")
LISTS = ("suppress_tokens", "begin_suppress_tokens")
NESTED = ("bad_words_ids", "force_words_ids")
TOKENIZERS = {"bert": "BertTokenizer", "gpt2": "GPT2Tokenizer", "marian": "MarianTokenizer"}
MODELS = {"marian": "MarianMTModel", "gpt2": "GPT2LMHeadModel"}
MODELS |= {"bart": "BartForConditionalGeneration"}
TOKENIZERS |= {"bart": "BartTokenizer", "pegasus": "PegasusTokenizer"}
TOKENIZERS |= {"m2m100": "M2M100Tokenizer"}
TOKENIZERS |= {name: f"{name}Tokenizer" for name in FAMILIES if name != "DistilBert"}
STARTS = ("bert", *FAMILIES)  # the encoders
SHARED = ("add_bos_token", "add_eos_token", "padding_side", "truncation_side", "model_max_length")
SHARED += ("do_basic_tokenize", "split_special_tokens", "never_split", "do_lower_case")
SHARED += ("clean_up_tokenization_spaces", "additional_special_tokens", "extra_special_tokens")
VALUES = (True, False, 3, "q", ["cat"], {"enable_sampling": True})
IMAGE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 60, 3), np.uint8))
IMAGE_VALUES = (True, False, 0, 2, 3, 0.1, 16, [0.1, 0.2, 0.3], [32, 24], {"shortest_edge": 32})
IMAGE_VALUES += ({"longest_edge": 32}, {"shortest_edge": 300}, {"height": 32, "width": 24})
# Beside the class, how a call gives and takes arrays.
OF_CALLS = {"image_processor_type", "data_format", "input_data_format", "return_tensors", "device"}
TRANSLATORS = {"marian": write_marian, "bart": write_bart, "pegasus": write_pegasus}
LANGUAGES = {"m2m100": {"src_lang": "en", "tgt_lang": "es"}}


def write_folder(name, folder):
    """Writes a published folder of that name, with a model that generates other tokens in turn."""
    torch.manual_seed(0)
    if name == "bert":
        return write(folder, bert(), bert_tokenizer())
    if name == "gpt2":
        return write(folder, gpt2(), gpt2_tokenizer())
    if name in FAMILIES:
        return write(folder, *published(name))
    if name in TRANSLATORS:
        return TRANSLATORS[name](folder)
    return write_m2m100(folder)


def load(name, folder):
    """The task, or None if the folder is refused; and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            task = zoo.load(folder, **LANGUAGES.get(name, {}))
        except UserError:
            return None, ""
    return task, " ".join(str(warning.message) for warning in caught)


def generated(model, ids, settings, **forced):
    """The tokens that transformers generates; None if it refuses the settings."""
    try:
        model.generation_config = transformers.GenerationConfig.from_dict(settings)
        torch.manual_seed(0)
        return model.generate(ids, **forced).tolist()
    except Exception:  # of any kind, also from PyTorch
        return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["marian", "gpt2", "bart"])
def test_keys_of_generation_config(name, tmp_path):
    write_folder(name, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    model = getattr(transformers, MODELS[name]).from_pretrained(tmp_path).eval()
    ids = torch.tensor([[5, 6, 7, 8, config["eos_token_id"]][: 4 if name == "gpt2" else 5]])
    base = {key: config[key] for key in config if key.endswith("_token_id")}
    base |= {"max_length": 16, "num_beams": 1 if name == "gpt2" else 2}
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps(base))
    expected = generated(model, ids, base)
    usual, _ = load(name, tmp_path)
    first = expected[0][-2]
    values = {**GENERATION, **dict.fromkeys(IDS, 9), **dict.fromkeys(LISTS, [first])}
    values |= dict.fromkeys(NESTED, [[first]])
    values["sequence_bias"] = [[[first], -9.0]]
    silent = []
    for key in transformers.GenerationConfig().to_dict():
        if key in UNRELATED:
            continue
        settings = {**base, key: values[key]}
        if generated(model, ids, settings) in (None, expected):
            continue
        path.write_text(json.dumps(settings))
        task, warned = load(name, tmp_path)
        if task is not None and key not in warned and is_same(task, usual):
            silent.append(key)
    assert silent == []


def is_same(task, usual):
    """Whether two tasks have the same settings of searches."""
    names = ("search_options", "special_tokens", "beam_size", "length_penalty")
    names += ("early_stopping", "max_length")
    return all(getattr(task, x, None) == getattr(usual, x, None) for x in names)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TOKENIZERS)
def test_keys_of_tokenizer_config(name, tmp_path):
    write_folder(name, tmp_path)
    cls = getattr(transformers, TOKENIZERS[name])
    path = tmp_path / "tokenizer_config.json"
    published = json.loads(path.read_text()) if path.is_file() else {}
    parameters = inspect.signature(cls).parameters
    keys = {**dict.fromkeys(parameters), **dict.fromkeys(SHARED)}

    def theirs(settings):
        path.write_text(json.dumps(settings))
        try:
            tokenizer = cls.from_pretrained(tmp_path)
            return [tokenizer(text)["input_ids"] for text in TEXTS]
        except Exception:
            return None

    def ours(settings):
        path.write_text(json.dumps(settings))
        task, warned = load(name, tmp_path)
        if task is None:
            return None, warned
        tokenizer = getattr(task, "source_tokenizer", None) or task.tokenizer
        special = task.special_tokens
        start = [special.start] if getattr(task, "add_start_token", name in STARTS) else []
        end = [] if name == "gpt2" else [special.end]
        return [[*start, *row, *end] for row in tokenizer.encode(TEXTS)], warned

    expected = theirs(published)
    usual, _ = ours(published)
    differing = {}
    for key in keys:
        if key in ("vocab", "merges", "kwargs") or key.endswith(("_file", "_spm")):
            continue
        for value in VALUES:
            if published.get(key) == value or (value == "q" and not key.endswith("_token")):
                continue
            if key.startswith("add_") and not isinstance(value, bool):
                continue  # transformers takes add_bos_token="q" for a special token
            settings = {**published, key: value}
            found = theirs(settings)
            if found in (None, expected):
                continue
            own, warned = ours(settings)
            if own is not None and key not in warned and own == usual:
                differing[key] = value
    assert differing == {}


@pytest.mark.parametrize("family", ["ViT", "DeiT", "Bit", "CLIP", "Siglip"])
def test_keys_of_preprocessor_config(family, tmp_path):
    cls = getattr(transformers, f"{family}ImageProcessorPil")
    path = tmp_path / "preprocessor_config.json"
    published = {**cls().to_dict(), "image_processor_type": f"{family}ImageProcessor"}
    published["resample"] = int(published["resample"])

    def theirs(settings):
        path.write_text(json.dumps(settings, default=list))
        try:
            processor = cls.from_pretrained(tmp_path)
            return processor(IMAGE, return_tensors="np")["pixel_values"][0].transpose(1, 2, 0)
        except Exception:
            return None

    def ours(settings):
        path.write_text(json.dumps(settings, default=list))
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            try:
                found = preprocessing(tmp_path, {}, (224, 224))
            except (TypeError, ValueError, UserWarning):  # refused, or named in a warning
                return None
        return found.normalize(found.read(IMAGE)).numpy()

    expected = theirs(published)
    changing = []
    for key in {**cls.valid_kwargs.__annotations__, **published}:
        if key in OF_CALLS:
            continue
        for value in IMAGE_VALUES:
            settings = {**published, key: value}
            found = theirs(settings)
            own = ours(settings)
            if found is None or own is None or not np.isfinite(found).all():
                continue
            atol = 1.01 / 255 / 0.1  # one level of 255: both round to whole levels
            np.testing.assert_allclose(own, found, atol=atol, err_msg=f"{key}={value}")
            if found.shape != expected.shape or np.abs(found - expected).max() > 0.1:
                changing.append(key)
    assert {"do_normalize", "size", "image_mean"} <= set(changing)
