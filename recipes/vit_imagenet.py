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

from zoo.training.recipe import run_recipe
from zoo.training.settings import Count, Fraction, ImageSettings


@dataclasses.dataclass(frozen=True)
class Config(ImageSettings):
    """Hyperparameters and their default values, which --help describes."""

    dataset: str = "imagenet2012"
    """An image classification data set by its TensorFlow Datasets name."""
    image_size: Count = 224
    """Side of the images in pixels."""
    eval_resize: int = 256
    """Length of the shorter side of test images before the center is cropped."""

    size: str = "S/16"
    """Published size: Ti, S, B, L or H, a slash and the patch size."""
    pool: Literal["cls", "mean"] = "mean"
    positions: Literal["learned", "sinusoidal", "relative", "rotary"] = "sinusoidal"
    dropout: float = 0.0
    stochastic_depth: float = 0.0
    patch_dropout: float = 0.0

    epochs: int = 90
    batch_size: int = 1024
    accumulation: int = 1
    """Parts into which a batch is split to save memory; must divide --batch-size."""
    learning_rate: float = 1e-3
    warmup_steps: int = 10_000
    weight_decay: float = 0.1  # big_vision: 1e-4, which is not times the learning rate
    clip_norm: float = 1.0

    label_smoothing: float = 0.0
    min_crop_area: float = 0.05
    crop_padding: int = 0
    flip_probability: float = 0.5
    randaugment_num_ops: int = 2
    randaugment_magnitude: float = 1.0
    randaugment_probability: Fraction = 1.0
    """Probability that a RandAugment operation is applied."""
    erase_probability: float = 0.0
    mixup_alpha: float = 0.2
    cutmix_alpha: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        self.check("eval_resize", self.image_size)
        self.check_divides("accumulation", "batch_size")


# Imports are inside the functions: TensorFlow takes seconds to import, and --help should not.


def main(config):
    import zoo
    from zoo.data.image_batches import steps_per_epoch
    from zoo.data.preprocessing import ImagePreprocessing
    from zoo.tasks.classifier import ImageClassifier
    from zoo.training.image_run import augmentation, load_images, train_classifier
    from zoo.training.optimizers import adamw, warmup_cosine
    from zoo.training.run import Run

    run = Run(config, name=f"vit_{config.data_name}")
    side, half = (config.image_size,) * 2, (0.5,) * 3
    preprocessing = ImagePreprocessing(side, 3, half, half, resize=config.eval_resize)
    data = load_images(config, preprocessing=preprocessing, streamed=True)
    steps = steps_per_epoch(data.train, config.batch_size)
    total = config.epochs * steps
    with run.scope():
        names = "size pool positions dropout stochastic_depth patch_dropout"
        model = config.build(
            zoo.vit, names, input_shape=(*side, 3), num_classes=len(data.class_names)
        )
        rate = warmup_cosine(config.learning_rate, total, min(config.warmup_steps, total // 10))
        optimizer = adamw(rate, config.weight_decay, config.clip_norm)
    train_classifier(
        run,
        ImageClassifier(model, preprocessing, data.class_names),
        optimizer,
        data,
        config.epochs,
        steps,
        augment=augmentation(config),
        **config.select("label_smoothing accumulation min_crop_area"),
    )


if __name__ == "__main__":
    run_recipe(main, Config, {}, __doc__)
