"""Trains a text classifier from scratch, on a built-in set, TensorFlow Datasets or your own texts.

The model is an encoder as in Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional
Transformers for Language Understanding", of a small size and without pre-training.

    python recipes/text_classifier.py --dataset phrasebook       # built in, kinds of sentences
    python recipes/text_classifier.py --tsv reviews.tsv          # a line: label, tab, text
    python recipes/text_classifier.py --tsv topics.tsv --label-separator "|"     # label|label, ...
    python recipes/text_classifier.py --dataset imdb_reviews     # TensorFlow Datasets
    python recipes/text_classifier.py --dataset ag_news_subset --max-length 128

On two CPU cores: 99 % of the phrasebook's sentences in half a minute.
"""

import dataclasses
import pathlib
from typing import Annotated, Literal

from zoo.errors import UserError
from zoo.training.recipe import run_recipe
from zoo.training.settings import DataPath, Limits, Normalization, RunSettings, TokenizerKind


@dataclasses.dataclass(frozen=True)
class Config(RunSettings):
    """Hyperparameters and their default values, which --help describes."""

    tokenizer: TokenizerKind = "bpe"
    vocab_size: int = 10_000
    normalization: Normalization = "nmt_nfkc"
    max_length: Annotated[int, Limits(3)] = 256
    """Maximum length of a text in tokens; longer texts are truncated."""

    embed_dim: int = 128
    num_heads: int = 4
    num_layers: int = 2
    ff_dim: int = 256
    dropout: float = 0.2
    attention_dropout: float = 0.0
    norm: Literal["pre", "post"] = "pre"
    activation: Literal["relu", "gelu", "silu"] = "gelu"
    positions: Literal["learned", "sinusoidal", "relative", "rotary"] = "learned"
    pool: Literal["cls", "mean"] = "mean"

    epochs: int = 10
    patience: int = 3
    tokens_per_batch: int = 8192
    learning_rate: float = 1e-3
    warmup_fraction: float = 0.1
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    label_smoothing: float = 0.0
    ema_momentum: float = 0.99
    class_weights: Literal["balanced"] | None = None
    """Balanced: the loss of a text has the weight n / (classes · texts of its class)."""

    dataset: str | None = None
    """phrasebook (built in), or a text classification data set by its TensorFlow Datasets name."""
    data_dir: DataPath = None
    """Folder of prepared TFDS data."""
    tsv: DataPath = None
    """File with one text per line, without a header: label, tab, text."""
    label_separator: str | None = None
    """Separator of several labels per text, such as |; with --tsv."""

    def __post_init__(self):
        super().__post_init__()
        if self.label_separator == "" or (self.label_separator and not self.tsv):
            raise UserError("--label-separator must be a character, such as |, and needs --tsv.")
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


PHRASEBOOK = Config(
    dataset="phrasebook",
    vocab_size=2000,
    max_length=64,
    embed_dim=64,
    ff_dim=128,
    dropout=0.1,
    epochs=8,
    tokens_per_batch=2048,
)


# Imports are inside the functions: TensorFlow takes seconds to import, and --help should not.


def main(config):
    import keras

    from zoo.data import token_batches as batches
    from zoo.data.labeled_text import EncodedTexts
    from zoo.tasks.classifier import TextClassifier
    from zoo.text.saved_tokenizers import checksum
    from zoo.text.sentencepiece import train_tokenizer
    from zoo.training.report import finish_text_classifier
    from zoo.training.run import Run

    run = Run(config, name=f"text_{config.data_name}")
    data = load_texts(config)
    settings = (config.tokenizer, config.vocab_size, config.normalization)
    tokenizer = train_tokenizer(data.train.texts, *settings)
    train, valid = (
        EncodedTexts(texts, tokenizer, config.max_length) for texts in (data.train, data.valid)
    )
    data, summary = described(data, train, config.max_length, run.is_chief)
    steps = batches.steps_per_epoch(train, config.tokens_per_batch)
    with run.scope():
        model = build(config, tokenizer.vocab_size, len(data.class_names))
        optimizer = build_optimizer(config, config.epochs * steps)
    run.train(
        model,
        lambda step: batches.training_batches(train, config.tokens_per_batch, config.seed, step),
        epochs=config.epochs,
        steps_per_epoch=steps,
        validation_data=batches.evaluation_batches(valid, config.tokens_per_batch),
        callbacks=[keras.callbacks.EarlyStopping(patience=config.patience)],
        compiled_with={"optimizer": optimizer, **objective(config, data)},
        config={"checksum of the tokenizer": checksum(tokenizer), "data": summary},
        finish=lambda folder, trained: finish_text_classifier(
            folder,
            TextClassifier(trained, tokenizer, data.class_names, problem=config.problem),
            data,
            train,
        ),
        per_epoch={"texts": len(train)},
    )


def load_texts(config):
    """The texts that the settings select: `zoo.data.text_rows.TextDataset`."""
    from zoo.data import labeled_text

    if config.tsv:
        return labeled_text.tsv(config.tsv, config.seed, config.label_separator)
    if config.dataset == "phrasebook":
        return labeled_text.phrasebook(config.seed)
    return labeled_text.tfds_texts(config.dataset, config.data_dir, config.seed)


def described(data, train, max_length, is_chief):
    """Prints all notes on the data; returns the data with them, and a summary to compare data."""
    from zoo.training.run_folder import fingerprint

    notes, (texts, labels) = [*data.notes], data.train
    if train.truncated:
        notes.append(f"Training texts truncated to {max_length} tokens: {train.truncated:,}.")
    for note in notes if is_chief else ():
        print(note)
    checksum = fingerprint(texts, labels.tolist(), data.class_names)
    return data._replace(notes=tuple(notes)), f"{len(train):,} texts, checksum {checksum}"


def objective(config, data):
    """The loss and the metrics, for one or several labels per text."""
    import keras

    from zoo.training.losses import ClassWeighted, SmoothedCrossEntropy, balanced

    if config.problem == "single_label":
        loss = SmoothedCrossEntropy(config.label_smoothing)
        if config.class_weights:
            loss = ClassWeighted(loss, balanced(data.train.labels, len(data.class_names)))
        accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    else:
        loss = keras.losses.BinaryCrossentropy(
            from_logits=True, label_smoothing=config.label_smoothing, reduction="sum"
        )
        # A logit of 0, the probability 0.5, is a threshold that `BinaryAccuracy` refuses.
        accuracy = keras.metrics.MeanMetricWrapper(
            keras.metrics.binary_accuracy, name="accuracy", threshold=0.0
        )
    return {"loss": loss, "weighted_metrics": [accuracy]}


def build(config, vocab_size, num_classes):
    """Builds the model."""
    import zoo

    names = (
        "embed_dim num_heads num_layers ff_dim dropout attention_dropout norm activation positions "
        "max_length pool"
    )
    sizes = {"vocab_size": vocab_size, "num_classes": num_classes}
    return config.build(
        zoo.text_classifier, names, num_token_types=0, pooler=False, epsilon=1e-6, **sizes
    )


def build_optimizer(config, total_steps):
    """Builds the optimizer."""
    from zoo.training.optimizers import adamw, warmup_cosine

    warmup_steps = round(config.warmup_fraction * total_steps)
    rate = warmup_cosine(config.learning_rate, total_steps, warmup_steps)
    return adamw(rate, **config.select("weight_decay clip_norm ema_momentum"))


if __name__ == "__main__":
    run_recipe(main, Config, {"phrasebook": PHRASEBOOK}, __doc__)
