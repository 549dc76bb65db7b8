"""Trains a Vision Transformer from scratch on CIFAR-10, handwritten digits or your own images.

The model and the augmentation follow Lee et al. 2021, "Vision Transformer for Small-Size Datasets",
section 4.1. Mimetic initialization, Muon, the mean of the tokens and patch dropout make training
shorter; docs/vit_cifar10.md compares them and has the results.

    python recipes/vit_cifar10.py --dataset digits               # built in, needs no network
    python recipes/vit_cifar10.py                                # CIFAR-10 by TensorFlow Datasets
    python recipes/vit_cifar10.py --data-dir ~/tensorflow_datasets
    python recipes/vit_cifar10.py --data-dir my_images --image-size 64   # train/<class>/*.jpg
    python recipes/vit_cifar10.py --teacher runs/cnn_cifar10     # a run, or published weights

On two CPU cores: 97 % of the digits in a minute and a half, 91.6 % of CIFAR-10 in two and a half
hours with --validation-freq 20.
"""

import dataclasses
from typing import Literal

from zoo.training.recipe import run_recipe  # first: it silences TensorFlow's start-up messages

import zoo
from zoo.data.image_batches import steps_per_epoch
from zoo.errors import UserError
from zoo.tasks.classifier import ImageClassifier
from zoo.training.augmentation import Augmentation
from zoo.training.callbacks import PatchDropoutRates, set_patch_dropout
from zoo.training.image_run import load_images, loss_and_accuracy, train_classifier
from zoo.training.mimetic import initialize_mimetic
from zoo.training.optimizers import adamw, limited_momentum, muon, warmup_cosine
from zoo.training.run import Run
from zoo.training.settings import (
    COUNT,
    FRACTION,
    Accumulation,
    ImageSettings,
    Precision,
    report_invalid_settings,
)


@dataclasses.dataclass(frozen=True)
class Config(ImageSettings):
    """Hyperparameters of the recipe; ``--help`` describes each of them."""

    patch_size: int = 4
    """Side of a patch in pixels."""
    embed_dim: int = 192  # width of the model
    num_heads: int = 3  # the paper has 12, which take longer on a CPU
    num_layers: int = 9
    ff_dim: int = 384  # hidden width of the feed-forward networks
    dropout: float = 0.0  # augmentation regularizes instead
    stochastic_depth: float = 0.0
    # The model sees 24, then 32 of the 64 patches of an image: more epochs in the same time.
    patch_dropout: tuple[float, ...] = (0.625, 0.5)
    """Share of the patches of each image that training leaves out, which takes less time; several
    values are used in turn, each for an equal part of the epochs."""
    pool: Literal["cls", "mean"] = "mean"  # docs/vit_cifar10.md compares both
    distillation_token: bool = False
    """With --pool cls: learn from --teacher by a second class token with its own head (DeiT)."""
    num_registers: int = 0
    """Number of register tokens: learned tokens besides the class token."""
    positions: Literal["learned", "sinusoidal", "relative", "rotary"] = "learned"  # of the patches
    attention: Literal["softmax", "linear", "blockwise"] = "softmax"
    """Linear attention, or softmax attention in less memory, for long sequences of patches."""

    initialization: Literal["glorot", "mimetic"] = "mimetic"
    """Random matrices, or attention that starts as in trained models."""

    precision: Precision = "auto"
    accumulation: Accumulation = "auto"
    epochs: int = 100
    validation_freq: int = 1
    """Number of epochs from one validation to the next; must divide --epochs."""
    batch_size: int = 128
    optimizer: Literal["adamw", "muon"] = "muon"
    """AdamW, or Muon for the matrices of the blocks and AdamW for all else."""
    learning_rate: float = 1e-3  # at 3e-3, the validation loss was higher
    warmup_fraction: float = 0.1  # of the steps; then cosine decay to zero
    weight_decay: float = 0.05  # of kernels only, times the learning rate
    clip_norm: float = 1.0  # maximum norm of all gradients together
    ema_momentum: float = 0.999  # the mean of about 1,000 steps, 2.6 epochs; less in short runs

    label_smoothing: float = 0.1  # share of a label spread over all classes
    crop_padding: int = 4  # pixels
    min_crop_area: float | None = None  # crops by `crop_padding`, not random resized crops
    flip_probability: float = 0.5
    randaugment_num_ops: int = 2  # per image, with a strength from 0 to 1
    randaugment_magnitude: float = 0.5
    erase_probability: float = 0.0
    mixup_alpha: float = 1.0  # shares are drawn from Beta(1, 1): uniform
    cutmix_alpha: float = 1.0
    mix_probability: float = 0.2  # augmentation is weaker than in the paper, for a short training
    """Probability that an image is mixed with another by Mixup or CutMix."""

    LIMITS = ImageSettings.LIMITS | {
        "patch_size": COUNT,
        "validation_freq": COUNT,
        "mix_probability": FRACTION,
    }
    NO_EFFECT = ImageSettings.NO_EFFECT | {"validation_freq"}  # no effect on the trained weights

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
        self.check_distillation_token()
        if any(self.patch_dropout) and self.positions in ("relative", "rotary"):
            raise UserError(f"--positions {self.positions} needs --patch-dropout 0.")

    def check_flags(self, given):
        super().check_flags(given)
        if not self.mixup_alpha and not self.cutmix_alpha:
            self.refuse(given, "mix_probability", "without --mixup-alpha or --cutmix-alpha")
        if not self.mix_probability:
            self.refuse(given, "mixup_alpha", "with --mix-probability 0")
            self.refuse(given, "cutmix_alpha", "with --mix-probability 0")


CIFAR10 = Config()
DIGITS = Config(
    dataset="digits",
    patch_size=2,  # 16 patches of an image of 8x8 pixels
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
    ema_momentum=0.99,  # the mean of about 100 steps, 4.5 epochs
    crop_padding=1,
    flip_probability=0.0,  # a flipped 2 or 5 is not a digit
    randaugment_num_ops=0,
    mixup_alpha=0.0,
    mix_probability=0.5,
)


def main(config):
    run = Run(config, name=f"vit_{config.data_name}")
    data = load_images(config, streamed=config.min_crop_area is not None)
    steps = steps_per_epoch(data.train, config.batch_size)
    with run.scope():
        model = build_model(config, data)
        optimizer = build_optimizer(config, model, total_steps=config.epochs * steps)
        loss, accuracy = loss_and_accuracy(config, data)
    # the loop: Run.train (zoo/training/run.py), Trainer.fit, training_step (zoo/training/step.py)
    train_classifier(  # and tests on `data.test`, saves the model and writes metrics.json
        run,
        ImageClassifier(model, data.preprocessing(), data.class_names),
        data,
        optimizer=optimizer,
        loss=loss,
        weighted_metrics=[accuracy],
        epochs=config.epochs,
        steps_per_epoch=steps,
        augment=build_augmentation(config),
        label_smoothing=config.label_smoothing,
        min_crop_area=config.min_crop_area,
        validation_freq=config.validation_freq,
        callbacks=[PatchDropoutRates(config.patch_dropout, config.epochs)],
    )


@report_invalid_settings()
def build_model(config, data):
    model = zoo.vit(
        input_shape=data.input_shape,
        num_classes=len(data.class_names),
        patch_size=config.patch_size,
        embed_dim=config.embed_dim,
        num_heads=config.num_heads,
        num_layers=config.num_layers,
        ff_dim=config.ff_dim,
        dropout=config.dropout,
        stochastic_depth=config.stochastic_depth,
        patch_dropout=max(config.patch_dropout),  # a layer created with 0 cannot drop patches later
        pool=config.pool,
        num_class_tokens=2 if config.distillation_token else None,
        num_registers=config.num_registers,
        positions=config.positions,
        attention=config.attention,
    )
    if config.initialization == "mimetic":
        initialize_mimetic(model, config.seed)
    # `--accumulation auto` is tried with the most patches; `PatchDropoutRates` sets the rates.
    set_patch_dropout(model, min(config.patch_dropout))
    return model


def build_optimizer(config, model, total_steps):
    warmup_steps = round(config.warmup_fraction * total_steps)
    rate = warmup_cosine(config.learning_rate, total_steps, warmup_steps)
    momentum = limited_momentum(config.ema_momentum, total_steps)
    if config.optimizer == "muon":
        return muon(model, rate, config.weight_decay, config.clip_norm, momentum)
    return adamw(rate, config.weight_decay, config.clip_norm, momentum)


def build_augmentation(config):
    return Augmentation(
        crop_padding=config.crop_padding,
        flip_probability=config.flip_probability,
        randaugment_num_ops=config.randaugment_num_ops,
        randaugment_magnitude=config.randaugment_magnitude,
        erase_probability=config.erase_probability,
        mixup_alpha=config.mixup_alpha,
        cutmix_alpha=config.cutmix_alpha,
        mix_probability=config.mix_probability,
    )


if __name__ == "__main__":
    run_recipe(main, Config, {"cifar10": CIFAR10, "digits": DIGITS}, __doc__)
