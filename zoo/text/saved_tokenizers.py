"""Loads the tokenizers that `save` wrote."""

import json
import pathlib

from zoo.text.published import BertWordPieceTokenizer, ByteLevelBPETokenizer
from zoo.text.sentencepiece import SentencePieceTokenizer
from zoo.text.tokenizer import Tokenizer

_PUBLISHED = (SentencePieceTokenizer, ByteLevelBPETokenizer, BertWordPieceTokenizer)


def load_tokenizer(path):
    """The tokenizer of a file: a `Tokenizer` or one of a published model.

    Raises:
        TokenizerError: if it cannot be read or is invalid.
    """
    try:
        table = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return Tokenizer.load(path)  # which says what is wrong
    kind = table.get("kind") if isinstance(table, dict) else None
    published = next((of for of in _PUBLISHED if of.kind == kind), None)
    return Tokenizer.load(path) if published is None else published.from_dict(table)
