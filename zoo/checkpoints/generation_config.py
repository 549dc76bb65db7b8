"""Search settings in Hugging Face's folders: generation_config.json, or else config.json."""

import re

from zoo.checkpoints.hugging_face_config import check_downloaded, read_json, warn_ignored

# Settings of `generate` that affect the generated text, and their values that have no effect, as
# null has none.
_SEARCH = {"num_beams": 1, "early_stopping": False, "length_penalty": 1.0, "max_length": 20}
_OPTIONS = {  # `zoo.decoding.SearchOptions` has them as well
    "min_length": 0,
    "min_new_tokens": None,
    "no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "suppress_tokens": None,
    "renormalize_logits": False,
}
_OTHERS = {
    "temperature": 1.0, "top_k": 50, "top_p": 1.0, "typical_p": 1.0, "num_beam_groups": 1,
    "num_return_sequences": 1, "encoder_repetition_penalty": 1.0, "guidance_scale": 1.0,
    "do_sample": None, "diversity_penalty": None, "encoder_no_repeat_ngram_size": None,
    "exponential_decay_length_penalty": None, "begin_suppress_tokens": None,
    "forced_decoder_ids": None, "remove_invalid_values": None, "max_new_tokens": None,
    "bad_words_ids": None, "forced_bos_token_id": None, "forced_eos_token_id": None,
}  # fmt: skip
_NEUTRAL = {**_SEARCH, **_OPTIONS, **_OTHERS}
# Settings that do not affect the text, and ids that are also in other files.
_UNRELATED = (
    r"_.*|.*_token_id|output_.*|.*cache.*|.*compile.*|.*assistant.*|transformers_version"
    r"|return_dict_in_generate|low_memory|prefill_chunk_size"
)


def search_settings(folder, config, special, applied=(*_SEARCH, "max_new_tokens")):
    """Reads the search settings of a folder, and warns of settings that are ignored.

    Args:
        folder, config: the folder, and the content of config.json.
        special: `zoo.decoding.SpecialTokens` of the task.
        applied: names of settings that the caller applies.

    Returns:
        The settings that are not null, a dict; and the `search_options` of a task.
    """
    check_downloaded(folder, "generation_config.json")
    in_config = {name: config[name] for name in _NEUTRAL if name in config}
    settings = read_json(folder / "generation_config.json", in_config)  # as in transformers
    settings = {name: value for name, value in settings.items() if value is not None}
    changed = {name: value for name, value in settings.items() if value != _NEUTRAL.get(name)}
    options = {name: changed[name] for name in _OPTIONS if name in changed}
    if "min_new_tokens" in options:
        options.pop("min_length", None)
    bad_words = settings.get("bad_words_ids", ())
    suppressed = {word[0] for word in bad_words if len(word) == 1}
    suppressed = {id for id in suppressed if id not in (special.end, special.pad)}
    if suppressed:
        suppressed.update(options.get("suppress_tokens", ()))
        options["suppress_tokens"] = sorted(suppressed)
    if settings.get("forced_eos_token_id") in (special.end, [special.end]):
        options["forced_eos"] = True
    ignored = {name for name in changed if changed[name] and not re.fullmatch(_UNRELATED, name)}
    ignored -= {*_OPTIONS, *applied}
    if all(len(word) == 1 for word in bad_words):
        ignored.discard("bad_words_ids")
    used_ids = {
        "decoder_start_token_id": special.start,
        "eos_token_id": special.end,
        "forced_eos_token_id": special.end,
    }
    for name, id in used_ids.items():
        if settings.get(name, id) not in (id, [id]):
            ignored.add(name)
    warn_ignored(folder, settings, ignored)
    return settings, options
