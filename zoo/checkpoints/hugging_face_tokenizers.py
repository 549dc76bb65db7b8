"""Reads Hugging Face's tokenizers of GPT-2 and BERT.

The vocabulary is in tokenizer.json, or else in files of its own. As in transformers, the settings
of tokenizer_config.json override those of tokenizer.json.
"""

import json

from zoo.checkpoints.hugging_face_config import check_settings, read_json
from zoo.decoding import SpecialTokens
from zoo.errors import CheckpointError
from zoo.text.library_tokenizer import CONTINUATION, LibraryTokenizer

_NONE = {"type": "None"}  # in place of a part that is null
# The supported settings in tokenizer.json, which may also omit them.
_GPT2 = {
    "normalizer": _NONE,
    "pre_tokenizer": {"type": "ByteLevel", "use_regex": True},
    "model": {
        "type": "BPE",
        "dropout": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "byte_fallback": False,
        "ignore_merges": False,
    },
}
_BERT = {
    "normalizer": {"type": "BertNormalizer", "clean_text": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {
        "type": "WordPiece",
        "continuing_subword_prefix": CONTINUATION,
        "max_input_chars_per_word": 100,
    },
}
# In tokenizer_config.json: the names in tokenizer.json.
_IN_CONFIG = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_ADDED = {"special": True} | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
_BERT_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")  # equivalent


def byte_level_bpe(folder, vocab_size):
    """Returns GPT-2's tokenizer, and whether it begins each text with the start token.

    Ids below `vocab_size`, the number of tokens of the model, that are not in the files get names
    such as "[unused 7]" and are never used.
    """

    def read_files():
        merges = [line for line in _lines(folder / "merges.txt") if line]
        merges = [line for line in merges if not line.startswith("#version")]
        return {"vocab": read_json(folder / "vocab.json"), "merges": merges}

    settings, content = _settings(folder), _content(folder, _GPT2, "vocab.json", read_files)
    names = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    vocab, control = _with_control(folder, content, settings, names)
    merges = [x.split(" ") if isinstance(x, str) else x for x in content["model"]["merges"]]
    # A vocabulary may also hold special tokens that no other file names, such as <mask>.
    known = {*control, *map("".join, merges)}
    lost = [x for x in vocab if len(x) > 1 and x not in known and x[0] + x[-1] not in ("<>", "[]")]
    if lost:  # texts would be tokenized differently
        raise CheckpointError(
            f"{folder}: {len(lost)} tokens of the vocabulary are not made by any merge, such as "
            f"{lost[0]!r}. The list of merges is incomplete."
        )
    # GPT2Tokenizer ignores add_prefix_space in tokenizer.json.
    is_gpt2 = str(settings.get("tokenizer_class") or "GPT2").startswith("GPT2")
    in_file = content.get("pre_tokenizer", {}).get("add_prefix_space", False) and not is_gpt2
    post = content.get("post_processor") or _NONE
    adds_none = post["type"] in ("None", "ByteLevel") or post.get("special_tokens") == {}
    if not (adds_none or settings.get("add_bos_token")):
        raise CheckpointError(f"{folder}: post_processor {post['type']} is not supported.")
    space = {"add_prefix_space": settings.get("add_prefix_space", in_file), "trim_offsets": True}
    parts = {
        "pre_tokenizer": {**_GPT2["pre_tokenizer"], **space},
        "model": {**_GPT2["model"], "merges": merges},
    }
    return _create(parts, vocab, control, vocab_size), settings.get("add_bos_token", False)


def bert_wordpiece(folder, vocab_size, lower_case=False):
    """Returns BERT's tokenizer, and its [CLS], [SEP] and [PAD] as `SpecialTokens`.

    With `lower_case`, texts are lowercased even if the tokenizer does not do so; accents are then
    stripped only if its strip_accents is true. For `vocab_size` see `byte_level_bpe`.
    """

    def read_files():
        return {"vocab": {token: id for id, token in enumerate(_lines(folder / "vocab.txt"))}}

    settings, content = _settings(folder), _content(folder, _BERT, "vocab.txt", read_files)
    own = {"word_tokenizer_type": "basic", "do_basic_tokenize": True}
    tokenizer_class = str(settings.get("tokenizer_class")).removesuffix("Fast")
    if "normalizer" not in content and tokenizer_class not in _BERT_CLASSES:
        own["tokenizer_class"] = "BertTokenizer"
    check_settings(folder / "tokenizer_config.json", settings, own)
    names = {f"{name.lower()}_token": f"[{name}]" for name in ("CLS", "SEP", "PAD", "UNK", "MASK")}
    vocab, control = _with_control(folder, content, settings, names)
    tokens = {name: settings.get(name) or token for name, token in names.items()}
    special = SpecialTokens(*(vocab[tokens[name]] for name in [*names][:3]))
    count = max(vocab.values()) + 1
    if count < vocab_size:  # some are published so, or the file is truncated
        print(f"{folder}: the vocabulary has {count} tokens, the model {vocab_size}.")
    options = {"lowercase": True, "strip_accents": None, "handle_chinese_chars": True}
    options |= content.get("normalizer", {})
    options |= {ours: settings[theirs] for theirs, ours in _IN_CONFIG.items() if theirs in settings}
    if lower_case and not options["lowercase"]:
        options |= {"lowercase": True, "strip_accents": bool(options["strip_accents"])}
    parts = {
        "normalizer": {**_BERT["normalizer"], **options},
        "pre_tokenizer": _BERT["pre_tokenizer"],
        "model": {**_BERT["model"], "unk_token": tokens["unk_token"]},
    }
    return _create(parts, vocab, control, vocab_size), special


def _create(parts, vocab, control, vocab_size):
    """Creates the tokenizer of these parts of a tokenizer.json."""
    used = {*vocab.values()}
    unused = {f"[unused {id}]": id for id in range(vocab_size) if id not in used}
    vocab, control = vocab | unused, (*control, *unused)  # no other token contains a space
    parts["model"]["vocab"] = vocab
    added = [{"content": token, "id": vocab[token], **_ADDED} for token in control]
    return LibraryTokenizer(json.dumps({"added_tokens": added, **parts}))


def _settings(folder):
    """Reads tokenizer_config.json and special_tokens_map.json; tokens are str."""
    settings = read_json(folder / "special_tokens_map.json", {})
    settings |= read_json(folder / "tokenizer_config.json", {})
    return {
        key: value["content"] if isinstance(value, dict) and "content" in value else value
        for key, value in settings.items()
    }


def _content(folder, supported, file, read_files):
    """The content of tokenizer.json, or else its part "model" of `read_files`, if `file` exists.

    `supported` is {part: {setting: value}}, from which tokenizer.json must not differ.
    """
    path = folder / "tokenizer.json"
    if not path.is_file() and (folder / file).is_file():
        return {"model": read_files()}
    if not path.is_file():
        raise CheckpointError(f"{folder} contains no {file} and no tokenizer.json.")
    content = read_json(path)
    for part, settings in supported.items():
        check_settings(f"{path}, {part}", content.get(part) or _NONE, settings)
    return content


def _with_control(folder, content, settings, names):
    """Returns the vocabulary with its special tokens, and the special tokens.

    Raises `CheckpointError` if tokens were added that are text.
    """
    added = content.get("added_tokens") or [
        {"id": int(id), **token} for id, token in settings.get("added_tokens_decoder", {}).items()
    ]
    if not added:
        is_special = [*settings.values()].__contains__
        tokens = read_json(folder / "added_tokens.json", {}).items()  # of older folders
        added = [{"content": x, "id": id, "special": is_special(x)} for x, id in tokens]
    if texts := [token["content"] for token in added if not token.get("special")]:
        raise CheckpointError(
            f"{folder}: the added token {texts[0]!r} is text, which is not supported."
        )
    vocab = content["model"]["vocab"] | {token["content"]: token["id"] for token in added}
    control = [token["content"] for token in added]
    control += [settings.get(name) or token for name, token in names.items()]
    return vocab, tuple(token for token in dict.fromkeys(control) if token in vocab)


def _lines(path):
    return path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
