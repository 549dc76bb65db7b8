"""The settings of recipes: each with its limits, its help, and whether resuming may change it.

A recipe's `Config` is a frozen dataclass that inherits the settings of a run and of its data, and
declares those of its model and training with their default values. `Settings` describes those that
several recipes declare, so that ``--help`` finds them; what only one recipe has stands there.
"""

import dataclasses
import functools
import inspect
import math
import pathlib
from typing import Annotated, Literal, NamedTuple, get_args

from zoo.errors import UserError

Precision = Literal["float32", "mixed_bfloat16", "mixed_float16", "auto"]
TokenizerKind = Literal["unigram", "bpe", "word", "character"]
Normalization = Literal["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"]


class Limits(NamedTuple):
    """The smallest and the largest value of a setting."""

    low: float
    high: float = math.inf


NO_EFFECT = "does not affect the result: it is not stored, and may change when a run is resumed"
MAY_CHANGE = "is stored, and may change when a run is resumed"
Count = Annotated[int, Limits(1)]
Amount = Annotated[float, Limits(0)]
Fraction = Annotated[float, Limits(0, 1)]
Rate = Annotated[float, Limits(0, 0.99)]
DataPath = Annotated[str | None, MAY_CHANGE]  # as it differs on another machine


class Settings:
    """Base of the settings of all recipes; a recipe has those that its dataclass declares.

    Limits, `MAY_CHANGE` and `NO_EFFECT` are annotated here, or in the recipe, which has precedence.
    """

    embed_dim: Count
    """Width of the model."""
    num_heads: Count
    """Attention heads; must divide the width."""
    num_layers: Count
    """Number of blocks; with an encoder and a decoder, those of the encoder."""
    ff_dim: Count
    """Hidden width of the feed-forward networks."""
    dropout: Rate
    """Dropout rate of embeddings and blocks."""
    attention_dropout: Rate
    """Dropout rate of attention weights."""
    stochastic_depth: Rate
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
    max_length: Annotated[int, Limits(2)]

    epochs: Count
    """Number of epochs; training may stop earlier if there is a patience."""
    patience: Annotated[Count, MAY_CHANGE]
    """Stop after this many epochs without a lower validation loss."""
    batch_size: Count
    """Examples per step."""
    accumulation: Count
    tokens_per_batch: Count
    """Tokens per batch, padding included; of sentence pairs for source and target each."""
    learning_rate: Amount
    """Learning rate after the warmup, from which it decays to zero by a cosine."""
    warmup_steps: Annotated[int, Limits(0)]
    """Steps of linear warmup of the learning rate."""
    warmup_fraction: Fraction
    """Share of the steps for linear warmup of the learning rate."""
    weight_decay: Amount
    """Decoupled weight decay of kernels; it is multiplied by the learning rate."""
    clip_norm: Amount
    """Maximum global norm of the gradients; None for no clipping."""
    ema_momentum: Fraction
    """Momentum of the moving average of the weights, which is tested and saved."""

    label_smoothing: Rate
    """Share of a label spread over all classes."""
    crop_padding: Annotated[int, Limits(0)]
    """Pixels by which a crop may be shifted."""
    min_crop_area: Annotated[float, Limits(0.01, 1)]
    """Smallest share of an image that a random crop, later resized, may cover; None disables these
    crops."""
    flip_probability: Fraction
    """Probability that an image is flipped left to right."""
    randaugment_num_ops: Annotated[int, Limits(0)]
    """RandAugment operations per image; 0 to disable."""
    randaugment_magnitude: Fraction
    """Strength of the RandAugment operations, 0 to 1."""
    erase_probability: Fraction
    """Probability that a box of an image is erased."""
    mixup_alpha: Annotated[float, Limits(0, 1000)]
    """Mixup draws its mixing share from Beta(alpha, alpha); 0 to disable."""
    cutmix_alpha: Annotated[float, Limits(0, 1000)]
    """CutMix draws its mixing share from Beta(alpha, alpha); 0 to disable."""

    def __post_init__(self):
        for name, facts in _facts_of(type(self)).items():
            limits = [fact for fact in facts if isinstance(fact, Limits)]
            if limits and hasattr(self, name):
                self.check(name, *limits[-1])

    def check(self, name, low, high=math.inf):
        """Raises `UserError` if a setting is NaN or outside these limits; None is allowed."""
        value = getattr(self, name)
        if value is not None and not low <= value <= high:
            limits = f"at least {low}" if high == math.inf else f"from {low} to {high}"
            raise UserError(f"{flags(name)} must be {limits}. Received: {value}.")

    def check_divides(self, part, whole):
        """Raises `UserError` unless a setting divides another one."""
        values = getattr(self, part), getattr(self, whole)
        if values[1] % values[0]:
            raise UserError(
                f"{flags(part)} must divide {flags(whole)}. Received: {values[0]} and {values[1]}."
            )

    def check_data_dir(self):
        """Raises `UserError` if a folder of TensorFlow Datasets is given, but no data set in it."""
        if self.data_dir and self.dataset in (None, "phrasebook"):
            raise UserError(
                "--data-dir is a folder of TensorFlow Datasets. Pass --dataset NAME, too."
            )

    def select(self, names):
        """Returns the settings of these names, a str with spaces, as a dict."""
        return {name: getattr(self, name) for name in names.split()}

    def build(self, constructor, names, **others):
        """Calls `constructor` with settings as in `select`; its ValueError becomes a UserError."""
        try:
            return constructor(**self.select(names), **others)
        except ValueError as error:
            raise UserError(str(error)) from None

    def stored(self):
        """Returns the settings that affect the result, a dict, as in ``config.json`` of a run."""
        facts = _facts_of(type(self))
        return {name: value for name, value in vars(self).items() if NO_EFFECT not in facts[name]}

    def may_change(self):
        """Returns the names of stored settings that may change when a run is resumed."""
        return [name for name, facts in _facts_of(type(self)).items() if MAY_CHANGE in facts]


@functools.cache
def _facts_of(config_class):
    """{name: list of the metadata of a setting}, with those of derived classes last."""
    facts = {}
    for owner in reversed(config_class.__mro__):
        for name, annotation in inspect.get_annotations(owner).items():
            facts[name] = [*facts.get(name, ()), *_metadata(annotation)]
    return facts


def _metadata(annotation):
    """The metadata of `Annotated`, also within a union such as ``Count | None``."""
    inner = [fact for part in get_args(annotation) for fact in _metadata(part)]
    return [*getattr(annotation, "__metadata__", ()), *inner]


def flags(*names):
    """Returns the flags of settings, such as "--seed, --batch-size"."""
    return ", ".join("--" + name.replace("_", "-") for name in names)


@dataclasses.dataclass(frozen=True)
class RunSettings(Settings):
    """Settings of a run other than those of its data and its model."""

    out: Annotated[str | None, NO_EFFECT] = None
    """Run directory; by default in runs/, named after the recipe and the data."""
    overwrite: Annotated[bool, NO_EFFECT] = False
    """Delete an existing run in the run directory."""
    resume: Annotated[bool, NO_EFFECT] = False
    """Accept a finished run in the run directory; one that is not finished is always resumed."""
    seed: Annotated[int, Limits(0, 2**32 - 1)] = 0
    """Seed of all random numbers: weights, order, dropout, augmentation and held-out data."""
    strategy: Annotated[Literal["auto", "one", "mirrored", "multiworker"], NO_EFFECT] = "auto"
    """Train on one device, all devices of this machine, or several workers; auto uses all."""
    devices: Annotated[Count | None, NO_EFFECT] = None
    """Number of devices to use, all GPUs by default; without GPUs, splits the CPU."""
    precision: Precision = "float32"
    """Mixed precision computes in 16 bits, with weights in float32; auto is that of the run to
    resume, or mixed_bfloat16 on CPUs that multiply matrices more than 1.25 times as fast in it."""
    jit_compile: Annotated[Literal["auto", True, False], NO_EFFECT] = "auto"
    """Compile steps with XLA; auto: on GPUs, if all batches have one shape, as each takes time."""
    remat: Annotated[bool, NO_EFFECT] = False
    """Recompute the blocks of the model in the backward pass: less memory, more time."""
    checkpoint_minutes: Annotated[Amount, NO_EFFECT] = 10.0
    """Minutes between checkpoints (0: one after every step); each epoch ends with one as well."""
    checkpoint_steps: Annotated[int, Limits(0), NO_EFFECT] = 0
    """Steps between additional checkpoints; 0 to disable."""
    checkpoints_kept: Annotated[Count, NO_EFFECT] = 3
    """Number of checkpoints to keep; the best one is also kept."""


@dataclasses.dataclass(frozen=True)
class ImageSettings(RunSettings):
    """Settings of a run and its images."""

    dataset: str = "cifar10"
    """digits (built in), or an image classification data set by its TensorFlow Datasets name."""
    data_dir: DataPath = None
    """Folder of prepared TFDS data, or of images: train/<class>/*.jpg, test/<class>/*.jpg or
    val/<class>/*.jpg; or <class>/*.jpg alone."""
    image_size: Count | None = None
    """Side in pixels to resize images to; required if they differ in size."""
    validation_split: Annotated[float, Limits(0, 0.9)] = 0.0
    """Share of the training images to hold out for validation, to select settings and the best
    epoch; by default, the test images are used."""
    class_weights: Literal["balanced"] | None = None
    """Balanced multiplies the loss of an image by n / (classes · images of its class)."""
    patience: Annotated[Count | None, MAY_CHANGE] = None
    """Stop after this many epochs without a lower validation loss, and use the weights of the best
    epoch; by default, those of the last epoch are used."""

    @property
    def is_folder(self):
        """Whether the data are a folder of images."""
        from zoo.data.image_folder import class_parent

        return self.data_dir is not None and class_parent(self.data_dir) is not None

    @property
    def data_name(self):
        """The name of the data set or folder."""
        return pathlib.Path(self.data_dir).name if self.is_folder else self.dataset
