"""Settings that the recipes for text share: their data, and where their tokens are kept."""

import dataclasses
import functools
import pathlib

from zoo.errors import UserError
from zoo.training.command import flags
from zoo.training.run_settings import RunSettings

_OTHER_FILES = ("target", "valid_source", "valid_target", "test_source", "test_target")


def _check_data_dir(settings):
    if settings.data_dir and settings.dataset in (None, "phrasebook"):
        raise UserError(
            "--data-dir is a folder of TensorFlow Datasets. Name a data set in it: --dataset NAME."
        )


@dataclasses.dataclass(frozen=True)
class LabeledTextSettings(RunSettings):
    """Settings of a run and its labeled texts."""

    dataset: str | None = None
    """phrasebook (built in), or a text classification data set by its TensorFlow Datasets name."""
    data_dir: str | None = None
    """Folder of prepared TFDS data."""
    tsv: str | None = None
    """File with one text per line, without a header: label, tab, text."""

    def __post_init__(self):
        super().__post_init__()
        _check_data_dir(self)

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

    def load_data(self):
        """Loads the texts: `zoo.data.labeled_text.TextDataset`."""
        from zoo.data import labeled_text

        _ = self.data_name  # checks the flags
        if self.tsv:
            return labeled_text.tsv(self.tsv, self.seed)
        if self.dataset == "phrasebook":
            return labeled_text.phrasebook(self.seed)
        return labeled_text.tfds_texts(self.dataset, self.data_dir, self.seed)


@dataclasses.dataclass(frozen=True)
class TranslationSettings(RunSettings):
    """Settings of a run and its sentence pairs."""

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
    """Folder of tokenized sentence pairs, which runs and workers share; by default .cache/translate
    beside the run directory."""
    weights: str | None = None
    """Translation model to fine-tune: published weights, see docs/checkpoints.md, or a run."""
    src_lang: str | None = None
    """Source language, for published weights of several languages."""
    tgt_lang: str | None = None
    """Target language, for published weights of several languages."""

    def __post_init__(self):
        super().__post_init__()
        given = [name for name in ("src_lang", "tgt_lang") if getattr(self, name)]
        if given and not self.weights:
            raise UserError(f"{flags(*given)}: only a model of --weights has languages.")
        given = [name for name in _OTHER_FILES if getattr(self, name)]
        if given and not self.source:
            raise UserError(
                f"{flags(*given)}: the file of the source sentences, --source, is missing."
            )
        _check_data_dir(self)

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
        if self.dataset:
            return self.dataset.replace("/", "_")
        return pathlib.Path(self.tsv or self.source).stem

    def load_data(self, run, tokenizers, max_length, special_tokens=None):
        """Opens the tokenized sentence pairs; the chief tokenizes them if the cache has none.

        Args:
            run: `zoo.training.run.Run`; all its workers must call this.
            tokenizers: (source, target); or the settings to train them with, a dict of the
                arguments of `zoo.data.tokenized_corpus.train_tokenizers`.
            max_length, special_tokens: see `zoo.data.encoded_pairs.encode_pairs`; by default the
                special tokens are those of `zoo.tasks.translator.Translator`.

        Returns:
            `zoo.data.tokenized_corpus.TokenizedCorpus`.
        """
        from zoo.data import tokenized_corpus as corpus
        from zoo.data.shared_cache import cached_folder, folder_of_number
        from zoo.text.special_tokens import SPECIAL_TOKENS
        from zoo.training import distribution

        root = pathlib.Path(self.cache_dir or run.path.parent / ".cache" / "translate")
        special_tokens = special_tokens or SPECIAL_TOKENS
        number = 0
        if run.is_chief:
            data, read = self._text()
            settings = {
                "version": corpus.VERSION,
                "data": data,
                "tokenizers": corpus.identity_of(tokenizers),
                "special tokens": special_tokens,
                "max length": max_length,
            }
            folder, was_there = cached_folder(
                root,
                settings,
                lambda path: corpus.write_corpus(
                    path, read(), tokenizers, max_length, special_tokens
                ),
            )
            number = int(folder.name, 16)
            when = "by an earlier run" if was_there else "now"
            print(f"Sentence pairs, tokenized {when}: {folder}")
        number = distribution.from_chief(run.strategy, number)  # others wait here for the chief
        data = corpus.open_corpus(folder_of_number(root, number), special_tokens)
        for line in data.skipped if run.is_chief else ():
            print(f"skipped: {line}")
        return data

    def _text(self):
        """Returns what differs for other sentence pairs, and a function that reads them."""
        from zoo.data import parallel_text
        from zoo.data.shared_cache import file_identity

        seed = self.seed
        if self.tsv:
            read = functools.partial(parallel_text.tsv, self.tsv, seed)
            return [file_identity(self.tsv), seed], read
        if self.source:
            files = [
                (self.source, self.target),
                (self.valid_source, self.valid_target),
                (self.test_source, self.test_target),
            ]
            identity = [path and file_identity(path) for pair in files for path in pair]
            held_out = [pair if any(pair) else None for pair in files[1:]]
            read = functools.partial(parallel_text.parallel_files, *files[0], *held_out, seed)
            return [identity, None if all(held_out) else seed], read
        if self.dataset == "phrasebook":
            return ["phrasebook", seed], functools.partial(parallel_text.phrasebook, seed)
        data = (self.dataset, self.data_dir, seed)
        read = functools.partial(parallel_text.tfds_pairs, *data)
        return parallel_text.tfds_identity(*data), read
