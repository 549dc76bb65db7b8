"""What models answer about texts: scored texts, and alignments of translations.

Axes: S source tokens, T target tokens.
"""

from typing import NamedTuple

import numpy as np

from zoo.text.layout import join_sentences


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


def join_parts(fields, translations):
    """The `ScoredText` of a text, given those of each of its parts.

    If the text has several parts, it has one: the best of each part, with the sum of their scores.
    """
    if len(translations) == 1:
        before, _, after = fields
        return [ScoredText(before + text + after, score) for text, score in translations[0]]
    best = [first for first, *_ in translations]
    text = join_sentences(fields, [translation.text for translation in best])
    return [ScoredText(text, sum(score for _, score in best))]
