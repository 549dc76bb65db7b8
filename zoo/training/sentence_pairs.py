"""Reads and tokenizes the sentence pairs of a translation run."""

from zoo.data import parallel_text
from zoo.data.tokenized_corpus import tokenize_corpus
from zoo.text.special_tokens import SPECIAL_TOKENS


def load_pairs(run, tokenizers, max_length, special_tokens=SPECIAL_TOKENS):
    """Reads and tokenizes the sentence pairs.

    Args:
        run: `zoo.training.run.Run` with the settings of recipes/translate.py.
        tokenizers, max_length, special_tokens: see `zoo.data.tokenized_corpus.tokenize_corpus`.

    Returns:
        `zoo.data.tokenized_corpus.TokenizedCorpus`.
    """
    data = tokenize_corpus(read_pairs(run.settings), tokenizers, max_length, special_tokens)
    for line in data.skipped if run.is_chief else ():
        print(f"skipped: {line}")
    return data


def read_pairs(settings):
    """Reads the sentence pairs that settings select: `zoo.data.text_rows.Divided`."""
    seed, dataset = settings.seed, settings.dataset
    if settings.tsv:
        return parallel_text.tsv(settings.tsv, seed)
    if settings.source:
        others = (
            (settings.valid_source, settings.valid_target),
            (settings.test_source, settings.test_target),
        )
        others = (pair if any(pair) else None for pair in others)
        return parallel_text.parallel_files(settings.source, settings.target, *others, seed)
    if dataset == "phrasebook":
        return parallel_text.phrasebook(seed)
    return parallel_text.tfds_pairs(dataset, settings.data_dir, seed)
