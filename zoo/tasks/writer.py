"""What a translator and a text generator share: beam search and sampling over batches of texts.

Axes: B texts, K hypotheses of a text, T tokens.
"""

import numpy as np
from keras import ops

from zoo import decoding
from zoo.decoding import SearchOptions
from zoo.errors import TaskError, checked
from zoo.tasks.task import TextTask, without_nan
from zoo.text.translation_text import ScoredText


class TextWriter(TextTask):
    """A task that writes texts.

    A subclass has `_inputs`, what `search` and `draw` take of a batch: (arrays [B, ...], the
    largest number of tokens to write, that for which there is memory); and `_start`, the first
    cache, and the tokens before those that are written, in place of the start token, or None.

    Args:
        model, special_tokens: see `TextTask`.
        search_options: dict, fields of `zoo.decoding.SearchOptions`, or None.

    Attributes:
        search_options: as given; the defaults of all searches.
    """

    length_offset, early_stopping = 5.0, "never"  # see `zoo.decoding`

    def __init__(self, model, special_tokens, search_options=None):
        self.search_options = search_options or {}
        super().__init__(model, special_tokens)
        self.options()

    def options(self, given=(), most=None, longest=None):
        """The checked `zoo.decoding.SearchOptions`: those given, if not None, or the task's own.

        `most` new tokens, and `longest` of all, are allowed, by default as many as the model takes.
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
            elif name == "forced_eos" and not isinstance(value, bool):
                raise TaskError(f"{name} must be True or False. Received: {name}={value!r}.")
        return SearchOptions(**values)  # a TypeError if there is no such option

    def __call__(self, texts, **options):
        """The best answer to each text, a list of str; see `n_best`."""
        return [best.text for [best, *_] in self.n_best(texts, **options)]

    def search(
        self,
        tokens,
        alpha,
        max_length,
        first=None,
        *,
        beam_size,
        options,
        buffer_length=None,
        best_only=False,
    ):
        """Beam search as a graph; greedy search if `beam_size` is 1.

        Args:
            tokens: int32 [B, S]: each source with its end token, then padding; or the first tokens
                of prompts, which the model reads at once.
            alpha: of the length penalty, a scalar tensor.
            max_length: the largest number of tokens to write, `first` included; an int, a scalar
                tensor, or int32 [B].
            first: see `zoo.decoding.SpecialTokens`; that of the task by default.
            beam_size: K.
            options: `zoo.decoding.SearchOptions`.
            buffer_length, best_only: see `zoo.decoding.beam_search`.

        Returns:
            `zoo.decoding.Hypotheses`.
        """
        length = max_length if buffer_length is None else buffer_length
        cache, before = self._start(tokens, length, beam_size)
        inputs = (self.model.step, cache, ops.shape(tokens)[0], self._special(first), max_length)
        penalty = decoding.LengthPenalty(alpha, self.length_offset)
        settings = {"alpha": penalty, "buffer_length": length, "before": before}
        settings |= options._asdict()
        if beam_size == 1:
            return decoding.greedy_search(*inputs, **settings)
        stopping = {"early_stopping": self.early_stopping, "best_only": best_only}
        return decoding.beam_search(*inputs, beam_size, **stopping, **settings)

    def draw(
        self, tokens, uniforms, max_length, temperature, top_p, first=None, *, top_k=None, options
    ):
        """Sampling as a graph: see `search` and `zoo.decoding.sample`."""
        _, draws, length = ops.shape(uniforms)
        cache, before = self._start(tokens, length, draws)
        settings = (self._special(first), max_length, temperature, top_k, top_p)
        options = {"before": before, **options._asdict()}
        return decoding.sample(self.model.step, cache, uniforms, *settings, **options)

    def _special(self, first):
        special = self.special_tokens
        return special if first is None else special._replace(first=first)

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

    def _scored(self, tokens, log_probs, scores, before=()):
        """The `ScoredText` of each hypothesis of one sequence, and of tokens `before` it."""
        special, found = self.special_tokens, np.isfinite(log_probs)
        control = {special.start, special.end, special.pad}
        rows = [[t for t in (*before, *row) if t not in control] for row in tokens[found].tolist()]
        texts = self._tokenizers()[-1].decode(rows)
        return [ScoredText(text, float(score)) for text, score in zip(texts, scores[found])]

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
