"""Trains a translation Transformer, from scratch or from published weights, on sentence pairs.

The recipe follows Vaswani et al. 2017, "Attention Is All You Need", sections 3 and 5, with a model
size for small corpora: Wu et al. 2021, "Good for Misconceived Reasons", section 3.2.

    python recipes/translate.py --dataset phrasebook          # built in, English to Spanish
    python recipes/translate.py --tsv spa.txt                 # one pair per line, with a tab
    python recipes/translate.py --source train.en --target train.de \\
        --valid-source val.en --valid-target val.de --test-source test.en --test-target test.de
    python recipes/translate.py --dataset ted_hrlr_translate/pt_to_en      # TensorFlow Datasets
    python recipes/translate.py --weights opus-mt-en-es --tsv spa.txt      # fine-tunes this model

Published weights keep their tokenizers and architecture. Other defaults are for fine-tuning: at
most 10 epochs, with a peak learning rate of 9e-5 at width 512; see `--weights PATH --help`.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
from typing import Literal

from zoo.errors import UserError
from zoo.training.command import check_limits, flags, run_recipe, settings_of
from zoo.training.run import Run
from zoo.training.run_settings import RunSettings


@dataclasses.dataclass(frozen=True)
class Config(RunSettings):
    dataset: str | None = None
    """phrasebook (built in), or a translation data set by its TensorFlow Datasets name."""
    data_dir: str | None = None
    """Folder of prepared TFDS data."""
    tsv: str | None = None
    """File with one pair per line: source, tab, target."""
    source: str | None = None
    """Training file with one source sentence per line."""
    target: str | None = None
    """Training file with the translations, line by line."""
    valid_source: str | None = None
    """Validation sources; held out from the training pairs by default."""
    valid_target: str | None = None
    """Validation translations."""
    test_source: str | None = None
    """Test sources; held out from the training pairs by default."""
    test_target: str | None = None
    """Test translations."""
    weights: str | None = None
    """Translation model to fine-tune: published weights, see docs/checkpoints.md, or a run."""
    src_lang: str | None = None
    """Source language, for published weights of several languages."""
    tgt_lang: str | None = None
    """Target language, for published weights of several languages."""
    cache_dir: str | None = None
    """Folder of tokenized sentence pairs, which runs and workers share; by default .cache/translate
    beside the run directory."""

    tokenizer: Literal["subword", "word", "character", "wordpiece", "unigram"] | None = "subword"
    """Kind of tokens, learned from up to 2 million pairs, evenly drawn; text outside the vocabulary
    is encoded as bytes."""
    vocab_size: int | None = 10_000
    """Maximum vocabulary size."""
    vocabulary: Literal["joint", "separate"] | None = "joint"
    """One shared vocabulary and embedding for source and target, or one for each."""
    max_length: int = 128
    """Maximum sentence length in tokens; pairs with a longer side are skipped and counted."""

    embed_dim: int | None = 128
    """Width of the model."""
    num_heads: int | None = 4
    """Attention heads; must divide the width."""
    num_layers: int | None = 4
    """Encoder blocks."""
    num_decoder_layers: int | None = None
    """Decoder blocks; same as encoder blocks by default."""
    ff_dim: int | None = 256
    """Hidden width of the feed-forward networks."""
    dropout: float = 0.3
    """Dropout rate of embeddings and blocks."""
    attention_dropout: float = 0.0
    """Dropout rate of attention weights."""
    norm: Literal["pre", "post"] | None = "pre"
    """Position of layer normalization; the paper uses post, which needs a longer warmup."""
    activation: Literal["relu", "gelu", "silu"] | None = "relu"
    """Activation of the feed-forward networks."""
    positions: Literal["sinusoidal", "learned", "relative", "rotary"] | None = "sinusoidal"
    """Kind of positions."""

    epochs: int = 100
    """Maximum number of epochs."""
    patience: int = 10
    """Stop after this many epochs without a lower validation loss."""
    tokens_per_batch: int = 8192
    """Tokens per batch, for source and target each, padding included."""
    accumulation: int = 1
    """Batches per update of the weights."""
    warmup_steps: int = 2000
    """Updates of linear warmup; then the learning rate falls with the inverse square root."""
    learning_rate_scale: float = 2.5
    """Factor of the paper's learning rate; the peak is this / √(width · warmup steps)."""
    clip_norm: float | None = None
    """Maximum global norm of the gradients; no clipping by default."""
    label_smoothing: float = 0.1
    """Share of a label spread over all tokens."""
    average_last: int = 5
    """Number of last epochs whose weights are averaged at the end."""

    beam_size: int | None = 4
    """Beam size of the search; 1 is greedy search."""
    length_penalty: float | None = 0.6
    """Exponent of the length penalty; higher values favour longer translations, 0 disables it."""

    def __post_init__(self):
        super().__post_init__()
        least = {
            **dict.fromkeys(("embed_dim", "num_heads", "num_layers", "ff_dim"), 1),
            **dict.fromkeys(("epochs", "patience", "tokens_per_batch", "accumulation"), 1),
            **dict.fromkeys(("warmup_steps", "average_last", "beam_size"), 1),
            **dict.fromkeys(("learning_rate_scale", "label_smoothing", "clip_norm"), 0),
            "max_length": 2,
        }
        check_limits(self, least)
        if self.label_smoothing >= 1:
            raise UserError(f"--label-smoothing must be below 1. Received: {self.label_smoothing}.")
        wrong = OF_THE_MODEL if self.weights else ("src_lang", "tgt_lang")
        wrong = [name for name in wrong if getattr(self, name) is not None]
        if wrong and not self.weights:
            raise UserError(f"{flags(*wrong)}: only a model of --weights has languages.")
        if wrong:
            raise UserError(
                f"The model in {self.weights} has its own tokenizers and architecture. "
                f"Remove {flags(*wrong)}."
            )


OF_THE_MODEL = (
    *("tokenizer", "vocab_size", "vocabulary", "embed_dim", "num_heads", "num_layers"),
    *("num_decoder_layers", "ff_dim", "norm", "activation", "positions"),
)
TOKENIZER_PAIRS = 2_000_000  # more take long and change the vocabulary little
GENERAL = Config()
PHRASEBOOK = dataclasses.replace(
    GENERAL,
    dataset="phrasebook",
    tokenizer="word",
    vocab_size=2200,  # the words of the grammar; the made-up ones are spelled and so copied
    num_layers=2,
    dropout=0.0,
    epochs=11,
    tokens_per_batch=2048,
    warmup_steps=400,
    learning_rate_scale=1.0,
    average_last=3,
)
FINE_TUNING = dataclasses.replace(
    GENERAL,
    **dict.fromkeys((*OF_THE_MODEL, "beam_size", "length_penalty")),  # those of the weights
    dropout=0.1,
    epochs=10,
    patience=2,
    tokens_per_batch=4096,
    warmup_steps=100,
    learning_rate_scale=0.02,
    average_last=2,
)


# Imports are inside the functions: TensorFlow takes seconds to import, and --help should not.


def main(config):
    import keras

    from zoo.data import translation_batches as batches
    from zoo.training.averaging import AverageCheckpoints
    from zoo.training.callbacks import early_stopping
    from zoo.training.losses import SmoothedCrossEntropy
    from zoo.training.optimizers import transformer_adam
    from zoo.training.run_folder import fingerprint
    from zoo.training.translation_report import finish_translator

    run, name = Run(config), name_of_data(config)
    with run.scope():
        translator = pretrained(config) if config.weights else None
        data = load_data(config, run.strategy, translator)
        translator = translator or untrained(config, data.tokenizers)
        schedule = (config.warmup_steps, config.learning_rate_scale, config.clip_norm)
        optimizer = transformer_adam(translator.model.embed_dim, *schedule)
    settings, tokens = settings_of(config), config.tokens_per_batch
    if config.weights:
        metadata = [translator.description(), *(side.to_dict() for side in sides(translator))]
        settings["model of weights"] = fingerprint(translator.model, *metadata)
    train, valid = data.train, data.valid

    def average(folder):
        return AverageCheckpoints(folder, config.average_last, run.is_chief)

    def finish(folder, trained):
        translator.model, averaged = trained, average(folder.path)
        averaged.average(trained)
        finish_translator(folder, translator, data.test, train, valid)
        averaged.remove()

    run.train(
        translator.model,
        lambda step: batches.training_batches(
            train, tokens, config.seed, step, config.accumulation
        ),
        epochs=config.epochs,
        steps_per_epoch=batches.steps_per_epoch(train, tokens, config.accumulation),
        validation_data=batches.evaluation_batches(valid, tokens),
        callbacks=lambda folder: [average(folder), early_stopping(folder, config.patience)],
        compiled_with={
            "optimizer": optimizer,
            "loss": SmoothedCrossEntropy(config.label_smoothing),
            "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
            "steps_per_execution": config.steps_per_execution,
        },
        name=f"translate_{name}",
        config=settings,
        may_change=("epochs", "patience", "beam_size", "length_penalty"),
        finish=finish,
        tokens_per_epoch=train.num_tokens,
    )


def name_of_data(config):
    """A name for the sentence pairs."""
    given = [name for name in ("dataset", "tsv", "source") if getattr(config, name)]
    if len(given) != 1:
        raise UserError(
            "Select the training data with exactly one of:\n"
            "  --dataset phrasebook              English-Spanish sentences that need no network\n"
            "  --tsv FILE                        one pair per line: source, tab, target\n"
            "  --source FILE --target FILE       one sentence per line\n"
            "  --dataset NAME                    a translation data set of TensorFlow Datasets"
        )
    if config.dataset:
        return config.dataset.replace("/", "_")
    return pathlib.Path(config.tsv or config.source).stem


def load_data(config, strategy, translator=None):
    """Opens the tokenized sentence pairs; the chief makes them if the cache has none.

    Args:
        strategy: `tf.distribute.Strategy`; all its workers must call this.
        translator: the translator of `--weights`, if any.

    Returns:
        `zoo.data.tokenized_corpus.TokenizedCorpus`.
    """
    from zoo.data.shared_cache import cached_folder, folder_of_number
    from zoo.data.tokenized_corpus import VERSION, open_corpus, write_corpus
    from zoo.training import distribution
    from zoo.translator import SPECIAL_TOKENS

    run = pathlib.Path(config.out or f"runs/translate_{name_of_data(config)}")
    root = pathlib.Path(config.cache_dir or run.parent / ".cache" / "translate")
    special, length, number = SPECIAL_TOKENS, config.max_length, 0
    if translator is None:
        check_complete(config)
    else:
        special, length = translator.special_tokens, min(length, translator.max_source_length)
    is_chief = distribution.is_chief(strategy)
    if is_chief:
        identity, read = data_of(config)
        settings = {
            "version": VERSION,
            "data": identity,
            "tokenizers": identity_of_tokenizers(config, translator),
            "special tokens": special,
            "max length": length,
        }

        def write(folder):
            text = read()
            tokenizers = train_tokenizers(config, text) if translator is None else sides(translator)
            write_corpus(folder, text, tokenizers, length, special)

        folder, was_there = cached_folder(root, settings, write)
        number = int(folder.name, 16)
        print(f"Sentence pairs, tokenized {'by an earlier run' if was_there else 'now'}: {folder}")
    number = distribution.from_chief(strategy, number)  # others wait here until they are tokenized
    data = open_corpus(folder_of_number(root, number), special)
    for line in data.skipped if is_chief else ():
        print(f"skipped: {line}")
    return data


def sides(translator):
    return translator.source_tokenizer, translator.target_tokenizer


def identity_of_tokenizers(config, translator):
    """What differs for other tokenizers, those of `--weights` or those that are to be trained."""
    if translator is None:
        return [config.tokenizer, config.vocab_size, config.vocabulary, TOKENIZER_PAIRS]
    tables = json.dumps([side.to_dict() for side in sides(translator)], sort_keys=True)
    return hashlib.sha256(tables.encode()).hexdigest()


def data_of(config):
    """Returns what differs for other sentence pairs, and a function that reads them."""
    from zoo.data import parallel_text
    from zoo.data.shared_cache import file_identity

    seed = config.seed
    if config.tsv:
        read = functools.partial(parallel_text.tsv, config.tsv, seed)
        return [file_identity(config.tsv), seed], read
    if config.source:
        training = (config.source, config.target)
        held_out = [
            (config.valid_source, config.valid_target),
            (config.test_source, config.test_target),
        ]
        held_out = [pair if any(pair) else None for pair in held_out]
        files = [path for pair in (training, *held_out) for path in pair or (None, None)]
        identity = [path and file_identity(path) for path in files]
        read = functools.partial(parallel_text.parallel_files, *training, *held_out, seed)
        return [identity, None if all(held_out) else seed], read
    if config.dataset == "phrasebook":
        return ["phrasebook", seed], functools.partial(parallel_text.phrasebook, seed)
    read = functools.partial(parallel_text.tfds_pairs, config.dataset, config.data_dir, seed)
    return parallel_text.tfds_identity(config.dataset, config.data_dir, seed), read


def check_complete(config):
    """Checks that a run without `--weights` has all settings of tokenizers and model."""
    missing = {name for name in OF_THE_MODEL if getattr(config, name) is None}
    missing -= {"num_decoder_layers"}
    if missing:
        raise UserError(f"Without --weights, a value is needed: {flags(*sorted(missing))}.")


def untrained(config, tokenizers):
    """Builds the model: a translator with random weights."""
    import zoo
    from zoo.translator import Translator

    names = (
        "embed_dim num_heads num_layers num_decoder_layers ff_dim dropout attention_dropout norm "
        "activation positions max_length"
    )
    try:
        model = zoo.transformer(
            source_vocab_size=tokenizers[0].vocab_size,
            target_vocab_size=tokenizers[1].vocab_size,
            shared="all" if config.vocabulary == "joint" else "target",
            **{name: getattr(config, name) for name in names.split()},
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    return Translator(model, *tokenizers, config.beam_size, config.length_penalty)


def train_tokenizers(config, text):
    """Trains the source and target tokenizers; with a joint vocabulary they are the same."""
    from zoo.data.tokenized_corpus import evenly
    from zoo.text.tokenizer import train_tokenizer

    def pairs():
        return evenly(text.train, text.count, TOKENIZER_PAIRS)

    settings = (config.tokenizer, config.vocab_size)
    if config.vocabulary == "joint":
        return (train_tokenizer((side for pair in pairs() for side in pair), *settings),) * 2
    return tuple(train_tokenizer((pair[side] for pair in pairs()), *settings) for side in (0, 1))


def pretrained(config):
    """The translator of `--weights`, with the dropout, precision and search of the config."""
    import keras

    import zoo
    from zoo.translator import Translator

    languages = {name: getattr(config, name) for name in ("src_lang", "tgt_lang")}
    try:
        found = zoo.load(config.weights, **{k: v for k, v in languages.items() if v is not None})
    except FileNotFoundError as error:
        raise UserError(f"--weights: {error}") from None
    if not isinstance(found, Translator):
        raise UserError(f"--weights {config.weights} is no translation model.")
    rates = {"dropout": config.dropout, "attention_dropout": config.attention_dropout}
    settings = {**found.model.get_config(), **rates, "dtype": keras.config.dtype_policy()}
    try:
        model = type(found.model).from_config(settings)
    except ValueError as error:
        raise UserError(str(error)) from None
    model.build()
    model.set_weights(found.model.get_weights())
    search = {name: getattr(config, name) for name in ("beam_size", "length_penalty")}
    search = {name: value for name, value in search.items() if value is not None}
    return Translator(
        model,
        found.source_tokenizer,
        found.target_tokenizer,
        **{**found.description()["search"], **search},
        special_tokens=found.special_tokens,
    )


if __name__ == "__main__":
    run_recipe(main, Config, {"phrasebook": PHRASEBOOK, "--weights": FINE_TUNING}, __doc__)
