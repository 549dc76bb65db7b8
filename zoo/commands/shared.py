"""What several commands have in common: types of flags, reading models and texts."""

import codecs
import functools
import os
import sys
from typing import Annotated, NamedTuple

from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction, arg

from zoo.data.text_rows import read_lines
from zoo.errors import UserError, check_tensorflow
from zoo.startup import import_tensorflow_quietly

_MOST_BYTES = 1 << 24  # of standard input that are read at once


def flag(type, metavar, help=None, name=None):
    """A flag or argument whose help text states its default itself, in parentheses."""
    return Annotated[type, arg(metavar=metavar, help=help, name=name, help_behavior_hint="")]


Int = flag(int | None, "INT")
Float = flag(float | None, "FLOAT")
Str = flag(str | None, "STR")
File = flag(str | None, "FILE", "text file with one text per line")
RUN_HELP = "run directory, published weights, or their name hf://OWNER/MODEL"
RunFolder = flag(Positional[str], "RUN", RUN_HELP)
Items = flag(Positional[tuple[str, ...]], "[ITEM ...]")
WholeTexts = flag(bool, None, "translate each text as a whole, not sentence by sentence")
Shortlist = flag(bool, None, "use the lexical shortlist of a model of Marian, which saves time")
Classes = flag(
    UseAppendAction[tuple[str, ...]], "TEXT", "text of a class, for CLIP and SigLIP; repeatable"
)
SourceLanguage = flag(
    str | None, "CODE", "source language, for published weights of several languages"
)
TargetLanguage = flag(
    str | None, "CODE", "target language, for published weights of several languages"
)


class Search(NamedTuple):
    """By default those of the model."""

    no_repeat_ngram_size: flag(int | None, "N", "no N tokens in a row occur twice") = None
    repetition_penalty: flag(float | None, "X", "values above 1 reduce repetition") = None
    min_length: flag(int | None, "N", "minimum number of tokens") = None
    suppress_tokens: flag(
        UseAppendAction[tuple[int, ...]],
        "ID",
        "token that is never generated; repeatable",
        name="suppress-token",
    ) = ()


SearchFlags = Annotated[Search, OmitArgPrefixes]
NO_SEARCH = Search()


def load(run_folder, verb=None, **options):
    """Loads a model with the `options` that were given.

    Raises:
        UserError: if there is a `verb` and the model cannot do this, for instance "translate".
    """
    check_tensorflow()
    import_tensorflow_quietly()
    from zoo.loading import load

    loaded = load(run_folder, **given(**options))
    if verb not in (loaded.verb, None):
        advice = f"use `python -m zoo {loaded.verb}`."
        raise UserError(f"The {type(loaded).__name__} in {run_folder} cannot {verb}: {advice}")
    return loaded


def given(**options):
    """The options that were passed on the command line."""
    return {name: x for name, x in options.items() if x not in (None, ()) and x is not False}


def read_texts(texts, path):
    """Returns an iterator of lists of texts.

    They are those of the command line, or the lines of the file; or the lines of standard input, as
    soon as they come.
    """
    if texts and path:
        raise UserError("Pass texts or --file, not both.")
    for text in texts:
        if os.path.isfile(text):
            raise UserError(f"{text} is a file. For the texts in it, pass --file {text}.")
    if texts:
        return iter([[os.fsencode(text).decode("utf-8", "surrogateescape") for text in texts]])
    if path:
        return iter([[line.removesuffix("\n").removesuffix("\r") for line in read_lines(path)]])
    return _standard_input()


def _standard_input():
    begun = b""  # a line whose end has not come
    is_first = True
    for found in iter(functools.partial(sys.stdin.buffer.read1, _MOST_BYTES), b""):
        if is_first:
            found = found.removeprefix(codecs.BOM_UTF8)
            is_first = False
        ended, newline, begun = (begun + found).rpartition(b"\n")
        if newline:
            yield _decoded(ended)
    if begun:
        yield _decoded(begun)


def _decoded(lines):
    try:
        return [line.removesuffix("\r") for line in lines.decode().split("\n")]
    except UnicodeDecodeError as error:
        raise UserError(f"Standard input is not UTF-8: {error}.") from None


def one_line(text):
    """A text in a line or column of its own: line breaks and tabs are written as in Python."""
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
