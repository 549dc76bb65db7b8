"""The settings of recipes: their help, their limits, and which of them may change on resuming.

A recipe's `Config` is a frozen dataclass. It inherits the settings of a run and of its data, and
declares the settings of its model and its training with default values. `Settings` describes what
several recipes declare, so that ``--help`` finds it; other settings are described in their recipe.
"""

import contextlib
import dataclasses
import math
import os
import pathlib
from typing import Literal, get_args, get_origin

from zoo.data.image_folder import class_parent
from zoo.data.preprocessing import MAX_SIDE
from zoo.errors import UserError

Accumulation = int | Literal["auto"]
Precision = Literal["float32", "mixed_bfloat16", "mixed_float16", "auto"]
TokenizerKind = Literal["unigram", "bpe", "word", "character"]
Normalization = Literal["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"]

# Limits of a setting: its smallest and its largest value.
COUNT = (1, math.inf)
AMOUNT = (0, math.inf)
FRACTION = (0, 1)
RATE = (0, 0.99)


class Settings:
    """Base of the settings of all recipes; a recipe has those that its dataclass declares.

    Attributes:
        LIMITS: {name of a setting: (smallest value, largest value)}; checked when a config is
            created. None is always allowed.
        MAY_CHANGE: names of settings that may differ when a run is resumed.
        NO_EFFECT: names of settings that do not affect the trained weights, except for rounding.
            They are not stored, and may differ when a run is resumed. `strategy` and `devices`
            do affect the weights with dropout and with batch normalization, which differ between
            devices.
    """

    embed_dim: int
    """Width of the model."""
    num_heads: int
    """Attention heads; must divide the width."""
    num_layers: int
    """Number of blocks, or of encoder blocks if there is a decoder."""
    ff_dim: int
    """Hidden width of the feed-forward networks."""
    dropout: float
    """Dropout rate of embeddings and blocks."""
    attention_dropout: float
    """Dropout rate of attention weights."""
    stochastic_depth: float
    """Drop rate of the last block; it increases linearly from 0 at the first block."""
    patch_dropout: float
    """Share of the patches of each image that training leaves out, which takes less time."""
    norm: str
    """Position of layer normalization; post, as in the original Transformer, needs more warmup."""
    activation: str
    """Activation of the feed-forward networks."""
    positions: str
    """Kind of position encoding."""
    pool: str
    """Input of the head: the class token, or the mean of the tokens."""
    tokenizer: str
    """Kind of SentencePiece model; text outside its vocabulary is encoded as bytes."""
    vocab_size: int
    """Maximum vocabulary size."""
    normalization: str
    """SentencePiece's text normalization; nmt also normalizes white space, cf folds case."""
    max_length: int

    epochs: int
    """Number of epochs; training may stop earlier if there is a patience."""
    patience: int
    """Stop after this many epochs without a lower validation loss."""
    batch_size: int
    """Examples per step."""
    tokens_per_batch: int
    """Tokens per batch, padding included; of sentence pairs for source and target each."""
    learning_rate: float
    """Learning rate after the warmup, from which it decays to zero by a cosine."""
    warmup_steps: int
    """Steps of linear warmup of the learning rate."""
    warmup_fraction: float
    """Share of the steps for linear warmup of the learning rate."""
    weight_decay: float
    """Decoupled weight decay of kernels; it is multiplied by the learning rate."""
    clip_norm: float
    """Maximum global norm of the gradients; None for no clipping."""
    ema_momentum: float
    """Momentum of the moving average of the weights, which is tested and saved."""

    label_smoothing: float
    """Share of a label spread over all classes."""
    crop_padding: int
    """Pixels by which a crop may be shifted."""
    min_crop_area: float
    """Smallest share of an image that a random crop, later resized, may cover; None disables these
    crops."""
    flip_probability: float
    """Probability that an image is flipped left to right."""
    randaugment_num_ops: int
    """RandAugment operations per image; 0 to disable."""
    randaugment_magnitude: float
    """Strength of the RandAugment operations, 0 to 1."""
    erase_probability: float
    """Probability that a box of an image is erased."""
    mixup_alpha: float
    """Mixup draws its mixing share from Beta(alpha, alpha); 0 to disable."""
    cutmix_alpha: float
    """CutMix draws its mixing share from Beta(alpha, alpha); 0 to disable."""

    LIMITS = {
        "embed_dim": COUNT,
        "num_heads": COUNT,
        "num_layers": COUNT,
        "ff_dim": COUNT,
        "dropout": RATE,
        "attention_dropout": RATE,
        "stochastic_depth": RATE,
        "max_length": (2, math.inf),
        "epochs": COUNT,
        "patience": COUNT,
        "batch_size": COUNT,
        "tokens_per_batch": COUNT,
        "learning_rate": AMOUNT,
        "warmup_steps": AMOUNT,
        "warmup_fraction": FRACTION,
        "weight_decay": AMOUNT,
        "clip_norm": AMOUNT,
        "ema_momentum": FRACTION,
        "label_smoothing": RATE,
        "crop_padding": AMOUNT,
        "min_crop_area": (0.01, 1),
        "flip_probability": FRACTION,
        "randaugment_num_ops": AMOUNT,
        "randaugment_magnitude": FRACTION,
        "erase_probability": FRACTION,
        "mixup_alpha": (0, 1000),
        "cutmix_alpha": (0, 1000),
    }
    MAY_CHANGE = frozenset({"patience"})
    NO_EFFECT = frozenset()

    def __post_init__(self):
        for name, value in list(vars(self).items()):
            if isinstance(value, list):
                value = tuple(value)
            # Only paths begin with ~, the home folder; ~ alone may separate labels.
            if isinstance(value, str) and value != "~":
                value = os.path.expanduser(value)
            if isinstance(value, tuple) and all(isinstance(one, str) for one in value):
                value = tuple(os.path.expanduser(one) for one in value)
            object.__setattr__(self, name, value)  # it is frozen
            if value == "" or (isinstance(value, tuple) and "" in value):
                raise UserError(f"{flags(name)} is empty. Pass a value, or leave it out.")
        for name, (low, high) in self.LIMITS.items():
            if hasattr(self, name):
                self.check(name, low, high)
        for field in dataclasses.fields(self):
            self.check_choice(field.name, field.type)

    def check_choice(self, name, annotation):
        """Raises `UserError` if a setting is not one of the choices of its type; None is allowed.

        tyro checks flags; settings of a script are only checked here.
        """
        if int in get_args(annotation):  # any number, besides the choices
            return
        choices = (True, False) if annotation is bool else ()
        for part in (annotation, *get_args(annotation)):  # such as Literal["a", "b"] | None
            if get_origin(part) is Literal:
                choices = get_args(part)
        value = getattr(self, name)
        if get_origin(annotation) is tuple and not isinstance(value, tuple):
            raise UserError(f"{flags(name)} must be a list. Received: {value!r}.")
        if choices and value is not None and value not in choices:
            raise UserError(f"{flags(name)} must be one of {choices}. Received: {value!r}.")

    def check(self, name, low, high=math.inf):
        """Raises `UserError` if a setting is NaN or outside these limits; None is allowed."""
        value = getattr(self, name)
        if value is not None and not low <= value <= high:
            limits = f"at least {low}" if high == math.inf else f"from {low} to {high}"
            raise UserError(f"{flags(name)} must be {limits}. Received: {value}.")

    def check_divides(self, part, whole):
        """Raises `UserError` unless the setting named `part` divides the one named `whole`."""
        divisor = getattr(self, part)
        number = getattr(self, whole)
        if number % divisor:
            raise UserError(
                f"{flags(part)} must divide {flags(whole)}. Received: {divisor} and {number}."
            )

    def check_flags(self, given):
        """Raises `UserError` if a flag of the command line has no effect beside the others.

        Args:
            given: names of the settings whose flags were given. Defaults may have no effect.
        """

    def refuse(self, given, name, reason):
        """Raises `UserError` if a setting was given, with a value that would do something."""
        if name in given and getattr(self, name):
            raise UserError(f"{flags(name)} has no effect {reason}.")

    def check_data_dir(self):
        """Raises `UserError` if a folder of TensorFlow Datasets is given, but no data set in it."""
        if self.data_dir and self.dataset in (None, "phrasebook"):
            raise UserError(
                "--data-dir is a folder of TensorFlow Datasets. Pass --dataset NAME, too."
            )

    def check_not_read(self, path):
        """Raises `UserError` if a setting names something in `path`, which is to be deleted."""
        folder = os.path.realpath(path)
        for name, value in vars(self).items():
            if name == "out":
                continue
            paths = value if isinstance(value, tuple) else (value,)
            for read in paths:
                if isinstance(read, str) and _is_within(read, folder):
                    raise UserError(
                        f"--overwrite would delete {path}, which contains {read} of {flags(name)}. "
                        "Choose another --out directory."
                    )

    def stored(self):
        """Returns the settings that ``config.json`` of a run contains: all but `NO_EFFECT`."""
        return {name: value for name, value in vars(self).items() if name not in self.NO_EFFECT}


def _is_within(path, folder):
    """Whether there is something at `path` that is in a folder or the folder itself, or a link."""
    if not os.path.exists(path):
        return False
    parent, name = os.path.split(os.path.abspath(path))
    link = pathlib.Path(os.path.realpath(parent), name)
    return link.is_relative_to(folder) or link.resolve().is_relative_to(folder)


def flags(*names):
    """Returns the flags of settings, such as "--seed, --batch-size"."""
    return ", ".join("--" + name.replace("_", "-") for name in names)


@contextlib.contextmanager
def report_invalid_settings():
    """Context, or decorator of a function, in which a ValueError becomes a `UserError`.

    Models raise ValueError for arguments that do not fit together, such as `embed_dim` and
    `num_heads`. In a recipe these are settings of the user, who needs the message only.
    """
    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from None


@dataclasses.dataclass(frozen=True)
class RunSettings(Settings):
    """Settings of a run, without its data and its model."""

    out: str | None = None
    """Run directory; by default in runs/, named after the recipe and the data."""
    overwrite: bool = False
    """Delete an existing run in the run directory."""
    resume: bool = False
    """Accept a finished run in the run directory; one that is not finished is always resumed."""
    seed: int = 0
    """Seed of all random numbers: weights, order, dropout, augmentation and held-out data."""
    strategy: Literal["auto", "one", "mirrored", "multiworker"] = "auto"
    """Train on one device, all devices of this machine, or several workers; auto uses all."""
    devices: int | None = None
    """Number of devices to use, all GPUs by default; without GPUs, splits the CPU."""
    precision: Precision = "float32"
    """Mixed precision computes in 16 bits, with weights in float32; auto keeps the precision
    of the run to resume; a new run has mixed_bfloat16 on GPUs of compute capability 8.0 and newer
    and on CPUs that multiply matrices more than 1.25 times as fast in it, mixed_float16 on GPUs of
    7.0 and 7.5, or else float32."""
    jit_compile: Literal["auto", True, False] = "auto"
    """Compile with XLA, each kind of block once for each shape of batches; auto: on GPUs."""
    accumulation: Accumulation = 1
    """Parts in which each device computes its share of a batch, one after the other, to need less
    memory; auto: on GPUs, the smallest number that fits, which is tried before the first step."""
    remat: bool = False
    """Recompute the blocks of the model in the backward pass: less memory, more time."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints (0: one after every step); each epoch ends with one as well."""
    checkpoint_steps: int = 0
    """Steps between additional checkpoints; 0 to disable."""
    checkpoints_kept: int = 3
    """Number of checkpoints to keep; the best one is also kept."""
    profile: int = 0
    """Record this many steps, from the tenth on, for TensorBoard's page Profile; 0 to disable."""

    LIMITS = Settings.LIMITS | {
        "seed": (0, 2**32 - 1),
        "devices": COUNT,
        "checkpoint_minutes": AMOUNT,
        "checkpoint_steps": AMOUNT,
        "checkpoints_kept": COUNT,
        "profile": AMOUNT,
    }
    NO_EFFECT = frozenset(
        {
            "out",
            "overwrite",
            "resume",
            "strategy",
            "devices",
            "jit_compile",
            "accumulation",
            "remat",
            "checkpoint_minutes",
            "checkpoint_steps",
            "checkpoints_kept",
            "profile",
        }
    )

    def __post_init__(self):
        super().__post_init__()
        parts = self.accumulation
        if parts != "auto" and not (isinstance(parts, int) and 1 <= parts <= 1024):
            raise UserError(f"--accumulation must be auto or from 1 to 1024. Received: {parts!r}.")


@dataclasses.dataclass(frozen=True)
class ImageSettings(RunSettings):
    """Settings of a run and its images."""

    dataset: str = "cifar10"
    """digits (built in), or an image classification data set by its TensorFlow Datasets name."""
    data_dir: str | None = None
    """Folder of prepared TFDS data, or of images: train/<class>/*.jpg, test/<class>/*.jpg or
    val/<class>/*.jpg; or <class>/*.jpg alone."""
    labels: str | None = None
    """CSV or TSV file with the label of each image in the folder --data-dir: path, label."""
    problem: Literal["single_label", "multi_label"] = "single_label"
    """Multi_label: an image has any number of labels, in --labels separated by |."""
    image_size: int | None = None
    """Side in pixels to resize images to; required if they differ in size."""
    validation_split: float = 0.0
    """Share of the training images to hold out for validation, to select settings and the best
    epoch; by default, the test images are used."""
    class_weights: Literal["balanced"] | None = None
    """Balanced multiplies the loss of a label by n / (classes · images of its class)."""
    patience: int | None = None
    """Stop after this many epochs without a lower validation loss, and use the weights of the best
    epoch; by default, training ends with the weights of the last epoch."""
    teacher: str | None = None
    """A better classifier with the classes of the data, to learn from besides the labels
    (docs/distillation.md): a run, published weights, or a name such as hf://owner/name."""
    distillation: Literal["hard", "soft"] = "hard"
    """Learn the class that the teacher predicts, or all of its probabilities."""
    temperature: float = 1.0
    """Temperature of --distillation soft: above 1, unlikely classes count more."""
    distillation_weight: float = 0.5
    """α, the weight of the distillation loss; the loss of the labels has 1 - α."""

    LIMITS = RunSettings.LIMITS | {
        "image_size": (1, MAX_SIDE),
        "validation_split": (0, 0.9),
        "temperature": (0.01, 100),
        "distillation_weight": FRACTION,
    }
    # They differ on another machine.
    MAY_CHANGE = RunSettings.MAY_CHANGE | {"data_dir", "labels", "teacher"}

    def __post_init__(self):
        super().__post_init__()
        if self.labels is not None and self.data_dir is None:
            raise UserError("--labels needs --data-dir, the folder of the images.")
        if self.problem == "multi_label" and self.labels is None:
            raise UserError("--problem multi_label needs --labels, a table of images and labels.")
        if self.problem == "multi_label" and self.class_weights:
            raise UserError("--class-weights needs one label per image, --problem single_label.")
        if self.problem == "multi_label" and self.teacher:
            raise UserError("--teacher needs one label per image, --problem single_label.")

    def check_flags(self, given):
        if self.is_folder:
            self.refuse(given, "dataset", "with --data-dir, a folder of images")
        elif self.dataset == "digits":
            self.refuse(given, "data_dir", "with --dataset digits, which is built in")
        if not self.randaugment_num_ops:
            self.refuse(given, "randaugment_magnitude", "without --randaugment-num-ops")
        if not self.teacher:
            self.refuse(given, "distillation", "without --teacher")
            self.refuse(given, "distillation_weight", "without --teacher")
        if not self.teacher or self.distillation == "hard":
            self.refuse(given, "temperature", "without --teacher and --distillation soft")

    def check_distillation_token(self):
        """Raises `UserError` unless a recipe's setting `distillation_token` fits the others."""
        if self.distillation_token and not (self.teacher and self.pool == "cls"):
            raise UserError("--distillation-token needs --teacher, and --pool cls.")

    @property
    def is_folder(self):
        """Whether the data are a folder of images."""
        return bool(self.data_dir and (self.labels or class_parent(self.data_dir)))

    @property
    def data_name(self):
        """The name of the data set or folder."""
        return pathlib.Path(self.data_dir).name if self.is_folder else self.dataset
