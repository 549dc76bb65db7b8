"""Trains a translation Transformer, from scratch or from published weights, on sentence pairs.

The recipe follows Vaswani et al. 2017, "Attention Is All You Need", sections 3 and 5, with a model
size for small corpora: Wu et al. 2021, "Good for Misconceived Reasons", section 3.2.

    python recipes/translate.py --dataset phrasebook          # built in, English to Spanish
    python recipes/translate.py --tsv spa.txt                 # one pair per line, with a tab
    python recipes/translate.py --source train.en --target train.de \\
        --valid-source val.en --valid-target val.de --test-source test.en --test-target test.de
    python recipes/translate.py --dataset ted_hrlr_translate/pt_to_en      # TensorFlow Datasets
    python recipes/translate.py --weights hf://Helsinki-NLP/opus-mt-en-es --tsv my.tsv  # fine-tunes
    python recipes/translate.py --tsv my.tsv --teacher hf://Helsinki-NLP/opus-mt-en-es    # distills

With `--weights`, the tokenizers and the architecture are those of the weights, and the defaults are
those of `FINE_TUNING` below. With `--teacher`, the targets are translations of another model, often
one that is too slow to use (Kim and Rush 2016): docs/distillation.md.

On two CPU cores: 97 % exact translations of the phrasebook in ten minutes; docs/translate.md has
the results of other data.
"""

import dataclasses
import pathlib
import zlib
from typing import Literal

from zoo.training.recipe import run_recipe  # first: it silences TensorFlow's start-up messages

import keras

import zoo
from zoo.data import token_batches
from zoo.errors import UserError
from zoo.tasks.generation import MAX_BEAM_SIZE
from zoo.tasks.translator import Translator
from zoo.text.saved_tokenizers import checksum
from zoo.training.callbacks import AverageCheckpoints
from zoo.training.fine_tuning import load_translator, other_split, pretrained_translator
from zoo.training.losses import SmoothedCrossEntropy, token_accuracy
from zoo.training.optimizers import WarmupInverseSquareRoot, muon
from zoo.training.report import finish_translator
from zoo.training.report_translation_scores import bleu_tokenizer
from zoo.training.run import Run
from zoo.training.run_folder import fingerprint, task_fingerprint
from zoo.training.sentence_pairs import load_pairs
from zoo.training.settings import (
    AMOUNT,
    COUNT,
    Accumulation,
    Normalization,
    Precision,
    RunSettings,
    TokenizerKind,
    flags,
    report_invalid_settings,
)

BleuTokenizer = Literal[
    "13a", "zh", "ja-mecab", "ko-mecab", "char", "intl", "flores101", "flores200", "spm", "none"
]


@dataclasses.dataclass(frozen=True)
class Config(RunSettings):
    """Hyperparameters of the recipe; ``--help`` describes each of them."""

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
    cache_dir: str | None = None
    """Folder of tokenized sentence pairs and of translations of --teacher, which runs and workers
    share; by default .cache/translate beside the run directory."""
    weights: str | None = None
    """Translation model to fine-tune: published weights, see docs/checkpoints.md, or a run."""
    src_lang: str | None = None
    """Source language, for published models of several languages: --weights, --teacher and
    --reverse-teacher."""
    tgt_lang: str | None = None
    """Target language, for published models of several languages: --weights, --teacher and
    --reverse-teacher."""
    teacher: tuple[str, ...] = ()
    """Models whose translations of the training sources are the targets to learn, for a fast
    student (docs/distillation.md): runs, published weights, or names such as hf://owner/name."""
    reverse_teacher: tuple[str, ...] = ()
    """Models of the other direction, for back-translation: their translations of the training
    targets are further sources."""
    monolingual: str | None = None
    """File of text in the source language for --teacher to translate, one sentence per line."""
    monolingual_target: str | None = None
    """File of text in the target language for --reverse-teacher, one sentence per line."""
    keep_references: bool = False
    """Train on the targets of the data as well as on the translations of --teacher."""
    drop_worst: float = 0.0
    """Share of the translations of each teacher to leave out, those with the lowest log-probability
    per token."""

    tokenizer: TokenizerKind | None = "bpe"
    vocab_size: int | None = 10_000
    normalization: Normalization | None = "nmt_nfkc"
    """Normalization of sources; nmt also normalizes white space, cf folds case."""
    target_normalization: Normalization | None = "identity"
    """Normalization of targets; identity keeps them as they are."""
    vocabulary: Literal["joint", "separate"] | None = "joint"
    """One shared vocabulary and embedding for source and target, or one for each."""
    max_length: int = 128
    """Maximum sentence length in tokens; pairs with a longer side are skipped and counted."""

    embed_dim: int | None = 128  # width of the model
    num_heads: int | None = 4
    num_layers: int | None = 4
    num_decoder_layers: int | None = None
    """Blocks of the decoder; as many as in the encoder by default."""
    ff_dim: int | None = 256
    dropout: float = 0.3  # high, as a small corpus is soon known by heart
    attention_dropout: float = 0.0
    decoder: Literal["attention", "ssru"] | None = "attention"
    """Self-attention in decoder blocks, or a recurrent layer (SSRU), which decodes faster."""
    norm: Literal["pre", "post"] | None = "pre"
    activation: Literal["relu", "gelu", "silu"] | None = "relu"
    positions: Literal["sinusoidal", "learned", "relative", "rotary"] | None = "sinusoidal"

    precision: Precision = "auto"
    epochs: int = 100
    patience: int = 10  # epochs without a lower validation loss
    tokens_per_batch: int = 8192  # padding included, of source and target each
    accumulation: Accumulation = "auto"
    optimizer: Literal["adam", "muon"] = "adam"
    """Adam, or Muon for the matrices of the blocks and Adam for all else."""
    warmup_steps: int = 2000  # then the rate decays with 1 / √step
    learning_rate_scale: float = 2.5  # a peak of 0.005 at width 128
    """Peak learning rate times √(width · warmup steps)."""
    clip_norm: float | None = None
    label_smoothing: float = 0.1  # Vaswani et al. 2017, section 5.4
    average_last: int = 5  # section 6.1, as are the beam size and the length penalty
    """Number of epochs whose weights are averaged at the end; the last of them is the best one."""

    beam_size: int | None = 4
    """Beam size of the search; 1 is greedy search."""
    length_penalty: float | None = 0.6
    """Exponent of the length penalty; higher values favor longer translations, 0 disables it."""
    bleu_tokenize: BleuTokenizer | None = None
    """sacrebleu's tokenizer of BLEU; by default, the script of the test references decides."""

    LIMITS = RunSettings.LIMITS | {
        "warmup_steps": COUNT,
        "learning_rate_scale": AMOUNT,
        "average_last": COUNT,
        "beam_size": (1, MAX_BEAM_SIZE),
        "drop_worst": (0, 0.9),
    }
    MAY_CHANGE = RunSettings.MAY_CHANGE | {
        # paths, which differ on another machine
        "data_dir",
        "tsv",
        "source",
        "target",
        "valid_source",
        "valid_target",
        "test_source",
        "test_target",
        "weights",
        "teacher",
        "reverse_teacher",
        "monolingual",
        "monolingual_target",
        # the learning rate does not depend on the number of epochs
        "epochs",
        # only the report at the end depends on these
        "beam_size",
        "length_penalty",
        "bleu_tokenize",
    }
    NO_EFFECT = RunSettings.NO_EFFECT | {"cache_dir"}  # no effect on the trained weights

    def __post_init__(self):
        super().__post_init__()
        given = [name for name in MODEL_SETTINGS if getattr(self, name) is not None]
        if self.weights and given:
            raise UserError(
                f"The model in {self.weights} has its own tokenizers and architecture. "
                f"Remove {flags(*given)}."
            )
        given = [name for name in ("src_lang", "tgt_lang") if getattr(self, name)]
        if given and not (self.weights or self.teacher or self.reverse_teacher):
            raise UserError(
                f"{flags(*given)}: languages are for --weights, --teacher and --reverse-teacher."
            )
        files = ("target", "valid_source", "valid_target", "test_source", "test_target")
        given = [name for name in files if getattr(self, name)]
        if given and not self.source:
            raise UserError(f"{flags(*given)}: --source, the file of source sentences, is missing.")
        self.check_data_dir()
        if self.embed_dim and self.num_heads:
            self.check_divides("num_heads", "embed_dim")

    def check_flags(self, given):
        for name in ("teacher", "reverse_teacher"):
            if name in given and not getattr(self, name):
                raise UserError(f"{flags(name)} needs one or more models.")
        if self.beam_size == 1:
            self.refuse(given, "length_penalty", "with --beam-size 1, which is greedy search")
        if not self.teacher:
            self.refuse(given, "monolingual", "without --teacher")
            self.refuse(given, "keep_references", "without --teacher")
        if not self.reverse_teacher:
            self.refuse(given, "monolingual_target", "without --reverse-teacher")
        if not self.teacher and not self.reverse_teacher:
            self.refuse(given, "drop_worst", "without --teacher or --reverse-teacher")

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


# Settings that `--weights` determines
MODEL_SETTINGS = (
    "tokenizer",
    "vocab_size",
    "normalization",
    "target_normalization",
    "vocabulary",
    "embed_dim",
    "num_heads",
    "num_layers",
    "num_decoder_layers",
    "ff_dim",
    "decoder",
    "norm",
    "activation",
    "positions",
)
PHRASEBOOK = Config(
    dataset="phrasebook",
    precision="float32",
    vocab_size=2200,
    num_layers=2,
    dropout=0.0,
    epochs=11,
    tokens_per_batch=2048,
    warmup_steps=400,
    learning_rate_scale=1.0,  # a peak of 0.004
    average_last=3,
)
FINE_TUNING = Config(
    **dict.fromkeys(MODEL_SETTINGS),  # None: as in the weights
    beam_size=None,
    length_penalty=None,
    dropout=0.1,
    epochs=10,
    patience=2,
    tokens_per_batch=4096,
    warmup_steps=100,
    learning_rate_scale=0.02,  # a peak of 9e-5 at width 512
    average_last=2,
)


def main(config):
    bleu_tokenizer((), config.bleu_tokenize)  # an error now, not after training
    run = Run(config, name=f"translate_{config.data_name}")
    if config.weights:
        translator, data = pretrained(config, run)
    else:
        translator, data = new_translator(config, run)
    if run.is_chief:
        for note in data.notes:
            print(note)
    model = translator.model
    if translator.splits_sentences:  # not for summaries and other texts
        translator.keep_numbers = data.keeps_numbers
    with run.scope():
        optimizer = build_optimizer(config, model)
        accuracy = token_accuracy()
    references = [reference for _, reference in data.test]
    bleu_tokenize = bleu_tokenizer(references, config.bleu_tokenize)
    if run.is_chief and bleu_tokenize != "13a":
        print(f"BLEU of the test pairs will be computed with the tokenizer {bleu_tokenize}.")
    last_epochs = AverageCheckpoints(run.path, config.average_last, run.is_chief)

    def batches(first_step):
        return token_batches.training_batches(
            data.train, config.tokens_per_batch, config.seed, first_step
        )

    def finish(folder, trained):
        translator.model = trained  # on one device
        last_epochs.average(trained)  # before the report, which tests and saves these weights
        teacher = None
        if config.teacher:
            teacher = first_teacher(config, data.teachers["models of teachers"])
        finish_translator(folder, translator, data, bleu_tokenize, teacher)
        last_epochs.remove()

    # the loop: Run.train (zoo/training/run.py), Trainer.fit, training_step (zoo/training/step.py)
    run.train(
        model,
        batches,
        epochs=config.epochs,
        steps_per_epoch=token_batches.steps_per_epoch(data.train, config.tokens_per_batch),
        validation_data=token_batches.evaluation_batches(data.valid, config.tokens_per_batch),
        callbacks=[last_epochs, keras.callbacks.EarlyStopping(patience=config.patience)],
        optimizer=optimizer,
        loss=SmoothedCrossEntropy(config.label_smoothing),
        weighted_metrics=[accuracy],
        identity=run_identity(config, translator, data),
        finish=finish,
        per_epoch={"tokens": data.train.num_tokens},
    )


def first_teacher(config, fingerprints):
    """Loads the teacher that the report compares with the student.

    Returns:
        `Translator`; None if it was deleted or replaced during training.
    """
    path = config.teacher[0]
    try:
        teacher = load_translator("--teacher", path, (config.src_lang, config.tgt_lang))
    except UserError as error:
        print(f"The student is not compared with its teacher. {error}")
        return None
    if task_fingerprint(teacher) != fingerprints[0]:
        print(f"The student is not compared with its teacher, as --teacher {path} has changed.")
        return None
    return teacher


def new_translator(config, run):
    """A translator with random weights, and its tokenized sentence pairs."""
    missing = [
        name
        for name in sorted(MODEL_SETTINGS)
        if getattr(config, name) is None and name != "num_decoder_layers"
    ]
    if missing:
        raise UserError(f"Without --weights, a value is needed: {flags(*missing)}.")
    data, (source, target) = load_pairs(run, config.max_length)
    keras.utils.set_random_seed(config.seed)  # translating may have drawn random numbers
    with run.scope():
        model = build_model(config, source.vocab_size, target.vocab_size)
    return Translator(model, source, target, config.beam_size, config.length_penalty), data


@report_invalid_settings()
def build_model(config, source_vocab_size, target_vocab_size):
    return zoo.transformer(
        source_vocab_size=source_vocab_size,
        target_vocab_size=target_vocab_size,
        embed_dim=config.embed_dim,
        num_heads=config.num_heads,
        num_layers=config.num_layers,
        num_decoder_layers=config.num_decoder_layers,
        ff_dim=config.ff_dim,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        decoder=config.decoder,
        norm=config.norm,
        activation=config.activation,
        positions=config.positions,
        max_length=config.max_length,
        shared="all" if config.vocabulary == "joint" else "target",
    )


def pretrained(config, run):
    """The translator of `--weights`, and its tokenized sentence pairs."""
    with run.scope():
        translator = pretrained_translator(
            config.weights,
            src_lang=config.src_lang,
            tgt_lang=config.tgt_lang,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            beam_size=config.beam_size,
            length_penalty=config.length_penalty,
        )
    if config.length_penalty is not None and translator.beam_size == 1:
        raise UserError(
            f"--length-penalty has no effect on greedy search, with which {config.weights} "
            "translates. Pass --beam-size, too."
        )
    data, _ = load_pairs(
        run,
        min(config.max_length, translator.model.max_length),
        (translator.source_tokenizer, translator.target_tokenizer),
        translator.special_tokens,
    )
    if data.seed is not None:
        notes = other_split("--weights", config.weights, translator, config, ("seed",))
        data = data._replace(notes=(*data.notes, *notes))
    return translator, data


def build_optimizer(config, model):
    # Vaswani et al. 2017, section 5.3
    rate = WarmupInverseSquareRoot(model.embed_dim, config.warmup_steps, config.learning_rate_scale)
    if config.optimizer == "muon":
        return muon(model, rate, clip_norm=config.clip_norm, adam_beta_2=0.98, epsilon=1e-9)
    return keras.optimizers.Adam(
        rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9, global_clipnorm=config.clip_norm
    )


def run_identity(config, translator, data):
    """What must be the same when the run is resumed, besides the settings."""
    pairs = f"{len(data.train):,} pairs, checksum {zlib.crc32(data.train.sequences.ids):08x}"
    result = {
        "checksum of the tokenizers": checksum(
            translator.source_tokenizer, translator.target_tokenizer
        ),
        "data": f"{pairs}, test pairs {fingerprint(data.test)}",
        "validation data": f"{zlib.crc32(data.valid.sequences.ids):08x}",
    }
    if config.weights:
        description = translator.description()
        for name in ("beam_size", "length_penalty"):  # which may change
            del description[name]
        result["model of weights"] = fingerprint(translator.model, description)
    if data.teachers:
        result |= data.teachers
    return result


if __name__ == "__main__":
    # the default values with `--dataset phrasebook`, and those with the flag `--weights`
    presets = {"phrasebook": PHRASEBOOK, "--weights": FINE_TUNING}
    run_recipe(main, Config, presets, __doc__)
