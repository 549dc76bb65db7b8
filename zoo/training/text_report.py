"""The end of a text classification run: tests the model, writes the files and prints a summary."""

import numpy as np

from zoo.training import pictures
from zoo.training.run_folder import median

_NUM_SAMPLES = 5  # texts in the printed summary
_SMALLEST = 1e-30  # probability that counts in the loss


def finish_text_classifier(run, classifier, data, train):
    """Classifies the test texts and writes the model, metrics and plots to the run directory.

    Args:
        run: `zoo.training.run_folder.RunFolder` that contains ``history.csv``.
        classifier: `zoo.tasks.classifier.TextClassifier`.
        data: `zoo.data.labeled_text.TextDataset`.
        train: `zoo.data.encoded_texts.EncodedTexts`.
    """
    print("Testing the model, saving it and drawing plots ...")
    classifier.save(run.path)
    test, names, history = data.test, data.class_names, run.history()
    probabilities = classifier.probabilities(test.texts, too_long="truncate")
    found = probabilities.argmax(axis=1)
    of_labels = probabilities[np.arange(len(test)), test.labels]
    metrics = {
        "test_accuracy": float(np.mean(found == test.labels)),
        "test_loss": float(-np.log(np.maximum(of_labels, _SMALLEST)).mean()),
        "val_loss": history["val_loss"][-1],
        "val_accuracy": history["val_accuracy"][-1],
        "epochs": len(history["epoch"]),
        "texts_per_second": median(history["texts_per_second"]),
        "parameters": classifier.model.count_params(),
        "vocab_size": classifier.tokenizer.vocab_size,
        "train_texts": len(data.train),
        "train_texts_truncated": train.truncated,
        "valid_texts": len(data.valid),
        "test_texts": len(test),
    }
    counts = np.zeros((len(names),) * 2, int)
    np.add.at(counts, (test.labels, found), 1)
    pictures.text_curves(history, run / "learning_curves.png")
    pictures.confusion_matrix(counts, names, run / "confusion_matrix.png", "texts")
    rows = [
        (names[label], names[best], f"{probability:.4f}", text)
        for text, label, best, probability in zip(
            test.texts, test.labels, found, probabilities.max(axis=1)
        )
    ]
    _write_predictions(rows, run / "predictions.tsv")
    run.write_json("metrics.json", metrics)
    _print_summary(run, metrics, rows)


def _write_predictions(rows, path):
    """Writes label, prediction, its probability and each test text, tab-separated."""
    with open(path, "w", encoding="utf-8") as file:
        for row in (("label", "prediction", "probability", "text"), *rows):
            file.write("\t".join(" ".join(text.split()) for text in row) + "\n")


def _print_summary(run, metrics, rows):
    print()
    for label, prediction, probability, text in rows[:_NUM_SAMPLES]:
        verdict = "correct" if prediction == label else f"label: {label}"
        print(f"  {text[:80]}\n    {prediction}, {float(probability):.1%} ({verdict})")
    print(
        f"\ntest accuracy      {metrics['test_accuracy']:.2%} of {metrics['test_texts']:,} texts, "
        f"averaged weights after the last of {metrics['epochs']} epochs\n"
        f"texts/s            {metrics['texts_per_second'] or 0:,.0f} in training\n"
        f"parameters         {metrics['parameters']:,}\n"
        f"model              zoo.load({str(run.path)!r})(['A text.'])\n"
        f"plots              learning_curves.png, confusion_matrix.png\n"
        f"metrics            metrics.json, history.csv; predictions.tsv has all test texts; "
        f"tensorboard --logdir {run.path}\n"
        "run directory:"
    )
    print(run.path)
