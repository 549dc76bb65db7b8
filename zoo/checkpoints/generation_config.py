"""Search settings in Hugging Face's folders: generation_config.json, or else config.json."""

import re

from zoo.checkpoints.hugging_face_config import read_json, warn_ignored

FILE = "generation_config.json"
# Settings of `generate` that affect the generated text, with values that have no effect. Other
# settings have no effect if they are null, 0 or empty.
_SEARCH = {"num_beams": 1, "early_stopping": False, "length_penalty": 1.0, "max_length": 20}
_OPTIONS = {  # of `zoo.decoding.SearchOptions`, too
    "min_length": 0,
    "min_new_tokens": None,
    "no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "suppress_tokens": None,
}
_OTHERS = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "typical_p": 1.0, "num_beam_groups": 1}
_OTHERS |= {"encoder_repetition_penalty": 1.0, "guidance_scale": 1.0, "num_return_sequences": 1}
_OTHERS |= dict.fromkeys(
    "do_sample diversity_penalty encoder_no_repeat_ngram_size exponential_decay_length_penalty "
    "begin_suppress_tokens forced_decoder_ids remove_invalid_values max_new_tokens bad_words_ids "
    "forced_eos_token_id".split()
)
_NEUTRAL = {**_SEARCH, **_OPTIONS, **_OTHERS}
# Settings that do not affect the text, and ids that are also in other files.
_UNRELATED = r"_.*|.*_token_id|output_.*|.*cache.*|.*compile.*|.*assistant.*|transformers_version"
_UNRELATED += r"|return_dict_in_generate|low_memory|prefill_chunk_size"


def search_settings(folder, config, special, applied=(*_SEARCH, "max_new_tokens")):
    """Returns the search settings of a folder, without null, and the `search_options` of a task.

    As in transformers, `config`, the content of config.json, counts only without `FILE`. A warning
    names the settings that are neither search options nor `applied` by the caller.
    """
    settings = read_json(folder / FILE, {name: config[name] for name in _NEUTRAL if name in config})
    settings = {name: value for name, value in settings.items() if value is not None}
    changed = {name: value for name, value in settings.items() if value != _NEUTRAL.get(name)}
    options = {name: changed[name] for name in _OPTIONS if name in changed}
    if "min_new_tokens" in options:
        options.pop("min_length", None)
    words, never = settings.get("bad_words_ids", ()), (special.end, special.pad)
    single = {word[0] for word in words if len(word) == 1 and word[0] not in never}
    if single:
        options["suppress_tokens"] = sorted(single.union(options.get("suppress_tokens", ())))
    if settings.get("forced_eos_token_id") in (special.end, [special.end]):
        options["forced_eos"] = True
    ignored = {name for name in changed if changed[name] and not re.fullmatch(_UNRELATED, name)}
    ignored -= {*_OPTIONS, *applied}
    if all(len(word) == 1 for word in words):
        ignored.discard("bad_words_ids")
    ids = {"decoder_start_token_id": special.start}
    ids |= dict.fromkeys(("eos_token_id", "forced_eos_token_id"), special.end)
    ignored |= {name for name, id in ids.items() if settings.get(name, id) not in (id, [id])}
    warn_ignored(folder, settings, ignored)
    return settings, options
