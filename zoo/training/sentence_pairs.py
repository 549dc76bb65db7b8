"""Loads the sentence pairs of a translation run, which are tokenized once and cached."""

import pathlib

from zoo.data import parallel_text
from zoo.data import tokenized_corpus as corpus
from zoo.data.token_store import cached_folder, file_key
from zoo.text.saved_tokenizers import checksum
from zoo.text.special_tokens import SPECIAL_TOKENS
from zoo.training import distribution


def load_pairs(run, tokenizers, max_length, special_tokens=SPECIAL_TOKENS):
    """Opens the tokenized sentence pairs; the chief tokenizes them if the cache has none.

    Args:
        run: `zoo.training.run.Run` with the settings of recipes/translate.py; all its
            workers must call this.
        tokenizers: (source, target), or a dict of the arguments of
            `zoo.data.tokenized_corpus.train_tokenizers`.
        max_length, special_tokens: see `zoo.data.tokenized_corpus.encode_pairs`.

    Returns:
        (data, tokenizers), see `zoo.data.tokenized_corpus.load_corpus`.
    """
    settings = run.settings
    root = pathlib.Path(settings.cache_dir or run.path.parent / ".cache" / "translate")
    key = {
        "version": corpus.VERSION,
        "data": _key(settings),
        "tokenizers": tokenizers if isinstance(tokenizers, dict) else checksum(*tokenizers),
        "special tokens": special_tokens,
        "max length": max_length,
    }

    def write(path):
        corpus.write_corpus(path, read_pairs(settings), tokenizers, max_length, special_tokens)

    if not run.is_chief:
        distribution.from_chief(run.strategy, 0)  # waits until the chief has tokenized
    folder, was_there = cached_folder(root, key, write)
    if run.is_chief:
        distribution.from_chief(run.strategy, 0)
        print(f"Sentence pairs, tokenized {'by an earlier run' if was_there else 'now'}: {folder}")
    data, tokenizers = corpus.load_corpus(folder, special_tokens)
    for note in data.notes if run.is_chief else ():
        print(note)
    return data, tokenizers


def _key(settings):
    """Everything that the selected sentence pairs depend on, for the key of the cache."""
    key = [settings.dataset, settings.seed]
    if settings.dataset not in (None, "phrasebook"):
        key += [parallel_text.tfds_version(settings.dataset, settings.data_dir)]
    return key + [path and file_key(path) for path in (settings.tsv, *sum(_files(settings), ()))]


def read_pairs(settings):
    """Reads the sentence pairs that settings select: `zoo.data.text_rows.TextDataset`."""
    seed, dataset = settings.seed, settings.dataset
    if settings.tsv:
        return parallel_text.tsv(settings.tsv, seed)
    if settings.source:
        train, valid, test = _files(settings)
        return parallel_text.parallel_files(*train, valid, test, seed)
    if dataset == "phrasebook":
        return parallel_text.phrasebook(seed)
    return parallel_text.tfds_pairs(dataset, settings.data_dir, seed)


def _files(settings):
    """(source, target) for training, validation and test."""
    return [
        (settings.source, settings.target),
        (settings.valid_source, settings.valid_target),
        (settings.test_source, settings.test_target),
    ]
