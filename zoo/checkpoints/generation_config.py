"""How Hugging Face's folders search: generation_config.json, or else config.json."""

import re

from zoo.checkpoints.hugging_face_config import read_json, warn_ignored

FILE = "generation_config.json"
# Settings of `generate` that change texts and that config.json may have, and the values that change
# nothing; of those that FILE alone may have, null and what is empty or 0 change nothing.
_SEARCH = {"num_beams": 1, "early_stopping": False, "length_penalty": 1.0, "max_length": 20}
_OPTIONS = {"min_length": 0, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0}
_OPTIONS |= dict.fromkeys(["min_new_tokens", "suppress_tokens"])
_OTHERS = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "typical_p": 1.0, "num_beam_groups": 1}
_OTHERS |= {"encoder_repetition_penalty": 1.0, "guidance_scale": 1.0, "num_return_sequences": 1}
_OTHERS |= dict.fromkeys(
    "do_sample diversity_penalty encoder_no_repeat_ngram_size exponential_decay_length_penalty "
    "begin_suppress_tokens forced_decoder_ids remove_invalid_values max_new_tokens".split()
)
_NEUTRAL = {**_SEARCH, **_OPTIONS, **_OTHERS}
_RESOLVED = ("bad_words_ids", "forced_eos_token_id")
# What changes no text, but how it is computed or returned, and ids that other files have.
_KEPT = r"_.*|.*_token_id|output_.*|.*cache.*|.*compile.*|.*assistant.*|transformers_version"
_KEPT += r"|return_dict_in_generate|low_memory|prefill_chunk_size"


def search_settings(folder, config, special, obeyed=(*_SEARCH, "max_new_tokens")):
    """The settings of a folder's search, and the `search_options` of a task; without null.

    As in transformers, `config`, the content of config.json, counts if there is no `FILE`. One
    warning names the settings that are not among the search options nor `obeyed` by the caller.
    """
    default = {name: config[name] for name in (*_NEUTRAL, *_RESOLVED) if name in config}
    settings = read_json(folder / FILE, default)
    settings = {name: value for name, value in settings.items() if value is not None}
    changed = {name: settings[name] for name in settings if settings[name] != _NEUTRAL.get(name)}
    options = {name: changed[name] for name in _OPTIONS if name in changed}
    if "min_new_tokens" in options:
        options.pop("min_length", None)
    words, forced = (settings.get(name) for name in _RESOLVED)
    never = (special.end, special.pad)
    single = {word[0] for word in words or () if len(word) == 1 and word[0] not in never}
    if single:
        options["suppress_tokens"] = sorted(single.union(options.get("suppress_tokens", ())))
    ignored = {name for name in changed if changed[name] and not re.fullmatch(_KEPT, name)}
    ignored -= {*_OPTIONS, *obeyed, *_RESOLVED}
    if forced in (special.end, [special.end]):
        options["forced_eos"] = True
    elif forced is not None:
        ignored.add(_RESOLVED[1])
    if any(len(word) > 1 for word in words or ()):
        ignored.add(_RESOLVED[0])  # those of several tokens
    ids = {"eos_token_id": special.end, "decoder_start_token_id": special.start}
    ignored |= {name for name, id in ids.items() if settings.get(name, id) not in (id, [id])}
    warn_ignored(folder, settings, ignored)
    return settings, options
