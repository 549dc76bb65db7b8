"""The end of a run: tests the model, saves it, draws plots, writes ``metrics.json`` and a summary.

Each task has a function that adds its scores and pictures; `_begin` and `_end` are what all share.
Their `folder` is the `zoo.training.run_folder.RunFolder` of the run.
"""

import csv
import math

import numpy as np

from zoo.data.images import sample
from zoo.errors import TaskError
from zoo.models import ViT
from zoo.models.attention_rollout import attention_rollout
from zoo.training import callbacks, pictures
from zoo.training.callbacks import best_index
from zoo.training.report_distillation import as_table, compared_with_teacher
from zoo.training.report_scores import (
    class_scores,
    cross_entropy,
    epoch_scores,
    image_probabilities,
    label_scores,
    likelihood_scores,
)
from zoo.training.report_translation_scores import translation_scores

_NUM_SAMPLES = 5  # texts and translations in the printed summary
_NUM_ATTENTION_IMAGES = 8
_MAX_ATTENTION_WEIGHTS = 2**28  # of an image: 1 GiB in float32
_MIN_ALIGNED = 5  # tokens of a source, whose alignment fits in a picture
_MAX_ALIGNED = 20
_PROMPT_CHARACTERS = 60


def _begin(folder, task):
    """Saves the model and draws the learning curves; returns the history of the training."""
    print("Testing the model, saving it and drawing plots ...")
    task.settings = None  # those of the run of --weights; config.json has those of this run
    task.save(folder.path)
    history = callbacks.history(folder.path)
    pictures.learning_curves(history, folder / "learning_curves.png")
    return history


def _end(folder, task, history, items, *, metrics, summary, samples=(), tested_epoch=None):
    """Writes ``metrics.json``, the last file of a run, and prints the summary.

    Args:
        items: what the training speed counts: images, texts or tokens.
        metrics: dict of the metrics of this task.
        summary: {name: printed text} of the most important metrics.
        samples: printed texts, one above the other.
        tested_epoch: number of the epoch with whose weights the metrics are; the last by default.
    """
    epochs = len(history["epoch"])
    tested = (tested_epoch or epochs) - 1
    speeds = [one for one in history[f"{items}_per_second"] if math.isfinite(one)]
    speed = float(np.median(speeds)) if speeds else math.nan  # NaN: no epoch was trained at once
    parameters = task.model.count_params()
    common = {
        "train_loss": history["loss"][tested],
        "val_loss": history["val_loss"][tested],
        "val_accuracy": history["val_accuracy"][tested],
        "epochs": epochs,
        f"{items}_per_second": speed,
        "parameters": parameters,
    }
    folder.write_json("metrics.json", {**metrics, **common})
    lines = {
        **summary,
        f"{items}/s": f"{speed:,.0f} in training" if speeds else "not measured",
        "parameters": f"{parameters:,}",
        "model": f"zoo.load({str(folder.path)!r})",
        "logs": f"tensorboard --logdir {folder.path}",
        "run directory": f"\n{folder.path}",  # alone in the last line, for scripts
    }
    print()
    for sample_text in samples:
        print(sample_text)
    print()
    for name, text in lines.items():
        print(f"{name:<18} {text}")


# --- images --------------------------------------------------------------------------------------


def finish_classifier(folder, classifier, data, restored=False):
    """Tests an `ImageClassifier` on the test images of an `ImageDataset`.

    `restored` is whether it has the weights of the best epoch, and not of the last one.
    """
    history = _begin(folder, classifier)
    probabilities = image_probabilities(classifier, data.test)
    epochs, words = epoch_scores(history, restored)
    if classifier.problem == "multi_label":
        scores, summary = _multi_label_scores(data, probabilities, f", {words}")
    else:
        scores, summary = _single_label_scores(folder, data, probabilities, f", {words}", "images")
    if isinstance(classifier.model, ViT):
        _draw_attention_maps(classifier, data.test, folder / "attention.png")
    _end(
        folder,
        classifier,
        history,
        "images",
        metrics={
            **scores,
            **epochs,
            "train_images": len(data.train),
            "test_images": len(data.test),
            "notes": list(data.notes),
        },
        summary=summary,
        tested_epoch=epochs["tested_epoch"],
    )


def _num_attention_weights(vit):
    """The number of attention weights of an image, in all layers and heads."""
    num_tokens = math.prod(vit.grid(vit.input_shape[:2])) + vit.num_prefix_tokens
    return vit.num_layers * vit.num_heads * num_tokens**2


def _draw_attention_maps(classifier, images, path):
    if _num_attention_weights(classifier.model) > _MAX_ATTENTION_WEIGHTS:
        print("attention.png is not drawn: the attention weights of an image take much memory.")
        return
    shown = sample(images, _NUM_ATTENTION_IMAGES)
    pixels = shown.pixels
    inputs = classifier.normalized(pixels)  # as in the test, they are resized and cropped already
    # Of long sequences, the matrices of one image take much memory.
    shares = np.concatenate([attention_rollout(classifier.model, image[None]) for image in inputs])
    answers = classifier.classes_of_inputs(inputs)
    names = np.array(classifier.class_names)
    labels = shown.labels
    if labels.ndim == 1:
        labels = np.eye(len(names))[labels]
    truth = [names[row > 0].tolist() for row in labels]
    pictures.attention(pixels, shares, answers, truth, path)


# --- texts ---------------------------------------------------------------------------------------


def finish_text_classifier(folder, classifier, data, train):
    """Tests a `TextClassifier` on the test texts of a `TextDataset`; `train` are `EncodedTexts`."""
    history = _begin(folder, classifier)
    test = data.test
    probabilities = classifier.probabilities(test.texts, too_long="truncate")
    epochs, which_epoch = epoch_scores(history)
    words = f" of {len(test):,} texts, averaged weights {which_epoch}"
    if classifier.problem == "multi_label":
        true = [np.flatnonzero(row > 0) for row in test.labels]
        predicted = [np.flatnonzero(row >= 0.5) for row in probabilities]
        scores, summary = _multi_label_scores(data, probabilities, words)
    else:
        true = test.labels[:, None]  # [n, 1]
        predicted = probabilities.argmax(axis=1)[:, None]  # [n, 1]
        scores, summary = _single_label_scores(folder, data, probabilities, words, "texts")
    names = np.array(data.class_names)
    rows = [("label", "prediction", "probability", "text")]
    for label, prediction, row, text in zip(true, predicted, probabilities, test.texts):
        chances = "|".join(f"{probability:.4f}" for probability in row[prediction])
        rows.append(("|".join(names[label]), "|".join(names[prediction]), chances, text))
    samples = _write_table(folder / "predictions.tsv", rows)
    _end(
        folder,
        classifier,
        history,
        "texts",
        metrics={
            **scores,
            **epochs,
            "vocab_size": classifier.tokenizer.vocab_size,
            "train_texts": len(data.train),
            "train_texts_truncated": train.truncated,
            "valid_texts": len(data.valid),
            "test_texts": len(test),
            "notes": list(data.notes),
        },
        summary=summary,
        samples=samples,
    )


def _single_label_scores(folder, data, probabilities, words, items):
    """(metrics, lines of the summary) of test items with one label each, int [n].

    Draws the confusion matrix. The first line ends with `words`.
    """
    labels = data.test.labels
    predicted = probabilities.argmax(axis=1)
    names = data.class_names
    pictures.confusion_matrix(labels, predicted, names, folder / "confusion_matrix.png", items)
    metrics = class_scores(labels, predicted, names, data.train.labels)
    of_labels = np.take_along_axis(probabilities, labels[:, None], axis=1)  # [n, 1]
    metrics["test_loss"] = cross_entropy(of_labels)
    summary = {
        "test accuracy": f"{metrics['test_accuracy']:.2%}{words}",
        "balanced accuracy": f"{metrics['balanced_accuracy']:.2%}",
    }
    return metrics, summary


def _multi_label_scores(data, probabilities, words):
    """(metrics, lines of the summary) of test items with several labels each, float [n, K]."""
    metrics = label_scores(data.test.labels, probabilities, data.class_names)
    metrics["test_loss"] = metrics.pop("loss")
    precision = f"{metrics['mean_average_precision']:.4f}"
    f1 = f"{metrics['f1_micro']:.4f}"
    return metrics, {"test mean average precision": f"{precision}, F1 {f1}{words}"}


def _write_table(path, rows):
    """Writes rows of texts, tab-separated; returns the first ones, to print."""
    rows = [[" ".join(text.split()) for text in row] for row in rows]
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(rows)
    return [" | ".join(row) for row in rows[: 1 + _NUM_SAMPLES]]


# --- translations --------------------------------------------------------------------------------


def finish_translator(folder, translator, data, bleu_tokenize=None, teacher=None):
    """Tests a `Translator` on the test pairs of a `TextDataset`; see `translation_scores`.

    With `teacher`, another `Translator`, both are compared.
    """
    history = _begin(folder, translator)
    sources = [source for source, _ in data.test]
    references = [reference for _, reference in data.test]
    translations = translator(sources, sentences=False, too_long=translator.long_texts)
    rows = [("source", "reference", "translation"), *zip(sources, references, translations)]
    samples = _write_table(folder / "translations.tsv", rows)
    _draw_alignment(translator, sources, folder / "attention.png")
    scores = translation_scores(translations, references, bleu_tokenize)
    best_epoch = best_index(history["val_loss"]) + 1  # the last that `AverageCheckpoints` averages
    metrics = {
        **scores,
        "best_epoch": best_epoch,
        "test_sentences": len(sources),
        "source_vocab_size": translator.source_tokenizer.vocab_size,
        "target_vocab_size": translator.target_tokenizer.vocab_size,
        "train_pairs": len(data.train),
        "valid_pairs": len(data.valid),
        "notes": data.notes,
    }
    if teacher is not None:
        print("Comparing the student with its teacher ...")
        compared = compared_with_teacher(
            folder.path, teacher, translator, scores, data, bleu_tokenize
        )
        metrics["distillation"] = compared
        samples += ["", *as_table(compared)]
    _end(
        folder,
        translator,
        history,
        "tokens",
        metrics=metrics,
        summary={
            "BLEU": f"{scores['bleu']:.2f}  {scores['bleu_signature']}",
            "chrF": f"{scores['chrf']:.2f}  {scores['chrf_signature']}",
            "exact matches": f"{scores['exact_match']:.2%} of {len(sources):,}",
        },
        samples=samples,
        tested_epoch=best_epoch,
    )


def _draw_alignment(translator, sources, path):
    """Draws the alignment of a source of a few tokens, or else of the shortest one."""
    longest = min(_MAX_ALIGNED, translator.model.max_length - 1)
    shown = min(sources, key=len)
    for source, ids in zip(sources, translator.source_tokenizer.encode(sources)):
        if _MIN_ALIGNED <= len(ids) <= longest:
            shown = source
            break
    try:
        alignment = translator.alignment(shown)
    except TaskError:  # it is too long for the model, or the result is NaN
        return
    pictures.cross_attention(alignment.weights, alignment.source, alignment.target, path)


# --- language models -----------------------------------------------------------------------------


def finish_generator(folder, generator, train, valid_texts):
    """Measures a `TextGenerator`; `train` are the training tokens, `valid_texts` held-out texts."""
    history = _begin(folder, generator)
    loss = history["val_loss"][-1]
    accuracy = history["val_accuracy"][-1]
    tokens = sum(len(ids) + 1 for ids in generator.tokenizer.encode(valid_texts))
    size = sum(len(text.encode()) for text in valid_texts)
    scores = likelihood_scores(loss, tokens, size)
    samples = []
    with open(folder / "samples.txt", "w", encoding="utf-8") as file:
        for prompt, text in _continuations(generator, valid_texts):
            file.write(f"--- {prompt!r}\n{text}\n\n")
            samples.append(f"  {prompt!r} ...\n    {text.removeprefix(prompt)!r}")
    _end(
        folder,
        generator,
        history,
        "tokens",
        metrics={
            **scores,
            "vocab_size": generator.tokenizer.vocab_size,
            "train_tokens": len(train),
            "valid_tokens": tokens,
        },
        summary={
            "perplexity": f"{scores['perplexity']:,.4g} of held-out tokens",
            "bits per byte": f"{scores['bits_per_byte']:.3f}",
            "next token": f"{accuracy:.2%} correct",
        },
        samples=samples,
    )


def _continuations(generator, texts):
    """(prompt, continued prompt) of the beginnings of some texts."""
    limit = generator.model.max_length // 2  # tokens
    longest = sorted(texts, key=len)[-3:]
    beginnings = [text.strip()[:_PROMPT_CHARACTERS] for text in longest]
    lengths = [len(ids) for ids in generator.tokenizer.encode(beginnings)]
    prompts = [prompt for prompt, length in zip(beginnings, lengths) if length < limit]
    answers = generator.sample(prompts, top_p=0.9, max_new_tokens=min(64, limit))
    return [(prompt, continued.text) for prompt, [continued] in zip(prompts, answers)]
