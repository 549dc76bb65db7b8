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
import pathlib
import sys
from typing import Literal

from zoo.errors import UserError
from zoo.training.command import check_limits, run_recipe, settings_of


@dataclasses.dataclass(frozen=True)
class Config:
    dataset: str = "cifar10"
    """digits (built in), or an image classification data set by its TensorFlow Datasets name."""
    data_dir: str | None = None
    """Folder of prepared TFDS data, or of images: train/<class>/*.jpg, test/<class>/*.jpg."""
    image_size: int | None = None
    """Side in pixels to resize images to; required if they differ in size."""
    model: Literal["vit", "cbam_resnet"] = "vit"
    """A Vision Transformer, or a ResNet with CBAM; each ignores the settings of the other."""
    out: str | None = None
    """Run directory; by default runs/, the model and the name of the data set or folder."""
    overwrite: bool = False
    """Delete an existing run in the run directory."""
    resume: bool = False
    """Resume the run in the run directory, started with the same settings."""
    seed: int = 0
    """Seed of weights, order, augmentation and dropout."""
    strategy: Literal["auto", "one", "mirrored", "multiworker"] = "auto"
    """Train on one device, all devices of this machine, or several workers; auto uses all."""
    devices: int | None = None
    """Number of devices to use, all GPUs by default; without GPUs, splits the CPU."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints; one is also written at the end of each epoch."""
    checkpoint_steps: int = 0
    """Steps between additional checkpoints; 0 to disable."""
    checkpoints_kept: int = 3
    """Number of checkpoints to keep; the best one is also kept."""

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
    positions: Literal["learned", "relative", "rotary"] = "learned"
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
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Mixed precision computes in 16 bits and keeps the weights in float32."""

    label_smoothing: float = 0.1
    """Share of a label spread over all classes."""
    repeats: int = 3
    """Number of times an image occurs in its batch, each with a different augmentation."""
    crop_padding: int = 4
    """Pixels by which a crop may be shifted."""
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
        least = {
            **dict.fromkeys(("embed_dim", "num_heads", "num_layers", "ff_dim", "patch_size"), 1),
            **dict.fromkeys(("epochs", "batch_size", "repeats", "checkpoints_kept"), 1),
            "blocks_per_stage": 1,
            **dict.fromkeys(("seed", "warmup_fraction", "weight_decay", "label_smoothing"), 0),
            **dict.fromkeys(("learning_rate", "clip_norm", "ema_momentum"), 0),
            **dict.fromkeys(("checkpoint_minutes", "checkpoint_steps"), 0),
        }
        most = {"label_smoothing": 1, "ema_momentum": 1, "warmup_fraction": 1}
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
    import keras

    import zoo.data.pipeline as pipeline
    from zoo.classifier import ImageClassifier
    from zoo.training import distribution
    from zoo.training.callbacks import standard_callbacks
    from zoo.training.checkpoint import Checkpoint
    from zoo.training.interruption import exit_on_sigterm
    from zoo.training.optimizers import adamw
    from zoo.training.report import finish_classifier
    from zoo.training.run_folder import RunFolder
    from zoo.training.trainer import Trainer

    strategy = distribution.choose(config.strategy, config.devices)
    is_chief = distribution.is_chief(strategy)
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.precision)
    data = load_data(config)
    for line in data.skipped if is_chief else ():
        print(f"skipped: {line}")
    preprocessing = data.preprocessing()
    steps = pipeline.steps_per_epoch(data.train, config.batch_size)
    with distribution.exit_if_a_worker_is_lost(strategy), strategy.scope():
        model, augment = build(config, data)
        trainer = Trainer(model)
        trainer.compile(
            adamw(
                model,
                config.learning_rate,
                config.weight_decay,
                total_steps=config.epochs * steps,
                warmup_steps=round(config.warmup_fraction * config.epochs * steps),
                clip_norm=config.clip_norm,
                ema_momentum=config.ema_momentum,
            ),
            keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum"),
            [keras.metrics.CategoricalAccuracy(name="accuracy")],
        )
    settings = settings_of(config)
    name = pathlib.Path(config.data_dir).name if is_image_folder(config) else config.dataset
    run = RunFolder(
        config.out or f"runs/{config.model}_{name}",
        settings,
        config.overwrite,
        config.resume,
        is_chief,
    )
    exit_on_sigterm(run.enable_auto_resume)
    if distribution.from_chief(strategy, run.is_finished):
        print(f"This run is already finished: {run.path}")
        return
    checkpoint = Checkpoint(
        run.path,
        steps,
        config.checkpoint_minutes,
        config.checkpoint_steps,
        config.checkpoints_kept,
    )
    steps_done = checkpoint.restore(trainer)
    classes, images = len(data.class_names), steps * config.batch_size
    with distribution.exit_if_a_worker_is_lost(strategy, checkpoint.newest):
        trainer.fit(
            pipeline.training_batches(
                data.train,
                preprocessing,
                classes,
                config.batch_size,
                augment=augment,
                label_smoothing=config.label_smoothing,
                repeats=config.repeats,
                seed=config.seed,
                first_step=steps_done,
            ),
            epochs=config.epochs,
            initial_epoch=checkpoint.epoch,
            steps_per_epoch=steps,
            validation_data=pipeline.test_batches(data.test, preprocessing, classes, 256),
            callbacks=[
                keras.callbacks.SwapEMAWeights(),  # validation uses the averaged weights
                *standard_callbacks(run.path, steps, steps_done, is_chief, images_per_epoch=images),
                checkpoint,
            ],
            verbose=1 if sys.stdout.isatty() else 2,
        )
    if is_chief:
        model = trainer.trained_model()
        finish_classifier(run, ImageClassifier(model, preprocessing, data.class_names), data)
        checkpoint.remove()


def load_data(config):
    from zoo.data.images import digits, image_folder, tfds_images

    image_size = config.image_size and (config.image_size, config.image_size)
    if is_image_folder(config):
        if not image_size:
            raise UserError(
                f"Pass --image-size, such as 64, for the image folder {config.data_dir}."
            )
        return image_folder(config.data_dir, image_size, config.seed)
    if config.dataset == "digits":
        return digits(config.seed)
    return tfds_images(config.dataset, config.data_dir, image_size)


def is_image_folder(config):
    return config.data_dir is not None and pathlib.Path(config.data_dir, "train").is_dir()


def build(config, data):
    """Builds the model and the augmentation."""
    import zoo
    from zoo.training.augmentation import Augmentation

    def chosen(names):
        return {name: getattr(config, name) for name in names.split()}

    try:
        augment = Augmentation(
            **chosen(
                "crop_padding flip_probability randaugment_num_ops randaugment_magnitude "
                "erase_probability mixup_alpha cutmix_alpha mix_probability"
            )
        )
        sizes = {"input_shape": data.input_shape, "num_classes": len(data.class_names)}
        if config.model == "cbam_resnet":
            model = zoo.resnet(**sizes, **chosen("blocks_per_stage"), attention="cbam")
        else:
            model = zoo.vit(
                **sizes,
                **chosen(
                    "patch_size embed_dim num_heads num_layers ff_dim dropout stochastic_depth "
                    "pool positions attention"
                ),
            )
    except ValueError as error:
        raise UserError(str(error)) from None
    return model, augment


if __name__ == "__main__":
    run_recipe(main, Config, {"cifar10": CIFAR10, "digits": DIGITS}, __doc__)
