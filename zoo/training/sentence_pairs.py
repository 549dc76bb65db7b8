"""Loads the sentence pairs of a translation run, which are tokenized once and cached."""

import gc
import pathlib

from zoo.data import parallel_text
from zoo.data import tokenized_corpus as corpus
from zoo.data.text_rows import folded, unused
from zoo.data.token_store import cached_folder, file_key
from zoo.errors import DataError, UserError
from zoo.text.saved_tokenizers import checksum
from zoo.text.special_tokens import SPECIAL_TOKENS
from zoo.training import distribution
from zoo.training.fine_tuning import other_split
from zoo.training.run_folder import checksum_of_lines
from zoo.training.teacher_translations import (
    load_teachers,
    read_monolingual,
    translated_pairs,
)

# Settings that decide which pairs are held out: the seed, and the files that are divided.
_SPLIT_SETTINGS = ("seed", "dataset", "tsv", "source", "valid_source", "test_source")


def load_pairs(run, max_length, tokenizers=None, special_tokens=SPECIAL_TOKENS):
    """Opens the tokenized sentence pairs; the chief tokenizes them if the cache has none.

    Args:
        run: `zoo.training.run.Run` with the settings of recipes/translate.py; all its
            workers must call this, outside of `run.scope()`.
        max_length, special_tokens: see `zoo.data.tokenized_corpus.encode_pairs`.
        tokenizers: (source, target); by default, they are trained on the pairs as the settings say.

    Returns:
        (data, tokenizers), see `zoo.data.tokenized_corpus.load_corpus`.

    Raises:
        UserError: if a model of `--teacher` cannot be used or is not that of the run to resume, or
            a worker does not find the cache.
        DataError: if the pairs cannot be read, or none are left.
    """
    settings = run.settings
    root = run.path.absolute().parent / ".cache" / "translate"
    if settings.cache_dir:
        root = pathlib.Path(settings.cache_dir)
        if root.resolve().is_relative_to(run.path.resolve()):
            raise UserError(
                f"--cache-dir {root} is in the run directory {run.path}. Choose another place."
            )
    number = 0  # the name of the folder, which is hexadecimal: `from_chief` sends numbers only
    notes = ()
    if run.is_chief:
        folder, notes = _tokenized(run, root, max_length, tokenizers, special_tokens)
        number = int(folder.name, 16)
        gc.collect()  # frees the teachers, whose layers are in reference cycles
    number = distribution.from_chief(run.strategy, number)  # the others wait for it
    folder = root / f"{number:010x}"
    if not folder.is_dir():
        raise UserError(
            f"{folder}, which the chief has written, is not on this machine. Pass --cache-dir with "
            "a folder that all workers share."
        )
    data, tokenizers = corpus.load_corpus(folder, special_tokens)
    if data.seed is not None:  # it decides which pairs are held out
        data = data._replace(notes=data.notes + notes)
    return data, tokenizers


def _tokenized(run, root, max_length, tokenizers, special_tokens):
    """Tokenizes the pairs, unless the cache has them; see `load_pairs`.

    Returns:
        (folder, notes): the folder in the cache `root`; and lines about teachers that may have been
        trained on held-out pairs, which are not cached, as they depend on the paths of the teachers
        and the settings of their runs.
    """
    settings = run.settings
    trained_with = {
        "tokenizer": settings.tokenizer,
        "vocab_size": settings.vocab_size,
        "normalization": settings.normalization,
        "target_normalization": settings.target_normalization,
        "vocabulary": settings.vocabulary,
    }
    teachers = load_teachers(settings)
    identity = identity_of_teachers(settings, teachers)
    run.check_same_settings(identity)
    key = {
        "version": corpus.VERSION,
        "data": _key(settings),
        "teachers": identity["models of teachers"],
        "keep references": settings.keep_references,
        "drop worst": settings.drop_worst,
        "tokenizers": trained_with if tokenizers is None else checksum(*tokenizers),
        "special tokens": special_tokens,
        "max length": max_length,
    }

    def write(path):
        text = read_pairs(settings)
        if teachers:
            text = with_teachers(text, settings, teachers, root / "teacher")
            text = text._replace(teachers=identity)
        own = tokenizers
        if own is None:
            own = corpus.train_tokenizers(text, **trained_with)
        corpus.write_corpus(path, text, own, max_length, special_tokens)

    folder, was_there = cached_folder(root, key, write)
    print(f"Sentence pairs, tokenized {'by an earlier run' if was_there else 'now'}: {folder}")
    return folder, _split_notes(settings, teachers)


def identity_of_teachers(settings, teachers):
    """What translated pairs depend on, besides the given pairs; the same when a run is resumed.

    Args:
        settings: those of recipes/translate.py.
        teachers: list of `zoo.training.teacher_translations.Teacher`.

    Returns:
        dict, see `identity` of `zoo.training.run.Run.train`.
    """
    source = settings.monolingual
    target = settings.monolingual_target
    return {
        "models of teachers": [teacher.identity for teacher in teachers] or None,
        "checksum of monolingual text": source and checksum_of_lines(source),
        "checksum of monolingual target text": target and checksum_of_lines(target),
    }


def _key(settings):
    """Everything that the selected sentence pairs depend on, for the key of the cache."""
    key = [settings.dataset, settings.seed]
    if settings.dataset not in (None, "phrasebook"):
        key.append(file_key(parallel_text.tfds_info(settings.dataset, settings.data_dir)))
    paths = [settings.tsv, settings.monolingual, settings.monolingual_target]
    for source, target in _files(settings):
        paths += [source, target]
    return key + [path and file_key(path) for path in paths]


def with_teachers(text, settings, teachers, folder):
    """Replaces the training pairs by those that `--teacher` and `--reverse-teacher` translate.

    With `--keep-references`, or without `--teacher`, the given pairs are kept. Each pair occurs
    once.

    Args:
        text: `zoo.data.text_rows.TextDataset` of pairs, whose validation and test pairs stay.
        settings: those of recipes/translate.py.
        teachers: result of `zoo.training.teacher_translations.load_teachers`.
        folder: where the translations are stored.

    Returns:
        `TextDataset`.

    Raises:
        DataError: if no pairs are left, or a file of text cannot be read.
        TaskError: if a teacher computes NaN.
    """
    # 1. The texts to translate.
    held_out = (*text.valid, *text.test)
    held_out_sources = {folded(source) for source, _ in held_out}
    held_out_targets = {folded(target) for _, target in held_out}
    more_sources, source_notes = read_monolingual(settings.monolingual, held_out_sources)
    more_targets, target_notes = read_monolingual(settings.monolingual_target, held_out_targets)
    sources = [source for source, _ in text.train] + more_sources
    targets = [target for _, target in text.train] + more_targets

    # 2. Their translations.
    pairs = []
    notes = text.notes + source_notes + target_notes
    for teacher in teachers:
        texts = targets if teacher.is_reverse else sources
        unique = [*dict.fromkeys(texts)]
        found, left_out = translated_pairs(teacher, unique, folder, settings.drop_worst)
        if teacher.is_reverse:
            found = [(source, target) for target, source in found]
        pairs += found
        notes += left_out

    # 3. The pairs to train on.
    kept = [
        (source, target)
        for source, target in pairs
        if folded(source) not in held_out_sources and folded(target) not in held_out_targets
    ]
    reason = "translations with the source or the target of a held-out pair"
    notes += unused(len(pairs) - len(kept), reason)
    pairs = kept
    if settings.keep_references or not settings.teacher:
        pairs += text.train
    if not pairs:
        raise DataError(f"The teachers leave no training pairs. {' '.join(notes)}")
    return text._replace(train=[*dict.fromkeys(pairs)], notes=notes)


def _split_notes(settings, teachers):
    """Lines about runs that may have been trained on pairs that are held out here."""
    notes = []
    for teacher in teachers:
        translator = teacher.translator
        if not teacher.is_reverse:
            notes += other_split("--teacher", teacher.path, translator, settings, _SPLIT_SETTINGS)
        elif translator.settings is not None:
            notes.append(
                f"--reverse-teacher {teacher.path} may have been trained on pairs that are held "
                "out here: a run of the other direction holds out other pairs. Pass validation "
                "and test pairs as files."
            )
    return tuple(notes)


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
