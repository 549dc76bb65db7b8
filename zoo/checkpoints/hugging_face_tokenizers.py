"""Hugging Face's tokenizer files of GPT-2 and BERT.

These are tokenizer.json, or else the vocabulary in files of its own; and tokenizer_config.json,
whose settings go before those of tokenizer.json, as in transformers.
"""

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.hugging_face_config import read_json
from zoo.decoding import SpecialTokens
from zoo.errors import TokenizerError
from zoo.text.published import BertWordPieceTokenizer, ByteLevelBPETokenizer

# What the tokenizers do; tokenizer.json may also leave it out.
_GPT2 = {
    "normalizer": {"type": None},
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
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": BertWordPieceTokenizer.longest_word,
    },
}
# Classes of tokenizers that compute the same.
_LIKE_BERT = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")


def byte_level_bpe(folder, vocab_size):
    """GPT-2's tokenizer, and whether it begins each text with the start token.

    Args:
        folder: `pathlib.Path`.
        vocab_size: number of tokens of the model.

    Raises:
        CheckpointError: if there is no tokenizer, or its settings are not supported.
    """
    settings, content = _settings(folder), _tokenizer_json(folder, _GPT2)
    if content is None:
        merges = _text(folder, "merges.txt").split("\n")
        merges = [line for line in merges if line and not line.startswith("#version")]
        content = {"model": {"vocab": _vocab_json(folder), "merges": merges}}
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    vocab, control = _with_control(
        folder, content, settings, dict.fromkeys(names[:3], "<|endoftext|>")
    )
    merges = content["model"]["merges"]
    merges = tuple(tuple(m.split(" ") if isinstance(m, str) else m) for m in merges)
    _check_merges(folder, vocab, control, merges)
    # GPT-2's own class of tokenizers does not ask tokenizer.json for the space.
    is_own = str(settings.get("tokenizer_class") or "GPT2").startswith("GPT2")
    in_file = content.get("pre_tokenizer", {}).get("add_prefix_space", False) and not is_own
    after = content.get("post_processor") or {}
    adds_tokens = (
        after.get("type", "ByteLevel") != "ByteLevel" and after.get("special_tokens") != {}
    )
    if adds_tokens and not settings.get("add_bos_token"):
        raise CheckpointError(
            f"{folder / 'tokenizer.json'}: post_processor {after['type']} is not supported."
        )
    arguments = (vocab, control, vocab_size, merges, settings.get("add_prefix_space", in_file))
    return _create(folder, ByteLevelBPETokenizer, arguments), settings.get("add_bos_token", False)


def bert_wordpiece(folder, vocab_size):
    """BERT's tokenizer, and its [CLS], [SEP] and [PAD] as special tokens; see `byte_level_bpe`."""
    settings, content = _settings(folder), _tokenizer_json(folder, _BERT)
    name, words = settings.get("tokenizer_class"), settings.get("word_tokenizer_type") or "basic"
    is_known = content or name is None or str(name).removesuffix("Fast") in _LIKE_BERT
    basic = settings.get("do_basic_tokenize", True)
    if not is_known or words != "basic" or not basic:
        raise CheckpointError(
            f"{folder / 'tokenizer_config.json'}: tokenizer_class={name!r}, "
            f"word_tokenizer_type={words!r}, do_basic_tokenize={basic!r} is not supported: the "
            "tokenizer must be BERT's own."
        )
    if content is None:
        lines = _text(folder, "vocab.txt", "tokenizer.json").removesuffix("\n").split("\n")
        content = {"model": {"vocab": {token: id for id, token in enumerate(lines)}}}
    names = {f"{name.lower()}_token": f"[{name}]" for name in ("CLS", "SEP", "PAD", "UNK", "MASK")}
    vocab, control = _with_control(folder, content, settings, names)
    tokens = {name: settings.get(name) or token for name, token in names.items()}
    missing = [tokens[name] for name in [*names][:4] if tokens[name] not in vocab]
    if missing:
        raise CheckpointError(f"{folder}: the vocabulary has no {', '.join(missing)}.")
    count = max(vocab.values()) + 1
    if count < vocab_size:  # as published by some, or cut off
        print(f"{folder}: the vocabulary has {count} tokens, the model {vocab_size}.")
    normalizer = content.get("normalizer", {})
    options = {"lowercase": True, "strip_accents": None, "handle_chinese_chars": True}
    options = {key: normalizer.get(key, default) for key, default in options.items()}
    for name, key in (
        ("do_lower_case", "lowercase"),
        ("strip_accents", "strip_accents"),
        ("tokenize_chinese_chars", "handle_chinese_chars"),
    ):
        options[key] = settings.get(name, options[key])
    arguments = (vocab, control, vocab_size, tokens["unk_token"], *options.values())
    special = SpecialTokens(*(vocab[tokens[name]] for name in [*names][:3]))
    return _create(folder, BertWordPieceTokenizer, arguments), special


def _check_merges(folder, vocab, control, merges):
    """Raises `CheckpointError` if merges are missing: texts would become other tokens."""
    known = {*control, *map("".join, merges)}
    # A vocabulary may also hold special tokens that no other file names, such as <mask>.
    lost = [token for token in vocab if len(token) > 1 and token not in known]
    lost = [token for token in lost if token[0] + token[-1] not in ("<>", "[]")]
    if lost:
        raise CheckpointError(
            f"{folder}: {len(lost)} tokens of the vocabulary are not made by any merge, such as "
            f"{lost[0]!r}. The list of merges is damaged."
        )


def _create(folder, tokenizer_class, arguments):
    try:
        return tokenizer_class(*arguments)
    except (TokenizerError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder}: the tokenizer is not valid. {error}") from None


def _settings(folder):
    """The content of tokenizer_config.json and special_tokens_map.json, with tokens as str."""
    names = ("special_tokens_map.json", "tokenizer_config.json")
    settings = {}
    for name in names:
        settings |= read_json(folder / name, {})
    return {
        key: value["content"] if isinstance(value, dict) and "content" in value else value
        for key, value in settings.items()
    }


def _tokenizer_json(folder, supported):
    """The content of tokenizer.json, or None; `supported` is {part: {setting: value}}."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    content = {key: value or {} for key, value in read_json(path).items()}
    for part, settings in supported.items():
        given = content.get(part, {})
        for name, value in settings.items():
            is_same = (given.get(name, value) or None) == (value or None)
            if not is_same or (name == "type" and part != "model" and name not in given and value):
                raise CheckpointError(
                    f"{path}: the {part} has {name}={given.get(name)!r}. Supported is {value!r}."
                )
    if not {"vocab", *(["merges"] if supported is _GPT2 else [])} <= {*content.get("model", {})}:
        raise CheckpointError(f"{path} has no vocabulary.")
    return content


def _with_control(folder, content, settings, names):
    """The vocabulary with its special tokens, and these; tokens added as text are refused."""
    vocab, control = dict(content["model"]["vocab"]), []
    added = content.get("added_tokens") or [
        {"id": int(id), **token} for id, token in settings.get("added_tokens_decoder", {}).items()
    ]
    if not added:
        is_special = [*settings.values()].__contains__
        tokens = read_json(folder / "added_tokens.json", {}).items()  # of old folders
        added = [{"content": t, "id": id, "special": is_special(t)} for t, id in tokens]
    for token in added:
        if not token.get("special"):
            raise CheckpointError(
                f"{folder}: the token {token['content']!r}, which was added to the vocabulary as "
                "text, is not supported."
            )
        vocab[token["content"]] = token["id"]
        control.append(token["content"])
    control += [settings.get(name) or token for name, token in names.items()]
    return vocab, tuple(token for token in dict.fromkeys(control) if token in vocab)


def _vocab_json(folder):
    _text(folder, "vocab.json", "tokenizer.json")
    return read_json(folder / "vocab.json")


def _text(folder, *names):
    path = folder / names[0]
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CheckpointError(f"{folder} contains no {' and no '.join(names)}.") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from None
