"""Texts to tokens, in parts if they are long, and what a task says about texts.

Axes: S source tokens, T target tokens.
"""

import re
from typing import NamedTuple

import numpy as np

from zoo.errors import TaskError
from zoo.text.checks import checked_texts
from zoo.text.layout import cut, put_in, take_apart
from zoo.text.sentencepiece import LANGUAGE


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
        _check_length(f"{name} {index}", texts[index], row, limit, advice=advice)
    return rows


def encode_parts(tokenizer, texts, limit, end, too_long, sentences):
    """Takes texts apart, and tokenizes the parts that are translated.

    Args:
        tokenizer, texts, limit, end: see `encode`.
        too_long: "error", or "split" to split parts that are too long.
        sentences: whether the parts are sentences; else each text is one, unless it is blank.

    Returns:
        (the fields of each text, see `zoo.text.layout.take_apart`; the tokens of all parts in turn)

    Raises:
        TaskError: see `encode`, or if an option has another value.
    """
    if too_long not in ("error", "split"):
        raise TaskError(f'too_long must be "error" or "split". Received: too_long={too_long!r}.')
    if not isinstance(sentences, bool):
        raise TaskError(f"sentences must be True or False. Received: sentences={sentences!r}.")
    codes = [_language_code(tokenizer, text) for text in checked_texts(texts)]
    bodies = [text[len(code) :] for text, code in zip(texts, codes)]
    layouts = [take_apart(body) if sentences else _whole(body) for body in bodies]
    parts, rows = _tokens(tokenizer, codes, layouts, end)
    if too_long == "split" and any(len(row) > limit for row in rows):
        for code, fields in zip(codes, layouts):
            fields[:] = cut(fields, lambda p, c=code: len(tokenizer.encode([c + p])[0]) < limit)
        parts, rows = _tokens(tokenizer, codes, layouts, end)
    counted = "tokens in a sentence" if sentences else "tokens"
    for (index, part), row in zip(parts, rows):
        advice = 'Shorten it, or translate it with too_long="split".'
        _check_length(f"Text {index}", part, row, limit, counted, advice)
    return layouts, rows


def _language_code(tokenizer, text):
    """The code at the beginning of a text, which all its parts get."""
    match = tokenizer.language_prefixes and re.match(f"(?s){LANGUAGE.pattern} *", text)
    return match.group() if match else ""


def _whole(text):
    return ["", text, ""] if text.strip() else [""]


def _tokens(tokenizer, codes, layouts, end):
    """(index of the text, part) of all parts, and the tokens of each."""
    numbered = enumerate(zip(codes, layouts))
    parts = [(index, code + part) for index, (code, fields) in numbered for part in fields[1::2]]
    return parts, [[*ids, end] for ids in tokenizer.encode([part for _, part in parts])]


def _check_length(name, text, tokens, limit, counted="tokens", advice="Shorten it."):
    if len(tokens) > limit:
        raise TaskError(
            f"{name} is too long: {len(tokens)} {counted}, and the model takes {limit}. "
            f"{advice} It begins: {text[:60]!r}."
        )


def put_together(fields, translations):
    """The translations of a text in the place of its parts.

    Args:
        fields: see `zoo.text.layout.take_apart`.
        translations: of each part a list of `ScoredText`, the best first.

    Returns:
        list of `ScoredText`; unless the text has one part, of the best of each, with the sum of
        their scores.
    """
    if len(translations) == 1:
        before, _, after = fields
        return [ScoredText(before + text + after, score) for text, score in translations[0]]
    best = [first for first, *_ in translations]
    text = put_in(fields, [translation.text for translation in best])
    return [ScoredText(text, sum(score for _, score in best))]
