"""Pairs that other models translate: sequence-level distillation and back-translation.

Sources: Kim and Rush 2016, "Sequence-Level Knowledge Distillation", section 3.2; Sennrich et al.
2015, "Improving Neural Machine Translation Models with Monolingual Data"; Nguyen et al. 2020, "Data
Diversification", for several models of both directions.
"""

import contextlib
import json
import math
from typing import NamedTuple

import numpy as np
from keras import ops
from tqdm import tqdm

from zoo.data.text_rows import clean, folded, read_lines, unused
from zoo.decoding.hypotheses import length_penalty
from zoo.errors import DataError, TaskError
from zoo.files import as_path, locked
from zoo.tasks.translator import Translator
from zoo.training.fine_tuning import load_translator
from zoo.training.run_folder import task_fingerprint

_BLOCK = 512  # texts that are translated, and then stored, at a time


class Teacher(NamedTuple):
    """A model whose translations a student is trained on.

    Fields:
        path: what the flag names.
        translator: `zoo.tasks.translator.Translator`.
        fingerprint: see `zoo.training.run_folder.task_fingerprint`.
        is_reverse: whether it translates from the target to the source language.
    """

    path: str
    translator: Translator
    fingerprint: str
    is_reverse: bool

    @property
    def identity(self):
        """What a run recognizes it by: the fingerprint, and the direction if it is reversed."""
        return f"{self.fingerprint}, reverse" if self.is_reverse else self.fingerprint


def load_teachers(settings):
    """Loads the models of `--teacher` and `--reverse-teacher`.

    Args:
        settings: those of recipes/translate.py.

    Returns:
        list of `Teacher`, those of `--teacher` first.

    Raises:
        UserError: if there is no such model, or it is not a translator.
    """

    languages = (settings.src_lang, settings.tgt_lang)
    teachers = []
    for path in settings.teacher:
        translator = load_translator("--teacher", path, languages)
        teachers.append(Teacher(path, translator, task_fingerprint(translator), is_reverse=False))
    for path in settings.reverse_teacher:
        translator = load_translator("--reverse-teacher", path, languages[::-1])
        teachers.append(Teacher(path, translator, task_fingerprint(translator), is_reverse=True))
    return teachers


def read_monolingual(path, held_out):
    """The texts of a file, one per line, without those whose `folded` form is in `held_out`.

    Returns:
        (texts, notes): a list of str, and lines about what was left out.

    Raises:
        DataError: if the file cannot be read, or is empty.
    """
    if path is None:
        return [], ()
    lines = [clean(line) for line in read_lines(path)]
    if not lines:
        raise DataError(f"{path} is empty. Pass a file with one sentence per line.")
    texts = [line for line in lines if line and folded(line) not in held_out]
    return texts, unused(len(lines) - len(texts), f"lines of {path} that are empty or held out")


def translated_pairs(teacher, texts, folder, drop_worst=0.0):
    """Texts and their translations by a `Teacher`, which are stored in a folder.

    Returns:
        (pairs, notes): a list of (text, translation), without those that are empty and the share
        `drop_worst` with the lowest log-probability per token; and lines about how many these are.
    """
    path = folder / f"{teacher.fingerprint}.jsonl"
    found = translations(teacher.translator, texts, path, teacher.path)
    worst = set()
    if drop_worst:
        order = np.argsort(_log_probs_per_token(teacher.translator, found), kind="stable")
        worst = set(order[: int(drop_worst * len(texts))].tolist())
    pairs = []
    for index, text in enumerate(texts):
        translation, _ = found[index]
        translation = clean(translation)
        if translation and index not in worst:
            pairs.append((text, translation))
    reason = f"translations of {teacher.path} that are empty"
    if drop_worst:
        reason += " or among the worst"
    return pairs, unused(len(texts) - len(pairs), reason)


def _log_probs_per_token(translator, found):
    """The log-probability per token of each translation: its score without the length penalty.

    The translations are tokenized again to count their tokens. The result is approximate if the
    search chose other tokens for the same text, or reached the maximum length. It is up to k times
    too low for a translation that was joined from k parts, as the penalty was that of each part.
    """
    tokens = translator.target_tokenizer.encode([translation for translation, _ in found])
    lengths = np.array([len(ids) + 1 for ids in tokens])  # with the end token
    scores = np.array([score for _, score in found])
    searched_lengths = lengths + len(translator.special_tokens.prefix)  # search counts it, too
    penalty = length_penalty(searched_lengths, translator.length_penalty, translator.length_offset)
    return scores * ops.convert_to_numpy(penalty) / lengths


def translations(translator, texts, path, name):
    """The best translation of each text, and its score; see `Translator.n_best`.

    They are stored in a file, which later calls extend. Other processes with the same file wait.

    Args:
        translator: `zoo.tasks.translator.Translator`.
        texts: list of str. They are not divided into sentences; one that is too long for the model
            is translated as its `long_texts` says.
        path: path of the file, each line of which is a JSON list: text, translation, score.
        name: of the model, for messages.

    Returns:
        list of (translation, score).

    Raises:
        TaskError: if outputs of the model are NaN.
    """
    path = as_path(path)
    found = _stored(path)
    if not found.keys() >= set(texts):
        with locked(path):
            found = _stored(path)  # another process may have translated them meanwhile
            missing = [text for text in dict.fromkeys(texts) if text not in found]
            if missing:
                print(f"Translating {len(missing):,} texts with {name}; translations: {path}")
                found |= _translate(translator, missing, path, name)
    return [found[text] for text in texts]


def _translate(translator, texts, path, name):
    """Translates texts, and appends each block to a file: {text: (translation, score)}."""
    found = {}
    progress = tqdm(total=len(texts), desc=name, unit="text", disable=None)
    with open(path, "a", encoding="utf-8") as file, progress:
        file.write("\n")  # ends a line that was cut off
        for start in range(0, len(texts), _BLOCK):
            block = texts[start : start + _BLOCK]
            try:
                answers = translator.n_best(block, too_long=translator.long_texts)
            except TaskError as error:
                raise TaskError(f"{name}: {error}") from None
            for text, [answer] in zip(block, answers):
                found[text] = (answer.text, answer.score)
                file.write(f"{json.dumps([text, *found[text]], ensure_ascii=False)}\n")
            file.flush()
            progress.update(len(block))
    return found


def _stored(path):
    """The lines of a file of `translations` that are not damaged: {text: (translation, score)}."""
    found = {}
    lines = path.read_bytes().splitlines() if path.is_file() else ()
    for line in lines:
        with contextlib.suppress(TypeError, ValueError, OverflowError, RecursionError):
            text, translation, score = json.loads(line)
            if isinstance(text, str) and isinstance(translation, str) and math.isfinite(score):
                found[text] = (translation, float(score))
    return found
