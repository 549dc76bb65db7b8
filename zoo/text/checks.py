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


def checked_ids(ids, vocab_size):
    """A sequence of ids as a list of int; raises `TokenizerError` if it is none."""
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
