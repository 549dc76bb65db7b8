"""Trains a causal language model from scratch, on a text file or on the text of this project.

The model is GPT-2's (Radford et al. 2019, section 2.3) in a size for small texts; the recipe
follows Brown et al. 2020, "Language Models are Few-Shot Learners", appendix B: AdamW with warmup
and cosine decay, weight decay 0.1, gradients clipped to a norm of 1.

    python recipes/causal_lm.py                     # the documentation and code of this project
    python recipes/causal_lm.py --text book.txt     # your own text, UTF-8
    python -m zoo generate runs/causal_lm_zoo "The model"     # continues a text

On two CPU cores: a perplexity of about 15 on the text of this project, in a quarter of an hour.
"""

import dataclasses
import pathlib
import zlib
from typing import Literal

from zoo.training.recipe import run_recipe  # first: it silences TensorFlow's start-up messages

import zoo
from zoo.data import plain_text
from zoo.tasks.generator import TextGenerator
from zoo.text import EOS_ID
from zoo.text.encoding import altered
from zoo.text.saved_tokenizers import checksum
from zoo.text.sentencepiece import train_tokenizer
from zoo.training.losses import SmoothedCrossEntropy, token_accuracy
from zoo.training.optimizers import adamw, warmup_cosine
from zoo.training.report import finish_generator
from zoo.training.run import Run
from zoo.training.settings import (
    Accumulation,
    Normalization,
    Precision,
    RunSettings,
    TokenizerKind,
    report_invalid_settings,
)


@dataclasses.dataclass(frozen=True)
class Config(RunSettings):
    """Hyperparameters of the recipe; ``--help`` describes each of them."""

    dataset: Literal["zoo"] = "zoo"
    """Built-in text: the documentation and source code of this project; without --text."""
    text: tuple[str, ...] = ()
    """Text files, UTF-8; the last 5 % of each are held out."""

    tokenizer: TokenizerKind = "bpe"
    vocab_size: int = 2000
    normalization: Normalization = "identity"  # generated text keeps its line breaks
    max_length: int = 128
    """Context length in tokens, and the length of the windows."""

    embed_dim: int = 128  # width of the model
    num_heads: int = 4
    num_layers: int = 4
    ff_dim: int = 512  # four times the width, as in GPT-2
    dropout: float = 0.1
    positions: Literal["learned", "sinusoidal", "relative", "rotary"] = "rotary"

    precision: Precision = "auto"
    accumulation: Accumulation = "auto"
    epochs: int = 20
    batch_size: int = 16  # windows of `max_length` tokens
    learning_rate: float = 3e-3  # GPT-3 has 6e-4 for 125 million parameters; small models take more
    warmup_steps: int = 100  # then cosine decay to zero
    weight_decay: float = 0.1  # Brown et al. 2020, appendix B, as the clipping
    clip_norm: float = 1.0

    MAY_CHANGE = RunSettings.MAY_CHANGE | {"text"}  # the paths differ on another machine

    def check_flags(self, given):
        if self.text:
            self.refuse(given, "dataset", "with --text")

    @property
    def data_name(self):
        """The name of the data set or of the first file."""
        return pathlib.Path(self.text[0]).stem if self.text else self.dataset


def main(config):
    run = Run(config, name=f"causal_lm_{config.data_name}")
    texts = plain_text.read_texts(config.text) if config.text else plain_text.project_texts()
    train_texts, valid_texts = plain_text.hold_out(texts)
    tokenizer = train_tokenizer(
        train_texts, config.tokenizer, config.vocab_size, config.normalization
    )
    if run.is_chief:
        for note in altered(tokenizer, valid_texts, "held-out texts, whose bytes are counted"):
            print(note)
    train = plain_text.concatenated_tokens(tokenizer, train_texts, EOS_ID)
    valid = plain_text.concatenated_tokens(tokenizer, valid_texts, EOS_ID)
    steps = plain_text.steps_per_epoch(train, config.batch_size, config.max_length)
    total_steps = config.epochs * steps
    warmup_steps = config.warmup_steps
    if warmup_steps >= total_steps:  # the learning rate would not decay
        warmup_steps = total_steps // 10
        if run.is_chief:
            print(f"Warmup: {warmup_steps:,} steps, a tenth of all {total_steps:,}.")
    with run.scope():
        model = build_model(config, tokenizer.vocab_size)
        rate = warmup_cosine(config.learning_rate, total_steps, warmup_steps)
        optimizer = adamw(rate, config.weight_decay, config.clip_norm)
        accuracy = token_accuracy()

    def batches(first_step):
        return plain_text.training_windows(
            train, config.batch_size, config.max_length, config.seed, first_step
        )

    def finish(folder, trained):
        finish_generator(folder, TextGenerator(trained, tokenizer), train, valid_texts)

    # the loop: Run.train (zoo/training/run.py), Trainer.fit, training_step (zoo/training/step.py)
    run.train(
        model,
        batches,
        epochs=config.epochs,
        steps_per_epoch=steps,
        validation_data=plain_text.evaluation_windows(valid, config.batch_size, config.max_length),
        optimizer=optimizer,
        loss=SmoothedCrossEntropy(),
        weighted_metrics=[accuracy],
        identity={
            "checksum of the tokenizer": checksum(tokenizer),
            "data": f"{len(train):,} tokens, checksum {zlib.crc32(train):08x}",
            "validation data": f"{zlib.crc32(valid):08x}",
        },
        finish=finish,
        per_epoch={"tokens": steps * config.batch_size * config.max_length},
    )


@report_invalid_settings()
def build_model(config, vocab_size):
    return zoo.causal_lm(
        vocab_size=vocab_size,
        embed_dim=config.embed_dim,
        num_heads=config.num_heads,
        num_layers=config.num_layers,
        ff_dim=config.ff_dim,
        dropout=config.dropout,
        positions=config.positions,
        max_length=config.max_length,
    )


if __name__ == "__main__":
    run_recipe(main, Config, {}, __doc__)
