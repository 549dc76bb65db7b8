"""Measures size, test accuracy and speed of a trained model in all export formats.

    python recipes/vit_cifar10.py --dataset digits --out runs/digits
    python benchmarks/exports.py runs/digits
    python benchmarks/exports.py runs/translate_phrasebook --count 500

Each format runs in its own process, so that none uses cores that the next one needs. All formats
get the same test data: all of it in batches without timing, then again with timing, then a few
items one at a time. A LiteRT translator takes one text at a time, with the search of the ONNX
export. The machine must be otherwise idle.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import multiprocessing
import os
import pathlib
import statistics
import sys
import tempfile
import time
import types

BATCH, SINGLES = 32, 50
ROWS = [("zoo", False), ("saved_model", False), ("onnx", False), ("onnx", True)]
ROWS += [("litert", False), ("litert", True)]


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run_folder", metavar="RUN", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=1000, help="test images or texts (1000)")
    return parser.parse_args()


def test_data(run_folder, count):
    """Returns (kind, inputs, expected outputs) of the test split of the run's recipe."""
    config = types.SimpleNamespace(
        **json.loads((run_folder / "config.json").read_text(encoding="utf-8"))["config"]
    )
    is_classifier = (run_folder / "classifier.json").is_file()
    recipe = "vit_cifar10" if is_classifier else "translate"
    path = pathlib.Path(__file__).parents[1] / "recipes" / f"{recipe}.py"
    spec = importlib.util.spec_from_file_location(recipe, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[recipe] = module
    spec.loader.exec_module(module)
    if is_classifier:
        data = module.load_data(config)
        pixels, labels = data.test.sample(count)
        return "classifier", pixels, [data.class_names[label] for label in labels]
    pairs = [pair for _, pair in zip(range(count), module.load_data(config)[0].test)]
    return "translator", *map(list, zip(*pairs))


def export_function(kind, format, folder, helper):
    """Returns a function from a list of images or texts to class names or translations.

    Args:
        folder: the run directory for "zoo", else the export.
        helper: an ONNX export whose programs are used for "onnx" and "litert".
    """
    if format == "zoo":
        return zoo_function(kind, folder)
    if format == "saved_model":
        return saved_model_function(kind, folder)
    sys.path.insert(0, str(helper))
    if kind == "classifier":
        from classify import Classifier

        classifier = Classifier(helper if format == "litert" else folder)
        if format == "litert":
            run = interpreter(folder).get_signature_runner()
            classifier.probabilities = lambda pixels: run(pixels=pixels)["probabilities"]
        return lambda images: [best for [(best, _)] in classifier(images)]
    from translate import Translator

    translator = Translator(folder if format == "onnx" else helper)
    if format == "onnx":
        return translator
    model = interpreter(folder)
    translator._encode, translator._decode = map(signature, (model, model), ("encode", "decode"))
    return lambda texts: [translation for text in texts for translation in translator([text])]


def zoo_function(kind, folder):
    import zoo

    loaded = zoo.load(folder)
    if kind == "translator":
        return loaded
    return lambda images: [best for [(best, _)] in loaded(images)]


def saved_model_function(kind, folder):
    import numpy as np
    import tensorflow as tf

    loaded = tf.saved_model.load(str(folder))
    name, given, found = {
        "classifier": ("pixels", "pixels", "labels"),
        "translator": ("serving_default", "texts", "translations"),
    }[kind]

    def answer(items, loaded=loaded):  # keeps a reference, which its functions need
        batch = tf.constant(np.stack(items) if kind == "classifier" else items)
        results = loaded.signatures[name](**{given: batch})
        return [best.decode() for best in results[found][:, 0].numpy()]

    return answer


def interpreter(folder):
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(model_path=str(folder / "model.tflite"), num_threads=os.cpu_count())


def signature(model, name):
    """A LiteRT signature as a function from a dict of arrays to a dict of arrays."""
    run = model.get_signature_runner(name)
    return lambda inputs: run(**inputs)


def measure(kind, format, folder, helper, items):
    """Returns (outputs, milliseconds per item in batches, milliseconds for a single item)."""
    from zoo.startup import import_tensorflow_quietly

    import_tensorflow_quietly()
    answer = export_function(kind, format, folder, helper)
    batches = [list(items[start : start + BATCH]) for start in range(0, len(items), BATCH)]
    answers = [found for batch in batches for found in answer(batch)]
    start = time.perf_counter()
    for batch in batches:
        answer(batch)
    together, alone = (time.perf_counter() - start) / len(items), []
    for item in items[:SINGLES]:
        answer([item])
        start = time.perf_counter()
        answer([item])
        alone.append(time.perf_counter() - start)
    return answers, 1000 * together, 1000 * statistics.median(alone)


def in_own_process(function, *arguments):
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def export(run_folder, folder, format, int8):
    from zoo.startup import import_tensorflow_quietly

    import_tensorflow_quietly()
    import zoo

    zoo.export(zoo.load(run_folder), folder, format=format, int8=int8)


def megabytes(folder):
    """Size of the model files."""
    kinds = {".keras", ".pb", ".onnx", ".tflite"}
    files = [file for file in folder.rglob("*") if file.suffix in kinds or "data-" in file.name]
    return sum(file.stat().st_size for file in files if "checkpoint" not in str(file)) / 1e6


def main(args):
    kind, items, expected = in_own_process(test_data, args.run_folder, args.count)
    folders = {}
    with tempfile.TemporaryDirectory() as temporary:
        for row in ROWS[1:]:
            folders[row] = (
                pathlib.Path(temporary) / f"{row[0]}_{'int8' if row[1] else 'float32'}" / "1"
            )
            in_own_process(export, args.run_folder, folders[row], *row)
        folders["zoo", False] = args.run_folder
        noun = "image" if kind == "classifier" else "text"
        print(f"{len(items)} test {noun}s; ms per {noun} in batches of {BATCH}, and of 1")
        print("format       | weights |     MB | exact | as zoo |   BLEU | batch 32 |   batch 1")
        own = None
        for row in ROWS:
            found, together, alone = in_own_process(
                measure, kind, row[0], folders[row], folders["onnx", False], items
            )
            own = own or found
            shares = [sum(map(str.__eq__, found, them)) / len(found) for them in (expected, own)]
            print(
                f"{row[0]:12} | {'int8' if row[1] else 'float32':7} | "
                f"{megabytes(folders[row]):6.2f} | {shares[0]:5.1%} | {shares[1]:6.1%} | "
                f"{bleu(kind, found, expected)} | {together:8.2f} | {alone:9.2f}",
                flush=True,
            )


def bleu(kind, found, expected):
    if kind == "classifier":
        return "     -"
    from sacrebleu.metrics import BLEU

    return f"{BLEU().corpus_score(found, [expected]).score:6.2f}"


if __name__ == "__main__":
    main(parse())
