"""Results of tasks with texts: scored texts, and alignments of translations.

Axes: S source tokens, T target tokens.
"""

from typing import NamedTuple

import numpy as np

from zoo.text.layout import join_sentences


class ScoredText(NamedTuple):
    """A text and its score: its log-probability, divided by the length penalty; at most 0."""

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
    """Joins the translations of the parts of a text: returns a list of `ScoredText`.

    A text with a single part has all translations of the part. Any other text has one translation:
    the best of each part, with the sum of their scores.

    Args:
        fields: see `zoo.text.layout.split_sentences`.
        translations: for each part a list of `ScoredText`, the best first.
    """
    if len(translations) == 1:
        before, _, after = fields
        return [ScoredText(before + text + after, score) for text, score in translations[0]]
    best = [found[0] for found in translations]
    text = join_sentences(fields, [translation.text for translation in best])
    return [ScoredText(text, sum(translation.score for translation in best))]
