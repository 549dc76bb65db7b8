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


def encode(
    tokenizer, texts, limit, end, first=None, name="Text", advice="Shorten it.", owners=None
):
    """Tokens of each text: `first`, if given, the text's own and `end`.

    Args:
        tokenizer: see `zoo.tasks.task.TextTask`.
        texts: list of str.
        limit: the largest number of tokens of a text.
        end, first: token ids.
        name, advice: of a text in the message of an error, and what to do about it.
        owners: the number of each text in that message, if that is not its place.

    Raises:
        UserError: if `texts` is not a list of str, or a text has more than `limit` tokens.
    """
    prefix = [] if first is None else [first]
    rows = [[*prefix, *ids, end] for ids in tokenizer.encode(texts)]
    for index, row in enumerate(rows):
        if len(row) > limit:
            raise TaskError(
                f"{name} {owners[index] if owners else index} is too long: {len(row)} tokens, and "
                f"the model takes {limit}. {advice} It begins: {texts[index][:60]!r}."
            )
    return rows


def encode_parts(tokenizer, texts, limit, end, too_long, sentences):
    """Takes texts apart, and tokenizes the parts that are translated; see `encode`.

    The parts are sentences, or else each text is one, unless it is blank. Those that are too long
    are an error, or with ``too_long="split"`` split.

    Returns (the fields of each text, see `zoo.text.layout.take_apart`; the tokens of all parts in
    turn).
    """
    if too_long not in ("error", "split"):
        raise TaskError(f'too_long must be "error" or "split". Received: too_long={too_long!r}.')
    if not isinstance(sentences, bool):
        raise TaskError(f"sentences must be True or False. Received: sentences={sentences!r}.")
    layouts, parts, owners = [], [], []
    for index, text in enumerate(checked_texts(texts)):
        code = _language_code(tokenizer, text)  # which all parts get
        body = text[len(code) :]
        fields = take_apart(body) if sentences else ["", body, ""] if body.strip() else [""]
        if too_long == "split":
            fields = cut(fields, lambda part, c=code: len(tokenizer.encode([c + part])[0]) < limit)
        layouts.append(fields)
        parts += [code + part for part in fields[1::2]]
        owners += [index] * (len(fields) // 2)
    name = "A sentence of text" if sentences else "Text"
    advice = 'Shorten it, or translate it with too_long="split".'
    return layouts, encode(tokenizer, parts, limit, end, None, name, advice, owners)


def _language_code(tokenizer, text):
    match = tokenizer.language_prefixes and re.match(f"(?s){LANGUAGE.pattern} *", text)
    return match.group() if match else ""


def put_together(fields, translations):
    """The translations of a text, `ScoredText`, in the place of its parts, of which each has some.

    Unless the text has one part, there is one: of the best of each, with the sum of their scores.
    """
    if len(translations) == 1:
        before, _, after = fields
        return [ScoredText(before + text + after, score) for text, score in translations[0]]
    best = [first for first, *_ in translations]
    text = put_in(fields, [translation.text for translation in best])
    return [ScoredText(text, sum(score for _, score in best))]
