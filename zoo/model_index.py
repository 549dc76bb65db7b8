"""The index of published models, `published_models.csv`; see docs/models.md."""

import csv
import pathlib

from zoo.errors import UserError

TABLE = pathlib.Path(__file__).with_name("published_models.csv")
MARKS = {"measured here": "*", "parity with random weights": "+", "same format, not tried": "-"}


def published_models(search="", task=None, language=None, max_parameters=None):
    """Returns the rows of the index that meet all conditions.

    Args:
        search: words that a row contains in any of its columns, ignoring case.
        task: task, such as "translation".
        language: language code, such as "pt"; models of "many" languages match every code.
        max_parameters: maximum number of parameters in millions; excludes rows without a number.

    Returns:
        list of dicts {column: str}; unknown values are "".

    Raises:
        UserError: if `task` is unknown.
    """
    rows = list(csv.DictReader(TABLE.read_text("utf-8").splitlines()))
    tasks = sorted({row["task"] for row in rows})
    if task is not None and task not in tasks:
        raise UserError(f"task must be one of {', '.join(tasks)}. Received: {task!r}.")
    words = search.lower().split()
    rows = [row for row in rows if all(word in " ".join(row.values()).lower() for word in words)]
    if task is not None:
        rows = [row for row in rows if row["task"] == task]
    if language is not None:
        rows = [row for row in rows if _has_language(row, language)]
    if max_parameters is not None:
        rows = [row for row in rows if float(row["parameters"] or "inf") <= max_parameters]
    return rows


def _has_language(row, language):
    languages = row["languages"].replace("-", " ").split()
    return "many" in languages or str(language).lower() in languages


def table_lines(rows):
    """Yields a line for each row: status, size, image size or languages, score and name."""
    for row in rows:
        size = f"{row['parameters'] or '?':>6} M {row['image_size'] or row['languages']:<10.10}"
        score = f"{row['measured'] or row['published'] or '?':>6} {row['metric']}"
        yield f"{MARKS[row['status']]} {size} {score:<27.27} {row['name']}"
