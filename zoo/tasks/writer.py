"""What a translator and a text generator share: beam search and sampling over batches of texts.

Axes: B texts, K hypotheses of a text, T tokens.
"""

import numpy as np

from zoo.decoding import SearchOptions
from zoo.errors import TaskError, checked
from zoo.tasks.task import TextTask, without_nan


class TextWriter(TextTask):
    """A task that writes texts.

    A subclass has `search` and `draw`, the graphs of both, and `_inputs`, what they take of a
    batch: (arrays [B, ...], the largest number of tokens to write, that for which there is memory).

    Args:
        model, special_tokens: see `TextTask`.
        search_options: dict, fields of `zoo.decoding.SearchOptions`, or None.

    Attributes:
        search_options: as given; the defaults of all searches.
    """

    def __init__(self, model, special_tokens, search_options=None):
        self.search_options = search_options or {}
        super().__init__(model, special_tokens)
        self.options()

    def options(self, given=(), most=None, longest=None):
        """The checked `zoo.decoding.SearchOptions`: those given, a dict, or else the task's own.

        Args:
            given: dict; None stands for the task's own.
            most: the largest number of new tokens; by default that of the model.
            longest: the largest number of all tokens; by default that of the model.
        """
        given = {name: value for name, value in dict(given).items() if value is not None}
        limit, words = self.model.max_length, self._tokenizers()[-1].vocab_size
        limits = {
            "min_length": (int, 0, longest or limit),
            "min_new_tokens": (int, 0, most or limit),
            "no_repeat_ngram_size": (int, 0, limit),
            "repetition_penalty": (float, 1e-3),
        }
        values = {**self.search_options, **given}
        for name, value in values.items():
            if name in limits:
                values[name] = checked(name, value, *limits[name])
            elif name == "suppress_tokens":
                ids = value if hasattr(value, "__iter__") else [value]
                values[name] = tuple(sorted({checked(name, id, int, 0, words - 1) for id in ids}))
            elif name != "forced_eos":
                raise TypeError(f"There is no option {name}. Received: {name}={value!r}.")
            elif not isinstance(value, bool):
                raise TaskError(f"{name} must be True or False. Received: {name}={value!r}.")
        return SearchOptions(**values)

    def __call__(self, texts, **options):
        """The best answer to each text, a list of str; see `n_best`."""
        return [best.text for [best, *_] in self.n_best(texts, **options)]

    def _searched(self, rows, most, n, beam_size, length_penalty, options, least_beam_size=1):
        """For each row of sequences the arrays of its `zoo.decoding.Hypotheses`, by beam search.

        At most `most` tokens are written, or by default as many as `_inputs` says. The default of
        the beam size is `n`, but at least `least_beam_size`.
        """
        n = checked("n", n, int, 1)
        beam_size = max(n, least_beam_size) if beam_size is None else beam_size
        settings = {"beam_size": checked("beam_size", beam_size, int, n), "best_only": n == 1}
        alpha = np.float32(checked("length_penalty", length_penalty, float))
        settings["options"] = options

        def search(batch):
            (first, *others), length, buffer = self._inputs(batch, most, options)
            if self.engine is not None:  # of a translator
                first, *others = (x[: len(batch.indices)] for x in (first, *others))
                return without_nan(self.engine(first, alpha, length, *others, **settings))
            inputs = (first, alpha, length, *others)
            return self.run(self.search, *inputs, buffer_length=buffer, **settings)

        best = self.compute(rows, search, most or 0)
        return [[array[:n] for array in arrays] for arrays in best]

    def _drawn(self, rows, most, n, seed, temperature, top_k, top_p, options):
        """The same by sampling, `n` for each row."""
        n, seed = checked("n", n, int, 1), checked("seed", seed, int, 0)
        temperature = np.float32(checked("temperature", temperature, float, 1e-3))
        top_k = None if top_k is None else checked("top_k", top_k, int, 1)
        top_p = np.float32(1.0 if top_p is None else checked("top_p", top_p, float, 1e-6, 1.0))

        def draw(batch):
            (first, *others), length, buffer = self._inputs(batch, most, options)
            random = np.zeros((len(first), n, buffer), np.float32)
            for row, index in zip(random, batch.indices):  # those of a text depend on it alone
                row[:] = np.random.default_rng([seed, index]).random((buffer, n), np.float32).T
            inputs = (first, random, length, temperature, top_p, *others)
            return self.run(self.draw, *inputs, top_k=top_k, options=options)

        return self.compute(rows, draw, most or 0)
