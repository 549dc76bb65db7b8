"""Trains a text classifier from scratch, on a built-in set, TensorFlow Datasets or your own texts.

The model is an encoder as in Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional
Transformers for Language Understanding", of a small size and without pre-training.

    python recipes/text_classifier.py --dataset phrasebook       # built in, kinds of sentences
    python recipes/text_classifier.py --tsv reviews.tsv          # a line: label, tab, text
    python recipes/text_classifier.py --dataset imdb_reviews     # TensorFlow Datasets
    python recipes/text_classifier.py --dataset ag_news_subset --max-length 128
"""

import dataclasses
import pathlib
from typing import Literal

from zoo.errors import UserError
from zoo.training.command import check_limits, run_recipe, settings_of
from zoo.training.run import Run
from zoo.training.run_settings import RunSettings


@dataclasses.dataclass(frozen=True)
class Config(RunSettings):
    dataset: str | None = None
    """phrasebook (built in), or a text classification data set by its TensorFlow Datasets name."""
    data_dir: str | None = None
    """Folder of prepared TFDS data."""
    tsv: str | None = None
    """File with one text per line, without a header: label, tab, text."""

    tokenizer: Literal["subword", "word", "character", "wordpiece", "unigram"] = "subword"
    """Kind of tokens; text outside the vocabulary is encoded as bytes."""
    vocab_size: int = 10_000
    """Maximum vocabulary size."""
    max_length: int = 256
    """Maximum length of a text in tokens; longer texts are truncated."""

    embed_dim: int = 128
    """Width of the model."""
    num_heads: int = 4
    """Attention heads; must divide the width."""
    num_layers: int = 2
    """Encoder blocks."""
    ff_dim: int = 256
    """Hidden width of the feed-forward networks."""
    dropout: float = 0.2
    """Dropout rate of embeddings, blocks and the input of the head."""
    attention_dropout: float = 0.0
    """Dropout rate of attention weights."""
    norm: Literal["pre", "post"] = "pre"
    """Position of layer normalization; BERT uses post, which needs a longer warmup."""
    activation: Literal["relu", "gelu", "silu"] = "gelu"
    """Activation of the feed-forward networks."""
    positions: Literal["learned", "sinusoidal", "relative", "rotary"] = "learned"
    """Kind of position embeddings."""
    pool: Literal["cls", "mean"] = "mean"
    """Input of the head: the first token, or the mean of the tokens."""

    epochs: int = 10
    """Maximum number of epochs; the learning rate is zero at the end of the last."""
    patience: int = 3
    """Stop after this many epochs without a lower validation loss."""
    tokens_per_batch: int = 8192
    """Tokens per batch, padding included."""
    learning_rate: float = 1e-3
    """Peak learning rate, after the warmup; then cosine decay to zero."""
    warmup_fraction: float = 0.1
    """Share of the steps used for linear warmup."""
    weight_decay: float = 0.01
    """Decoupled weight decay of kernels."""
    clip_norm: float = 1.0
    """Maximum global norm of the gradients."""
    label_smoothing: float = 0.0
    """Share of a label spread over all classes."""
    ema_momentum: float = 0.99
    """Momentum of the moving average of the weights, which is tested and saved."""

    def __post_init__(self):
        super().__post_init__()
        least = {
            **dict.fromkeys(("embed_dim", "num_heads", "num_layers", "ff_dim"), 1),
            **dict.fromkeys(("epochs", "patience"), 1),
            **dict.fromkeys(("learning_rate", "weight_decay", "clip_norm"), 0),
            **dict.fromkeys(("label_smoothing", "ema_momentum", "warmup_fraction"), 0),
            "max_length": 3,
            "tokens_per_batch": self.max_length,
        }
        most = {"label_smoothing": 1, "ema_momentum": 1, "warmup_fraction": 1}
        check_limits(self, least, most)
        if self.label_smoothing >= 1:
            raise UserError(f"--label-smoothing must be below 1. Received: {self.label_smoothing}.")


GENERAL = Config()
PHRASEBOOK = dataclasses.replace(
    GENERAL,
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

    from zoo.classifier import TextClassifier
    from zoo.data import translation_batches as batches
    from zoo.data.encoded_texts import EncodedTexts
    from zoo.text.tokenizer import train_tokenizer
    from zoo.training.callbacks import early_stopping
    from zoo.training.losses import SmoothedCrossEntropy
    from zoo.training.optimizers import adamw
    from zoo.training.text_report import finish_text_classifier

    run = Run(config)
    data, name = load_data(config)
    tokenizer = train_tokenizer(data.train.texts, config.tokenizer, config.vocab_size)
    train, valid = (
        EncodedTexts(texts, tokenizer, config.max_length) for texts in (data.train, data.valid)
    )
    steps = batches.steps_per_epoch(train, config.tokens_per_batch)
    with run.scope():
        model = build(config, tokenizer.vocab_size, len(data.class_names))
        optimizer = adamw(
            model,
            config.learning_rate,
            config.weight_decay,
            total_steps=config.epochs * steps,
            warmup_steps=round(config.warmup_fraction * config.epochs * steps),
            clip_norm=config.clip_norm,
            ema_momentum=config.ema_momentum,
        )
    run.train(
        model,
        lambda step: batches.training_batches(train, config.tokens_per_batch, config.seed, step),
        epochs=config.epochs,
        steps_per_epoch=steps,
        validation_data=batches.evaluation_batches(valid, config.tokens_per_batch),
        callbacks=lambda folder: [early_stopping(folder, config.patience)],
        compiled_with={
            "optimizer": optimizer,
            "loss": SmoothedCrossEntropy(config.label_smoothing),
            "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
            "steps_per_execution": config.steps_per_execution,
        },
        name=f"text_{name}",
        config=settings_of(config),
        may_change=("patience",),
        finish=lambda folder, trained: finish_text_classifier(
            folder, TextClassifier(trained, tokenizer, data.class_names), data, train
        ),
        texts_per_epoch=len(train),
    )


def load_data(config):
    """Returns the labelled texts and a name for them."""
    from zoo.data import labelled_text

    if (config.dataset is None) == (config.tsv is None):
        raise UserError(
            "Select the training data with exactly one of:\n"
            "  --dataset phrasebook    English sentences and their kinds, which need no network\n"
            "  --tsv FILE              one text per line: label, tab, text\n"
            "  --dataset NAME          a data set of TensorFlow Datasets, such as imdb_reviews"
        )
    if config.tsv:
        return labelled_text.tsv(config.tsv, config.seed), pathlib.Path(config.tsv).stem
    if config.dataset == "phrasebook":
        return labelled_text.phrasebook(config.seed), "phrasebook"
    name = config.dataset.replace("/", "_")
    return labelled_text.tfds_texts(config.dataset, config.data_dir, config.seed), name


def build(config, vocab_size, num_classes):
    """Builds the model."""
    import zoo

    names = (
        "embed_dim num_heads num_layers ff_dim dropout attention_dropout norm activation positions "
        "max_length pool"
    )
    try:
        return zoo.text_classifier(
            vocab_size=vocab_size,
            num_classes=num_classes,
            num_token_types=0,
            pooler=False,
            epsilon=1e-6,
            **{name: getattr(config, name) for name in names.split()},
        )
    except ValueError as error:
        raise UserError(str(error)) from None


if __name__ == "__main__":
    run_recipe(main, Config, {"phrasebook": PHRASEBOOK}, __doc__)
