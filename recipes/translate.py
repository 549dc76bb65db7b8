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

On two CPU cores: 97 % exact translations of the phrasebook in ten minutes; docs/translate.md has
the results of other data.
"""

import dataclasses
import pathlib
from typing import Annotated, Literal

from zoo.errors import UserError
from zoo.training.recipe import run_recipe
from zoo.training.settings import (
    MAY_CHANGE,
    NO_EFFECT,
    Amount,
    Count,
    DataPath,
    Normalization,
    RunSettings,
    TokenizerKind,
    flags,
)

BleuTokenizer = Literal[
    "13a", "zh", "ja-mecab", "ko-mecab", "char", "intl", "flores101", "flores200", "spm", "none"
]


@dataclasses.dataclass(frozen=True)
class Config(RunSettings):
    """Hyperparameters and their default values, which --help describes."""

    dataset: str | None = None
    """phrasebook (built in), or a translation data set by its TensorFlow Datasets name."""
    data_dir: DataPath = None
    """Folder of prepared TFDS data."""
    tsv: DataPath = None
    """File with one pair per line: source, tab, target."""
    source: DataPath = None
    """Training file with one source sentence per line."""
    target: DataPath = None
    """Training file with the translations, line by line."""
    valid_source: DataPath = None
    """Validation sources; held out from the training pairs by default."""
    valid_target: DataPath = None
    """Validation translations."""
    test_source: DataPath = None
    """Test sources; held out from the training pairs by default."""
    test_target: DataPath = None
    """Test translations."""
    cache_dir: Annotated[str | None, NO_EFFECT] = None
    """Folder of tokenized sentence pairs, which runs and workers share; by default .cache/translate
    beside the run directory."""
    weights: DataPath = None
    """Translation model to fine-tune: published weights, see docs/checkpoints.md, or a run."""
    src_lang: str | None = None
    """Source language, for published weights of several languages."""
    tgt_lang: str | None = None
    """Target language, for published weights of several languages."""

    tokenizer: TokenizerKind | None = "bpe"
    vocab_size: int | None = 10_000
    normalization: Normalization | None = "nmt_nfkc"
    vocabulary: Literal["joint", "separate"] | None = "joint"
    """One shared vocabulary and embedding for source and target, or one for each."""
    max_length: int = 128
    """Maximum sentence length in tokens; pairs with a longer side are skipped and counted."""

    embed_dim: int | None = 128
    num_heads: int | None = 4
    num_layers: int | None = 4
    num_decoder_layers: int | None = None
    """Blocks of the decoder; as many as in the encoder by default."""
    ff_dim: int | None = 256
    dropout: float = 0.3
    attention_dropout: float = 0.0
    decoder: Literal["attention", "ssru"] | None = "attention"
    """Self-attention in decoder blocks, or a recurrent layer (SSRU), which decodes faster."""
    norm: Literal["pre", "post"] | None = "pre"
    activation: Literal["relu", "gelu", "silu"] | None = "relu"
    positions: Literal["sinusoidal", "learned", "relative", "rotary"] | None = "sinusoidal"

    epochs: Annotated[int, MAY_CHANGE] = 100
    patience: int = 10
    tokens_per_batch: int = 8192
    accumulation: int = 1
    """Batches per update of the weights."""
    optimizer: Literal["adam", "muon"] = "adam"
    """Adam, or Muon for the matrices of the blocks and Adam for all else."""
    warmup_steps: Count = 2000
    learning_rate_scale: Amount = 2.5
    """Factor of the learning rate; its maximum is this / √(width · warmup steps)."""
    clip_norm: float | None = None
    label_smoothing: float = 0.1
    average_last: Count = 5
    """Number of epochs whose weights are averaged at the end, up to the best one."""

    beam_size: Annotated[Count | None, MAY_CHANGE] = 4
    """Beam size of the search; 1 is greedy search."""
    length_penalty: Annotated[float | None, MAY_CHANGE] = 0.6
    """Exponent of the length penalty; higher values favor longer translations, 0 disables it."""
    bleu_tokenize: Annotated[BleuTokenizer | None, MAY_CHANGE] = None
    """sacrebleu's tokenizer of BLEU; by default that of the script of the test references."""

    def __post_init__(self):
        super().__post_init__()
        given = [name for name in MODEL_SETTINGS if getattr(self, name) is not None]
        if self.weights and given:
            raise UserError(
                f"The model in {self.weights} has its own tokenizers and architecture. "
                f"Remove {flags(*given)}."
            )
        given = [name for name in ("src_lang", "tgt_lang") if getattr(self, name)]
        if given and not self.weights:
            raise UserError(f"{flags(*given)}: languages are for a model of --weights only.")
        files = ("target", "valid_source", "valid_target", "test_source", "test_target")
        given = [name for name in files if getattr(self, name)]
        if given and not self.source:
            raise UserError(f"{flags(*given)}: --source, the file of source sentences, is missing.")
        self.check_data_dir()

    @property
    def data_name(self):
        """The name of the data set or file."""
        given = [name for name in ("dataset", "tsv", "source") if getattr(self, name)]
        if len(given) != 1:
            raise UserError(
                "Select the training data with exactly one of:\n"
                "  --dataset phrasebook              English-Spanish sentences, built in\n"
                "  --tsv FILE                        one pair per line: source, tab, target\n"
                "  --source FILE --target FILE       one sentence per line\n"
                "  --dataset NAME                    a translation data set of TensorFlow Datasets"
            )
        return (self.dataset or pathlib.Path(self.tsv or self.source).stem).replace("/", "_")


MODEL_SETTINGS = (
    *("tokenizer", "vocab_size", "normalization", "vocabulary", "embed_dim", "num_heads"),
    *("num_layers", "num_decoder_layers", "ff_dim", "decoder", "norm", "activation", "positions"),
)
PHRASEBOOK = Config(
    dataset="phrasebook",
    vocab_size=2200,
    num_layers=2,
    dropout=0.0,
    epochs=11,
    tokens_per_batch=2048,
    warmup_steps=400,
    learning_rate_scale=1.0,
    average_last=3,
)
FINE_TUNING = Config(
    **dict.fromkeys((*MODEL_SETTINGS, "beam_size", "length_penalty")),  # those of the weights
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
    from keras.callbacks import EarlyStopping

    from zoo.data import token_batches as batches
    from zoo.text.saved_tokenizers import checksum
    from zoo.training.callbacks import AverageCheckpoints
    from zoo.training.report import finish_translator
    from zoo.training.run import Run
    from zoo.training.run_folder import fingerprint
    from zoo.training.translation_scores import bleu_tokenizer

    bleu_tokenizer((), config.bleu_tokenize)  # raises an error if it cannot be used
    run = Run(config, name=f"translate_{config.data_name}")
    with run.scope():
        translator, data, tokenizers = (fine_tuned if config.weights else untrained)(config, run)
        compiled_with = compile_arguments(config, translator.model)
    bleu_tokenize = bleu_tokenizer([reference for _, reference in data.test], config.bleu_tokenize)
    if run.is_chief and bleu_tokenize != "13a":
        print(f"BLEU of the test pairs will be computed with the tokenizer {bleu_tokenize}.")
    tokens, pairs = data.train.num_tokens, len(data.train)
    summary = f"{pairs:,} pairs of {tokens:,} target tokens, test pairs {fingerprint(data.test)}"
    identity = {"checksum of the tokenizers": checksum(*tokenizers), "data": summary}
    if config.weights:
        identity["model of weights"] = fingerprint(translator.model, translator.description())
    size, accumulation = config.tokens_per_batch, config.accumulation
    last_epochs = AverageCheckpoints(run.path, config.average_last, run.is_chief)

    def finish(folder, trained):
        translator.model = trained
        last_epochs.average(trained)
        finish_translator(folder, translator, data, bleu_tokenize)
        last_epochs.remove()

    run.train(
        translator.model,
        lambda step: batches.training_batches(data.train, size, config.seed, step, accumulation),
        epochs=config.epochs,
        steps_per_epoch=batches.steps_per_epoch(data.train, size, accumulation),
        validation_data=batches.evaluation_batches(data.valid, size),
        callbacks=[last_epochs, EarlyStopping(patience=config.patience)],
        compiled_with=compiled_with,
        config=identity,
        finish=finish,
        per_epoch={"tokens": data.train.num_tokens},
    )


def compile_arguments(config, model):
    """Optimizer, loss and metric, with which the model is compiled."""
    from keras.optimizers import Adam

    from zoo.training.losses import SmoothedCrossEntropy, token_accuracy
    from zoo.training.optimizers import WarmupInverseSquareRoot, muon

    # Vaswani et al. 2017, section 5.3
    rate = WarmupInverseSquareRoot(model.embed_dim, config.warmup_steps, config.learning_rate_scale)
    if config.optimizer == "adam":
        optimizer = Adam(rate, 0.9, 0.98, epsilon=1e-9, global_clipnorm=config.clip_norm)
    else:
        optimizer = muon(model, rate, clip_norm=config.clip_norm, adam_beta_2=0.98, epsilon=1e-9)
    loss = SmoothedCrossEntropy(config.label_smoothing)
    return {"optimizer": optimizer, "loss": loss, "weighted_metrics": [token_accuracy()]}


def untrained(config, run):
    """A translator with random weights, its tokenized sentence pairs, and its tokenizers."""
    import zoo
    from zoo.tasks.translator import Translator
    from zoo.training.sentence_pairs import load_pairs

    missing = {name for name in MODEL_SETTINGS if getattr(config, name) is None}
    missing -= {"num_decoder_layers"}
    if missing:
        raise UserError(f"Without --weights, a value is needed: {flags(*sorted(missing))}.")
    settings = config.select("tokenizer vocab_size normalization vocabulary")
    data, (source, target) = load_pairs(run, settings, config.max_length)
    names = (
        "embed_dim num_heads num_layers num_decoder_layers ff_dim dropout attention_dropout norm "
        "activation positions max_length decoder"
    )
    model = config.build(
        zoo.transformer,
        names,
        source_vocab_size=source.vocab_size,
        target_vocab_size=target.vocab_size,
        shared="all" if config.vocabulary == "joint" else "target",
    )
    translator = Translator(model, source, target, config.beam_size, config.length_penalty)
    return translator, data, (source, target)


def fine_tuned(config, run):
    """The translator of `--weights`, its tokenized sentence pairs, and its tokenizers."""
    from zoo.training.fine_tuning import pretrained_translator
    from zoo.training.sentence_pairs import load_pairs

    translator = pretrained_translator(
        config.weights,
        config.select("src_lang tgt_lang"),
        config.select("dropout attention_dropout"),
        config.select("beam_size length_penalty"),
    )
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    length = min(config.max_length, translator.model.max_length)
    return translator, *load_pairs(run, tokenizers, length, translator.special_tokens)


if __name__ == "__main__":
    run_recipe(main, Config, {"phrasebook": PHRASEBOOK, "--weights": FINE_TUNING}, __doc__)
