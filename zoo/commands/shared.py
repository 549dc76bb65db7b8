"""Common parts of the commands: the application, types of flags, reading models and texts."""

import os
import sys
from typing import Annotated

import tyro
from tyro.conf import Positional, arg

from zoo.data.text_rows import read_lines
from zoo.errors import UserError
from zoo.startup import import_tensorflow_quietly

app = tyro.extras.SubcommandApp()


def flag(type, metavar, help=None, name=None):
    """A flag or argument whose help text states its default itself, in parentheses."""
    return Annotated[type, arg(metavar=metavar, help=help, name=name, help_behavior_hint="")]


Int = flag(int | None, "INT")
Float = flag(float | None, "FLOAT")
Text = flag(str | None, "STR")
File = flag(str | None, "FILE", "text file with one text per line")
RunFolder = flag(
    Positional[str], "RUN", "run directory, published weights, or their name hf://OWNER/MODEL"
)
Items = flag(Positional[tuple[str, ...]], "[ITEM ...]")
Whole = flag(bool, None, "translate each text as a whole, not sentence by sentence")
Source = flag(str | None, "CODE", "source language, for published weights of several languages")
Shortlist = flag(bool, None, "use the lexical shortlist of a model of Marian, which saves time")
Target = flag(str | None, "CODE", "target language, for published weights of several languages")


def load(run_folder, verb=None, **options):
    """Loads a model with those `options` that are given; raises UserError if it cannot `verb`."""
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
    """The texts of the command line, or else the lines of the file or of standard input."""
    if texts and path:
        raise UserError("Pass texts or --file, not both.")
    if file := next(filter(os.path.isfile, texts), None):
        raise UserError(f"{file} is a file. For the texts in it, pass --file {file}.")
    if texts:
        return list(texts)
    try:
        text = "".join(read_lines(path)) if path else sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"Standard input is not UTF-8: {error}.") from None
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
