"""Texts to tokens, and hypotheses of a translator back to texts.

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
    """Tokens of each text that is not blank, or of parts of it if it is too long.

    Args:
        tokenizer, texts, limit, end: see `encode`.
        too_long: "error" or "split".

    Returns:
        List of (index of the text, tokens).

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


def encode_pairs(tokenizers, texts, limit, special):
    """(source tokens, target tokens) of each text and its translation.

    Raises:
        TaskError: see `encode`, or if there are not as many translations as texts.
    """
    (source, target), (texts, translations) = tokenizers, texts
    sources = encode(source, texts, limit, special.end)
    targets = encode(target, translations, limit, special.end, special.first, "Translation")
    if len(sources) != len(targets):
        raise TaskError(
            f"Each text has one translation. Received: {len(sources)} texts and "
            f"{len(targets)} translations."
        )
    return list(zip(sources, targets))


def decode(tokenizer, special, tokens, log_probs, scores):
    """The `zoo.decoding.Hypotheses` of one sentence as a list of `ScoredText`."""
    control, forced = (special.end, special.pad), special.first is not None
    found = np.isfinite(log_probs)
    texts = tokenizer.decode([row[~np.isin(row, control)][forced:] for row in tokens[found]])
    return [ScoredText(text, float(score)) for text, score in zip(texts, scores[found])]


def joined(parts):
    """The translations of a text from those of its parts."""
    if len(parts) == 1:
        return parts[0]
    best = [translations[0] for translations in parts]
    text = " ".join(translation.text for translation in best)
    return [ScoredText(text, sum((translation.score for translation in best), 0.0))]


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
