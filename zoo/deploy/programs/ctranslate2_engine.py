"""Runs model.bin with CTranslate2, where each token is written as its id in decimal."""

import math
import os

import ctranslate2

PAD_ID, START_ID, END_ID = 0, 1, 2
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Engine:
    """Translates ids.

    Args:
        folder: path of the export.
        pad, start, end: ids of these tokens.
        first: id that every translation begins with, if given.
    """

    def __init__(self, folder, pad=PAD_ID, start=START_ID, end=END_ID, first=None):
        for name in ("model.bin", "config.json"):
            (folder / name).stat()  # raises an error of Python's own if it is missing
        self.translator = ctranslate2.Translator(str(folder))
        if self.translator.compute_type.startswith("int8"):  # faster with one thread per sentence
            threads = {"intra_threads": 1, "inter_threads": CORES}
            self.translator = ctranslate2.Translator(str(folder), **threads)
        self.suppressed = [[str(id)] for id in {pad, start} - {end}]
        self.prefix = [] if first is None else [str(first)]

    def __call__(self, sources, beam_size, length_penalty, max_length):
        """Finds the best translations.

        Args:
            sources: lists of ids, each with the end token.
            beam_size: of the search.
            length_penalty: exponent of the length, by whose power a log-probability is divided.
            max_length: largest number of ids of a translation.

        Returns:
            For each source a list of (ids, score), the best first. Scores are higher than those of
            the zoo, as the shares of padding and start are given to the other tokens.
        """
        parts = self.translator.num_translators  # which are computed at once
        found = self.translator.translate_batch(
            [[str(id) for id in ids] for ids in sources],
            target_prefix=[self.prefix] * len(sources),
            max_batch_size=math.ceil(len(sources) / parts),
            beam_size=beam_size,
            num_hypotheses=beam_size,
            length_penalty=length_penalty,
            max_input_length=0,  # no limit; otherwise longer texts are cut
            min_decoding_length=0,
            max_decoding_length=max_length,
            suppress_sequences=self.suppressed,
            return_scores=True,
        )
        return [
            [([int(token) for token in tokens], score) for tokens, score in zip(*best)]
            for best in ((one.hypotheses, one.scores) for one in found)
        ]
