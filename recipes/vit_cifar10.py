"""Trains a Vision Transformer from scratch on CIFAR-10, handwritten digits or your own images.

The recipe follows Lee et al. 2021, "Vision Transformer for Small-Size Datasets", section 4.1, with
RandAugment for AutoAugment and an average of the weights over the last steps.

    python recipes/vit_cifar10.py --dataset digits               # built in, no network, two minutes
    python recipes/vit_cifar10.py                                # CIFAR-10 by TensorFlow Datasets
    python recipes/vit_cifar10.py --data-dir ~/tensorflow_datasets
    python recipes/vit_cifar10.py --data-dir my_images --image-size 64   # train/<class>/*.jpg
"""

import dataclasses
import pathlib
import sys
from typing import Literal

from zoo.errors import UserError
from zoo.training.command import run_recipe, settings_of


@dataclasses.dataclass(frozen=True)
class Config:
    dataset: str = "cifar10"
    """digits (built in), or an image classification data set by its TensorFlow Datasets name."""
    data_dir: str | None = None
    """Folder of prepared TFDS data, or of images: train/<class>/*.jpg, test/<class>/*.jpg."""
    image_size: int | None = None
    """Side in pixels that images are brought to; needed where they differ in size."""
    out: str | None = None
    """Run folder; runs/vit_ and the name of the data set or folder by default."""
    overwrite: bool = False
    """Delete the run that the folder holds."""
    resume: bool = False
    """Go on with the run that the folder holds, begun by the same command."""
    seed: int = 0
    """Seed of weights, order, augmentation and dropout."""
    strategy: Literal["auto", "one", "mirrored", "multiworker"] = "auto"
    """Train on one device, on all of this machine, or on those of many workers; auto: on all."""
    devices: int | None = None
    """Devices of this machine to use, all GPUs by default; without GPUs, parts of the CPU."""
    checkpoint_minutes: float = 10.0
    """Minutes after which a checkpoint is written; there is one at the end of each epoch, too."""
    checkpoint_steps: int = 0
    """Steps after which one is written, besides; 0 for none."""
    checkpoints_kept: int = 3
    """How many are kept; the best one is, too."""

    patch_size: int = 4
    """Side of a patch in pixels."""
    embed_dim: int = 192
    """Width of the model."""
    num_heads: int = 12
    """Attention heads; they divide the width."""
    num_layers: int = 9
    """Encoder blocks."""
    ff_dim: int = 384
    """Hidden width of the feed-forward networks."""
    dropout: float = 0.0
    """Rate of dropout in the blocks and after the positions."""
    stochastic_depth: float = 0.1
    """Rate at which the last block is left out for an image; earlier blocks less."""
    pool: Literal["cls", "mean"] = "cls"
    """What the head reads: the class token, or the mean of the patches."""

    epochs: int = 100
    """Times that the training images are gone through."""
    batch_size: int = 128
    """Images in a step."""
    learning_rate: float = 1e-3
    """Largest learning rate, reached after the warmup; it then falls to zero by a cosine."""
    warmup_fraction: float = 0.1
    """Share of the steps over which the learning rate rises from zero."""
    weight_decay: float = 0.05
    """Decoupled decay of the weight matrices."""
    clip_norm: float = 1.0
    """Largest norm of all gradients together."""
    ema_momentum: float = 0.999
    """Of the moving average of the weights, which is what is tested and saved."""
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Mixed precision computes in 16 bits and keeps weights in 32."""

    label_smoothing: float = 0.1
    """Share of a label that is spread over all classes."""
    repeats: int = 3
    """Times that an image occurs in its batch, each time augmented anew."""
    crop_padding: int = 4
    """Pixels by which a crop may be off the image."""
    flip_probability: float = 0.5
    """Share of the images that are mirrored."""
    randaugment_num_ops: int = 2
    """Operations of RandAugment on an image; 0 for none."""
    randaugment_magnitude: float = 0.9
    """Their strength, 0 to 1."""
    erase_probability: float = 0.25
    """Share of the images in which a box is erased."""
    mixup_alpha: float = 1.0
    """Mixup draws shares from Beta(alpha, alpha); 0 for none."""
    cutmix_alpha: float = 1.0
    """CutMix likewise."""
    mix_probability: float = 0.5
    """Share of the images that are mixed with another by Mixup or CutMix."""

    def __post_init__(self):
        least = {
            **dict.fromkeys(("embed_dim", "num_heads", "num_layers", "ff_dim", "patch_size"), 1),
            **dict.fromkeys(("epochs", "batch_size", "repeats", "checkpoints_kept"), 1),
            **dict.fromkeys(("seed", "warmup_fraction", "weight_decay", "label_smoothing"), 0),
            **dict.fromkeys(("learning_rate", "clip_norm", "ema_momentum"), 0),
            **dict.fromkeys(("checkpoint_minutes", "checkpoint_steps"), 0),
        }
        most = {"label_smoothing": 1, "ema_momentum": 1, "warmup_fraction": 1}
        for name, low in least.items():
            value, high = getattr(self, name), most.get(name, float("inf"))
            if not low <= value <= high:
                flag = "--" + name.replace("_", "-")
                limits = f"from {low} to {high}" if name in most else f"at least {low}"
                raise UserError(f"{flag} must be {limits}. Received: {value}.")


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
    flip_probability=0.0,  # a mirrored 2 or 5 is no digit
    randaugment_num_ops=0,
    erase_probability=0.0,
    mixup_alpha=0.0,
)


# Imports stand in the functions that need them: TensorFlow takes seconds, --help should not.


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
        print(f"left out: {line}")
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
        config.out or f"runs/vit_{name}", settings, config.overwrite, config.resume, is_chief
    )
    exit_on_sigterm(run.go_on_by_itself)
    if distribution.from_chief(strategy, run.is_finished):
        print(f"This run is finished: {run.path}")
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
                keras.callbacks.SwapEMAWeights(),  # what is tested is the average
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
            raise UserError(f"{config.data_dir} is an image folder: say --image-size, such as 64.")
        return image_folder(config.data_dir, image_size, config.seed)
    if config.dataset == "digits":
        return digits(config.seed)
    return tfds_images(config.dataset, config.data_dir, image_size)


def is_image_folder(config):
    return config.data_dir is not None and pathlib.Path(config.data_dir, "train").is_dir()


def build(config, data):
    """The model and its augmentation."""
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
        model = zoo.vit(
            input_shape=data.input_shape,
            num_classes=len(data.class_names),
            **chosen(
                "patch_size embed_dim num_heads num_layers ff_dim dropout stochastic_depth pool"
            ),
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    return model, augment


if __name__ == "__main__":
    run_recipe(main, Config, {"cifar10": CIFAR10, "digits": DIGITS}, __doc__)
