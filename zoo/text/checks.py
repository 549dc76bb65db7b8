"""What every tokenizer refuses: texts that are not text, and ids that are not in its vocabulary."""

import operator

import numpy as np

from zoo.errors import TokenizerError


def checked_texts(texts):
    """Texts as a list; raises `TokenizerError` for what is not a list of valid text."""
    if isinstance(texts, (str, bytes)) or not hasattr(texts, "__len__"):
        raise TokenizerError(
            f"Texts must be a list of str. Pass [text] for one text. Received: {texts!r:.80}."
        )
    return [checked_text(text, index) for index, text in enumerate(texts)]


def checked_text(text, index):
    """The text; raises `TokenizerError` if it is not a str of valid Unicode."""
    if not isinstance(text, str):
        raise TokenizerError(
            f"Texts must be a list of str. Item {index} is of type {type(text).__name__}."
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"Text {index} is not valid Unicode: {error.reason} at character {error.start}. "
            "Check the encoding with which it was read."
        ) from None
    return text


def checked_ids(ids, vocab_size):
    """A sequence of ids as a list of int; raises `TokenizerError` if it is none."""
    try:
        ids = np.asarray(ids).tolist() if hasattr(ids, "__array__") else ids
        ids = [operator.index(id) for id in ids]
    except TypeError:
        raise TokenizerError(
            f"Ids must be a sequence of integers for each text. Received: {ids!r:.80}."
        ) from None
    if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
        wrong = next(id for id in ids if not 0 <= id < vocab_size)
        raise TokenizerError(
            f"The id {wrong} is not in the vocabulary, which has {vocab_size} ids. "
            "Check that this is the tokenizer that the model was trained with."
        )
    return ids


def check_vocab(vocab, vocab_size):
    """Raises `TokenizerError` if an id is not one of `vocab_size`, or not of one token."""
    ids, tokens = checked_ids([*vocab.values()], vocab_size), {}
    for token, id in zip(vocab, ids):
        if id in tokens:
            raise TokenizerError(f"The tokens {tokens[id]!r} and {token!r} have the same id.")
        tokens[id] = token
