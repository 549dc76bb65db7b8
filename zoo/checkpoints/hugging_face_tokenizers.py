"""Reads Hugging Face's tokenizers of GPT-2, BERT, RoBERTa, XLM-RoBERTa and CLIP.

The library `tokenizers` reads tokenizer.json. In older folders, the vocabulary is in vocab.txt, in
vocab.json and merges.txt, or in sentencepiece.bpe.model. As in transformers, the settings of
tokenizer_config.json take precedence.
"""

import json
import re

from zoo.checkpoints.hugging_face_config import (
    added_tokens,
    check_added_tokens,
    check_settings,
    check_special_tokens,
    read_json,
    tokenizer_settings,
)
from zoo.decoding import SpecialTokens
from zoo.errors import CheckpointError, needed
from zoo.files import read_text
from zoo.text.library_tokenizer import BYTE_ALPHABET, LibraryTokenizer, check_kind
from zoo.text.sentencepiece import SentencePieceTokenizer

_FILE = "tokenizer.json"
_SPM = "sentencepiece.bpe.model"
# In tokenizer_config.json: the names in tokenizer.json.
_IN_CONFIG = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_SPECIAL = {  # how a token is added that is not text
    "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
}  # fmt: skip
_ROBERTA_NAMES = {
    "cls_token": "<s>", "sep_token": "</s>", "bos_token": "<s>", "eos_token": "</s>",
    "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>",
}  # fmt: skip
_UNUSED = re.compile("madeupword[0-9]+")  # by which fairseq fills up the vocabulary
_WORD_END = "</w>"  # ends CLIP's tokens at the end of a word
_CLIP_WORDS = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)
_BERT_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")  # equivalent
_BERT_SETTINGS = {  # of folders with vocab.txt
    "tokenizer_class": (*_BERT_CLASSES, *(f"{name}Fast" for name in _BERT_CLASSES)),
    "word_tokenizer_type": "basic",
    "do_basic_tokenize": True,
}
_XLM_ROBERTA_SETTINGS = {"tokenizer_class": ("XLMRobertaTokenizer", "XLMRobertaTokenizerFast")}


def byte_level_bpe(folder, vocab_size):
    """Returns GPT-2's tokenizer, and whether it begins each text with the start token.

    `vocab_size` is the number of tokens of the model. Ids that are not in the files get names such
    as "[unused 7]" and are never used.
    """
    config = tokenizer_settings(folder)
    check_settings(folder / "tokenizer_config.json", config, {"add_eos_token": False})
    names = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    content = _content(folder, "vocab.json")
    vocab, control = _byte_level(folder, content, config, names)
    tokenizer = _create(content, vocab, control, vocab_size)
    adds_start = config.get("add_bos_token", False)
    if tokenizer.library.num_special_tokens_to_add(is_pair=False) and not adds_start:
        name = content["post_processor"]["type"]
        raise CheckpointError(f"{folder}: post_processor {name} is not supported.")
    return tokenizer, adds_start


def encoder_tokenizer(folder, vocab_size, lower_case=False):
    """Returns the tokenizer of BERT, RoBERTa, BART or XLM-RoBERTa, and its `SpecialTokens`.

    The tokenizer adds neither the start nor the end token, such as <s> and </s>. With `lower_case`,
    texts are lowercased even if BERT's tokenizer does not do so; accents are then stripped only if
    its strip_accents is true. For `vocab_size` see `byte_level_bpe`.
    """
    content = _content(folder, *_READERS)
    kind = content["model"]["type"]
    if kind == "WordPiece":
        return _bert(folder, content, vocab_size, lower_case)
    if lower_case:
        raise CheckpointError(f"{folder}: do_lower_case with a {kind} tokenizer is not supported.")
    return _roberta(folder, content, vocab_size)


def _roberta(folder, content, vocab_size):
    config = tokenizer_settings(folder)
    if content["model"]["type"] == "BPE":
        vocab, control = _byte_level(folder, content, config, _ROBERTA_NAMES)
    else:
        check_settings(folder / "tokenizer_config.json", config, {"add_prefix_space": True})
        config |= {"cls_token": config.get("bos_token"), "sep_token": config.get("eos_token")}
        vocab, control = _with_control(folder, content, config, _ROBERTA_NAMES)
    special = _special_tokens(folder, config, _ROBERTA_NAMES, vocab)
    # The model may not have all of them, such as <mask> of bart-large-cnn.
    beyond = {token for token in control if vocab[token] >= vocab_size}
    vocab = {token: id for token, id in vocab.items() if token not in beyond}
    control = [token for token in control if token in vocab]
    tokenizer = _create(content, vocab, control, vocab_size)
    around = tokenizer.library.encode("").ids
    if around not in ([], [special.start, special.end]):
        raise CheckpointError(f"{folder}: the tokenizer adds the ids {around} to texts.")
    return tokenizer, special


def _bert(folder, content, vocab_size, lower_case):
    config = tokenizer_settings(folder)
    if not (folder / _FILE).is_file():
        check_settings(folder / "tokenizer_config.json", config, _BERT_SETTINGS)
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


def _byte_level(folder, content, config, names):
    """The vocabulary and the special tokens of GPT-2's kind of tokenizer."""
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
    return vocab, control


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


def unigram(folder, vocab_size):
    """Returns T5's tokenizer in tokenizer.json. For `vocab_size` see `byte_level_bpe`."""
    config = tokenizer_settings(folder)
    content = _content(folder, *_READERS)
    kind = content["model"]["type"]
    if kind != "Unigram":
        raise CheckpointError(f"{folder}: T5's tokenizer must be Unigram. Received: {kind}.")
    names = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    vocab, control = _with_control(folder, content, config, names)
    return _create(content, vocab, control, vocab_size)


def utf8_bytes(control, vocab_size):
    """Returns a tokenizer of `control` tokens, then the 256 bytes, then ids that are not used."""
    tokenizers = needed("tokenizers")
    vocab = {token: id for id, token in enumerate((*control, *BYTE_ALPHABET))}
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return _create(json.loads(library.to_str()), vocab, control, vocab_size)


def clip_library(folder):
    """Returns the `tokenizers.Tokenizer` of tokenizer.json, or that of CLIP's older folders."""
    path = folder / _FILE
    if path.is_file():
        return _by_library(path, needed("tokenizers").Tokenizer.from_str, read_text(path))
    return _read_clip(folder)


def _content(folder, *files):
    """Returns the content of tokenizer.json; in an older folder, that of the first of `files`."""
    path = folder / _FILE
    older = [name for name in files if (folder / name).is_file()]
    if path.is_file():
        library = _by_library(path, needed("tokenizers").Tokenizer.from_str, read_text(path))
    elif older:
        library = _READERS[older[0]](folder)
    else:
        raise CheckpointError(f"{folder} contains no {', no '.join(files)} and no {_FILE}.")
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


def _read_clip(folder):
    """CLIP's `tokenizers.Tokenizer` of vocab.json and merges.txt, as in transformers."""
    tokenizers = needed("tokenizers")
    library = _read_gpt2(folder)
    _check_merges(folder, json.loads(library.to_str()), ())
    library.model.end_of_word_suffix = _WORD_END
    normalizers = tokenizers.normalizers
    spaces = normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
    steps = [normalizers.NFC(), spaces, normalizers.Lowercase()]
    library.normalizer = normalizers.Sequence(steps)
    words = tokenizers.pre_tokenizers.Split(tokenizers.Regex(_CLIP_WORDS), "removed", invert=True)
    steps = [words, library.pre_tokenizer]
    library.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps)
    around = [(token, library.token_to_id(token)) for token in ("<|endoftext|>", "<|startoftext|>")]
    library.post_processor = tokenizers.processors.RobertaProcessing(*around)
    return library


def _read_bert(folder):
    """A `tokenizers.Tokenizer` of vocab.txt."""
    tokenizers = needed("tokenizers")
    vocab = {token: id for id, token in enumerate(_lines(folder / "vocab.txt"))}
    library = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab))
    library.normalizer = tokenizers.normalizers.BertNormalizer()
    library.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return library


def _read_xlm_roberta(folder):
    """A `tokenizers.Tokenizer` of sentencepiece.bpe.model, whose ids are those of fairseq."""
    tokenizers = needed("tokenizers")
    settings = tokenizer_settings(folder)
    check_settings(folder / "tokenizer_config.json", settings, _XLM_ROBERTA_SETTINGS)
    path = folder / _SPM
    proto = _by_library(path, SentencePieceTokenizer, path.read_bytes()).proto
    pieces = proto.pieces[3:]  # after <unk>, <s> and </s>
    is_unigram = proto.trainer_spec.model_type == proto.trainer_spec.UNIGRAM
    if not is_unigram or any(piece.type != piece.NORMAL for piece in pieces):
        raise CheckpointError(f"{path} must be a Unigram model without symbols and bytes.")
    vocab = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    vocab += [(piece.piece, piece.score) for piece in pieces]
    vocab.append(("<mask>", 0.0))
    library = tokenizers.Tokenizer(tokenizers.models.Unigram(vocab, unk_id=3))
    rules = proto.normalizer_spec.precompiled_charsmap
    if rules:
        library.normalizer = _by_library(path, tokenizers.normalizers.Precompiled, rules)
    steps = [tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Metaspace()]
    library.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps)
    return library


_READERS = {"vocab.txt": _read_bert, "vocab.json": _read_gpt2, _SPM: _read_xlm_roberta}


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
        if len(token.removesuffix(_WORD_END)) > 1
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
    if content["model"]["type"] == "Unigram":
        scores = dict(content["model"]["vocab"])
        # No word has a space: a control token in a text is ordinary text.
        vocab = {f" {token}" if token in control else token: id for token, id in vocab.items()}
        control = [f" {token}" for token in control]
        tokens = {id: token for token, id in vocab.items()}
        tokens = [tokens[id] for id in range(len(vocab))]
        content["model"]["vocab"] = [(token, scores.get(token, 0.0)) for token in tokens]
    else:
        content["model"]["vocab"] = vocab
    content["added_tokens"] = [
        {"content": token, "id": vocab[token], **_SPECIAL} for token in (*control, *unused)
    ]
    return LibraryTokenizer(json.dumps(content))


def _with_control(folder, content, config, names):
    """Returns the vocabulary with its special tokens, and the special tokens."""
    added = content["added_tokens"] or added_tokens(folder, config)
    check_added_tokens(folder, added)
    vocab = content["model"]["vocab"]
    if isinstance(vocab, list):  # of (token, score)
        vocab = {token: id for id, (token, _) in enumerate(vocab)}
    vocab = vocab | {token["content"]: token["id"] for token in added}
    check_special_tokens(folder, config, vocab)
    control = [token["content"] for token in added]
    control += [config.get(name) or token for name, token in names.items()]
    return vocab, tuple(token for token in dict.fromkeys(control) if token in vocab)


def _lines(path):
    return read_text(path).removesuffix("\n").split("\n")
