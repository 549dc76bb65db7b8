"""``python -m zoo models``."""

import shutil

from tyro.conf import Positional

from zoo import published
from zoo.commands.shared import Float, Text, app, flag


@app.command
def models(
    search: flag(Positional[tuple[str, ...]], "[WORD ...]") = (),
    task: Text = None,
    language: Text = None,
    max_parameters: Float = None,
):
    """List published models that can be loaded; docs/models.md has licenses and sources.

    Args:
        search: words of the name or another column
        task: such as translation
        language: code of a language, such as pt
        max_parameters: in millions
    """
    rows = published.published_models(" ".join(search), task, language, max_parameters)
    print(*published.table_lines(rows, max(80, shutil.get_terminal_size().columns)), sep="\n")
    print(f"{len(rows)} models;", ", ".join(f"{mark} {x}" for x, mark in published.MARKS.items()))
