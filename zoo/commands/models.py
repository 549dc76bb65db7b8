"""``python -m zoo models``."""

from tyro.conf import Positional

from zoo import model_index
from zoo.commands.shared import Float, Str, flag


def models(
    search: flag(Positional[tuple[str, ...]], "[WORD ...]") = (),
    task: Str = None,
    language: Str = None,
    max_parameters: Float = None,
):
    """List published models that can be loaded; docs/models.md has licenses and sources.

    For example: python -m zoo models --task translation --language es

    Args:
        search: words in the name or in another column
        task: task, such as translation
        language: language code, such as pt
        max_parameters: maximum number of parameters, in millions
    """
    rows = model_index.published_models(" ".join(search), task, language, max_parameters)
    for line in model_index.table_lines(rows):
        print(line)
    marks = [f"{mark} {meaning}" for meaning, mark in model_index.MARKS.items()]
    print(f"{len(rows)} models;", ", ".join(marks))
