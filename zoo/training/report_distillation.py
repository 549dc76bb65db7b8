"""Compares a student of translation with its teacher: scores, size and speed."""

import time

import numpy as np

from zoo.loading import load
from zoo.training.report_translation_scores import translation_scores

_TIMED_BATCHES = 32  # at most


def compared_with_teacher(folder, teacher, student, student_scores, data, bleu_tokenize=None):
    """Tests a teacher, its student, and the student in int8 on the test pairs.

    Args:
        folder: path of the saved student.
        teacher, student: `zoo.tasks.translator.Translator`.
        student_scores: its `translation_scores` on the test pairs.
        data: `zoo.data.text_rows.TextDataset`.
        bleu_tokenize: see `translation_scores`.

    Returns:
        dict of "teacher", "student" and "student in int8", each a dict of "bleu"; "chrf";
        "megabytes", the size of the weights in memory; "tokens_per_second_batch_1" and
        "tokens_per_second_batch_32". The target tokenizer of the student counts the tokens.
    """
    in_int8 = load(folder, dtype="int8")
    systems = {"teacher": teacher, "student": student, "student in int8": in_int8}
    sources = [source for source, _ in data.test]
    references = [reference for _, reference in data.test]
    tokenizer = student.target_tokenizer
    results = {}
    for name, system in systems.items():
        if system is student:
            scores = student_scores
        else:
            translations = system(sources, sentences=False, too_long=system.long_texts)
            scores = translation_scores(translations, references, bleu_tokenize)
        num_bytes = sum(weight.numpy().nbytes for weight in system.model.weights)
        results[name] = {
            "bleu": scores["bleu"],
            "chrf": scores["chrf"],
            "megabytes": num_bytes / 1e6,
            "tokens_per_second_batch_1": _speed(system, sources, 1, tokenizer),
            "tokens_per_second_batch_32": _speed(system, sources, 32, tokenizer),
        }
    return results


def _speed(translator, sources, batch_size, tokenizer):
    """Tokens of the translations per second, in batches of this number of sentences."""
    # From all parts of the test set, which may be sorted by length.
    count = min(len(sources), _TIMED_BATCHES * batch_size)
    places = np.linspace(0, len(sources) - 1, count, dtype=int)
    timed = [sources[place] for place in places]
    batches = [timed[start : start + batch_size] for start in range(0, count, batch_size)]

    def translate():
        found = []
        for batch in batches:
            found += translator(batch, sentences=False, too_long=translator.long_texts)
        return found

    translate()  # compiles the graphs of these lengths
    start = time.perf_counter()
    found = translate()
    seconds = time.perf_counter() - start
    return sum(len(tokens) for tokens in tokenizer.encode(found)) / seconds


def as_table(results):
    """The results of `compared_with_teacher` as aligned lines."""
    lines = [f"{'':<18} {'BLEU':>6} {'chrF':>6} {'MB':>8} {'tokens/s':>10} {'batch of 32':>11}"]
    for name, one in results.items():
        alone = one["tokens_per_second_batch_1"]
        together = one["tokens_per_second_batch_32"]
        lines.append(
            f"{name:<18} {one['bleu']:>6.2f} {one['chrf']:>6.2f} {one['megabytes']:>8.1f} "
            f"{alone:>10,.0f} {together:>11,.0f}"
        )
    return lines
