"""What the commands share: the app, the types of their flags, and the loading of a model."""

from typing import Annotated

import tyro
from tyro.conf import Positional, arg

from zoo.errors import UserError
from zoo.startup import import_tensorflow_quietly

app = tyro.extras.SubcommandApp()


def flag(type, metavar, help=None, name=None):
    """A flag or argument whose help says itself, in parentheses, what its default is."""
    return Annotated[type, arg(metavar=metavar, help=help, name=name, help_behavior_hint="")]


Int = flag(int | None, "INT")
Float = flag(float | None, "FLOAT")
Text = flag(str | None, "STR")
File = flag(str | None, "FILE", "text file with one text per line")
RunFolder = flag(Positional[str], "RUN", "run directory, or published weights")
Items = flag(Positional[tuple[str, ...]], "[ITEM ...]")
Source = flag(str | None, "CODE", "source language, for published weights of several languages")
Target = flag(str | None, "CODE", "target language, for published weights of several languages")


def load_task(run_folder, verb=None, **options):
    """Loads the model of a run; raises `UserError` if it cannot do `verb`."""
    import_tensorflow_quietly()
    from zoo.loading import load
    from zoo.tasks.classifier import ImageClassifier, TextClassifier
    from zoo.tasks.generator import TextGenerator

    loaded = load(run_folder, **options)
    verbs = {ImageClassifier: "classify", TextClassifier: "classify", TextGenerator: "generate"}
    does = verbs.get(type(loaded), "translate")
    if verb not in (does, None):
        raise UserError(f"The model in {run_folder} cannot {verb}: use `python -m zoo {does}`.")
    return loaded


def given(**options):
    return {name: value for name, value in options.items() if value is not None}
