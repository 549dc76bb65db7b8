"""``python -m zoo classify``."""

import os
import sys
from typing import Literal

from zoo.commands.shared import (
    Classes,
    File,
    Float,
    Int,
    Items,
    RunFolder,
    Str,
    flag,
    load,
    one_line,
    read_texts,
)
from zoo.errors import UserError
from zoo.files import printable

_BATCH = 64  # images that are read and classified at once


def classify(
    run_folder: RunFolder,
    items: Items = (),
    file: File = None,
    top_k: Int = None,
    threshold: Float = None,
    too_long: flag(Literal["error", "truncate"] | None, "{error,truncate}") = None,
    engine: Str = None,
    dtype: Str = None,
    classes: Classes = (),
):
    """Classify images or texts.

    For example: python -m zoo classify runs/vit_cifar10 photo.jpg --top-k 3

    Args:
        items: image file, folder of images, or text; by default the lines of standard input
        top_k: number of classes per item (1; for several labels, all above the threshold)
        threshold: minimum probability of a class, from 0 to 1 (0.5 for several labels)
        too_long: how to handle a text that is too long for the model (truncate)
        engine: onnxruntime or openvino in place of TensorFlow, often faster on CPUs
        dtype: dtype, such as bfloat16 (the run's); with --engine also int8 (float32)
    """
    classifier = load(run_folder, "classify", dtype=dtype, engine=engine, classes=classes)
    from zoo.tasks.classifier import ImageClassifier

    if isinstance(classifier, ImageClassifier):
        if file or not items:
            raise UserError(f"{run_folder} classifies images. Pass image files or folders.")
        if too_long:
            raise UserError("--too-long is for texts.")
        return _classify_images(classifier, items, top_k, threshold)
    for texts in read_texts(items, file):
        _print_classes(texts, classifier(texts, top_k, threshold, too_long=too_long or "truncate"))
    return 0


def _classify_images(classifier, items, top_k, threshold):
    """Prints the classes of each image; reports images that cannot be read."""
    paths = []
    for item in items:
        paths += _image_files(item)
    failed = 0
    for start in range(0, len(paths), _BATCH):
        readable = []
        images = []
        for path in paths[start : start + _BATCH]:
            try:
                images.append(classifier.preprocessing.read(path))
                readable.append(path)
            except (UserError, OSError) as error:
                failed += 1
                print(f"error: {error}", file=sys.stderr)
        names = [printable(path) for path in readable]
        inputs = classifier.normalized(images)  # which are resized and cropped already
        _print_classes(names, classifier.classes_of_inputs(inputs, top_k, threshold))
    if not failed:
        return 0
    print(f"{failed} of {len(paths)} images could not be classified.", file=sys.stderr)
    return 1 if failed < len(paths) else 2


def _image_files(path):
    """The images in a folder, or the file itself."""
    from zoo.data.image_folder import SUFFIXES, images_in

    path = os.path.expanduser(path)
    if not os.path.isdir(path):
        return [path]
    images, notes = images_in(path)
    for note in notes:
        print(note, file=sys.stderr)
    if not images:
        raise UserError(f"The folder {path} has no images ({', '.join(sorted(SUFFIXES))}).")
    return images


def _print_classes(items, answers):
    for item, answer in zip(items, answers):
        classes = [f"{name} {probability:.1%}" for name, probability in answer]
        print(one_line(str(item)), *map(one_line, classes), sep="\t")
    sys.stdout.flush()
