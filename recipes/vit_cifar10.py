"""Trains a Vision Transformer from scratch on CIFAR-10, handwritten digits or your own images.

The recipe follows Lee et al. 2021, "Vision Transformer for Small-Size Datasets", section 4.1, with
RandAugment instead of AutoAugment and a moving average of the weights.

    python recipes/vit_cifar10.py --dataset digits               # built in, no network, two minutes
    python recipes/vit_cifar10.py                                # CIFAR-10 by TensorFlow Datasets
    python recipes/vit_cifar10.py --data-dir ~/tensorflow_datasets
    python recipes/vit_cifar10.py --data-dir my_images --image-size 64   # train/<class>/*.jpg
    python recipes/vit_cifar10.py --model cbam_resnet            # a convolutional baseline
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
    model: Literal["vit", "cbam_resnet"] = "vit"
    """A Vision Transformer, or a ResNet with CBAM; each ignores the settings of the other."""

    patch_size: int = 4
    """Side of a patch in pixels."""
    embed_dim: int = 192
    """Width of the model."""
    num_heads: int = 12
    """Attention heads; must divide the width."""
    num_layers: int = 9
    """Encoder blocks."""
    ff_dim: int = 384
    """Hidden width of the feed-forward networks."""
    dropout: float = 0.0
    """Dropout rate of blocks and position embeddings."""
    stochastic_depth: float = 0.1
    """Drop rate of the last block; it increases linearly from 0 at the first block."""
    pool: Literal["cls", "mean"] = "cls"
    """Input of the head: the class token, or the mean of the patches."""
    positions: Literal["learned", "sinusoidal", "relative", "rotary"] = "learned"
    """Kind of positions."""
    attention: Literal["softmax", "linear", "blockwise"] = "softmax"
    """Linear attention, or softmax attention in less memory, for long sequences of patches."""

    blocks_per_stage: int = 3
    """Blocks in each of the three stages of the ResNet: n of its 6n+2 layers."""

    epochs: int = 100
    """Number of epochs."""
    batch_size: int = 128
    """Images per step."""
    learning_rate: float = 1e-3
    """Peak learning rate, after the warmup; then cosine decay to zero."""
    warmup_fraction: float = 0.1
    """Share of the steps used for linear warmup."""
    weight_decay: float = 0.05
    """Decoupled weight decay of kernels."""
    clip_norm: float = 1.0
    """Maximum global norm of the gradients."""
    ema_momentum: float = 0.999
    """Momentum of the moving average of the weights, which is tested and saved."""

    label_smoothing: float = 0.1
    """Share of a label spread over all classes."""
    repeats: int = 3
    """Number of times an image occurs in its batch, each with a different augmentation."""
    crop_padding: int = 4
    """Pixels by which a crop may be shifted."""
    min_crop_area: float | None = None
    """Least share of an image that a random crop covers, which is then resized; none by default."""
    flip_probability: float = 0.5
    """Probability that an image is flipped left to right."""
    randaugment_num_ops: int = 2
    """RandAugment operations per image; 0 to disable."""
    randaugment_magnitude: float = 0.9
    """Strength of the RandAugment operations, 0 to 1."""
    erase_probability: float = 0.25
    """Probability that a box of an image is erased."""
    mixup_alpha: float = 1.0
    """Mixup draws its mixing share from Beta(alpha, alpha); 0 to disable."""
    cutmix_alpha: float = 1.0
    """CutMix draws its mixing share from Beta(alpha, alpha); 0 to disable."""
    mix_probability: float = 0.5
    """Probability that an image is mixed with another by Mixup or CutMix."""

    def __post_init__(self):
        super().__post_init__()
        least = {
            **dict.fromkeys(("embed_dim", "num_heads", "num_layers", "ff_dim", "patch_size"), 1),
            **dict.fromkeys(("epochs", "batch_size", "repeats", "blocks_per_stage"), 1),
            **dict.fromkeys(("warmup_fraction", "weight_decay", "label_smoothing"), 0),
            **dict.fromkeys(("learning_rate", "clip_norm", "ema_momentum"), 0),
            "min_crop_area": 0.01,
        }
        most = dict.fromkeys(("label_smoothing", "ema_momentum", "warmup_fraction"), 1)
        most["min_crop_area"] = 1
        check_limits(self, least, most)


CIFAR10 = Config()
DIGITS = dataclasses.replace(
    CIFAR10,
    dataset="digits",
    patch_size=2,
    embed_dim=96,
    num_heads=6,
    num_layers=4,
    ff_dim=192,
    epochs=100,
    batch_size=64,
    ema_momentum=0.99,
    repeats=1,
    crop_padding=1,
    flip_probability=0.0,  # a flipped 2 or 5 is not a digit
    randaugment_num_ops=0,
    erase_probability=0.0,
    mixup_alpha=0.0,
)


# Imports are inside the functions: TensorFlow takes seconds to import, and --help should not.


def main(config):
    from zoo.classifier import ImageClassifier
    from zoo.data.pipeline import steps_per_epoch
    from zoo.training.optimizers import adamw

    run = Run(config)
    data = config.load_data(streamed=config.min_crop_area is not None)
    augment = augmentation(config)
    steps = steps_per_epoch(data.train, config.batch_size)
    with run.scope():
        model = build(config, data)
        optimizer = adamw(
            model,
            config.learning_rate,
            config.weight_decay,
            total_steps=config.epochs * steps,
            warmup_steps=round(config.warmup_fraction * config.epochs * steps),
            clip_norm=config.clip_norm,
            ema_momentum=config.ema_momentum,
        )
    train_classifier(
        run,
        ImageClassifier(model, data.preprocessing(), data.class_names),
        optimizer,
        data,
        f"{config.model}_{config.data_name}",
        config.epochs,
        steps,
        augment=augment,
        label_smoothing=config.label_smoothing,
        repeats=config.repeats,
        min_crop_area=config.min_crop_area,
    )


def build(config, data):
    """Builds the model."""
    import zoo

    sizes = {"input_shape": data.input_shape, "num_classes": len(data.class_names)}
    names = (
        "patch_size embed_dim num_heads num_layers ff_dim dropout stochastic_depth pool positions "
        "attention"
    )
    try:
        if config.model == "cbam_resnet":
            return zoo.resnet(**sizes, blocks_per_stage=config.blocks_per_stage, attention="cbam")
        return zoo.vit(**sizes, **{name: getattr(config, name) for name in names.split()})
    except ValueError as error:
        raise UserError(str(error)) from None


if __name__ == "__main__":
    run_recipe(main, Config, {"cifar10": CIFAR10, "digits": DIGITS}, __doc__)
