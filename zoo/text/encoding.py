"""Texts to the tokens of a model, as a whole or in parts."""

import functools
import re

from zoo.errors import TaskError
from zoo.text.layout import split_long, split_sentences
from zoo.text.sentencepiece import LANGUAGE
from zoo.text.tokenizer import as_texts


def encode(tokenizer, texts, limit, end, first=None, name="Text {}", advice="Shorten it."):
    """Tokenizes texts: `first`, if it is given, the tokens of the text, `end`.

    Args:
        tokenizer: see `zoo.tasks.task.TextTask`.
        texts: list of str.
        limit: maximum number of tokens of a text.
        end, first: token ids.
        name, advice: how an error names a text, given its index, and what to do about it.

    Raises:
        UserError: if `texts` is not a list of str, or a text has more than `limit` tokens.
    """
    prefix = [] if first is None else [first]
    rows = [[*prefix, *ids, end] for ids in tokenizer.encode(texts)]
    for index, row in enumerate(rows):
        if len(row) > limit:
            raise TaskError(
                f"{name.format(index)} is too long: {len(row)} tokens, and the model takes {limit}."
                f" {advice} It begins: {texts[index][:60]!r}."
            )
    return rows


def encode_parts(tokenizer, texts, limit, end, too_long, sentences):
    """Splits texts into the parts to translate, and tokenizes these.

    Args:
        tokenizer, texts, limit, end: see `encode`.
        too_long: "error", or "split" to split parts that are too long.
        sentences: whether parts are sentences; if False, each text that is not blank is one part.

    Returns:
        (for each text its fields, see `zoo.text.layout.split_sentences`; the tokens of all parts).

    Raises:
        TaskError: see `encode`, or if an argument is invalid.
    """
    if too_long not in ("error", "split"):
        raise TaskError(f'too_long must be "error" or "split". Received: too_long={too_long!r}.')
    if not isinstance(sentences, bool):
        raise TaskError(f"sentences must be True or False. Received: sentences={sentences!r}.")
    layouts, parts = [], []
    for text in as_texts(texts):
        code = _language_code(tokenizer, text)  # of all parts
        body = text[len(code) :]
        fields = split_sentences(body) if sentences else ["", body, ""] if body.strip() else [""]
        if too_long == "split":
            fields = split_long(fields, functools.partial(_fits, tokenizer, limit, code))
        layouts.append(fields)
        parts += [code + part for part in fields[1::2]]
    name, advice = "A sentence" if sentences else "A text", 'Shorten it, or pass too_long="split".'
    return layouts, encode(tokenizer, parts, limit, end, None, name, advice)


def _fits(tokenizer, limit, code, part):
    return len(tokenizer.encode([code + part])[0]) < limit  # without the end token


def _language_code(tokenizer, text):
    match = tokenizer.language_prefixes and re.match(f"(?s){LANGUAGE.pattern} *", text)
    return match.group() if match else ""
