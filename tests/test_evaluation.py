"""`zoo.evaluate`: a run has the scores that its recipe measured, and so has its export."""

import copy
import json
import shutil

import numpy as np
import pytest
from PIL import Image

import zoo
from zoo.__main__ import main
from zoo.data.images import digits
from zoo.data.preprocessing import ImagePreprocessing
from zoo.errors import DataError, UserError
from zoo.evaluation import _class_scores
from zoo.evaluation.data import labeled_images, read_labels, sentence_pairs
from zoo.tasks.classifier import ImageClassifier
from zoo.tasks.encoder import ImageEncoder
from zoo.tasks.generator import TextGenerator
from zoo.text import BOS_ID, EOS_ID
from zoo.text.sentencepiece import train_tokenizer
from zoo.training.translation_scores import compared_translations

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
    """By the command line; the loss within rounding: here it is that of probabilities."""
    expected, out = measured(digits_run[1]), tmp_path / "scores.json"
    assert main(["evaluate", str(digits_run[1]), "digits", "--out", str(out)]) == 0
    scores = json.loads(out.read_text())
    assert scores["accuracy"] == expected["test_accuracy"]
    assert scores["class_accuracy"] == expected["class_accuracy"]
    assert scores["class_items"] == expected["test_counts"]
    assert scores["balanced_accuracy"] == expected["balanced_accuracy"]
    np.testing.assert_allclose(scores["loss"], expected["test_loss"], rtol=1e-5)
    assert f"{scores['accuracy']:.2%}" in capsys.readouterr().out


@pytest.mark.ci
def test_translations_have_the_scores_of_the_recipe(phrasebook_run, pairs):
    """Also from two files."""
    expected, run = measured(phrasebook_run[1]), phrasebook_run[1]
    scores, other = zoo.evaluate([run, zoo.load(run)], str(pairs / "pairs.tsv"))
    assert scores["bleu"] == expected["bleu"] and scores["chrf"] == expected["chrf"]
    assert scores["items"] == expected["test_sentences"]
    assert other["ter"] == scores["ter"] and "bleu_p_value" in other
    assert "bleu_p_value" not in scores
    files = zoo.evaluate(run, str(pairs / "en"), target=str(pairs / "es"))
    assert {**files, **dict.fromkeys(["seconds", "items_per_second", "peak_memory_mib"])} == {
        **scores,
        **dict.fromkeys(["seconds", "items_per_second", "peak_memory_mib"]),
    }


@pytest.mark.ci
def test_an_exported_translator_has_the_scores_of_its_model(
    phrasebook_translator, phrasebook_export, pairs
):
    model, export = zoo.evaluate(
        [phrasebook_translator, phrasebook_export], str(pairs / "pairs.tsv")
    )
    assert export["bleu"] == model["bleu"] and export["ter"] == model["ter"]


@pytest.mark.ci
def test_an_export_without_all_classes_is_refused(digits_export):
    with pytest.raises(UserError, match="returns 3 of 10 classes. Export it with --top-k 10"):
        zoo.evaluate(digits_export, "digits")


@pytest.mark.ci
def test_texts_have_the_scores_of_the_recipe(texts_run, tmp_path):
    rows = (texts_run[1] / "predictions.tsv").read_text().splitlines()[1:]
    rows = [(row.split("\t")[0], row.split("\t")[3]) for row in rows]
    (tmp_path / "texts.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    scores = zoo.evaluate(texts_run[1], str(tmp_path / "texts.tsv"))
    assert scores["accuracy"] == measured(texts_run[1])["test_accuracy"]


def test_digits_are_divided_by_the_seed_of_the_run(classifier, tmp_path):
    def images(seed):
        (tmp_path / "config.json").write_text(json.dumps({"config": {"seed": seed}}))
        return labeled_images(classifier, "digits").images.numbers

    classifier = copy.copy(classifier)
    classifier.class_names = [*"0123456789"]
    assert (labeled_images(classifier, "digits").images.numbers == digits().test.numbers).all()
    classifier.run_folder = tmp_path
    for seed in (0, 1):
        assert (images(seed) == digits(seed).test.numbers).all()


# --- without trained models ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def classifier():
    model = zoo.vit(input_shape=(8, 8, 3), num_classes=7, patch_size=4, **SIZES)
    preprocessing = ImagePreprocessing((8, 8), 3, mean=(0.5,) * 3, std=(0.5,) * 3)
    return ImageClassifier(model, preprocessing, list("abcdefg"))


@pytest.fixture
def folder(tmp_path):
    """A folder of images of two of the classes: f/3.png, f/0.png and b/1.png."""
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8)
    for image, name in zip(pixels, ("f/3.png", "f/0.png", "b/1.png")):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return tmp_path / "images"


def test_class_folders_are_found_by_the_names_of_the_classes(classifier, folder):
    probabilities = classifier.probabilities(
        [folder / name for name in ("b/1.png", "f/0.png", "f/3.png")]
    )
    scores = zoo.evaluate(classifier, folder)
    right = probabilities[[0, 1, 2], [1, 5, 5]]
    assert scores["items"] == 3 and scores["class_items"]["f"] == 2
    assert scores["accuracy"] == np.mean(probabilities.argmax(axis=1) == [1, 5, 5])
    np.testing.assert_allclose(scores["loss"], -np.log(right).mean(), rtol=1e-6)  # one rounding
    (folder / "f").rename(folder / "6")
    (folder / "b").rename(folder / "0")
    assert zoo.evaluate(classifier, folder)["class_items"]["g"] == 2  # by their numbers
    shutil.copytree(folder / "6", folder / "z")
    with pytest.raises(DataError, match="has 3 classes that the model does not have, such as '0'"):
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


def test_models_that_have_no_scores(classifier, folder, capsys):
    with pytest.raises(UserError, match="generators can be evaluated. Received: ImageEncoder"):
        model = zoo.vit(input_shape=(8, 8, 3), num_classes=0, patch_size=4, **SIZES)
        zoo.evaluate(ImageEncoder(model, classifier.preprocessing), folder)
    with pytest.raises(UserError, match="Pass one or several models"):
        zoo.evaluate([], folder)
    with pytest.raises(UserError, match="what zoo.load returns, a path or a name. Received: ViT"):
        zoo.evaluate(classifier.model, folder)
    with pytest.raises(UserError, match="target is for a translator. Received: a classifier"):
        zoo.evaluate(classifier, folder, target="test.es")
    with pytest.raises(UserError, match="dtype: only what zoo.load reads takes options"):
        zoo.evaluate(classifier, folder, dtype="bfloat16")
    assert main(["evaluate", "runs/vit"]) == 2
    assert "Pass one or several models, and then the data." in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1 2\n\n9", "[1, [2, 3], []]", "1\nx\n", "[1, 2"])
def test_labels_are_numbers_of_classes(tmp_path, text):
    path = tmp_path / "labels"
    path.write_text(text)
    if text == "[1, [2, 3], []]":
        assert read_labels(path, 3, 5) == [[1], [2, 3], []]
        return
    with pytest.raises(DataError, match="labels"):
        read_labels(path, 3, 5)


@pytest.mark.parametrize("repeats", [1, 4])  # a text in one window, or in several
def test_perplexity_is_that_of_the_tokens_in_windows(tmp_path, repeats):
    """By `Model.predict` of one window after the other; float32 sums in another order."""
    text = "the cat sat on the mat. " * repeats
    (tmp_path / "text.txt").write_text(text)
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


def test_a_better_translation_is_significantly_better():
    references = [[f"the {name} is in the park now ." for name in "abcdefghij" * 5]]
    worse = [text.replace("park now", "house") for text in references[0]]
    first, second = compared_translations([worse, references[0]], references)
    assert second["bleu"] == pytest.approx(100) and second["ter"] == 0
    assert first["bleu"] < 60 and second["bleu_p_value"] < 0.01


@pytest.mark.parametrize(
    "data, message",
    [
        ("sacrebleu:wmt14/full/en-xx", "has no test set 'wmt14/full' with the languages 'en-xx'"),
        ("sacrebleu:nothing", "has no test set"),
        ("no_such_file.tsv", "cannot be read"),
    ],
)
def test_test_sets_that_are_missing(data, message):
    with pytest.raises(DataError, match=message):
        sentence_pairs(None, data)


def test_files_of_sentences_have_as_many_lines(tmp_path):
    (tmp_path / "en").write_text("one\n\ntwo\n")
    (tmp_path / "es").write_text("uno\nnada\ndos\n")
    files = str(tmp_path / "en"), str(tmp_path / "es")
    assert sentence_pairs(None, *files) == (["one", "two"], [["uno", "dos"]], 1)
    (tmp_path / "es").write_text("uno\n")
    with pytest.raises(DataError, match="same number of lines. .* has 3, .* has 1"):
        sentence_pairs(None, *files)
