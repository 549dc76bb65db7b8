"""Writes and loads the files of tokenizers.

- NAME.spm: a SentencePiece model.
- NAME.tokenizer.json: a tokenizer of the library `tokenizers`, such as GPT-2's or BERT's.
- NAME.json: what is in neither: the vocabulary of a published translator, or a prefix.
"""

import dataclasses
import hashlib
import json
import pathlib

from zoo.errors import TokenizerError, UserError
from zoo.files import read_json, read_text
from zoo.text.library_tokenizer import LibraryTokenizer
from zoo.text.sentencepiece import SentencePieceTokenizer

_ENDINGS = ("spm", "json", "tokenizer.json")


def save_tokenizer(tokenizer, folder, name):
    """Writes a tokenizer into a folder, over one of the same name; returns the names of files."""
    table = dataclasses.asdict(tokenizer)
    if isinstance(tokenizer, LibraryTokenizer):
        files = {"tokenizer.json": table.pop("content").encode()}
        has_table = bool(tokenizer.prefix)
    else:
        files = {"spm": table.pop("model")}
        has_more_ids = tokenizer.vocab_size > len(tokenizer.proto.pieces)
        has_table = tokenizer.vocab is not None or bool(tokenizer.prefix) or has_more_ids
    if has_table:
        files["json"] = (json.dumps(table, ensure_ascii=False) + "\n").encode()
    for ending in _ENDINGS:
        path = pathlib.Path(folder) / f"{name}.{ending}"
        if ending in files:
            path.write_bytes(files[ending])
        else:  # of another tokenizer that was there
            path.unlink(missing_ok=True)
    return [f"{name}.{ending}" for ending in files]


def load_tokenizer(folder, name):
    """Loads the tokenizer that `save_tokenizer` wrote.

    Raises:
        TokenizerError: if its files cannot be read or are invalid.
        UserError: if its library is not installed.
    """
    model, table, library = (pathlib.Path(folder) / f"{name}.{ending}" for ending in _ENDINGS)
    try:
        arguments = read_json(table, {})
        for key, value in arguments.items():
            if isinstance(value, list):
                arguments[key] = tuple(value)
        if library.is_file():
            return LibraryTokenizer(read_text(library), **arguments)
        return SentencePieceTokenizer(model.read_bytes(), **arguments)
    except OSError as error:
        raise TokenizerError(f"{error.filename} cannot be read: {error.strerror}.") from None
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        if type(error) is UserError:  # a library is not installed
            raise
        raise TokenizerError(f"The tokenizer {name} in {folder} is not valid: {error}") from None


def checksum(*tokenizers):
    """Returns a checksum of everything that affects the tokens, as hexadecimal digits."""
    tables = [dataclasses.asdict(each) for each in tokenizers]
    text = json.dumps(tables, sort_keys=True, default=bytes.hex)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
