"""`zoo.evaluate`: a run has the scores that its recipe measured, and so has its export."""

import copy
import json
import pathlib
import shutil
import unicodedata

import numpy as np
import pytest
import sacrebleu
import tensorflow_datasets as tfds
from PIL import Image

import zoo
from tests.data.prepared import prepare
from tests.deploy.small_models import small_generator, small_text_classifier, small_translator
from zoo.__main__ import main
from zoo.data import parallel_text
from zoo.data.image_folder import image_folder
from zoo.data.images import digits
from zoo.data.labeled_text import tsv
from zoo.data.preprocessing import ImagePreprocessing
from zoo.errors import DataError, UserError
from zoo.evaluation.data import (
    Labeled,
    labeled_images,
    labeled_texts,
    model_labels,
    read_labels,
    sentence_pairs,
)
from zoo.evaluation.evaluate import _class_scores
from zoo.tasks.classifier import ImageClassifier
from zoo.tasks.encoder import ImageEncoder
from zoo.tasks.generator import TextGenerator
from zoo.tasks.translator import Translator
from zoo.text import BOS_ID, EOS_ID
from zoo.text.sentencepiece import train_tokenizer
from zoo.training.callbacks import history_rows
from zoo.training.report_translation_scores import compared_translations
from zoo.training.run_folder import fingerprint

slow = pytest.mark.slow
NOTE = ("Not used, with an empty column: 1.",)
SIZES = {"embed_dim": 8, "num_heads": 2, "num_layers": 1}


def measured(run):
    return json.loads((run / "metrics.json").read_text())


@pytest.fixture(scope="module")
def pairs(phrasebook_run, tmp_path_factory):
    """The test pairs of the phrasebook run: a TSV file, and one of its sources and references."""
    folder = tmp_path_factory.mktemp("pairs")
    rows = (phrasebook_run[1] / "translations.tsv").read_text().splitlines()[1:]
    (folder / "pairs.tsv").write_text("".join(f"{row}\n" for row in rows))
    for number, name in enumerate(("en", "es")):
        lines = [row.split("\t")[number] for row in rows]
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder


@pytest.mark.ci
def test_images_have_the_scores_of_the_recipe(digits_run, tmp_path, capsys):
    """By the command line. Tested and saved is the averaged model, as after the last epoch."""
    expected, out = measured(digits_run[1]), tmp_path / "new" / "scores.json"
    last = history_rows(digits_run[1])[-1]
    assert expected["test_accuracy"] == pytest.approx(last["val_accuracy"], abs=1e-6)
    assert expected["test_loss"] == pytest.approx(last["val_loss"], abs=1e-4)
    assert main(["evaluate", str(digits_run[1]), "digits", "--out", str(tmp_path)]) == 2
    assert main(["evaluate", str(digits_run[1]), "digits", "--out", str(out)]) == 0
    scores = json.loads(out.read_text())
    assert scores["accuracy"] == expected["test_accuracy"]
    assert scores["class_accuracy"] == expected["class_accuracy"]
    assert scores["class_items"] == expected["test_counts"]
    assert scores["balanced_accuracy"] == expected["balanced_accuracy"]
    np.testing.assert_allclose(scores["loss"], expected["test_loss"], rtol=1e-5)
    assert f"{scores['accuracy']:.2%}" in capsys.readouterr().out


@pytest.mark.ci
@pytest.mark.parametrize(
    "options",
    [
        {"engine": "onnxruntime"},
        *(pytest.param(x, marks=slow) for x in ({"engine": "openvino"}, {"dtype": "bfloat16"})),
    ],
    ids=str,
)
def test_engines_and_dtypes_have_the_scores_of_the_run(digits_run, options):
    """Tolerance of the loss: bfloat16, which rounds to 8 bits."""
    scores, expected = zoo.evaluate(digits_run[1], "digits", **options), measured(digits_run[1])
    assert scores["items"] == 360
    np.testing.assert_allclose(scores["accuracy"], expected["test_accuracy"], atol=2 / 360)
    np.testing.assert_allclose(scores["loss"], expected["test_loss"], rtol=1e-2)


@pytest.mark.ci
def test_translations_have_the_scores_of_the_recipe(phrasebook_run, pairs):
    """From two files."""
    expected, run = measured(phrasebook_run[1]), phrasebook_run[1]
    models = [run, zoo.load(run)]
    scores, other = zoo.evaluate(models, str(pairs / "en"), target=str(pairs / "es"))
    assert scores["bleu"] == expected["bleu"] and scores["chrf"] == expected["chrf"]
    assert scores["items"] == expected["test_sentences"]
    assert other["ter"] == scores["ter"] and "bleu_p_value" in other
    assert "bleu_p_value" not in scores


@pytest.mark.ci
def test_runs_are_tested_on_what_they_held_out(
    texts_run, sentences_part, phrasebook_run, phrasebook_part
):
    texts = zoo.evaluate(texts_run[1], sentences_part)
    pairs = zoo.evaluate(phrasebook_run[1], phrasebook_part)
    for scores, path in (texts, sentences_part), (pairs, phrasebook_part):
        note = scores["notes"][-1]
        assert note.startswith("Tested on ") and note.endswith(f"{path} that the run held out.")
    assert texts["accuracy"] == measured(texts_run[1])["test_accuracy"]
    assert pairs["bleu"] == measured(phrasebook_run[1])["bleu"]


@pytest.mark.ci
def test_several_references(phrasebook_run, pairs, tmp_path, capsys):
    """They are scored by sacrebleu; an empty one does not count."""
    lines = (pairs / "es").read_text().splitlines()
    others = ["" if number % 2 else f"{line}…" for number, line in enumerate(lines)]
    (tmp_path / "other").write_text("\n".join(others))
    sources = (pairs / "en").read_text().splitlines()
    run, targets = str(phrasebook_run[1]), (pairs / "es", tmp_path / "other")
    translations = zoo.load(run)(sources, sentences=False)
    scores = zoo.evaluate(run, pairs / "en", target=targets)
    for name, score in (
        ("bleu", sacrebleu.corpus_bleu),
        ("chrf", sacrebleu.corpus_chrf),
        ("ter", sacrebleu.corpus_ter),
    ):
        np.testing.assert_allclose(scores[name], score(translations, [lines, others]).score)
        assert "nrefs:2" in scores[f"{name}_signature"]
    flags = [flag for path in targets for flag in ("--target", str(path))]
    assert main(["evaluate", run, str(pairs / "en"), *flags]) == 0
    assert f"bleu: {scores['bleu_signature']}" in capsys.readouterr().out
    with pytest.raises(DataError, match="has its own references. Remove target"):
        sentence_pairs("sacrebleu:wmt20/tworefs/de-en", targets)


@pytest.mark.slow
def test_an_exported_translator_has_the_scores_of_its_model(
    phrasebook_translator, phrasebook_export, pairs
):
    models = [phrasebook_translator, phrasebook_export]
    model, export = zoo.evaluate(models, str(pairs / "pairs.tsv"))
    assert export["bleu"] == model["bleu"] and export["ter"] == model["ter"]


@pytest.mark.ci
def test_an_export_without_all_classes_is_refused(digits_export):
    with pytest.raises(UserError, match="returns 3 of 10 classes. Export it with --top-k 10"):
        zoo.evaluate(digits_export, "digits")


@pytest.fixture
def tested_texts(texts_run, tmp_path):
    rows = (texts_run[1] / "predictions.tsv").read_text().splitlines()[1:]
    rows = [(row.split("\t")[0], row.split("\t")[3]) for row in rows]
    (tmp_path / "texts.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    return tmp_path / "texts.tsv"


@slow
def test_an_exported_text_classifier_has_the_scores_of_its_model(texts_run, tested_texts, tmp_path):
    """And that of its recipe. A text that is too long for the export is left out."""
    classifier = zoo.load(texts_run[1])
    scores = zoo.evaluate(classifier, str(tested_texts))
    assert scores["accuracy"] == measured(texts_run[1])["test_accuracy"]
    zoo.export(classifier, tmp_path / "1", top_k=len(classifier.class_names))
    with open(tested_texts, "a") as file:
        file.write(f"{classifier.class_names[0]}\t{'a b ' * 1000}\n")
    exported = zoo.evaluate(tmp_path / "1", str(tested_texts))
    assert exported["class_accuracy"] == scores["class_accuracy"]
    assert exported["notes"][-1].startswith("Refused by the export: 1, such as 'a b a b")


def test_digits_are_divided_by_the_seed_of_the_run(tmp_path):
    assert (labeled_images("digits").items.numbers == digits().test.numbers).all()
    for seed in (0, 1):
        images = labeled_images("digits", settings={"seed": seed}).items
        assert (images.numbers == digits(seed).test.numbers).all()


def run_of(task, folder, **settings):
    """Writes the files of a run that was trained with these settings."""
    task.save(folder)
    content = {"config": settings, "environment": {}}
    (folder / "config.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def digits_classifier():
    model = zoo.vit(input_shape=(8, 8, 1), num_classes=10, patch_size=4, **SIZES)
    return ImageClassifier(model, ImagePreprocessing((8, 8), 1), [*"0123456789"])


@pytest.mark.ci
def test_the_seed_of_a_run_is_taken_along(digits_classifier, tmp_path):
    """When it is loaded with options, saved and exported: the loss is that of the same images."""
    run = run_of(digits_classifier, tmp_path / "run", seed=3, dataset="digits")
    expected = zoo.evaluate(run, "digits")
    assert expected["notes"] == []
    zoo.load(run).save(tmp_path / "saved")
    zoo.load(tmp_path / "saved", num_classes=10, dropout=0.1).save(tmp_path / "changed")
    zoo.export(zoo.load(tmp_path / "changed"), tmp_path / "1", top_k=10)
    zoo.export(zoo.load(run, dropout=0.1), tmp_path / "2", top_k=10)
    for model in (
        zoo.load(run, dropout=0.1),
        *(tmp_path / x for x in ("saved", "changed", "1", "2")),
    ):
        scores = zoo.evaluate(model, "digits")
        assert scores["loss"] == pytest.approx(expected["loss"], rel=1e-5) and not scores["notes"]
    _, other = zoo.evaluate([run, digits_classifier], "digits")
    first, _ = zoo.evaluate([digits_classifier, run], "digits")
    for scores, seed in ((other, 3), (first, 0)):
        assert f"runs with seed {seed} hold out" in scores["notes"][0]
    assert first["loss"] != pytest.approx(expected["loss"], rel=1e-5)


def test_a_run_is_tested_on_what_it_held_out(classifier, folder, tmp_path):
    """Of the folder, the data set and the table that it was trained on; others are read whole."""
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    for name in ("f", "b"):
        for number in range(4, 20):
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    settings = {"seed": 5, "data_dir": str(folder)}
    held_out = image_folder(folder, seed=5)
    count = len(held_out.train.labels)
    for validation_split, number in ((None, count), (0.5, count - round(count / 2))):
        settings["validation_split"] = validation_split
        settings["data"] = f"{number} images, classes 0"
        data = labeled_images(str(folder), settings=settings)
        assert data.items.numbers.tolist() == held_out.test.numbers.tolist() and data.seed == 5
        assert data.notes == held_out.notes
        data = labeled_images(str(folder), settings={**settings, "data": "7 images, classes 0"})
        assert "may have been trained on some of these images" in data.notes[-1]
    whole = labeled_images(str(folder), settings={"seed": 5, "data_dir": "other"})
    assert len(whole.items) == 35 and whole.seed is None

    rows = [f"{'ab'[number % 2]}\ttext {number}\n" for number in range(200)]
    table = tmp_path / "texts.tsv"
    table.write_text("".join(rows))
    divided = tsv(table, 5)
    checksum = fingerprint(divided.train.texts, divided.train.labels.tolist(), ["a", "b"])
    settings = {"seed": 5, "tsv": str(table), "data": f"160 texts, checksum {checksum}"}
    data = labeled_texts(str(table), settings)
    assert data.items == divided.test.texts and len(data.items) == 20
    assert data.notes == (f"Tested on 20 texts of {table} that the run held out.",)
    data = labeled_texts(str(table), {**settings, "data": "160 texts, checksum 0"})
    assert len(data.items) == 200 and "may have been trained on these texts" in data.notes[-1]
    table.write_text("".join(rows[::2][:3]))  # too few to be divided, and of one class
    data = labeled_texts(str(table), settings)
    assert len(data.items) == 3 and "may have been trained on these texts" in data.notes[-1]
    (tmp_path / "pairs.tsv").write_text("".join(f"{n} one\t{n} uno\n" for n in range(400)))
    path = tmp_path / "pairs.tsv"
    pairs = parallel_text.tsv(path, 5).test
    settings = {"seed": 5, "tsv": path, "data": f"test pairs {fingerprint(pairs)}"}
    data = sentence_pairs(str(path), (), settings)
    assert data.items == [source for source, _ in pairs] and 0 < len(pairs) < 60
    assert data.labels == [[target for _, target in pairs]] and data.seed == 5
    path.write_text(path.read_text() + "".join(f"{n} two\t{n} dos\n" for n in range(400)))
    data = sentence_pairs(str(path), (), settings)
    assert len(data.items) == 800 and data.seed is None
    assert "may have been trained on these texts" in data.notes[-1]
    path.write_text("one\tuno\n")  # too few to be divided
    data = sentence_pairs(str(path), (), settings)
    assert data.items == ["one"] and "may have been trained on these texts" in data.notes[-1]


def test_the_data_of_training_are_named(classifier, folder, tmp_path):
    """Whatever the kind of model, if these data were not held out."""
    classifier = copy.copy(classifier)
    shutil.copytree(folder, tmp_path / "divided" / "train")
    shutil.copytree(folder, tmp_path / "divided" / "test")
    (tmp_path / "numbers.txt").write_text("0\n1\n3\n")
    line = "The model was trained on {}, or on a part of it."

    def notes(data, data_dir, **options):
        classifier.settings = {"seed": 0, "data_dir": str(data_dir)}
        return zoo.evaluate(classifier, data, **options)["notes"]

    numbers = {"labels": tmp_path / "numbers.txt"}
    divided = tmp_path / "divided"
    assert notes(folder, folder, **numbers) == [line.format(folder)]
    assert notes(divided / "train", divided) == [line.format(divided / "train")]
    assert notes(divided, divided) == notes(divided / "test", divided) == []
    assert notes(divided, divided, **numbers) == notes(folder, divided, **numbers) == []

    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat.\n" * 4)
    texts = tmp_path / "texts.tsv"
    texts.write_text("".join(f"ant\t{n} the cat\n" for n in range(4)))
    generator = small_generator()
    translator = small_translator()
    text_classifier = small_text_classifier()
    generator.settings = {"text": [str(tmp_path / "other.txt"), str(text)]}
    translator.settings = {"source": "other.txt", "monolingual": str(text)}
    text_classifier.settings = {"tsv": str(texts), "seed": 0, "data": "3 texts, checksum 0"}
    assert zoo.evaluate(generator, text)["notes"][0] == line.format(text)
    assert zoo.evaluate(translator, text, target=text)["notes"][0] == line.format(text)
    other, scores = zoo.evaluate([small_text_classifier(), text_classifier], texts)
    assert other["notes"] == [] and scores["notes"] == [line.format(texts)]


# --- without trained models ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def classifier():
    model = zoo.vit(input_shape=(8, 8, 3), num_classes=7, patch_size=4, **SIZES)
    preprocessing = ImagePreprocessing((8, 8), 3, mean=(0.5,) * 3, std=(0.5,) * 3, resize=12)
    return ImageClassifier(model, preprocessing, list("abcdefg"))


@pytest.fixture
def folder(tmp_path):
    """A folder of images of two of the classes: f/3.png, f/0.png and b/1.png."""
    pixels = np.random.default_rng(0).integers(0, 256, (3, 20, 16, 3), np.uint8)
    for image, name in zip(pixels, ("f/3.png", "f/0.png", "b/1.png")):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return tmp_path / "images"


def test_all_models_are_checked_before_the_first_one_computes(classifier, folder, monkeypatch):
    monkeypatch.setattr(ImageClassifier, "outputs_of_images", None)
    other = ImageClassifier(classifier.model, classifier.preprocessing, [*"acdeghi"])
    with pytest.raises(DataError, match="lacks 2 of the 2 classes"):
        zoo.evaluate([classifier, other], folder)


def test_class_folders_are_found_by_the_names_of_the_classes(classifier, folder):
    """Images are resized and cropped once."""
    probabilities = classifier.probabilities(
        [folder / name for name in ("b/1.png", "f/0.png", "f/3.png")]
    )
    scores = zoo.evaluate(classifier, folder)
    right = probabilities[[0, 1, 2], [1, 5, 5]]
    assert scores["items"] == 3 and scores["class_items"]["f"] == 2
    assert scores["accuracy"] == np.mean(probabilities.argmax(axis=1) == [1, 5, 5])
    np.testing.assert_allclose(scores["loss"], -np.log(right).mean(), rtol=1e-6)  # one rounding
    (folder / "f").rename(folder / "F")
    assert zoo.evaluate(classifier, folder)["class_items"]["f"] == 2  # in any case
    labels, [note] = model_labels(labeled_images(folder), ["x", "y"])  # by their order
    assert labels == [[0], [0], [1]] and "F is x, b is y" in note
    (folder / "F").rename(folder / "6")
    (folder / "b").rename(folder / "0")
    assert zoo.evaluate(classifier, folder)["class_items"]["g"] == 2  # by their numbers
    _, [note] = model_labels(labeled_images(folder), [*"abcdefg"])
    assert note == "Classes are matched by their number: 0 is a, 6 is g. Check this."
    # Not if other classes have their names.
    with pytest.raises(DataError, match="lacks 1 of the 2 classes of the data, such as '0'"):
        model_labels(labeled_images(folder), [*"a6cdefg"])
    shutil.copytree(folder / "6", folder / "z")
    with pytest.raises(DataError, match="lacks 3 of the 3 classes of the data, such as '0'"):
        zoo.evaluate(classifier, folder)


def test_labels_are_in_the_order_of_file_names_and_images_without_one_do_not_count(
    classifier, folder, tmp_path
):
    names = ["f/0.png", "b/1.png", "f/3.png"]
    best = classifier.probabilities([folder / name for name in names]).argmax(axis=1)
    (tmp_path / "real.json").write_text(json.dumps([[int(best[0]), 2], [], [int(best[2] + 1) % 7]]))
    scores = zoo.evaluate(classifier, folder, labels=str(tmp_path / "real.json"))
    assert (scores["accuracy"], scores["items"], scores["items_without_class"]) == (0.5, 2, 1)
    (tmp_path / "labels.txt").write_text("0\n1\n")
    with pytest.raises(DataError, match="labels of 2 images, the data 3 images"):
        zoo.evaluate(classifier, folder, labels=str(tmp_path / "labels.txt"))
    for name in names:  # without folders of classes, as ImageNet's validation images are
        (folder / name).rename(folder / pathlib.Path(name).name)
    assert zoo.evaluate(classifier, folder, labels=tmp_path / "real.json")["accuracy"] == 0.5
    with pytest.raises(DataError, match="labels of 3 images, the data 0 images"):
        zoo.evaluate(classifier, folder / "f", labels=tmp_path / "real.json")


def test_a_data_set_of_tfds_without_training_images(classifier, tmp_path):
    features = {"image": tfds.features.Image(), "label": tfds.features.ClassLabel(num_classes=7)}
    image = np.random.default_rng(0).integers(0, 256, (20, 16, 3), np.uint8)
    rows = [{"image": image, "label": label} for label in (3, 3, 5)]
    prepare(tmp_path, "robust", tfds.features.FeaturesDict(features), {"test": rows})
    scores = zoo.evaluate(classifier, "robust", data_dir=str(tmp_path))
    assert scores["class_items"] == {**dict.fromkeys("abcdefg", 0), "d": 2, "f": 1}


def test_a_folder_of_prepared_data_is_for_data_sets_only(classifier, folder, tmp_path):
    for data in ("digits", folder):
        with pytest.raises(UserError, match="data_dir is for a TensorFlow data set"):
            zoo.evaluate(classifier, str(data), data_dir=str(tmp_path))


def test_images_without_a_label_do_not_count(classifier, tmp_path):
    """TFDS has -1 for them; half of 30 are right, the others have no label."""
    features = {"image": tfds.features.Image(), "label": tfds.features.ClassLabel(num_classes=7)}
    image = np.random.default_rng(0).integers(0, 256, (20, 16, 3), np.uint8)
    best = int(classifier.probabilities([image]).argmax())
    for name, labels in (("half", [best, -1] * 15), ("hidden", [-1] * 4)):
        rows = [{"image": image, "label": label} for label in labels]
        prepare(tmp_path, name, tfds.features.FeaturesDict(features), {"test": rows})
    scores = zoo.evaluate(classifier, "half", data_dir=str(tmp_path))
    assert (scores["accuracy"], scores["items"], scores["items_without_class"]) == (1.0, 15, 15)
    assert "Not counted, without a label: 15 of 30." in scores["notes"]
    with pytest.raises(DataError, match="hidden has no labels to test on: .* test are -1"):
        zoo.evaluate(classifier, "hidden", data_dir=str(tmp_path))


@pytest.mark.ci
def test_an_exported_classifier_has_the_scores_of_its_model(classifier, folder, tmp_path):
    """It takes the encoded images; tolerance: float32 probabilities in another order."""
    zoo.export(classifier, tmp_path / "1", top_k=7)
    model, export = zoo.evaluate([classifier, tmp_path / "1"], folder)
    assert export["items"] == model["items"] == 3
    assert export["accuracy"] == model["accuracy"]
    assert export["loss"] == pytest.approx(model["loss"], rel=1e-5)
    bad = folder / "f" / "9.png"
    bad.write_bytes((folder / "f" / "0.png").read_bytes()[:60])
    scores = zoo.evaluate(tmp_path / "1", folder)
    assert scores["items"] == 3 and scores["loss"] == export["loss"]
    assert scores["notes"][-1].startswith(f"Refused by the export: 1, such as {bad}: It is damaged")
    with pytest.raises(DataError, match=f"1 of 4 images cannot be read.*: {bad} cannot be read as"):
        zoo.evaluate(classifier, folder)


def test_exports_that_have_no_scores(tmp_path):
    for about, message in (
        ({"kind": "image_encoder"}, "Its format is saved_model, its kind image_encoder"),
        ({"format": "onnx"}, "only SavedModels of .* Its format is onnx, its kind classifier"),
        ({"class_names": ["a", "a"]}, "classes of the same name"),
    ):
        about = {"kind": "classifier", "format": "saved_model", "class_names": ["a", "b"], **about}
        (tmp_path / "export.json").write_text(json.dumps({**about, "needs": []}))
        with pytest.raises(UserError, match=message):
            zoo.evaluate(tmp_path, "digits")


@pytest.mark.parametrize("forms", [("NFD", "NFD"), ("NFC", "NFD"), ("NFD", "NFC")])
def test_translations_and_references_in_other_normal_forms_are_equal(forms, tmp_path, monkeypatch):
    text = "Caf\u00e9 und \u00dcbermut sind hier."
    found, reference = (unicodedata.normalize(form, text) for form in forms)
    monkeypatch.setattr(Translator, "__call__", lambda self, texts, **_: [found for _ in texts])
    (tmp_path / "pairs.tsv").write_text(f"the cat\t{reference}\nthe dog\t{reference}\n")
    scores = zoo.evaluate(small_translator(), tmp_path / "pairs.tsv")
    assert scores["bleu"] == pytest.approx(100) and scores["chrf"] == pytest.approx(100)


def test_a_line_warns_of_pairs_that_another_run_held_out(tmp_path, monkeypatch):
    """Several translators are tested on the part of the first."""
    monkeypatch.setattr(Translator, "__call__", lambda self, texts, **_: texts)
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{n} one\t{n} uno\n" for n in range(400)))
    first = small_translator()
    second = small_translator()
    checksum = fingerprint(parallel_text.tsv(table, 5).test)
    first.settings = {"seed": 5, "tsv": str(table), "data": f"test pairs {checksum}"}
    second.settings = {"seed": 6, "tsv": str(table)}
    reports = zoo.evaluate([first, second], table)
    warnings = [[note for note in report["notes"] if "hold out" in note] for report in reports]
    assert warnings[0] == [] and "runs with seed 5 hold out" in warnings[1][0]


def test_rows_without_a_side_are_counted(tmp_path):
    (tmp_path / "texts.tsv").write_bytes(b"\xef\xbb\xbfb\tone\r\n\r\nA\t\r\nA\ttwo\r\n")
    path = tmp_path / "texts.tsv"
    data = labeled_texts(path)
    assert data == Labeled(["one", "two"], [[1], [0]], ["A", "b"], NOTE, path=path)
    assert model_labels(data, list("ab"))[0] == [[1], [0]]
    with pytest.raises(DataError, match="such as 'b'.* Each line must be: label, tab, text"):
        model_labels(data, list("acd"))


@pytest.mark.parametrize(
    "names, class_names, numbers",
    [
        (["crane", "dog", "crane"], ["crane", "dog", "crane"], [0, 1, 2]),
        (["dog", "crane"], ["crane", "dog", "crane"], "'crane' .* 0 .crane., 2 .crane."),
        (["caf\u00e9"], ["bar", "cafe\u0301"], [1]),
        (["golden_retriever", "Tabby-Cat"], ["tabby cat", "Golden Retriever"], [1, 0]),
        (["Cat", "cat"], ["cat", "Cat"], [1, 0]),
        (["CAT"], ["cat", "Cat"], "'CAT' .* 0 .cat., 1 .Cat."),
        (["tench", "hen"], ["hen", "tench, Tinca tinca"], [1, 0]),
        (["n02012849", "crane"], ["n02012849 crane", "hen"], [0, 0]),
        (["n02012849", "n03126707"], ["hen", "n03126707 crane", "n02012849 crane, bird"], [2, 1]),
        (["crane"], ["n03126707 crane", "n02012849 crane, bird"], "'crane' .* 0 .n03.*, 1 .n02"),
        (["maillot"], ["maillot, tank suit", "maillot"], [1]),
        (["-1", "1"], ["0", "1", "-1"], [2, 1]),
        (["-1"], ["0", "1"], "lacks 1 of the 1 classes"),
        (["3", "1"], ["a", "b", "c", "d"], [3, 1]),
        ([str(n) for n in (1, 10, 2, 3, 4, 5, 6, 7, 8, 9)], [*"abcdefghij"], [0, 9, *range(1, 9)]),
    ],
)
def test_classes_are_found_by_their_names_or_named(names, class_names, numbers):
    data = Labeled(["text"] * len(names), [[number] for number in range(len(names))], names)
    if isinstance(numbers, str):
        with pytest.raises(DataError, match=numbers):
            model_labels(data, class_names)
    else:
        assert model_labels(data, class_names)[0] == [[number] for number in numbers]


def test_labels_that_are_no_class_of_the_data():
    with pytest.raises(DataError, match="labels that are not among 2 classes"):
        model_labels(Labeled(["a", "b"], [[0], [2]], ["a", "b"]), ["a", "b", "c"])


def test_models_that_have_no_scores(classifier, folder, capsys):
    model = zoo.vit(input_shape=(8, 8, 3), num_classes=0, patch_size=4, **SIZES)
    encoder = ImageEncoder(model, classifier.preprocessing)
    for models, options, message in (
        (encoder, {}, "can be evaluated, .* Received: ImageEncoder"),
        ([], {}, "Pass one or several models"),
        (classifier.model, {}, "as zoo.load returns them, .* Received: ViT"),
        (classifier, {"target": "test.es"}, "target: not an option for a classifier"),
        (classifier, {"bleu_tokenize": "13a"}, "bleu_tokenize: not an option for a classifier"),
        (classifier, {"dtype": "bfloat16"}, "dtype: only what zoo.load reads takes options"),
    ):
        with pytest.raises(UserError, match=message):
            zoo.evaluate(models, folder, **options)
    assert main(["evaluate", str(folder), "runs/vit"]) == 2
    assert "The data are named last, after the models." in capsys.readouterr().err
    assert main(["evaluate", "runs/vit"]) == 2
    assert "Pass one or several models, and then the data." in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1\n2 3\n\n", "[1, [2, 3], []]"])
def test_labels_are_numbers_of_classes(tmp_path, text):
    path = tmp_path / "labels"
    path.write_text(text)
    labels = read_labels(path, 3)
    assert labels == [[1], [2, 3], []]
    with pytest.raises(DataError, match="have the class 3. The model has 3 classes"):
        model_labels(Labeled(["one", "two", "three"], labels), list("abc"))
    for wrong in ("1\n2\n-1", "1\nx\n", "[1, 2"):
        path.write_text(wrong)
        with pytest.raises(DataError, match="labels must be class numbers"):
            read_labels(path, 3)


@pytest.mark.parametrize("repeats", [1, 4])  # a text in one window, or in several
def test_perplexity_is_that_of_the_tokens_in_windows(tmp_path, repeats):
    """By `Model.predict` of one window after the other; float32 sums in another order."""
    text = "the cat sat\non the mat. " * repeats
    (tmp_path / "text.txt").write_bytes(text.replace("\n", "\r\n").encode())
    tokenizer = train_tokenizer([text], "character", 300, "identity")
    model = zoo.causal_lm(vocab_size=tokenizer.vocab_size, max_length=32, **SIZES)
    generator = TextGenerator(model, tokenizer)
    scores = zoo.evaluate(generator, str(tmp_path / "text.txt"))
    tokens, losses = [*tokenizer.encode([text])[0], EOS_ID], []
    for start in range(0, len(tokens), 32):
        window = np.array(tokens[start : start + 32])
        logits = model.predict(np.array([[BOS_ID, *window[:-1]]]), verbose=0)[0]
        losses += [*(np.log(np.exp(logits).sum(axis=-1)) - logits[np.arange(len(window)), window])]
    assert scores["items"] == len(tokens) == len(losses)
    np.testing.assert_allclose(scores["loss"], np.mean(losses), rtol=1e-5)
    np.testing.assert_allclose(scores["perplexity"], np.exp(np.mean(losses)), rtol=1e-5)
    expected = np.sum(losses) / np.log(2) / len(text)
    np.testing.assert_allclose(scores["bits_per_byte"], expected, rtol=1e-5)


def test_scores_of_several_right_classes():
    """By hand: the best classes are 2, 0 and 1."""
    probabilities = np.array([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1], [0.2, 0.5, 0.3]])
    scores = _class_scores(probabilities, [[0, 2], [1], []], list("abc"))
    assert scores == {"items": 2, "items_without_class": 1, "accuracy": 0.5}
    scores = _class_scores(probabilities, [[2], [0], [0]], ["crane", "b", "crane"])
    assert scores["class_accuracy"] == {"crane (0)": 0.5, "b": None, "crane (2)": 1.0}


def test_a_better_translation_is_significantly_better():
    references = [[f"the {name} is in the park now ." for name in "abcdefghij" * 5]]
    worse = [text.replace("park now", "house") for text in references[0]]
    first, second = compared_translations([worse, references[0]], references)
    assert second["bleu"] == pytest.approx(100) and second["ter"] == 0
    assert first["bleu"] < 60 and second["bleu_p_value"] < 0.01


def test_the_edit_rate_of_chinese_is_of_characters():
    [scores] = compared_translations([["我喜欢吃红苹果。"]], [["我喜欢吃青苹果。"]])
    assert scores["ter"] == 100 / 8 and "asian:yes" in scores["ter_signature"]


def test_test_sets_that_are_missing():
    with pytest.raises(DataError, match="no test set 'wmt14/full' with the languages 'en-xx'"):
        sentence_pairs("sacrebleu:wmt14/full/en-xx")
    with pytest.raises(DataError, match="cannot be read"):
        sentence_pairs("no_such_file.tsv")


def test_a_test_set_in_the_cache_of_sacrebleu(tmp_path, monkeypatch):
    """With two references; one that is not complete would be downloaded."""
    data_set = sacrebleu.dataset.DATASETS["wmt20/tworefs"]
    monkeypatch.setattr(sacrebleu.utils, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(data_set, "_outdir", str(tmp_path / data_set.name))
    (tmp_path / data_set.name).mkdir(parents=True)
    for field in data_set.fieldnames("de-en"):
        with pytest.raises(DataError, match="does not have de-en. Download it: sacrebleu"):
            sentence_pairs("sacrebleu:wmt20/tworefs/de-en")
        path = pathlib.Path(data_set._get_txt_file_path("de-en", field))
        path.write_text(f"one {field}\n\n")
    sources, references, *_ = sentence_pairs("sacrebleu:wmt20/tworefs/de-en")
    assert sources == ["one src", ""]
    found = [[line.strip() for line in lines] for lines in references]
    assert found == [["one ref:0", ""], ["one ref:1", ""]]


def test_files_of_sentences_have_as_many_lines(tmp_path):
    (tmp_path / "en").write_text("one\n\ntwo\n")
    (tmp_path / "es").write_text("uno\nnada\ndos\n")
    files = str(tmp_path / "en"), str(tmp_path / "es")
    found = sentence_pairs(files[0], files[1:])
    assert found == Labeled(["one", "two"], [["uno", "dos"]], None, NOTE, path=files[0])
    (tmp_path / "es").write_text("uno\n")
    with pytest.raises(DataError, match="the same number of lines. .*en has 3, .*es has 1"):
        sentence_pairs(files[0], files[1:])
