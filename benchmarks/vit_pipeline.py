"""Compares `fit` on the recipe's input pipeline with `fit` on arrays in memory.

    python benchmarks/vit_pipeline.py --data-dir ~/tensorflow_datasets

The same model alternates between the CIFAR-10 recipe's shuffled and augmented batches and the same
number of images that are already normalised. At the end the pipeline is measured alone.
"""

import argparse
import dataclasses
import pathlib
import statistics
import sys
import time

from zoo.startup import import_tensorflow_quietly

import_tensorflow_quietly()
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "recipes"))

import keras  # noqa: E402
import numpy as np  # noqa: E402
import vit_cifar10  # noqa: E402

import zoo.data.pipeline as pipeline  # noqa: E402
from zoo.training.image_settings import augmentation  # noqa: E402
from zoo.training.optimizers import adamw  # noqa: E402


def main(args):
    config = dataclasses.replace(vit_cifar10.CIFAR10, data_dir=args.data_dir)
    data, size = config.load_data(), config.batch_size
    preprocessing, model = data.preprocessing(), vit_cifar10.build(config, data)
    model.compile(
        adamw(model, 1e-3, 0.05, total_steps=10_000, clip_norm=1.0, ema_momentum=0.999),
        keras.losses.CategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    count = args.steps * size
    images = preprocessing.normalise(data.train.pixels[:count]).numpy()
    labels = np.eye(10, dtype="float32")[data.train.labels[:count]]
    batches = pipeline.training_batches(
        data.train, 10, size, augment=augmentation(config), repeats=config.repeats
    ).whole()
    batches = batches.map(lambda pixels, *rest: (preprocessing.normalise(pixels), *rest))
    turns = {
        "bare": lambda: model.fit(images, labels, batch_size=size, verbose=0),
        "recipe": lambda: model.fit(batches, steps_per_epoch=args.steps, shuffle=False, verbose=0),
    }
    seconds = {name: [] for name in turns}
    for turn in range(-1, args.rounds):  # the first round traces and is not timed
        for name, work in turns.items():
            start = time.perf_counter()
            work()
            if turn >= 0:
                seconds[name].append(time.perf_counter() - start)
    ratios = [a / b for a, b in zip(seconds["bare"], seconds["recipe"])]
    speeds = {name: count / statistics.median(times) for name, times in seconds.items()}
    print(
        f"bare fit {speeds['bare']:.0f} images/s, recipe {speeds['recipe']:.0f} images/s; "
        f"ratio {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f} in {args.rounds} rounds)"
    )
    alone(iter(batches), size)


def alone(batches, size, warm=20, count=200):
    for _ in range(warm):
        next(batches)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        next(batches)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"input pipeline alone: {count * size / wall:.0f} images/s, "
        f"{cpu / (count * size) * 1e6:.0f} microseconds of CPU time per image"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", help="folder of prepared TFDS data")
    parser.add_argument("--rounds", type=int, default=8, help="number of rounds")
    parser.add_argument("--steps", type=int, default=20, help="training steps per round")
    main(parser.parse_args())
