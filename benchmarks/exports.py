"""Measures size, test accuracy and speed of a trained model in all export formats.

    python recipes/vit_cifar10.py --dataset digits --out runs/digits
    python benchmarks/exports.py runs/digits
    python benchmarks/exports.py runs/translate_phrasebook --count 500

All formats get the same test data, in batches and one at a time.
"""

import csv
import dataclasses
import importlib
import json
import pathlib
import runpy
import sys
import tempfile

import turns

ROOT = pathlib.Path(__file__).parents[1]
BATCH = 32
SINGLES = 50  # items that are computed one at a time
FORMATS = {
    "SavedModel": ("saved_model", None),
    "SavedModel, bfloat16": ("saved_model", "bfloat16"),
    "ONNX": ("onnx", None),
    "ONNX, float16": ("onnx", "float16"),
    "ONNX, int8": ("onnx", "int8"),
    "LiteRT": ("litert", None),
    "LiteRT, float16": ("litert", "float16"),
    "LiteRT, int8": ("litert", "int8"),
    "CTranslate2": ("ctranslate2", None),
    "CTranslate2, int8": ("ctranslate2", "int8"),
}
IMAGES_ONLY = ("onnx", "litert")
TEXTS_ONLY = ("ctranslate2",)


def cases(run_folder, exports, count):
    cases = []
    formats = ("zoo", *formats_of(run_folder))
    for batch_size, items in ((BATCH, count), (1, min(count, SINGLES))):
        settings = {
            "run_folder": str(run_folder),
            "exports": str(exports),
            "count": items,
            "batch_size": batch_size,
        }
        cases.append(turns.Case(f"batch {batch_size}", settings, formats, items, "items"))
    return cases


def prepare(folder, all_settings):
    """Exports the model in all formats."""
    from zoo.startup import import_tensorflow_quietly

    import_tensorflow_quietly()
    import zoo

    for name in formats_of(all_settings[0]["run_folder"]):
        format, dtype = FORMATS[name]
        path = pathlib.Path(all_settings[0]["exports"]) / name / "1"
        if format == "saved_model":
            loaded = zoo.load(all_settings[0]["run_folder"], dtype=dtype)
            zoo.export(loaded, path)
        else:
            loaded = zoo.load(all_settings[0]["run_folder"])
            zoo.export(loaded, path, format=format, dtype=dtype)


def test_data(run_folder, count):
    """(inputs, expected outputs) of the test split of the run's recipe, as lists."""
    run_folder = pathlib.Path(run_folder)
    if not is_classifier(run_folder):
        with open(run_folder / "translations.tsv", encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1 : count + 1]
        return [row[0] for row in rows], [row[1] for row in rows]
    from zoo.data.images import sample
    from zoo.training.image_run import load_images

    settings = json.loads((run_folder / "config.json").read_text(encoding="utf-8"))["config"]
    config = runpy.run_path(str(ROOT / "recipes" / "vit_cifar10.py"))["Config"]
    names = {field.name for field in dataclasses.fields(config)} & set(settings)
    config = config(**{name: settings[name] for name in names})
    data = load_images(config)
    shown = sample(data.test, count)
    return list(shown.pixels), [data.class_names[label] for label in shown.labels]


def formats_of(run_folder):
    """The names of the formats of this kind of model."""
    others = TEXTS_ONLY if is_classifier(run_folder) else IMAGES_ONLY
    return [name for name, (format, _) in FORMATS.items() if format not in others]


def is_classifier(run_folder):
    return (pathlib.Path(run_folder) / "classifier.json").is_file()


def contender(name):
    def prepared(folder, run_folder, exports, count, batch_size):
        items, expected = test_data(run_folder, count)
        answer = function_of(name, run_folder, pathlib.Path(exports))
        batches = [items[start : start + batch_size] for start in range(0, len(items), batch_size)]

        def run():
            return [label for batch in batches for label in answer(batch)]

        if batch_size == BATCH:
            quality(pathlib.Path(exports), name, run(), expected, is_classifier(run_folder))
        return run

    return prepared


def quality(exports, name, outputs, expected, is_classifier):
    """Stores the share of correct answers, and the BLEU of translations."""
    values = {"exact": sum(map(str.__eq__, outputs, expected)) / len(outputs)}
    if not is_classifier:
        from sacrebleu.metrics import BLEU

        values["BLEU"] = BLEU().corpus_score(outputs, [expected]).score
    (exports / f"{name}.json").write_text(json.dumps(values))


def function_of(name, run_folder, exports):
    """A function from a list of images or texts to class names or translations."""
    is_image = is_classifier(run_folder)
    if name == "zoo":
        import zoo

        loaded = zoo.load(run_folder)
        if not is_image:
            return loaded
        return lambda images: [best for [(best, _)] in loaded(images)]
    format, _ = FORMATS[name]
    folder = exports / name / "1"
    if format == "saved_model":
        return saved_model_function(folder, is_image)
    if not is_image:
        sys.path.insert(0, str(folder))
        return importlib.import_module("translate").Translator(folder)
    import numpy as np

    labels = (folder / "labels.txt").read_text(encoding="utf-8").splitlines()
    if format == "onnx":
        from zoo.deploy.onnx_format import runner

        run = runner(folder / "model.onnx")
    else:
        from ai_edge_litert.interpreter import Interpreter

        path = str(folder / "model.tflite")
        run = Interpreter(model_path=path, num_threads=turns.CORES).get_signature_runner()

    def classify(images):
        probabilities = run(pixels=np.stack(images))["probabilities"]
        return [labels[index] for index in probabilities.argmax(axis=-1)]

    return classify


def saved_model_function(folder, is_image):
    import numpy as np
    import tensorflow as tf

    if not is_image:
        import tensorflow_text  # noqa: F401  has the operations of the tokenizer
    loaded = tf.saved_model.load(str(folder))

    def classify(images):
        results = loaded.signatures["pixels"](pixels=tf.constant(np.stack(images)))
        return [best.decode() for best in results["labels"][:, 0].numpy()]

    def translate(texts):
        results = loaded.signatures["serving_default"](texts=tf.constant(texts))
        return [best.decode() for best in results["translations"][:, 0].numpy()]

    return classify if is_image else translate


def megabytes(folder):
    """Size of the model files."""
    kinds = {".keras", ".pb", ".onnx", ".tflite", ".bin"}
    files = [file for file in folder.rglob("*") if file.suffix in kinds or "data-" in file.name]
    return sum(file.stat().st_size for file in files if "checkpoint" not in str(file)) / 1e6


CONTENDERS = {name: contender(name) for name in ("zoo", *FORMATS)}

if __name__ == "__main__":
    parser = turns.parser(__doc__)
    parser.add_argument("run_folder", metavar="RUN", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=1000, help="test images or texts (1000)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as exports:
        turns.run(__file__, cases(args.run_folder, exports, args.count), args)
        print("\n| format | MB | exact | BLEU |\n|---|---|---|---|")
        for path in sorted(pathlib.Path(exports).glob("*.json")):
            values = json.loads(path.read_text())
            is_run = path.stem == "zoo"
            size = megabytes(args.run_folder if is_run else pathlib.Path(exports) / path.stem)
            bleu = f"{values['BLEU']:.2f}" if "BLEU" in values else ""
            print(f"| {path.stem} | {size:.2f} | {values['exact']:.1%} | {bleu} |")
