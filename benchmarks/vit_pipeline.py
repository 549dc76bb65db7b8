"""Compares `fit` on the recipe's input pipeline with `fit` on arrays in memory.

    python benchmarks/vit_pipeline.py --data-dir ~/tensorflow_datasets

The model of the CIFAR-10 recipe is trained on its shuffled and augmented batches, and on as many
images that are already normalized. The pipeline alone is measured as well.
"""

import dataclasses
import itertools
import pathlib
import sys

import numpy as np
import turns

STEPS = 20  # of a run


def cases(**settings):
    """One case; `settings` are changes of the recipe's."""
    contenders = ("arrays", "pipeline", "pipeline alone")
    _, config = load(settings)
    items = STEPS * config.batch_size
    return [turns.Case("training", {"changed": settings}, contenders, items, "images")]


def load(changed):
    """The recipe's module and its settings."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "recipes"))
    import vit_cifar10

    start = vit_cifar10.DIGITS if changed.get("dataset") == "digits" else vit_cifar10.CIFAR10
    return vit_cifar10, dataclasses.replace(start, **changed)


def training(changed, data, config):
    """(a compiled model, arguments of its `fit`)."""
    import keras

    from zoo.training.optimizers import adamw, warmup_cosine

    vit_cifar10, _ = load(changed)
    model = vit_cifar10.build(config, data)
    optimizer = adamw(warmup_cosine(1e-3, 10_000), 0.05, clip_norm=1.0, ema_momentum=0.999)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model, {"steps_per_epoch": STEPS, "shuffle": False, "verbose": 0}


def arrays(folder, changed):
    import tensorflow as tf

    from zoo.training.image_run import load_images

    _, config = load(changed)
    data = load_images(config)
    size = config.batch_size
    indices = np.arange(STEPS * size) % len(data.train.labels)
    images = data.preprocessing().normalize(data.train.pixels[indices]).numpy()
    labels = np.eye(len(data.class_names), dtype="float32")[data.train.labels[indices]]
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(size).repeat()
    model, settings = training(changed, data, config)
    return lambda: model.fit(batches, **settings).history["loss"]


def batches_of(changed, config, data):
    from zoo.data.image_batches import training_batches

    vit_cifar10, _ = load(changed)
    normalize = data.preprocessing().normalize
    augment = vit_cifar10.augmentation(config)
    batches = training_batches(data.train, 10, config.batch_size, augment=augment).whole()
    return batches.map(lambda pixels, *rest: (normalize(pixels), *rest))


def recipe(folder, changed):
    from zoo.training.image_run import load_images

    _, config = load(changed)
    data = load_images(config)
    batches = batches_of(changed, config, data)
    model, settings = training(changed, data, config)
    return lambda: model.fit(batches, **settings).history["loss"]


def alone(folder, changed):
    from zoo.training.image_run import load_images

    _, config = load(changed)
    batches = iter(batches_of(changed, config, load_images(config)))
    return lambda: [float(len(batch[0])) for batch in itertools.islice(batches, STEPS)]


CONTENDERS = {"arrays": arrays, "pipeline": recipe, "pipeline alone": alone}

if __name__ == "__main__":
    parser = turns.parser(__doc__)
    parser.add_argument("--data-dir", help="folder of prepared TFDS data")
    args = parser.parse_args()
    turns.run(__file__, cases(data_dir=args.data_dir), args)
