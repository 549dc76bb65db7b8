"""Loads the tokenizers that `save` wrote."""

import json
import pathlib

from zoo.text.sentencepiece import KIND, SentencePieceTokenizer
from zoo.text.tokenizer import Tokenizer


def load_tokenizer(path):
    """The `Tokenizer` or `SentencePieceTokenizer` of a file; raises `TokenizerError`."""
    try:
        table = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return Tokenizer.load(path)  # which says what is wrong
    if isinstance(table, dict) and table.get("kind") == KIND:
        return SentencePieceTokenizer.from_dict(table)
    return Tokenizer.load(path)
