"""Fine-tunes a Vision Transformer: published weights or a run of your own, on your images.

The defaults follow Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words", appendix B.1.1, and
the code of google-research/vision_transformer; `--preset` selects another of its schedules, or
MAE's.

    python recipes/vit_finetune.py --weights hf://facebook/deit-tiny-patch16-224 --data-dir my
    python recipes/vit_finetune.py --weights B_16.npz --dataset oxford_iiit_pet --image-size 384
    python recipes/vit_finetune.py --weights runs/vit_cifar10 --dataset digits --batch-size 64
    python recipes/vit_finetune.py --weights hf://facebook/dinov2-base --data-dir my --lora-rank 8
    python recipes/vit_finetune.py --weights mae_base.pth --data-dir my --preset mae

On two CPU cores: 98.9 % of the digits in three minutes, from a run of CIFAR-10 and 1,000 images.
"""

import dataclasses
from typing import Literal

from zoo.training.recipe import run_recipe  # first: it silences TensorFlow's start-up messages

from zoo.data.image_batches import steps_per_epoch
from zoo.errors import UserError
from zoo.training import fine_tuning
from zoo.training.augmentation import Augmentation
from zoo.training.image_run import (
    find_images,
    load_images,
    loss_and_accuracy,
    train_classifier,
)
from zoo.training.optimizers import SGD, adamw, warmup_cosine
from zoo.training.run import Run
from zoo.training.settings import COUNT, FRACTION, Accumulation, ImageSettings, Precision


@dataclasses.dataclass(frozen=True)
class Config(ImageSettings):
    """Hyperparameters of the recipe; ``--help`` describes each of them."""

    preset: Literal["pets", "vtab", "cifar", "imagenet", "mae"] = "pets"
    """Published schedule that sets the defaults of the other flags: for a data set, or of MAE."""
    weights: str | None = None
    """Vision Transformer to start from: published weights, see docs/checkpoints.md, or a run."""
    from_scratch: bool = False
    """Use the architecture and preprocessing of --weights only, and random weights."""
    train_examples: int | None = None
    """Number of training images to draw, a share of each class; all by default."""

    precision: Precision = "auto"
    steps: int = 500
    """Number of updates of the weights."""
    eval_steps: int = 100
    """Steps after which the model is tested: an epoch of the history; must divide --steps."""
    batch_size: int = 512
    accumulation: Accumulation = "auto"
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """SGD with momentum 0.9, or AdamW."""
    learning_rate: float = 0.03  # for SGD
    warmup_steps: int = 100  # then cosine decay to zero
    layer_decay: float = 1.0  # the same rate in all blocks
    """Factor of the learning rate from each block to the one below; the head has the full rate."""
    weight_decay: float = 0.0
    clip_norm: float = 1.0  # maximum norm of all gradients together
    freeze: bool = False
    """Train the head only (linear probe)."""
    lora_rank: int | None = None
    """Train the head and updates of this rank of the matrices of the blocks (LoRA)."""
    dropout: float = 0.0
    stochastic_depth: float = 0.0
    patch_dropout: float = 0.0

    label_smoothing: float = 0.0
    crop_padding: int | None = None
    """Pixels by which a crop may be shifted; an eighth of the image by default."""
    flip_probability: float | None = None
    """Probability that an image is flipped left to right; 0.5 by default, for digits 0."""
    randaugment_num_ops: int = 0
    randaugment_magnitude: float = 0.9
    erase_probability: float = 0.0
    mixup_alpha: float = 0.0
    cutmix_alpha: float = 0.0

    LIMITS = ImageSettings.LIMITS | {
        "train_examples": COUNT,
        "steps": COUNT,
        "eval_steps": COUNT,
        "layer_decay": FRACTION,
        "lora_rank": COUNT,
    }
    MAY_CHANGE = ImageSettings.MAY_CHANGE | {"weights"}  # the path differs on another machine

    def __post_init__(self):
        super().__post_init__()
        self.check_divides("eval_steps", "steps")
        if self.warmup_steps >= self.steps:
            raise UserError(
                "--warmup-steps must be less than --steps, so that the learning rate decays. "
                f"Received: {self.warmup_steps} and {self.steps}."
            )
        if self.freeze and self.lora_rank:
            raise UserError("Pass either --freeze or --lora-rank, not both.")
        if self.from_scratch and (self.freeze or self.lora_rank):
            raise UserError("--from-scratch trains all weights: remove --freeze or --lora-rank.")
        if self.weight_decay and self.optimizer == "sgd":
            raise UserError("--weight-decay needs --optimizer adamw.")

    def check_flags(self, given):
        super().check_flags(given)
        if self.freeze:
            self.refuse(given, "layer_decay", "with --freeze: the head has the full rate")


# Dosovitskiy et al. 2020, table 4, which searches learning rates from 0.001 to 0.03; the rate and
# the warmup that its code starts from: vit_jax/configs/common.py and augreg.py (pets).
PETS = Config()
VTAB = dataclasses.replace(
    PETS, preset="vtab", steps=2500, eval_steps=500, learning_rate=0.01, warmup_steps=500
)
CIFAR = dataclasses.replace(PETS, preset="cifar", steps=10_000, eval_steps=1000, warmup_steps=500)
IMAGENET = dataclasses.replace(CIFAR, preset="imagenet", steps=20_000)
# He et al. 2021 (MAE), as its authors' FINETUNE.md has it for ViT-B: a base learning rate of 5e-4
# for 256 images; 100 epochs of ImageNet are 125,000 steps, of which 5 % are warmup.
MAE = Config(
    preset="mae",
    steps=10_000,
    eval_steps=1000,
    batch_size=1024,
    optimizer="adamw",
    learning_rate=2e-3,
    warmup_steps=500,
    layer_decay=0.65,
    weight_decay=0.05,
    stochastic_depth=0.1,
    label_smoothing=0.1,
    randaugment_num_ops=2,
    erase_probability=0.25,
    mixup_alpha=0.8,
    cutmix_alpha=1.0,
)
PRESETS = {config.preset: config for config in (PETS, VTAB, CIFAR, IMAGENET, MAE)}


def main(config):
    run = Run(config, name=f"finetune_{config.data_name}")
    images = find_images(config)
    with run.scope():
        classifier = build_model(config, len(images.class_names))
    data = load_images(
        config,
        images,
        preprocessing=classifier.preprocessing,
        train_examples=config.train_examples,
    )
    steps_per_epoch(data.train, config.batch_size)  # checks the batch size
    with run.scope():
        optimizer = build_optimizer(config, classifier.model)
        loss, accuracy = loss_and_accuracy(config, data)
    # the loop: Run.train (zoo/training/run.py), Trainer.fit, training_step (zoo/training/step.py)
    train_classifier(  # and tests on `data.test`, saves the model and writes metrics.json
        run,
        classifier,
        data,
        optimizer=optimizer,
        loss=loss,
        weighted_metrics=[accuracy],
        epochs=config.steps // config.eval_steps,
        steps_per_epoch=config.eval_steps,
        augment=build_augmentation(config, classifier.preprocessing.image_size),
        label_smoothing=config.label_smoothing,
    )


def build_model(config, num_classes):
    """Loads the model of `--weights` with a new head, and selects the weights to train."""
    classifier = fine_tuning.pretrained_classifier(
        config.weights,
        num_classes,
        image_size=config.image_size,
        random=config.from_scratch,
        dropout=config.dropout,
        stochastic_depth=config.stochastic_depth,
        patch_dropout=config.patch_dropout,
    )
    if config.freeze:
        fine_tuning.freeze(classifier.model)
    if config.lora_rank:
        fine_tuning.enable_lora(classifier.model, config.lora_rank)
    return classifier


def build_augmentation(config, image_size):
    """The augmentation of images of a size (height, width)."""
    crop_padding = config.crop_padding
    if crop_padding is None:
        crop_padding = image_size[0] // 8
    flip_probability = config.flip_probability
    if flip_probability is None:
        flip_probability = 0.0 if config.data_name == "digits" else 0.5
    return Augmentation(
        crop_padding=crop_padding,
        flip_probability=flip_probability,
        randaugment_num_ops=config.randaugment_num_ops,
        randaugment_magnitude=config.randaugment_magnitude,
        erase_probability=config.erase_probability,
        mixup_alpha=config.mixup_alpha,
        cutmix_alpha=config.cutmix_alpha,
    )


def build_optimizer(config, model):
    rate = warmup_cosine(config.learning_rate, config.steps, config.warmup_steps)
    factors = fine_tuning.layer_rates(model, config.layer_decay)
    if config.optimizer == "sgd":
        return SGD(rate, 0.9, global_clipnorm=config.clip_norm, rate_factors=factors)
    return adamw(rate, config.weight_decay, config.clip_norm, rate_factors=factors)


if __name__ == "__main__":
    run_recipe(main, Config, PRESETS, __doc__, selector="preset")
