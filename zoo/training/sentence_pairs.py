"""The sentence pairs that the settings of a translation run select, tokenized once for all runs."""

import pathlib

from zoo.data import tokenized_corpus as corpus
from zoo.data.selection import text_source
from zoo.data.token_store import cached_folder
from zoo.text.special_tokens import SPECIAL_TOKENS
from zoo.training import distribution


def load_pairs(run, tokenizers, max_length, special_tokens=SPECIAL_TOKENS):
    """Opens the tokenized sentence pairs; the chief tokenizes them if the cache has none.

    Args:
        run: `zoo.training.run.Run` with `zoo.training.settings.TranslationSettings`; all its
            workers must call this.
        tokenizers: (source, target); or the settings to train them with, a dict of the arguments of
            `zoo.data.tokenized_corpus.train_tokenizers`.
        max_length, special_tokens: see `zoo.data.tokenized_corpus.encode_pairs`.

    Returns:
        `zoo.data.tokenized_corpus.TokenizedCorpus`.
    """
    root = pathlib.Path(run.settings.cache_dir or run.path.parent / ".cache" / "translate")
    identity, read = text_source(run.settings)
    key = {
        "version": corpus.VERSION,
        "data": identity,
        "tokenizers": corpus.tokenizers_key(tokenizers),
        "special tokens": special_tokens,
        "max length": max_length,
    }

    def write(path):
        corpus.write_corpus(path, read(), tokenizers, max_length, special_tokens)

    if not run.is_chief:
        distribution.from_chief(run.strategy, 0)  # waits for it, as it tokenizes
    folder, was_there = cached_folder(root, key, write)
    if run.is_chief:
        distribution.from_chief(run.strategy, 0)
        print(f"Sentence pairs, tokenized {'by an earlier run' if was_there else 'now'}: {folder}")
    data = corpus.TokenizedCorpus(folder, special_tokens)
    for line in data.skipped if run.is_chief else ():
        print(f"skipped: {line}")
    return data
