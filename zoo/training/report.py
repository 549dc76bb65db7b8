"""The end of an image run: tests the model, writes the files and prints a summary."""

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data.pipeline import test_batches
from zoo.tasks.attention_rollout import attention_rollout
from zoo.training import pictures
from zoo.training.run_folder import median

_NUM_ATTENTION_IMAGES = 8


def finish_classifier(run, classifier, data):
    """Tests a trained classifier and writes the model, metrics and plots to the run directory.

    Args:
        run: `zoo.training.run_folder.RunFolder` that contains ``history.csv``.
        classifier: `zoo.tasks.classifier.ImageClassifier`.
        data: `zoo.data.images.ImageDataset`.
    """
    print("Testing the model, saving it and drawing plots ...")
    classifier.save(run.path)
    logits, labels = _tested(classifier, data)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))
    history = run.history()
    metrics = {
        "test_accuracy": float(np.mean(logits.argmax(axis=1) == labels)),
        "test_loss": float(np.mean(losses)),
        "train_loss": history["loss"][-1],
        "epochs": len(history["epoch"]),
        "images_per_second": median(history["images_per_second"]),
        "parameters": classifier.model.count_params(),
        "train_images": len(data.train),
        "test_images": len(labels),
        "skipped_images": [*data.skipped, *_skipped(data.train), *_skipped(data.test)],
    }
    pictures.learning_curves(history, run / "learning_curves.png")
    counts = np.zeros((len(data.class_names),) * 2, int)
    np.add.at(counts, (labels, logits.argmax(axis=1)), 1)
    pictures.confusion_matrix(counts, data.class_names, run / "confusion_matrix.png")
    if hasattr(classifier.model, "attention_maps"):
        _draw_attention(classifier, data.test, run / "attention.png")
    run.write_json("metrics.json", metrics)
    _print_summary(run, metrics)


def _tested(classifier, data):
    """The logits [n, K] and labels int [n] of all test images that can be read."""
    logits, labels = [], []
    batches = test_batches(data.test, len(data.class_names), 256)
    progress = tqdm(batches.whole(), "testing", batches.num_batches, leave=False, disable=None)
    for pixels, one_hot, weights in progress:
        real = weights > 0
        images = classifier.preprocessing.normalize(pixels)
        logits.append(classifier.model.predict_on_batch(images)[real])
        labels.append(tf.argmax(one_hot, axis=1)[real])
    return np.concatenate(logits), np.concatenate(labels)


def _skipped(images):
    return getattr(images, "skipped", {}).values()


def _draw_attention(classifier, images, path):
    pixels, labels = images.sample(_NUM_ATTENTION_IMAGES)
    shares = attention_rollout(classifier.model, classifier.preprocess(list(pixels)))
    answers = [answer for [answer] in classifier(list(pixels))]
    truth = [classifier.class_names[label] for label in labels]
    pictures.attention(pixels, shares, answers, truth, path)


def _print_summary(run, metrics):
    plots = ", ".join(sorted(path.name for path in run.path.glob("*.png")))
    print(
        f"\ntest accuracy      {metrics['test_accuracy']:.2%}, "
        f"after the last of {metrics['epochs']} epochs\n"
        f"images/s           {metrics['images_per_second'] or 0:.0f} in training\n"
        f"parameters         {metrics['parameters']:,}\n"
        f"model              zoo.load({str(run.path)!r})(['image.png'])\n"
        f"plots              {plots}\n"
        f"metrics            metrics.json, history.csv; tensorboard --logdir {run.path}\n"
        "run directory:"
    )
    print(run.path)
