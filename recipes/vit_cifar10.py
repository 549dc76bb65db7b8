"""Trains a Vision Transformer from scratch on CIFAR-10, handwritten digits or your own images.

The model and the augmentation follow Lee et al. 2021, "Vision Transformer for Small-Size Datasets",
section 4.1. Mimetic initialization, Muon, the mean of the tokens and patch dropout make training
shorter; docs/vit_cifar10.md compares them and has the results.

    python recipes/vit_cifar10.py --dataset digits               # built in, no network, two minutes
    python recipes/vit_cifar10.py                                # CIFAR-10 by TensorFlow Datasets
    python recipes/vit_cifar10.py --data-dir ~/tensorflow_datasets
    python recipes/vit_cifar10.py --data-dir my_images --image-size 64   # train/<class>/*.jpg

On two CPU cores: 97 % of the digits in two minutes, 91.6 % of CIFAR-10 in two and a half hours.
"""

import dataclasses
from typing import Annotated, Literal

from zoo.errors import UserError
from zoo.training.recipe import run_recipe
from zoo.training.settings import NO_EFFECT, Count, Fraction, ImageSettings, Precision


@dataclasses.dataclass(frozen=True)
class Config(ImageSettings):
    """Hyperparameters and their default values, which --help describes."""

    patch_size: Count = 4
    """Side of a patch in pixels."""
    embed_dim: int = 192
    num_heads: int = 3
    num_layers: int = 9
    ff_dim: int = 384
    dropout: float = 0.0
    stochastic_depth: float = 0.0
    patch_dropout: tuple[float, ...] = (0.625, 0.5)
    """Share of the patches of each image that training leaves out, which takes less time; several
    values are used in turn, each for an equal part of the epochs."""
    pool: Literal["cls", "mean"] = "mean"
    num_registers: int = 0
    """Number of register tokens: learned tokens besides the class token."""
    positions: Literal["learned", "sinusoidal", "relative", "rotary"] = "learned"
    attention: Literal["softmax", "linear", "blockwise"] = "softmax"
    """Linear attention, or softmax attention in less memory, for long sequences of patches."""

    initialization: Literal["glorot", "mimetic"] = "mimetic"
    """Random matrices, or attention that starts like that of trained models."""

    precision: Precision = "auto"
    epochs: int = 100
    validation_freq: Annotated[Count, NO_EFFECT] = 1
    """Number of epochs from one validation to the next; must divide --epochs."""
    batch_size: int = 128
    optimizer: Literal["adamw", "muon"] = "muon"
    """AdamW, or Muon for the matrices of the blocks and AdamW for all else."""
    learning_rate: float = 1e-3
    warmup_fraction: float = 0.1
    weight_decay: float = 0.05
    clip_norm: float = 1.0
    ema_momentum: float = 0.999

    label_smoothing: float = 0.1
    crop_padding: int = 4
    min_crop_area: float | None = None
    flip_probability: float = 0.5
    randaugment_num_ops: int = 2
    randaugment_magnitude: float = 0.5
    erase_probability: float = 0.0
    mixup_alpha: float = 1.0
    cutmix_alpha: float = 1.0
    mix_probability: Fraction = 0.2
    """Probability that an image is mixed with another by Mixup or CutMix."""

    def __post_init__(self):
        super().__post_init__()
        self.check_divides("validation_freq", "epochs")
        if self.patience and self.validation_freq > 1:
            raise UserError("--patience needs a validation after each epoch: --validation-freq 1.")
        if not self.patch_dropout or not all(0 <= rate < 1 for rate in self.patch_dropout):
            raise UserError(
                "--patch-dropout must be one or more numbers, at least 0 and less than 1. "
                f"Received: {self.patch_dropout}."
            )
        if any(self.patch_dropout) and self.positions in ("relative", "rotary"):
            raise UserError(f"--positions {self.positions} needs --patch-dropout 0.")


CIFAR10 = Config()
DIGITS = Config(
    dataset="digits",
    patch_size=2,
    embed_dim=96,
    num_heads=6,
    num_layers=4,
    ff_dim=192,
    stochastic_depth=0.1,
    patch_dropout=(0.0,),
    pool="cls",
    initialization="glorot",
    precision="float32",
    batch_size=64,
    optimizer="adamw",
    ema_momentum=0.99,
    crop_padding=1,
    flip_probability=0.0,  # a flipped 2 or 5 is not a digit
    randaugment_num_ops=0,
    mixup_alpha=0.0,
    mix_probability=0.5,
)


# Imports are inside the functions: TensorFlow takes seconds to import, and --help should not.


def main(config):
    from zoo.data.image_batches import steps_per_epoch
    from zoo.tasks.classifier import ImageClassifier
    from zoo.training.callbacks import PatchDropoutRates
    from zoo.training.image_run import augmentation, load_images, train_classifier
    from zoo.training.optimizers import adamw, muon, warmup_cosine
    from zoo.training.run import Run

    run = Run(config, name=f"vit_{config.data_name}")
    data = load_images(config, streamed=config.min_crop_area is not None)
    augment = augmentation(config)
    steps = steps_per_epoch(data.train, config.batch_size)
    total = config.epochs * steps
    with run.scope():
        model = build(config, data)
        rate = warmup_cosine(config.learning_rate, total, round(config.warmup_fraction * total))
        settings = (rate, config.weight_decay, config.clip_norm, config.ema_momentum)
        optimizer = muon(model, *settings) if config.optimizer == "muon" else adamw(*settings)
    train_classifier(
        run,
        ImageClassifier(model, data.preprocessing(), data.class_names),
        optimizer,
        data,
        config.epochs,
        steps,
        callbacks=[PatchDropoutRates(config.patch_dropout, config.epochs)],
        augment=augment,
        **config.select("validation_freq label_smoothing min_crop_area"),
    )


def build(config, data):
    """Builds the model."""
    import zoo
    from zoo.training.mimetic import initialize_mimetic

    sizes = {"input_shape": data.input_shape, "num_classes": len(data.class_names)}
    sizes["patch_dropout"] = max(config.patch_dropout)
    names = (
        "patch_size embed_dim num_heads num_layers ff_dim dropout stochastic_depth "
        "pool num_registers positions attention"
    )
    model = config.build(zoo.vit, names, **sizes)
    if config.initialization == "mimetic":
        initialize_mimetic(model, config.seed)
    return model


if __name__ == "__main__":
    run_recipe(main, Config, {"cifar10": CIFAR10, "digits": DIGITS}, __doc__)
