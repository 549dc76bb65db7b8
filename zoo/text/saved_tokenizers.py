"""Tokenizers in files.

A SentencePiece model is NAME.spm, which any tool reads. What is not in a model is NAME.json: the
vocabulary of a published translator, a prefix, or all that makes a tokenizer of GPT-2 or BERT.
"""

import dataclasses
import hashlib
import json
import pathlib

from zoo.errors import TokenizerError, UserError
from zoo.text.published import BertWordPieceTokenizer, ByteLevelBPETokenizer
from zoo.text.sentencepiece import SentencePieceTokenizer

_CLASSES = (SentencePieceTokenizer, ByteLevelBPETokenizer, BertWordPieceTokenizer)
_ENDINGS = ("spm", "json")


def save_tokenizer(tokenizer, folder, name):
    """Writes a tokenizer into a folder, in place of one of this name; returns its files' names."""
    table = {"kind": tokenizer.kind, **dataclasses.asdict(tokenizer)}
    model, files = table.pop("model", None), {}
    if model is not None:
        files[f"{name}.spm"] = model
    if table["vocab"] is not None or table.get("prefix"):
        files[f"{name}.json"] = (json.dumps(table, ensure_ascii=False) + "\n").encode()
    for ending in _ENDINGS:
        path = pathlib.Path(folder) / f"{name}.{ending}"
        if path.name in files:
            path.write_bytes(files[path.name])
        else:  # of another tokenizer that was there
            path.unlink(missing_ok=True)
    return [*files]


def load_tokenizer(folder, name):
    """The tokenizer that `save_tokenizer` wrote.

    Raises:
        TokenizerError: if its files cannot be read or are invalid.
        UserError: if its library is not installed.
    """
    model, table = (pathlib.Path(folder) / f"{name}.{ending}" for ending in _ENDINGS)
    try:
        settings = json.loads(table.read_text(encoding="utf-8")) if table.is_file() else {}
        kind = settings.pop("kind", SentencePieceTokenizer.kind)
        if kind == SentencePieceTokenizer.kind:
            settings["model"] = model.read_bytes()
        [tokenizer_class] = (known for known in _CLASSES if known.kind == kind)
        return tokenizer_class(**{key: _tuples(value) for key, value in settings.items()})
    except OSError as error:
        raise TokenizerError(f"{error.filename} cannot be read: {error.strerror}.") from None
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        if type(error) is UserError:  # a library is not installed
            raise
        raise TokenizerError(f"The tokenizer {name} in {folder} is not valid: {error}") from None


def checksum(*tokenizers):
    """A checksum of all that the tokenizers do, hexadecimal digits."""
    tables = [{"kind": each.kind, **dataclasses.asdict(each)} for each in tokenizers]
    text = json.dumps(tables, sort_keys=True, default=bytes.hex)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _tuples(value):
    """JSON's lists as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
