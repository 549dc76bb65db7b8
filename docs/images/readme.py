"""Draws docs/images/readme.png, the picture of README, with two models of docs/results.

    python docs/images/readme.py --data-dir ~/tensorflow_datasets

The folder contains CIFAR-10, as TensorFlow Datasets prepares it. The last image is also written as
docs/images/dog.png.
"""

import argparse
import pathlib

import keras
import numpy as np
import tensorflow_datasets as tfds
from matplotlib.figure import Figure

import zoo
from zoo.models.attention_rollout import attention_rollout

FILE = pathlib.Path(__file__).with_suffix(".png")
RESULTS = FILE.parents[1] / "results"
IMAGES = [5, 17, 36]  # of the test set
SENTENCE = "I would like a cup of coffee, please."


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", help="folder of prepared TFDS data")
    parser.add_argument("--out", default=FILE)
    args = parser.parse_args()
    figure = Figure((11, 4.9), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.1, 1), wspace=0.04)
    images = test_images(args.data_dir)
    draw_classification(left, images)
    draw_translation(right)
    figure.savefig(args.out, dpi=90)
    keras.utils.save_img(FILE.with_name("dog.png"), images[-1], scale=False)


def test_images(data_dir):
    examples = tfds.load("cifar10", split="test", data_dir=data_dir)
    images = [example["image"].numpy() for example in examples.take(max(IMAGES) + 1)]
    return [images[number] for number in IMAGES]


def draw_classification(figure, images):
    """Draws images, their best class, and where the Vision Transformer looks."""
    classifier = zoo.load(RESULTS / "vit_cifar10")
    answers = classifier(images, top_k=1)
    attention = np.asarray(attention_rollout(classifier.model, classifier.preprocess(images)))
    figure.suptitle(
        "zoo.load('docs/results/vit_cifar10') classifies 32 x 32 pixels.\n"
        "Below, bright: the patches that it attends to"
    )
    axes = figure.subplots(2, len(images))
    for column, (image, answer, weights) in enumerate(zip(images, answers, attention)):
        above, below = axes[:, column]
        height, width, _ = image.shape
        whole = (0, width, height, 0)
        [(name, probability)] = answer
        above.imshow(image, extent=whole, interpolation="bicubic")
        above.set_title(f"{name} {probability:.0%}")
        below.imshow(image, extent=whole, interpolation="bicubic")
        below.imshow(weights, extent=whole, interpolation="bicubic", cmap="inferno", alpha=0.65)
        above.axis("off")
        below.axis("off")


def draw_translation(figure):
    """Draws which words of a sentence the decoder attends to for each word of its translation."""
    translator = zoo.load(RESULTS / "translate_spa")
    [translation] = translator([SENTENCE])
    alignment = translator.alignment(SENTENCE, translation)
    figure.suptitle(
        "zoo.load('docs/results/translate_spa') translates.\n"
        "Dark: the words that it attends to for each new word"
    )
    axes = figure.subplots()
    axes.imshow(alignment.weights, cmap="Blues", vmin=0, aspect="auto")
    axes.set_xticks(range(len(alignment.source)), alignment.source)
    axes.set_yticks(range(len(alignment.target)), alignment.target)
    axes.tick_params(axis="x", rotation=40)
    axes.tick_params(length=0, labelsize=11)


if __name__ == "__main__":
    main()
