"""Trains a Vision Transformer from scratch on ImageNet, or on any large set of images.

The recipe follows Beyer et al. 2022, "Better plain ViT baselines for ImageNet-1k": ViT-S/16, 90
epochs, 76.5 % published, as in big_vision/configs/vit_s16_i1k.py. It has not been run to its end
with this code. Images are read from files in every epoch, so any number of them can be used.

    python recipes/vit_imagenet.py --dataset imagenet2012 --data-dir ~/tensorflow_datasets
    python recipes/vit_imagenet.py --data-dir my_images     # train/<class>/*.jpg, val/<class>/*.jpg
    python recipes/vit_imagenet.py --data-dir my_images --size Ti/16 --epochs 300 --batch-size 256

On GPUs, add `--precision mixed_bfloat16`.
"""

import dataclasses
from typing import Literal

from zoo.errors import UserError
from zoo.training.command import check_limits, run_recipe
from zoo.training.image_run import train_classifier
from zoo.training.image_settings import ImageSettings, augmentation
from zoo.training.run import Run


@dataclasses.dataclass(frozen=True)
class Config(ImageSettings):
    dataset: str = "imagenet2012"
    """An image classification data set by its TensorFlow Datasets name."""
    image_size: int = 224
    """Side of the images in pixels."""
    eval_resize: int = 256
    """Length of the shorter side of test images before the centre is cropped."""

    size: str = "S/16"
    """Published size: Ti, S, B, L or H, a slash and the patch size."""
    pool: Literal["cls", "mean"] = "mean"
    """Input of the head: the class token, or the mean of the patches."""
    positions: Literal["learned", "sinusoidal", "relative", "rotary"] = "sinusoidal"
    """Kind of positions."""
    dropout: float = 0.0
    """Dropout rate of blocks and position embeddings."""
    stochastic_depth: float = 0.0
    """Drop rate of the last block; it increases linearly from 0 at the first block."""

    epochs: int = 90
    """Number of epochs."""
    batch_size: int = 1024
    """Images per step."""
    accumulation: int = 1
    """Parts into which a batch is split to save memory; must divide --batch-size."""
    learning_rate: float = 1e-3
    """Peak learning rate, after the warmup; then cosine decay to zero."""
    warmup_steps: int = 10_000
    """Steps used for linear warmup."""
    weight_decay: float = 0.1
    """Decoupled weight decay of kernels, times the learning rate (big_vision: 1e-4 without it)."""
    clip_norm: float = 1.0
    """Maximum global norm of the gradients."""

    label_smoothing: float = 0.0
    """Share of a label spread over all classes."""
    min_crop_area: float = 0.05
    """Least share of an image that a random crop covers, which is then resized."""
    crop_padding: int = 0
    """Pixels by which the crop may be shifted afterwards."""
    flip_probability: float = 0.5
    """Probability that an image is flipped left to right."""
    randaugment_num_ops: int = 2
    """RandAugment operations per image; 0 to disable."""
    randaugment_magnitude: float = 1.0
    """Strength of the RandAugment operations, 0 to 1."""
    randaugment_probability: float = 1.0
    """Probability that such an operation is applied."""
    erase_probability: float = 0.0
    """Probability that a box of an image is erased."""
    mixup_alpha: float = 0.2
    """Mixup draws its mixing share from Beta(alpha, alpha); 0 to disable."""
    cutmix_alpha: float = 0.0
    """CutMix draws its mixing share from Beta(alpha, alpha); 0 to disable."""

    def __post_init__(self):
        super().__post_init__()
        least = {
            **dict.fromkeys(("epochs", "batch_size", "accumulation"), 1),
            **dict.fromkeys(("learning_rate", "warmup_steps", "weight_decay", "clip_norm"), 0),
            **{"label_smoothing": 0, "min_crop_area": 0.01, "eval_resize": self.image_size},
        }
        check_limits(self, least, {"label_smoothing": 1, "min_crop_area": 1})
        if self.batch_size % self.accumulation:
            raise UserError(
                "--accumulation must divide --batch-size. "
                f"Received: {self.accumulation} and {self.batch_size}."
            )


# Imports are inside the functions: TensorFlow takes seconds to import, and --help should not.


def main(config):
    import zoo
    from zoo.classifier import ImageClassifier
    from zoo.data.pipeline import steps_per_epoch
    from zoo.data.preprocessing import ImagePreprocessing
    from zoo.training.optimizers import adamw

    run = Run(config)
    side, half = (config.image_size,) * 2, (0.5,) * 3
    preprocessing = ImagePreprocessing(side, 3, half, half, resize=config.eval_resize)
    data = config.load_data(preprocessing, streamed=True)
    steps = steps_per_epoch(data.train, config.batch_size)
    names = ("pool", "positions", "dropout", "stochastic_depth")
    with run.scope():
        try:
            model = zoo.vit(
                config.size,
                input_shape=(*side, 3),
                num_classes=len(data.class_names),
                **{name: getattr(config, name) for name in names},
            )
        except ValueError as error:
            raise UserError(str(error)) from None
        optimizer = adamw(
            model,
            config.learning_rate,
            config.weight_decay,
            total_steps=config.epochs * steps,
            warmup_steps=min(config.warmup_steps, config.epochs * steps // 10),
            clip_norm=config.clip_norm,
        )
    train_classifier(
        run,
        ImageClassifier(model, preprocessing, data.class_names),
        optimizer,
        data,
        f"vit_{config.data_name}",
        config.epochs,
        steps,
        augment=augmentation(config),
        label_smoothing=config.label_smoothing,
        accumulation=config.accumulation,
        min_crop_area=config.min_crop_area,
    )


if __name__ == "__main__":
    run_recipe(main, Config, {}, __doc__)
