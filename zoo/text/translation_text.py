"""Texts to tokens, in parts if they are long, and what a task says about texts.

Axes: S source tokens, T target tokens.
"""

import re
from typing import NamedTuple

import numpy as np

from zoo.errors import TaskError

_SENTENCES, _WORDS = r"(?<=[.!?…;:])\s+|(?<=[。！？])|\n+", r"\s+"


class ScoredText(NamedTuple):
    """A text that was written and its score: log-probability over length penalty, at most 0."""

    text: str
    score: float


class Alignment(NamedTuple):
    """The attention weights of a translation over its source.

    Fields:
        weights: float32 [T, S], the mean of all blocks and heads.
        source, target: labels of the tokens.
    """

    weights: np.ndarray
    source: list[str]
    target: list[str]


def encode(tokenizer, texts, limit, end, first=None, name="Text", advice="Shorten it."):
    """Tokens of each text: `first`, if given, the text's own and `end`.

    Args:
        tokenizer: see `zoo.tasks.task.TextTask`.
        texts: list of str.
        limit: the largest number of tokens of a text.
        end, first: token ids.
        name, advice: of a text in the message of an error, and what to do about it.

    Raises:
        UserError: if `texts` is not a list of str, or a text has more than `limit` tokens.
    """
    prefix = [] if first is None else [first]
    rows = [[*prefix, *ids, end] for ids in tokenizer.encode(texts)]
    for index, row in enumerate(rows):
        if len(row) > limit:
            raise TaskError(
                f"{name} {index} is too long: {len(row)} tokens, and the model takes {limit}. "
                f"{advice} It begins: {texts[index][:60]!r}."
            )
    return rows


def encode_parts(tokenizer, texts, limit, end, too_long):
    """A list of (index of a text, tokens of it or of a part of it) of all texts that are not blank.

    Args:
        tokenizer, texts, limit, end: see `encode`.
        too_long: "error", or "split" to split texts that are too long.

    Raises:
        TaskError: see `encode`, or if `too_long` is neither of these.
    """
    if too_long not in ("error", "split"):
        raise TaskError(f'too_long must be "error" or "split". Received: too_long={too_long!r}.')
    most = limit if too_long == "error" else float("inf")
    advice = 'Shorten it, or translate it with too_long="split".'
    rows = encode(tokenizer, texts, most, end, advice=advice)
    found = []
    for index, (text, row) in enumerate(zip(texts, rows)):
        parts = [row] if text.strip() else []
        if len(row) > limit:
            parts = split(text, lambda part: len(tokenizer.encode([part])[0]) < limit)
            parts = encode(tokenizer, parts, limit, end, name="Part")
        found += [(index, part) for part in parts]
    return found


def split(text, fits):
    """Splits a text in halves until each part `fits`: between sentences, else words, else anywhere.

    Args:
        text: str.
        fits: function of a str. A single character is not split, whether it fits or not.

    Returns:
        list of str without surrounding space; empty if the text is blank.
    """
    text = text.strip()
    if len(text) < 2 or fits(text):
        return [text] if text else []
    middle = len(text) // 2
    for pattern in (_SENTENCES, _WORDS):
        places = [match.end() for match in re.finditer(pattern, text) if match.end() < len(text)]
        if places:
            middle = min(places, key=lambda place: abs(place - len(text) // 2))
            break
    return split(text[:middle], fits) + split(text[middle:], fits)
