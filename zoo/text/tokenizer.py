"""What all tokenizers share: ids to text, and the checks of texts and ids."""

import dataclasses
import functools
import operator
from collections.abc import Mapping, Set

import numpy as np

from zoo.errors import TokenizerError

# Assumed maximum number of bytes per token: an unknown word of BERT is one token, and spaces are
# none, whatever their length. Without a limit, tokenizing a long text would take minutes.
_LONGEST_TOKEN = 64


class Tokenizer:
    """Base class of tokenizers; a subclass also encodes texts.

    Attributes:
        vocab_size: number of ids.
        prefix: ids at the beginning of each text.
        unknown: id of text that is not in the vocabulary; None if there is none.
        language_prefixes: whether a text may begin with a language code, see
            `zoo.text.sentencepiece.SentencePieceTokenizer`.
        token_bytes: list of bytes: the UTF-8 of each id, which may be a part of a character; empty
            for control tokens.
        space: character that stands for a space in tokens.
        strips: whether spaces are removed at both ends of decoded text.
        adds_space: whether the first token of a text begins with a space that is not in the text.
    """

    prefix = ()
    unknown = None
    language_prefixes = False
    space = " "
    strips = False
    adds_space = False

    @functools.cached_property
    def longest_token(self):
        """A text of n bytes is assumed to have at least n / longest_token tokens."""
        return max(_LONGEST_TOKEN, *map(len, self.token_bytes))

    def with_prefix(self, *prefix):
        """Returns the same tokenizer with another `prefix`."""
        return dataclasses.replace(self, prefix=prefix)

    def decode(self, ids):
        """Decodes sequences of ids; control tokens are left out.

        Args:
            ids: a sequence of integers in [0, vocab_size) per text: lists, an array or a tensor.

        Returns:
            list of str. Bytes that are not UTF-8 become U+FFFD.

        Raises:
            TokenizerError: if an id is not in the vocabulary, or an item is not a sequence of ids.
        """
        rows = [as_ids(row, self.vocab_size) for row in ids]
        texts = [b"".join([self.token_bytes[id] for id in row]) for row in rows]
        texts = [text.decode(errors="replace").replace(self.space, " ") for text in texts]
        if self.strips:
            return [text.strip(" ") for text in texts]
        if self.adds_space:
            return [text.removeprefix(" ") for text in texts]
        return texts


def as_texts(texts):
    """Converts texts to a list; raises `TokenizerError` if they are not a list of valid str."""
    is_one = isinstance(texts, (str, bytes)) or not hasattr(texts, "__len__")
    # A set has no order, a dict or a table has keys, and an array may have no or several axes.
    if is_one or isinstance(texts, (Set, Mapping)) or getattr(texts, "ndim", 1) != 1:
        raise TokenizerError(
            f"Texts must be a list of str. Pass [text] for one text. Received: {texts!r:.80}."
        )
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TokenizerError(
                f"Texts must be a list of str. Item {index} is of type {type(text).__name__}."
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TokenizerError(f"Text {index} is not valid Unicode: {error}.") from None
    return list(texts)


def as_ids(ids, vocab_size):
    """Converts a sequence of ids to a list of int; raises `TokenizerError` if it cannot."""
    try:
        ids = np.asarray(ids).tolist() if hasattr(ids, "__array__") else ids
        ids = [operator.index(id) for id in ids]
    except TypeError:
        raise TokenizerError(
            f"Ids must be a sequence of integers for each text. Received: {ids!r:.80}."
        ) from None
    wrong = [id for id in ids if not 0 <= id < vocab_size]
    if wrong:
        raise TokenizerError(
            f"The id {wrong[0]} is not in the vocabulary, which has {vocab_size} ids. "
            "Check that this is the tokenizer that the model was trained with."
        )
    return ids
