"""Loads the sentence pairs of a translation run, which are tokenized once and cached."""

import pathlib

from zoo.data import parallel_text
from zoo.data import tokenized_corpus as corpus
from zoo.data.token_store import cached_folder, file_key
from zoo.text.saved_tokenizers import checksum
from zoo.text.special_tokens import SPECIAL_TOKENS
from zoo.training import distribution
from zoo.training.run_folder import fingerprint
from zoo.training.teacher_translations import distilled, load_teacher


def load_pairs(run, max_length, tokenizers=None, special_tokens=SPECIAL_TOKENS):
    """Opens the tokenized sentence pairs; the chief tokenizes them if the cache has none.

    Args:
        run: `zoo.training.run.Run` with the settings of recipes/translate.py; all its
            workers must call this.
        max_length, special_tokens: see `zoo.data.tokenized_corpus.encode_pairs`.
        tokenizers: (source, target); by default, they are trained on the pairs as the settings say.

    Returns:
        (data, tokenizers), see `zoo.data.tokenized_corpus.load_corpus`.
    """
    settings = run.settings
    trained_with = {
        "tokenizer": settings.tokenizer,
        "vocab_size": settings.vocab_size,
        "normalization": settings.normalization,
        "target_normalization": settings.target_normalization,
        "vocabulary": settings.vocabulary,
    }
    key = {
        "version": corpus.VERSION,
        "data": _key(settings),
        "tokenizers": trained_with if tokenizers is None else checksum(*tokenizers),
        "special tokens": special_tokens,
        "max length": max_length,
    }
    if settings.teacher:
        key["teacher"] = _teacher_key(settings)
        key["targets"] = [
            settings.drop_worst,
            settings.keep_references,
        ]

    root = run.path.parent / ".cache" / "translate"
    if settings.cache_dir:
        root = pathlib.Path(settings.cache_dir)

    def write(path):
        text = read_pairs(settings)
        if settings.teacher:
            text = _distilled(text, settings, root)
        own = tokenizers
        if own is None:
            own = corpus.train_tokenizers(text, **trained_with)
        corpus.write_corpus(path, text, own, max_length, special_tokens)

    if not run.is_chief:
        distribution.from_chief(run.strategy, 0)  # waits until the chief has tokenized
    folder, was_there = cached_folder(root, key, write)
    if run.is_chief:
        distribution.from_chief(run.strategy, 0)  # the others may continue
        print(f"Sentence pairs, tokenized {'by an earlier run' if was_there else 'now'}: {folder}")
    data, tokenizers = corpus.load_corpus(folder, special_tokens)
    if run.is_chief:
        for note in data.notes:
            print(note)
    return data, tokenizers


def _key(settings):
    """Everything that the selected sentence pairs depend on, for the key of the cache."""
    key = [settings.dataset, settings.seed]
    if settings.dataset not in (None, "phrasebook"):
        key.append(file_key(parallel_text.tfds_info(settings.dataset, settings.data_dir)))
    paths = [settings.tsv]
    for source, target in _files(settings):
        paths += [source, target]
    return key + [path and file_key(path) for path in paths]


def _teacher_key(settings):
    """Everything that the translations of the teacher depend on, besides the sentence pairs."""
    key = [settings.teacher, settings.src_lang, settings.tgt_lang]
    key.append(settings.monolingual and file_key(settings.monolingual))
    folder = pathlib.Path(settings.teacher)
    if folder.is_dir():
        key += [file_key(path) for path in sorted(folder.iterdir()) if path.is_file()]
    return key


def _distilled(text, settings, root):
    """The pairs with the translations of the teacher, which are stored beside them."""
    teacher = load_teacher(settings.teacher, settings.src_lang, settings.tgt_lang)
    name = fingerprint(_teacher_key(settings), _key(settings))
    return distilled(
        text,
        teacher,
        root / "teacher" / f"{name}.jsonl",
        settings.monolingual,
        settings.drop_worst,
        settings.keep_references,
    )


def read_pairs(settings):
    """Reads the sentence pairs that settings select: `zoo.data.text_rows.TextDataset`."""
    if settings.tsv:
        return parallel_text.tsv(settings.tsv, settings.seed)
    if settings.source:
        train, valid, test = _files(settings)
        return parallel_text.parallel_files(*train, valid, test, settings.seed)
    if settings.dataset == "phrasebook":
        return parallel_text.phrasebook(settings.seed)
    return parallel_text.tfds_pairs(settings.dataset, settings.data_dir, settings.seed)


def _files(settings):
    """(source, target) for training, validation and test."""
    return [
        (settings.source, settings.target),
        (settings.valid_source, settings.valid_target),
        (settings.test_source, settings.test_target),
    ]
