"""Trains a small convolutional network on CIFAR-10 or your own small images.

It is a teacher for `recipes/vit_cifar10.py --teacher`: Vision Transformers learn more from a
convolutional network than from a Transformer of the same accuracy (Touvron et al. 2020, "Training
data-efficient image transformers & distillation through attention", section 5.2;
docs/distillation.md). The stages of the network are those of Jordan 2024, "94% on CIFAR-10 in 3.29
Seconds on a Single GPU", section 3, with Keras's initialization and global average pooling. Its
first layer, which is not trained, whitens the patches of an image (Page 2018, "How to Train Your
ResNet", part 8). Batch normalization uses the images of one device and, with `--accumulation`, of
one part of them, so the trained weights depend on the numbers of devices and of parts.

    python recipes/cnn_cifar10.py --dataset digits               # built in, needs no network
    python recipes/cnn_cifar10.py                                # CIFAR-10 by TensorFlow Datasets
    python recipes/cnn_cifar10.py --data-dir ~/tensorflow_datasets
    python recipes/cnn_cifar10.py --data-dir my_images --image-size 64   # train/<class>/*.jpg

On one CPU core: 93.7 % of CIFAR-10's test images in 95 minutes.
"""

import dataclasses
import math

from zoo.training.recipe import run_recipe  # first: it silences TensorFlow's start-up messages

import keras
import numpy as np
from keras import layers

from zoo.data.image_batches import steps_per_epoch
from zoo.data.images import sample
from zoo.errors import UserError
from zoo.layers import gelu
from zoo.tasks.classifier import ImageClassifier
from zoo.training.augmentation import Augmentation
from zoo.training.image_run import load_images, loss_and_accuracy, train_classifier
from zoo.training.optimizers import ALL_BUT_KERNELS, Muon, warmup_cosine
from zoo.training.run import Run
from zoo.training.settings import ImageSettings, Precision


@dataclasses.dataclass(frozen=True)
class Config(ImageSettings):
    """Hyperparameters of the recipe; ``--help`` describes each of them."""

    widths: tuple[int, ...] = (128, 384, 384)
    """Number of channels of each stage; a stage halves the image."""

    precision: Precision = "auto"
    epochs: int = 20
    batch_size: int = 512
    learning_rate: float = 0.01
    warmup_fraction: float = 0.1  # of the steps; then cosine decay to zero
    weight_decay: float = 0.3  # of kernels only, times the learning rate

    label_smoothing: float = 0.1
    crop_padding: int = 4  # pixels
    flip_probability: float = 0.5
    randaugment_num_ops: int = 0
    randaugment_magnitude: float = 0.5
    erase_probability: float = 0.0

    # Batch normalization uses the images of one part, so the weights depend on the number of parts.
    # They also depend on the number of devices, which may change, as in recipes with dropout.
    NO_EFFECT = ImageSettings.NO_EFFECT - {"accumulation"}

    def __post_init__(self):
        super().__post_init__()
        if self.accumulation == "auto":
            raise UserError(
                "--accumulation must be a number, as the weights depend on it with batch "
                "normalization. Received: auto."
            )
        if not self.widths or min(self.widths) < 1:
            raise UserError(
                f"--widths must be one or more numbers, at least 1. Received: {self.widths}."
            )


CIFAR10 = Config()
DIGITS = Config(
    dataset="digits",
    widths=(32, 64),
    epochs=30,
    batch_size=64,
    crop_padding=1,
    flip_probability=0.0,  # a flipped 2 or 5 is not a digit
)


def main(config):
    run = Run(config, name=f"cnn_{config.data_name}")
    data = load_images(config)
    check_size(config.widths, data.input_shape)
    preprocessing = data.preprocessing()
    steps = steps_per_epoch(data.train, config.batch_size)
    with run.scope():
        model = build_model(data.input_shape, len(data.class_names), config.widths)
        images = preprocessing.normalize(sample(data.train, 1000).pixels)
        initialize_whitening(model.get_layer("whitening"), images)
        optimizer = build_optimizer(config, model, total_steps=config.epochs * steps)
        loss, accuracy = loss_and_accuracy(config, data)
    # the loop: Run.train (zoo/training/run.py), Trainer.fit, training_step (zoo/training/step.py)
    train_classifier(  # and tests on `data.test`, saves the model and writes metrics.json
        run,
        ImageClassifier(model, preprocessing, data.class_names),
        data,
        optimizer=optimizer,
        loss=loss,
        weighted_metrics=[accuracy],
        epochs=config.epochs,
        steps_per_epoch=steps,
        augment=build_augmentation(config),
        label_smoothing=config.label_smoothing,
    )


def check_size(widths, input_shape):
    pixels = min(input_shape[:2])
    least = 2 ** len(widths) + 1
    if pixels < least:
        raise UserError(
            f"--widths: {len(widths)} stages need images of at least {least}x{least} pixels. "
            f"Received: {pixels} pixels."
        )


def build_model(input_shape, num_classes, widths):
    """Images [B, H, W, C] to logits [B, num_classes]."""
    images = keras.Input(input_shape)
    filters = 2 * (2 * 2 * input_shape[-1])  # each component of 2x2 pixels, with both signs
    x = layers.Conv2D(filters, 2, trainable=False, use_bias=False, name="whitening")(images)
    x = layers.Activation(gelu)(x)
    for width in widths:
        x = convolution(x, width, pool=True)
        x = convolution(x, width)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(images, layers.Dense(num_classes, dtype="float32", name="head")(x))


def convolution(x, width, pool=False):
    x = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
    if pool:
        x = layers.MaxPooling2D()(x)
    x = layers.BatchNormalization(momentum=0.9)(x)
    return layers.Activation(gelu)(x)


def initialize_whitening(layer, images):
    """Sets the filters to the principal components of patches, divided by their deviations.

    Each component occurs twice, with both signs. The images are normalized, [N, H, W, C].
    """
    size = layer.kernel_size[0]
    patches = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(1, 2))
    patches = np.moveaxis(patches, 3, -1)  # [N, rows, columns, size, size, C]
    stride = math.ceil((np.prod(patches.shape[:3]) / 1_000_000) ** 0.5)
    patches = patches[:, ::stride, ::stride]  # of large images, some are enough
    patches = patches.reshape(-1, np.prod(patches.shape[3:]))
    values, vectors = np.linalg.eigh(np.cov(patches, rowvar=False))
    filters = vectors / np.sqrt(values + 5e-4)  # as in the source, for those without variance
    filters = np.concatenate([filters, -filters], axis=1)
    layer.kernel.assign(filters.reshape(layer.kernel.shape))


def build_optimizer(config, model, total_steps):
    rate = warmup_cosine(
        config.learning_rate, total_steps, round(config.warmup_fraction * total_steps)
    )
    return Muon(
        rate,
        weight_decay=config.weight_decay,
        adam_weight_decay=config.weight_decay,
        without_decay=ALL_BUT_KERNELS,
        exclude_layers=["head"],
        in_bfloat16=model.compute_dtype == "bfloat16",
    )


def build_augmentation(config):
    return Augmentation(
        crop_padding=config.crop_padding,
        flip_probability=config.flip_probability,
        randaugment_num_ops=config.randaugment_num_ops,
        randaugment_magnitude=config.randaugment_magnitude,
        erase_probability=config.erase_probability,
        mixup_alpha=0.0,
        cutmix_alpha=0.0,
    )


if __name__ == "__main__":
    run_recipe(main, Config, {"cifar10": CIFAR10, "digits": DIGITS}, __doc__)
