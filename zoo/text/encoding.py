"""Texts to the tokens of a model, as a whole or in parts."""

import functools
import math
import os
import re
import unicodedata

from zoo.errors import TaskError, check_bool
from zoo.text.layout import NO_TEXT, split_long, split_sentences, without_numbers
from zoo.text.sentencepiece import LANGUAGE
from zoo.text.special_tokens import truncated
from zoo.text.tokenizer import as_texts

_MAX_CHARACTERS = 2**23  # of a text that is split: as many as in four long novels


def encode(
    tokenizer,
    texts,
    limit,
    end,
    prefix=(),
    name="Text {}",
    advice="Shorten it.",
    are_short=False,
):
    """Tokenizes texts, and adds control ids.

    Args:
        tokenizer: see `zoo.tasks.task.TextTask`.
        texts: list of str.
        limit: maximum number of tokens of a text, including the control ids.
        end: id that is added at the end of each text.
        prefix: ids that are added at the beginning of each text, such as the start token.
        name: name of a text in error messages; "{}" is its index.
        advice: advice in error messages.
        are_short: whether the number of characters is not checked, see below.

    Returns:
        list of ids for each text.

    Raises:
        UserError: if `texts` is not a list of str, or a text has more than `limit` tokens. A text
            of so many characters is not tokenized, as that would take long.
    """

    def check(index, items, most, unit):
        if len(items) > most:
            raise TaskError(
                f"{name.format(index)} is too long: {len(items)} {unit}, and the model takes "
                f"{limit} tokens. {advice} It begins: {texts[index][:60]!r}."
            )

    texts = as_texts(texts)
    if not are_short:
        for index, text in enumerate(texts):
            check(index, text, limit * tokenizer.longest_token, "characters")
    rows = [[*prefix, *ids, end] for ids in tokenizer.encode(texts)]
    for index, row in enumerate(rows):
        check(index, row, limit, "tokens")
    return rows


def altered(tokenizer, texts, name):
    """Returns lines about texts that decoding their ids does not give back: none, or one line.

    Args:
        name: what the texts are, such as "test references".
    """
    pairs = zip(texts, tokenizer.decode(tokenizer.encode(texts)))
    differing = [(text, found) for text, found in pairs if text != found]
    if not differing:
        return ()
    start = max(len(os.path.commonprefix(differing[0])) - 20, 0)
    text, found = (text[start : start + 40] for text in differing[0])
    return (
        f"The tokenizer cannot give back {len(differing):,} of {len(texts):,} {name}: "
        f"{text!r} becomes {found!r}, for instance.",
    )


def unknown_signs(tokenizer, text):
    """The signs and emoji in a text that are not tokens: a set of characters."""
    signs = {character for character in text if unicodedata.category(character)[0] == "S"}
    return {sign for sign in signs if tokenizer.unknown in tokenizer.encode([sign])[0]}


def _around_signs(tokenizer, fields):
    """Splits parts of fields around the signs that the tokenizer does not know."""
    signs = unknown_signs(tokenizer, "".join(fields[1::2]))
    if not signs:
        return fields
    one = f"(?:{'|'.join(map(re.escape, signs))})[\\u200d\\ufe0e\\ufe0f]*"
    split = fields[:1]
    for part, between in zip(fields[1::2], fields[2::2]):
        pieces = re.split(rf"(\s*{one}(?:\s*{one})*\s*)", part)  # texts and signs in turns
        for text, sign in zip(pieces[::2], [*pieces[1::2], between]):
            if re.fullmatch(NO_TEXT, text):  # nothing, or punctuation
                split[-1] += text + sign
            else:
                split += [text, sign]
    return split


def encode_parts(
    tokenizer, texts, limit, end, too_long, sentences, keep_numbers=True, keep_signs=False
):
    """Splits texts into the parts to translate, and tokenizes the parts.

    Args:
        tokenizer, texts, limit, end: see `encode`.
        too_long: "error"; or "split" or "truncate", what to do with parts that are too long.
        sentences: whether parts are sentences; if False, each text that is not blank is one part.
        keep_numbers, keep_signs: see `zoo.tasks.translator.Translator`.

    Returns:
        The fields of each text, see `zoo.text.layout.split_sentences`, and the ids of each part of
        all texts. A language code at the beginning of a text is a prefix of each of its parts.

    Raises:
        TaskError: see `encode`, or if an argument is invalid, or a text has more than 8 million
            characters.
    """
    if too_long not in ("error", "split", "truncate"):
        raise TaskError(
            f'too_long must be "error", "split" or "truncate". Received: too_long={too_long!r}.'
        )
    check_bool("sentences", sentences)
    layouts = []
    parts = []
    for index, text in enumerate(as_texts(texts)):
        if len(text) > _MAX_CHARACTERS:
            raise TaskError(
                f"Text {index} has {len(text):,} characters. The maximum is {_MAX_CHARACTERS:,}: "
                "divide it into several texts."
            )
        code = _language_code(tokenizer, text)
        body = text[len(code) :]
        if sentences:
            fields = split_sentences(body)
        elif body.strip():
            fields = ["", body, ""]
        else:
            fields = [""]
        if keep_signs:
            fields = _around_signs(tokenizer, fields)
        if keep_numbers:
            fields = without_numbers(fields)
        if too_long == "split":
            fields = split_long(fields, functools.partial(_fits, tokenizer, limit, code))
            if keep_numbers:  # halves of a sentence may have no letter
                fields = without_numbers(fields)
        layouts.append(fields)
        parts += [code + part for part in fields[1::2]]
    rows = encode(
        tokenizer,
        parts,
        math.inf if too_long == "truncate" else limit,
        end,
        name="A sentence" if sentences else "A text",
        advice='Shorten it, or pass too_long="split" or "truncate".',
        are_short=too_long == "split",  # as parts, which have been tokenized
    )
    return layouts, [truncated(row, limit) for row in rows]


def _fits(tokenizer, limit, code, part):
    return len(tokenizer.encode([code + part])[0]) < limit  # without the end token


def _language_code(tokenizer, text):
    """The language code at the beginning of a text, with the spaces after it, or ""."""
    if not tokenizer.language_prefixes:
        return ""
    match = re.match(f"(?s){LANGUAGE.pattern} *", text)
    return match.group() if match else ""
