"""``python -m zoo evaluate``."""

import json

from tyro.conf import Positional, UseAppendAction

from zoo import files
from zoo.commands.shared import (
    Classes,
    Shortlist,
    SourceLanguage,
    Str,
    TargetLanguage,
    flag,
    given,
)
from zoo.errors import UserError, check_tensorflow
from zoo.startup import import_tensorflow_quietly

_MOST_CLASSES = 20  # printed at most: the classes with the lowest accuracy


def evaluate(
    items: flag(Positional[tuple[str, ...]], "MODEL [MODEL ...] DATA"),
    target: flag(UseAppendAction[tuple[str, ...]], "FILE") = (),
    labels: Str = None,
    data_dir: Str = None,
    bleu_tokenize: Str = None,
    out: Str = None,
    engine: Str = None,
    dtype: Str = None,
    src_lang: SourceLanguage = None,
    tgt_lang: TargetLanguage = None,
    shortlist: Shortlist = False,
    classes: Classes = (),
):
    """Print scores of models on labeled data: accuracy, BLEU or perplexity.

    For example: python -m zoo evaluate runs/vit_cifar10 cifar10

    Args:
        items: runs, published weights or exported SavedModels; several are compared.
            DATA is a folder of images, TFDS data set, TSV or text file, or sacrebleu:wmt20/en-de
        target: file with the reference translations, if DATA is a file of sentences; repeatable
        labels: table of the images in the folder and their labels, or file with their class numbers
        data_dir: folder of prepared TFDS data
        bleu_tokenize: sacrebleu's tokenizer of BLEU (that of the script of the references)
        out: JSON file to write the results to
        engine: onnxruntime, openvino or ctranslate2 in place of TensorFlow
        dtype: dtype, such as bfloat16 or int8 (the run's)
    """
    if len(items) < 2:
        raise UserError("Pass one or several models, and then the data.")
    *models, data = items
    check_tensorflow()
    import_tensorflow_quietly()
    from zoo.evaluation.evaluate import evaluate

    model_options = given(
        engine=engine,
        dtype=dtype,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        shortlist=shortlist,
        classes=classes,
    )
    reports = evaluate(
        models,
        data,
        target=target or None,
        labels=labels,
        data_dir=data_dir,
        bleu_tokenize=bleu_tokenize,
        **model_options,
    )
    results = [{"model": model, "data": data, **report} for model, report in zip(models, reports)]
    _print_results(results)
    if out is not None:
        text = json.dumps(results if len(results) > 1 else results[0], indent=2)
        files.write_text(out, text + "\n")


def _print_results(results):
    """Prints a table: a row for each number, a column for each model."""
    notes = []
    for result in results:
        for note in result.get("notes", ()):
            if note not in notes:
                notes.append(note)
                print(note)
    _print_table(results)
    for name, value in results[0].items():
        if name.endswith("_signature"):
            print(f"{name.removesuffix('_signature')}: {value}")
    if len(results) == 1 and "class_accuracy" in results[0]:
        _print_classes(results[0]["class_accuracy"], results[0]["class_items"])


def _print_table(results):
    rows = []
    if len(results) > 1:
        rows.append(["", *(result["model"] for result in results)])
    for name, value in results[-1].items():  # the first result has no p-values
        # Intervals are printed beside their numbers.
        if isinstance(value, (int, float)) and not name.endswith("_interval"):
            rows.append([name.replace("_", " "), *(_cell(name, result) for result in results)])
    widths = [max(map(len, column)) for column in zip(*rows)]
    for first, *cells in rows:
        aligned = [cell.rjust(width) for cell, width in zip(cells, widths[1:])]
        print(first.ljust(widths[0]), *aligned, sep="  ")


def _cell(name, result):
    value = result.get(name)
    if value is None:
        return "-"
    if name.endswith("accuracy"):
        return f"{value:.2%}"
    if f"{name}_interval" in result:
        return f"{value:.2f} ± {result[f'{name}_interval']:.2f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _print_classes(accuracy, items):
    """Prints the accuracy of classes {name: accuracy or None}, with their numbers of items."""
    known = {name: value for name, value in accuracy.items() if value is not None}
    lowest = sorted(known, key=known.get)[:_MOST_CLASSES]
    width = max(map(len, lowest))
    title = "accuracy of each class"
    if len(known) > len(lowest):
        title += ", the lowest"
    print(f"\n{title}")
    for name in lowest:
        print(f"{name:<{width}}  {known[name]:8.2%}  of {items[name]:,}")
