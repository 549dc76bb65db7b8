"""Sequence-level distillation: a student is trained on the translations of a teacher.

Source: Kim and Rush 2016, "Sequence-Level Knowledge Distillation", section 3.2.
"""

import json
import math
import os

from tqdm import tqdm

from zoo.data.text_rows import clean, read_lines, unused
from zoo.errors import UserError
from zoo.files import as_path
from zoo.tasks.translator import Translator
from zoo.training.fine_tuning import load_weights

_BLOCK = 512  # texts that are translated, and then stored, at a time


def load_teacher(path, src_lang=None, tgt_lang=None):
    """Loads the translator of ``--teacher``.

    Args:
        path, src_lang, tgt_lang: see `zoo.load`.

    Raises:
        UserError: if there is no such path, or its model does not translate.
    """
    languages = {"src_lang": src_lang, "tgt_lang": tgt_lang}
    given = {name: code for name, code in languages.items() if code is not None}
    teacher = load_weights(path, "--teacher", **given)
    if not isinstance(teacher, Translator):
        raise UserError(f"--teacher {path} is a {type(teacher).__name__}, not a translator.")
    return teacher


def distilled(text, teacher, path, monolingual=None, drop_worst=0.0, keep_references=False):
    """Replaces the training targets of sentence pairs by the translations of a teacher.

    Args:
        text: `zoo.data.text_rows.TextDataset` of pairs, whose validation and test pairs stay.
        teacher: `zoo.tasks.translator.Translator`.
        path: file of the translations, see `translations`.
        monolingual: file of further sources, one per line; those of held-out pairs are left out.
        drop_worst: share of the translations to leave out, those with the lowest score.
        keep_references: whether the pairs with the given targets are kept as well.

    Returns:
        `TextDataset`.
    """
    sources = dict.fromkeys(source for source, _ in text.train)
    if monolingual is not None:
        held_out = {source.casefold() for source, _ in (*text.valid, *text.test)}
        lines = map(clean, read_lines(monolingual))
        sources |= dict.fromkeys(line for line in lines if line and line.casefold() not in held_out)
    sources = [*sources]
    found = translations(teacher, sources, path)
    order = sorted(range(len(sources)), key=lambda index: found[index][1])
    dropped = {*order[: math.floor(drop_worst * len(sources))]}
    pairs = []
    for index, (source, (target, _)) in enumerate(zip(sources, found)):
        if target and index not in dropped:
            pairs.append((source, target))
    notes = unused(len(sources) - len(pairs), "translations that are empty or among the worst")
    if keep_references:
        pairs += text.train
    return text._replace(train=pairs, notes=(*text.notes, *notes))


def translations(teacher, sources, path):
    """The best translation of each source, and its score; see `Translator.n_best`.

    They are stored in a file, from which a later call with the same arguments goes on.

    Args:
        teacher: `zoo.tasks.translator.Translator`.
        sources: list of str, each translated as a whole.
        path: path of the file: for each source, in order, a line with a list as JSON.

    Returns:
        list of (translation, score).
    """
    path = as_path(path)
    found = _stored(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        progress = tqdm(
            total=len(sources), initial=len(found), desc="teacher", unit="text", disable=None
        )
        with progress:
            for start in range(len(found), len(sources), _BLOCK):
                block = sources[start : start + _BLOCK]
                answers = teacher.n_best(block, too_long=teacher.long_texts)
                best = [(first.text, first.score) for first, *_ in answers]
                file.writelines(f"{json.dumps(one, ensure_ascii=False)}\n" for one in best)
                file.flush()
                found += best
                progress.update(len(block))
    return found


def _stored(path):
    """The lines of the file of `translations`, from which a last one that was cut off is removed.

    There are none if the file does not exist.
    """
    if not path.is_file():
        return []
    content = path.read_bytes()
    complete = content[: content.rfind(b"\n") + 1]
    os.truncate(path, len(complete))
    return [tuple(json.loads(line)) for line in complete.splitlines()]
