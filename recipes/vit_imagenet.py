"""Trains a Vision Transformer from scratch on ImageNet, or on any large set of images.

The recipe follows Beyer et al. 2022, "Better plain ViT baselines for ImageNet-1k": ViT-S/16, 90
epochs, 76.5 % published, as in big_vision/configs/vit_s16_i1k.py. It has not been run to its end
with this code. Images are read from files in every epoch, so any number of them can be used.

    python recipes/vit_imagenet.py --dataset imagenet2012 --data-dir ~/tensorflow_datasets
    python recipes/vit_imagenet.py --data-dir my_images     # train/<class>/*.jpg, val/<class>/*.jpg
    python recipes/vit_imagenet.py --data-dir my_images --size Ti/16 --epochs 300 --batch-size 256
"""

import dataclasses
from typing import Literal

from zoo.training.recipe import run_recipe  # first: it silences TensorFlow's start-up messages

import zoo
from zoo.data.image_batches import steps_per_epoch
from zoo.data.preprocessing import ImagePreprocessing
from zoo.tasks.classifier import ImageClassifier
from zoo.training.augmentation import Augmentation
from zoo.training.image_run import load_images, loss_and_accuracy, train_classifier
from zoo.training.optimizers import adamw, warmup_cosine
from zoo.training.run import Run
from zoo.training.settings import (
    FRACTION,
    Accumulation,
    ImageSettings,
    Precision,
    report_invalid_settings,
)


@dataclasses.dataclass(frozen=True)
class Config(ImageSettings):
    """Hyperparameters of the recipe; ``--help`` describes each of them."""

    dataset: str = "imagenet2012"
    """An image classification data set by its TensorFlow Datasets name."""
    image_size: int = 224
    """Side of the images in pixels."""
    eval_resize: int = 256
    """Length of the shorter side of test images before the center is cropped."""

    # The values are those of big_vision/configs/vit_s16_i1k.py, unless a comment says otherwise.

    size: str = "S/16"
    """Published size: Ti, S, S+, B, L or H, a slash and the patch size."""
    pool: Literal["cls", "mean"] = "mean"
    distillation_token: bool = False
    """With --pool cls: learn from --teacher by a second class token with its own head (DeiT)."""
    positions: Literal["learned", "sinusoidal", "relative", "rotary"] = "sinusoidal"
    dropout: float = 0.0
    stochastic_depth: float = 0.0
    patch_dropout: float = 0.0

    precision: Precision = "auto"
    epochs: int = 90
    batch_size: int = 1024
    accumulation: Accumulation = "auto"
    learning_rate: float = 1e-3  # for batches of 1024 images
    warmup_steps: int = 10_000  # then cosine decay to zero
    weight_decay: float = 0.1  # big_vision: 1e-4, which is not times the learning rate
    clip_norm: float = 1.0  # maximum norm of all gradients together

    label_smoothing: float = 0.0
    min_crop_area: float = 0.05  # the smallest crop of Inception
    crop_padding: int = 0
    flip_probability: float = 0.5
    randaugment_num_ops: int = 2
    randaugment_magnitude: float = 1.0  # 10 of 10
    randaugment_probability: float = 1.0
    """Probability that a RandAugment operation is applied."""
    erase_probability: float = 0.0
    mixup_alpha: float = 0.2
    cutmix_alpha: float = 0.0

    LIMITS = ImageSettings.LIMITS | {"randaugment_probability": FRACTION}

    def __post_init__(self):
        super().__post_init__()
        self.check("eval_resize", self.image_size)
        self.check_distillation_token()

    def check_flags(self, given):
        super().check_flags(given)
        if not self.randaugment_num_ops:
            self.refuse(given, "randaugment_probability", "without --randaugment-num-ops")
        if not self.randaugment_probability:
            self.refuse(given, "randaugment_num_ops", "with --randaugment-probability 0")


def main(config):
    run = Run(config, name=f"vit_{config.data_name}")
    preprocessing = ImagePreprocessing(
        (config.image_size, config.image_size),
        channels=3,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        resize=config.eval_resize,
    )
    data = load_images(config, preprocessing=preprocessing, streamed=True)
    steps = steps_per_epoch(data.train, config.batch_size)
    total_steps = config.epochs * steps
    warmup_steps = min(config.warmup_steps, total_steps // 10)
    if run.is_chief and warmup_steps < config.warmup_steps:
        print(f"Warmup: {warmup_steps:,} steps, a tenth of all {total_steps:,}.")
    with run.scope():
        model = build_model(config, len(data.class_names))
        rate = warmup_cosine(config.learning_rate, total_steps, warmup_steps)
        optimizer = adamw(rate, config.weight_decay, config.clip_norm)
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
        min_crop_area=config.min_crop_area,
    )


@report_invalid_settings()
def build_model(config, num_classes):
    return zoo.vit(
        config.size,
        input_shape=(config.image_size, config.image_size, 3),
        num_classes=num_classes,
        pool=config.pool,
        num_class_tokens=2 if config.distillation_token else None,
        positions=config.positions,
        dropout=config.dropout,
        stochastic_depth=config.stochastic_depth,
        patch_dropout=config.patch_dropout,
    )


def build_augmentation(config):
    return Augmentation(
        crop_padding=config.crop_padding,
        flip_probability=config.flip_probability,
        randaugment_num_ops=config.randaugment_num_ops,
        randaugment_magnitude=config.randaugment_magnitude,
        randaugment_probability=config.randaugment_probability,
        erase_probability=config.erase_probability,
        mixup_alpha=config.mixup_alpha,
        cutmix_alpha=config.cutmix_alpha,
    )


if __name__ == "__main__":
    run_recipe(main, Config, {}, __doc__)
