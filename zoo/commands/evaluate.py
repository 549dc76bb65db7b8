"""``python -m zoo evaluate``."""

import json

from tyro.conf import Positional

from zoo import files
from zoo.commands.shared import Shortlist, Source, Target, Text, app, flag, given
from zoo.errors import UserError
from zoo.startup import import_tensorflow_quietly

_MOST_CLASSES = 20  # that are printed, those with the lowest accuracy


@app.command
def evaluate(
    items: flag(Positional[tuple[str, ...]], "MODEL [MODEL ...] DATA"),
    target: Text = None,
    labels: Text = None,
    data_dir: Text = None,
    bleu_tokenize: Text = None,
    out: Text = None,
    engine: Text = None,
    dtype: Text = None,
    src_lang: Source = None,
    tgt_lang: Target = None,
    shortlist: Shortlist = False,
):
    """Print scores of models on labeled data: accuracy, BLEU or perplexity.

    Args:
        items: runs, published weights or exported SavedModels; several are compared.
            DATA is a folder of images, TFDS data set, TSV or text file, or sacrebleu:wmt20/en-de
        target: file with the reference translations, if DATA is a file of sentences
        labels: file with the class numbers of each image
        data_dir: folder of prepared TFDS data
        bleu_tokenize: sacrebleu's tokenizer of BLEU (that of the script of the references)
        out: JSON file to write the results to
        engine: onnxruntime, openvino or ctranslate2 in place of TensorFlow
        dtype: dtype, such as bfloat16 or int8 (the run's)
    """
    settings = locals()  # the flags by their names
    *models, data = settings.pop("items") or [None]
    if not models:
        raise UserError("Pass one or several models, and then the data.")
    del settings["out"]
    import_tensorflow_quietly()
    from zoo.evaluation import evaluate

    reports = evaluate(models, data, **given(**settings))
    results = [{"model": model, "data": data, **report} for model, report in zip(models, reports)]
    _print(results)
    if out is not None:
        text = json.dumps(results if len(results) > 1 else results[0], indent=2)
        files.write_text(out, text + "\n")


def _print(results):
    """Prints a table: a row for each number, a column for each model."""
    for note in dict.fromkeys(note for result in results for note in result.get("notes", ())):
        print(note)
    # The first result has no p-values. Intervals are beside their numbers.
    names = [name for name, value in results[-1].items() if isinstance(value, (int, float))]
    names = [name for name in names if not name.endswith("_interval")]
    rows = [["", *(result["model"] for result in results)]] if len(results) > 1 else []
    rows += [[name.replace("_", " "), *(_cell(name, x) for x in results)] for name in names]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for first, *cells in rows:
        columns = zip(cells, widths[1:])
        print(first.ljust(widths[0]), *(cell.rjust(width) for cell, width in columns), sep="  ")
    for name in (name for name in results[0] if name.endswith("_signature")):
        print(f"{name.removesuffix('_signature')}: {results[0][name]}")
    if len(results) == 1 and "class_accuracy" in results[0]:
        _print_classes(**results[0])


def _cell(name, result):
    value = result.get(name)
    if value is None:
        return "-"
    if name.endswith("accuracy"):
        return f"{value:.2%}"
    if f"{name}_interval" in result:
        return f"{value:.2f} ± {result[f'{name}_interval']:.2f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _print_classes(class_accuracy, class_items, **others):
    known = {name: share for name, share in class_accuracy.items() if share is not None}
    lowest = sorted(known, key=known.get)[:_MOST_CLASSES]
    width = max(map(len, lowest))
    print("\naccuracy of each class" + ", the lowest" * (len(known) > len(lowest)))
    for name in lowest:
        print(f"{name:<{width}}  {known[name]:8.2%}  of {class_items[name]:,}")
