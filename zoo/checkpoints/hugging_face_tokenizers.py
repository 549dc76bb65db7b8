"""Reads Hugging Face's tokenizers of GPT-2, RoBERTa and BERT.

The library `tokenizers` reads tokenizer.json. In older folders, the vocabulary is in vocab.txt, or
in vocab.json and merges.txt. As in transformers, the settings of tokenizer_config.json take
precedence.
"""

import json
import re

from zoo.checkpoints.hugging_face_config import (
    check_settings,
    read_json,
    tokenizer_settings,
    warn_unknown_tokens,
)
from zoo.decoding import SpecialTokens
from zoo.errors import CheckpointError, needed
from zoo.files import read_text
from zoo.text.library_tokenizer import BYTE_ALPHABET, LibraryTokenizer, check_kind

_FILE = "tokenizer.json"
# In tokenizer_config.json: the names in tokenizer.json.
_IN_CONFIG = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_SPECIAL = {  # how a token is added that is not text
    "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
}  # fmt: skip
_UNUSED = re.compile("madeupword[0-9]+")  # by which fairseq fills up the vocabulary
_BERT_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")  # equivalent
_BERT_SETTINGS = {  # of folders with vocab.txt
    "tokenizer_class": (*_BERT_CLASSES, *(f"{name}Fast" for name in _BERT_CLASSES)),
    "word_tokenizer_type": "basic",
    "do_basic_tokenize": True,
}


def byte_level_bpe(folder, vocab_size):
    """Returns GPT-2's tokenizer, and whether it begins each text with the start token.

    `vocab_size` is the number of tokens of the model. Ids that are not in the files get names such
    as "[unused 7]" and are never used.
    """
    config = tokenizer_settings(folder)
    check_settings(folder / "tokenizer_config.json", config, {"add_eos_token": False})
    names = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    content, vocab, control = _byte_level(folder, config, names)
    tokenizer = _create(content, vocab, control, vocab_size)
    adds_start = config.get("add_bos_token", False)
    if tokenizer.library.num_special_tokens_to_add(is_pair=False) and not adds_start:
        name = content["post_processor"]["type"]
        raise CheckpointError(f"{folder}: post_processor {name} is not supported.")
    return tokenizer, adds_start


def roberta_bpe(folder, vocab_size):
    """Returns the tokenizer of RoBERTa and BART, and its <s>, </s> and <pad> as `SpecialTokens`.

    The tokenizer adds neither <s> nor </s>. Special tokens that the model does not have, such as
    <mask> of bart-large-cnn, are left out. For `vocab_size` see `byte_level_bpe`.
    """
    config = tokenizer_settings(folder)
    names = {f"{name}_token": f"<{name}>" for name in ("pad", "unk", "mask")}
    names |= {"cls_token": "<s>", "sep_token": "</s>", "bos_token": "<s>", "eos_token": "</s>"}
    content, vocab, control = _byte_level(folder, config, names)
    special = _special_tokens(folder, config, names, vocab)
    beyond = {token for token in control if vocab[token] >= vocab_size}
    vocab = {token: id for token, id in vocab.items() if token not in beyond}
    control = [token for token in control if token in vocab]
    tokenizer = _create(content, vocab, control, vocab_size)
    around = tokenizer.library.encode("").ids
    if around not in ([], [special.start, special.end]):
        raise CheckpointError(f"{folder}: the tokenizer adds the ids {around} to texts.")
    return tokenizer, special


def bert_wordpiece(folder, vocab_size, lower_case=False):
    """Returns BERT's tokenizer, and its [CLS], [SEP] and [PAD] as `SpecialTokens`.

    With `lower_case`, texts are lowercased even if the tokenizer does not do so; accents are then
    stripped only if its strip_accents is true. For `vocab_size` see `byte_level_bpe`.
    """
    config = tokenizer_settings(folder)
    if not (folder / _FILE).is_file():
        check_settings(folder / "tokenizer_config.json", config, _BERT_SETTINGS)
    content = _content(folder, "vocab.txt", _read_bert)
    names = {f"{name.lower()}_token": f"[{name}]" for name in ("CLS", "SEP", "PAD", "UNK", "MASK")}
    vocab, control = _with_control(folder, content, config, names)
    special = _special_tokens(folder, config, names, vocab)
    count = max(vocab.values()) + 1
    if count < vocab_size:  # some are published so, or the file is truncated
        print(f"{folder}: the vocabulary has {count} tokens, the model {vocab_size}.")
    content["model"]["unk_token"] = config.get("unk_token") or names["unk_token"]
    normalizer = content["normalizer"] or {"type": None}
    if normalizer["type"] == "BertNormalizer":
        for theirs, ours in _IN_CONFIG.items():
            if theirs in config:
                normalizer[ours] = config[theirs]
        if lower_case and not normalizer["lowercase"]:
            normalizer["lowercase"] = True
            normalizer["strip_accents"] = bool(normalizer["strip_accents"])
    elif lower_case:
        raise CheckpointError(
            f"{folder}: do_lower_case with the normalizer {normalizer['type']} is not supported."
        )
    return _create(content, vocab, control, vocab_size), special


def _byte_level(folder, config, names):
    """The content of GPT-2's kind of tokenizer, its vocabulary and its special tokens."""
    content = _content(folder, "vocab.json", _read_gpt2)
    vocab, control = _with_control(folder, content, config, names)
    if not (folder / _FILE).is_file():
        _check_merges(folder, content, control)
    pre_tokenizer = content["pre_tokenizer"] or {}
    if "add_prefix_space" in pre_tokenizer:
        # These classes ignore it in tokenizer.json.
        name = str(config.get("tokenizer_class") or "GPT2")
        in_file = pre_tokenizer["add_prefix_space"]
        if name.startswith(("GPT2", "Roberta", "Bart")):
            in_file = False
        pre_tokenizer["add_prefix_space"] = config.get("add_prefix_space", in_file)
    return content, vocab, control


def _special_tokens(folder, config, names, vocab):
    """`SpecialTokens` for texts between cls_token and sep_token; `names` are the default names."""
    tokens = {name: config.get(name) or token for name, token in names.items()}
    for name in ("cls_token", "sep_token", "pad_token", "unk_token"):
        if tokens[name] not in vocab:
            raise CheckpointError(
                f"{folder}: the {name} {tokens[name]!r} is not in the vocabulary. Check "
                "tokenizer_config.json and the file of the vocabulary."
            )
    return SpecialTokens(
        start=vocab[tokens["cls_token"]],
        end=vocab[tokens["sep_token"]],
        pad=vocab[tokens["pad_token"]],
    )


def utf8_bytes(control, vocab_size):
    """Returns a tokenizer of `control` tokens, then the 256 bytes, then ids that are not used."""
    tokenizers = needed("tokenizers")
    vocab = {token: id for id, token in enumerate((*control, *BYTE_ALPHABET))}
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return _create(json.loads(library.to_str()), vocab, control, vocab_size)


def _content(folder, file, read_files):
    """Returns the content of tokenizer.json; in an older folder, that of `read_files(folder)`."""
    path = folder / _FILE
    if path.is_file():
        library = _by_library(path, needed("tokenizers").Tokenizer.from_str, read_text(path))
    elif (folder / file).is_file():
        library = read_files(folder)
    else:
        raise CheckpointError(f"{folder} contains no {file} and no {_FILE}.")
    content = json.loads(library.to_str())
    check_kind(content)
    return content


def _read_gpt2(folder):
    """A `tokenizers.Tokenizer` of vocab.json and merges.txt."""
    tokenizers = needed("tokenizers")
    vocab = read_json(folder / "vocab.json")
    path = folder / "merges.txt"
    pairs = []
    for number, line in enumerate(_lines(path), start=1):
        if not line or line.startswith("#version"):
            continue
        pair = tuple(line.split(" "))
        if len(pair) != 2:
            raise CheckpointError(
                f"{path}, line {number}: a merge is two tokens with a space between them. "
                f"Received: {line!r}."
            )
        pairs.append(pair)
    library = tokenizers.Tokenizer(_by_library(path, tokenizers.models.BPE, vocab, pairs))
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return library


def _read_bert(folder):
    """A `tokenizers.Tokenizer` of vocab.txt."""
    tokenizers = needed("tokenizers")
    vocab = {token: id for id, token in enumerate(_lines(folder / "vocab.txt"))}
    library = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab))
    library.normalizer = tokenizers.normalizers.BertNormalizer()
    library.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return library


def _by_library(path, make, *arguments):
    """Calls a function of the library, whose errors have no class of their own."""
    try:
        return make(*arguments)
    except Exception as error:
        raise CheckpointError(f"{path} cannot be used: {error}.") from None


def _check_merges(folder, content, control):
    """Raises `CheckpointError` if merges are missing: texts would be tokenized differently."""
    known = {*control, *map("".join, content["model"]["merges"])}
    lost = [
        token
        for token in content["model"]["vocab"]
        if len(token) > 1
        and token not in known
        # A vocabulary may also hold special tokens that no other file names, such as <mask>.
        and token[0] + token[-1] not in ("<>", "[]")
        and not _UNUSED.fullmatch(token)
    ]
    if lost:
        raise CheckpointError(
            f"{folder}: {len(lost)} tokens of the vocabulary are not made by any merge, such as "
            f"{lost[0]!r}. The list of merges is incomplete."
        )


def _create(content, vocab, control, vocab_size):
    """Creates the tokenizer with the vocabulary {token: id} and special tokens `control`."""
    used = {*vocab.values()}
    # No other token contains a space.
    unused = {f"[unused {id}]": id for id in range(vocab_size) if id not in used}
    vocab = vocab | unused
    content["model"]["vocab"] = vocab
    content["added_tokens"] = [
        {"content": token, "id": vocab[token], **_SPECIAL} for token in (*control, *unused)
    ]
    return LibraryTokenizer(json.dumps(content))


def _with_control(folder, content, config, names):
    """Returns the vocabulary with its special tokens, and the special tokens."""
    added = content["added_tokens"] or [
        {"id": int(id), **token} for id, token in config.get("added_tokens_decoder", {}).items()
    ]
    if not added:  # an older folder
        values = [*config.values()]
        added = [
            {"content": token, "id": id, "special": token in values}
            for token, id in read_json(folder / "added_tokens.json", {}).items()
        ]
    texts = [token["content"] for token in added if not token.get("special")]
    if texts:
        raise CheckpointError(
            f"{folder}: the added token {texts[0]!r} is text, which is not supported."
        )
    vocab = content["model"]["vocab"] | {token["content"]: token["id"] for token in added}
    warn_unknown_tokens(folder, config, vocab)
    control = [token["content"] for token in added]
    control += [config.get(name) or token for name, token in names.items()]
    return vocab, tuple(token for token in dict.fromkeys(control) if token in vocab)


def _lines(path):
    return read_text(path).removesuffix("\n").split("\n")
