"""Trains a text classifier, from scratch or from published weights, on texts and their labels.

From scratch, the model is an encoder as in Devlin et al. 2018, "BERT: Pre-training of Deep
Bidirectional Transformers for Language Understanding", of a small size and without pre-training.

    python recipes/text_classifier.py --dataset phrasebook       # built in, kinds of sentences
    python recipes/text_classifier.py --tsv reviews.tsv          # a line: label, tab, text
    python recipes/text_classifier.py --tsv topics.tsv --label-separator "|"     # label|label, ...
    python recipes/text_classifier.py --dataset imdb_reviews     # TensorFlow Datasets
    python recipes/text_classifier.py --dataset ag_news_subset --max-length 128
    python recipes/text_classifier.py --weights hf://FacebookAI/roberta-base --tsv reviews.tsv

With `--weights`, the tokenizer and the architecture are those of the weights, and the defaults are
those of `FINE_TUNING` below.
On two CPU cores: 99 % of the phrasebook's sentences in half a minute.
"""

import dataclasses
import math
import pathlib
from typing import Literal

from zoo.training.recipe import run_recipe  # first: it silences TensorFlow's start-up messages

import keras

import zoo
from zoo.data import labeled_text, token_batches
from zoo.data.labeled_text import EncodedTexts
from zoo.errors import UserError
from zoo.tasks.classifier import TextClassifier
from zoo.text.saved_tokenizers import checksum
from zoo.text.sentencepiece import train_tokenizer
from zoo.training.fine_tuning import load_model_of_flag
from zoo.training.losses import (
    ClassWeighted,
    SmoothedCrossEntropy,
    balanced_class_weights,
    several_labels,
)
from zoo.training.optimizers import adamw, limited_momentum, warmup_cosine
from zoo.training.report import finish_text_classifier
from zoo.training.run import Run
from zoo.training.run_folder import fingerprint
from zoo.training.settings import (
    Accumulation,
    Normalization,
    Precision,
    RunSettings,
    TokenizerKind,
    flags,
    report_invalid_settings,
)


@dataclasses.dataclass(frozen=True)
class Config(RunSettings):
    """Hyperparameters of the recipe; ``--help`` describes each of them."""

    weights: str | None = None
    """Published weights of BERT or one of its kin to fine-tune, see docs/checkpoints.md."""

    tokenizer: TokenizerKind | None = "bpe"
    vocab_size: int | None = 10_000
    normalization: Normalization | None = "nmt_nfkc"
    max_length: int = 256
    """Maximum length of a text in tokens; longer texts are truncated."""

    embed_dim: int | None = 128
    num_heads: int | None = 4
    num_layers: int | None = 2
    ff_dim: int | None = 256
    dropout: float = 0.2  # BERT has 0.1; without pre-training, more is needed
    attention_dropout: float = 0.0
    norm: Literal["pre", "post"] | None = "pre"
    activation: Literal["relu", "gelu", "silu"] | None = "gelu"
    positions: Literal["learned", "sinusoidal", "relative", "rotary"] | None = "learned"
    pool: Literal["cls", "mean"] | None = "mean"

    precision: Precision = "auto"
    accumulation: Accumulation = "auto"
    epochs: int = 10
    patience: int = 3  # epochs without a lower validation loss
    tokens_per_batch: int = 8192  # padding included
    learning_rate: float = 1e-3  # for training from scratch; BERT is fine-tuned with 2e-5 to 5e-5
    warmup_fraction: float = 0.1  # of the steps; then cosine decay to zero
    weight_decay: float = 0.01  # as BERT, appendix A.2
    clip_norm: float = 1.0
    label_smoothing: float = 0.0
    ema_momentum: float = 0.99  # the mean of about 100 steps; less in short runs
    class_weights: Literal["balanced"] | None = None
    """Balanced: the loss of a text has the weight n / (classes · texts of its class)."""

    dataset: str | None = None
    """phrasebook (built in), or a text classification data set by its TensorFlow Datasets name."""
    data_dir: str | None = None
    """Folder of prepared TFDS data."""
    tsv: str | None = None
    """File with one text per line: label, tab, text; or a CSV file with these columns."""
    label_separator: str | None = None
    """Separator of several labels per text, such as |; with --tsv."""

    LIMITS = RunSettings.LIMITS | {"max_length": (3, math.inf)}
    MAY_CHANGE = RunSettings.MAY_CHANGE | {"data_dir", "tsv"}  # they differ on another machine

    def __post_init__(self):
        super().__post_init__()
        given = [name for name in MODEL_SETTINGS if getattr(self, name) is not None]
        if self.weights and given:
            raise UserError(
                f"The model in {self.weights} has its own tokenizer and architecture. "
                f"Remove {flags(*given)}."
            )
        if self.label_separator and not self.tsv:
            raise UserError("--label-separator needs --tsv.")
        if self.label_separator and self.class_weights:
            raise UserError("--class-weights needs one label per text. Remove --label-separator.")
        self.check_data_dir()
        self.check("tokens_per_batch", self.max_length)

    @property
    def problem(self):
        """See `zoo.tasks.classifier.ImageClassifier`."""
        return "multi_label" if self.label_separator else "single_label"

    @property
    def data_name(self):
        """The name of the data set or file."""
        if (self.dataset is None) == (self.tsv is None):
            raise UserError(
                "Select the training data with exactly one of:\n"
                "  --dataset phrasebook    English sentences and their kinds, built in\n"
                "  --tsv FILE              one text per line: label, tab, text\n"
                "  --dataset NAME          a data set of TensorFlow Datasets, such as imdb_reviews"
            )
        return pathlib.Path(self.tsv).stem if self.tsv else self.dataset.replace("/", "_")


# Settings that `--weights` determines
MODEL_SETTINGS = (
    "tokenizer",
    "vocab_size",
    "normalization",
    "embed_dim",
    "num_heads",
    "num_layers",
    "ff_dim",
    "norm",
    "activation",
    "positions",
    "pool",
)
PHRASEBOOK = Config(
    dataset="phrasebook",
    precision="float32",
    vocab_size=2000,
    max_length=64,
    embed_dim=64,
    ff_dim=128,
    dropout=0.1,
    epochs=8,
    tokens_per_batch=2048,
)
FINE_TUNING = Config(
    **dict.fromkeys(MODEL_SETTINGS),  # None: as in the weights
    dropout=0.1,
    attention_dropout=0.1,
    epochs=3,
    tokens_per_batch=4096,
    learning_rate=3e-5,
    ema_momentum=0.9,  # the mean of about 10 steps
)


def main(config):
    run = Run(config, name=f"text_{config.data_name}")
    data = load_texts(config)
    with run.scope():
        classifier = pretrained(config, data) if config.weights else new_classifier(config, data)
        model = classifier.model
    tokenizer = classifier.tokenizer
    max_length = min(config.max_length, model.max_length)
    train = EncodedTexts(data.train, tokenizer, max_length, classifier.special_tokens)
    valid = EncodedTexts(data.valid, tokenizer, max_length, classifier.special_tokens)
    if train.truncated:
        note = f"Training texts truncated to {max_length} tokens: {train.truncated:,}."
        data = data._replace(notes=(*data.notes, note))
    if run.is_chief:
        for note in data.notes:
            print(note)
    steps = token_batches.steps_per_epoch(train, config.tokens_per_batch)
    with run.scope():
        optimizer = build_optimizer(config, config.epochs * steps)
        loss, accuracy = loss_and_accuracy(config, data)

    def batches(first_step):
        return token_batches.training_batches(
            train, config.tokens_per_batch, config.seed, first_step
        )

    def finish(folder, trained):
        classifier.model = trained  # on one device
        finish_text_classifier(folder, classifier, data, train)

    identity = {}
    if config.weights:
        identity["model of weights"] = fingerprint(model, classifier.description())
    train_checksum = fingerprint(data.train.texts, data.train.labels.tolist(), data.class_names)
    # the loop: Run.train (zoo/training/run.py), Trainer.fit, training_step (zoo/training/step.py)
    run.train(
        model,
        batches,
        epochs=config.epochs,
        steps_per_epoch=steps,
        validation_data=token_batches.evaluation_batches(valid, config.tokens_per_batch),
        callbacks=[keras.callbacks.EarlyStopping(patience=config.patience)],
        optimizer=optimizer,
        loss=loss,
        weighted_metrics=[accuracy],
        identity={
            **identity,
            "checksum of the tokenizer": checksum(tokenizer),
            "data": f"{len(train):,} texts, checksum {train_checksum}",
            "validation data": fingerprint(data.valid.texts, data.valid.labels.tolist()),
        },
        finish=finish,
        per_epoch={"texts": len(train)},
    )


def load_texts(config):
    """The texts that the settings select: `zoo.data.text_rows.TextDataset`."""
    if config.tsv:
        return labeled_text.tsv(config.tsv, config.seed, config.label_separator)
    if config.dataset == "phrasebook":
        return labeled_text.phrasebook(config.seed)
    return labeled_text.tfds_texts(config.dataset, config.data_dir, config.seed)


def loss_and_accuracy(config, data):
    """The loss and the accuracy, for one or several labels per text."""
    if config.problem == "multi_label":
        return several_labels(config.label_smoothing)
    loss = SmoothedCrossEntropy(config.label_smoothing)
    if config.class_weights:
        loss = ClassWeighted(loss, balanced_class_weights(data.train.labels, len(data.class_names)))
    return loss, keras.metrics.SparseCategoricalAccuracy(name="accuracy")


def new_classifier(config, data):
    """A classifier with random weights, whose tokenizer is trained on the training texts."""
    missing = [name for name in MODEL_SETTINGS if getattr(config, name) is None]
    if missing:
        raise UserError(f"Without --weights, a value is needed: {flags(*missing)}.")
    tokenizer = train_tokenizer(
        data.train.texts, config.tokenizer, config.vocab_size, config.normalization
    )
    model = build_model(config, tokenizer.vocab_size, len(data.class_names))
    return TextClassifier(model, tokenizer, data.class_names, problem=config.problem)


def pretrained(config, data):
    """The model of `--weights`, with a head of zeros."""
    classifier = load_model_of_flag(
        "--weights",
        config.weights,
        dtype=keras.config.dtype_policy().name,
        num_classes=len(data.class_names),
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
    )
    if not isinstance(classifier, TextClassifier):
        raise UserError(f"--weights {config.weights} is not a model that classifies texts.")
    for variable in classifier.model.head.weights:
        variable.assign(keras.ops.zeros_like(variable))
    classifier.class_names = data.class_names
    classifier.problem = config.problem
    return classifier


@report_invalid_settings()
def build_model(config, vocab_size, num_classes):
    return zoo.text_classifier(
        vocab_size=vocab_size,
        num_classes=num_classes,
        embed_dim=config.embed_dim,
        num_heads=config.num_heads,
        num_layers=config.num_layers,
        ff_dim=config.ff_dim,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        norm=config.norm,
        activation=config.activation,
        positions=config.positions,
        max_length=config.max_length,
        pool=config.pool,
        num_token_types=0,
        pooler=False,
        epsilon=1e-6,
    )


def build_optimizer(config, total_steps):
    warmup_steps = round(config.warmup_fraction * total_steps)
    rate = warmup_cosine(config.learning_rate, total_steps, warmup_steps)
    momentum = limited_momentum(config.ema_momentum, total_steps)
    return adamw(rate, config.weight_decay, config.clip_norm, momentum)


if __name__ == "__main__":
    # the default values with `--dataset phrasebook`, and those with the flag `--weights`
    presets = {"phrasebook": PHRASEBOOK, "--weights": FINE_TUNING}
    run_recipe(main, Config, presets, __doc__)
