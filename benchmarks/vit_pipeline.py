"""Measures input pipelines, and how many CPU cores they need to keep a GPU busy.

    python benchmarks/vit_pipeline.py --data-dir ~/tensorflow_datasets
    python benchmarks/vit_pipeline.py --only "alone"

The model of the CIFAR-10 recipe is trained on its shuffled and augmented batches, and on as many
images that are already normalized. Then pipelines are measured alone: that of CIFAR-10 from memory,
that of ImageNet from JPEG files, and that of sentence pairs.
"""

import dataclasses
import itertools
import pathlib
import sys
from statistics import median

import numpy as np
import turns

STEPS = 20  # of a run
JPEGS = 1024  # files of 400 x 300 pixels
JPEG_BATCH = 128
PAIRS = 20_000
TOKENS_PER_BATCH = 8192
# What one GPU consumes, docs/speed.md: ViT-S/16 on images of 224 pixels, and the translation model
# of Vaswani et al. in its base size, in mixed bfloat16 on an H200. An H100 has not been measured.
CONSUMED = {"images": 4_250, "tokens": 351_000}


def cases(**settings):
    """`settings` are changes of the recipe's."""
    _, config = load(settings)
    items = STEPS * config.batch_size
    training = ("arrays", "pipeline")
    memory = {"changed": settings}
    files = STEPS * JPEG_BATCH
    return [
        turns.Case("training", memory, training, items, "images"),
        turns.Case("alone, from memory", memory, ("pipeline alone",), items, "images"),
        turns.Case("alone, JPEG, crop and flip", {"ops": 0}, ("JPEG",), files, "images"),
        turns.Case("alone, JPEG, RandAugment", {"ops": 2}, ("JPEG",), files, "images"),
        turns.Case("alone, sentence pairs", {}, ("pairs",), STEPS * TOKENS_PER_BATCH, "tokens"),
    ]


def prepare(folder, all_settings):
    """Writes JPEG files in two classes."""
    from PIL import Image

    if not any("ops" in settings for settings in all_settings):
        return
    random = np.random.default_rng(0)
    for number in range(JPEGS):
        coarse = random.integers(0, 256, (30, 40, 3), np.uint8)
        path = pathlib.Path(folder) / "images" / f"class {number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(coarse).resize((400, 300), Image.BICUBIC).save(path, quality=90)


def cores_needed(result):
    """A line: how many cores a pipeline needs to feed one GPU."""
    [answer] = result["contenders"].values()
    rate = result["items"] / median(answer["seconds"]) / answer["cores"]
    consumed = CONSUMED[result["unit"]]
    return (
        f"- {result['name']}: {rate:,.0f} {result['unit']}/s on one core; a GPU that trains on "
        f"{consumed:,} needs {consumed / rate:.1f} cores"
    )


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
    model = vit_cifar10.build_model(config, data)
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
    augment = vit_cifar10.build_augmentation(config)
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


def jpeg(folder, ops):
    """The pipeline of the ImageNet recipe, with other numbers of RandAugment operations."""
    from zoo.data.image_batches import training_batches
    from zoo.data.preprocessing import ImagePreprocessing
    from zoo.training.image_run import load_images

    load({})
    import vit_imagenet

    config = vit_imagenet.Config(
        data_dir=f"{folder}/images", randaugment_num_ops=ops, mixup_alpha=0.2 if ops else 0.0
    )
    half = (0.5, 0.5, 0.5)
    preprocessing = ImagePreprocessing((224, 224), channels=3, mean=half, std=half, resize=256)
    data = load_images(config, preprocessing=preprocessing, streamed=True)
    batches = training_batches(
        data.train,
        len(data.class_names),
        JPEG_BATCH,
        augment=vit_imagenet.build_augmentation(config),
        min_crop_area=config.min_crop_area,
    )
    batches = iter(batches.whole())
    return lambda: [float(len(batch[0])) for batch in itertools.islice(batches, STEPS)]


def pairs(folder):
    """Batches of tokenized sentence pairs whose lengths are those of short sentences."""
    from zoo.data import token_batches
    from zoo.data.token_store import Sequences
    from zoo.data.tokenized_corpus import EncodedPairs

    random = np.random.default_rng(0)
    lengths = random.poisson(14, 2 * PAIRS) + 1  # of sources and targets in turns
    ids = [random.integers(3, 10_000, length).tolist() for length in lengths]
    tokenized = EncodedPairs(Sequences.concatenated(ids))
    batches = iter(token_batches.training_batches(tokenized, TOKENS_PER_BATCH).whole())
    return lambda: [float(len(batch[1])) for batch in itertools.islice(batches, STEPS)]


CONTENDERS = {
    "arrays": arrays,
    "pipeline": recipe,
    "pipeline alone": alone,
    "JPEG": jpeg,
    "pairs": pairs,
}

if __name__ == "__main__":
    parser = turns.parser(__doc__)
    parser.add_argument("--data-dir", help="folder of prepared TFDS data")
    args = parser.parse_args()
    report = turns.run(__file__, cases(data_dir=args.data_dir), args)
    for result in report["cases"]:
        if result["name"].startswith("alone"):
            print(cores_needed(result))
