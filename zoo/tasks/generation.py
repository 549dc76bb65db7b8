"""The base class of translators and text generators: beam search and sampling.

Axes: B texts, K hypotheses of a text, T tokens.
"""

import numpy as np
from keras import ops

from zoo import decoding
from zoo.decoding import SearchOptions
from zoo.errors import as_number
from zoo.tasks import shortlist
from zoo.tasks.task import TextTask, without_nan
from zoo.text.answers import ScoredText

MAX_BEAM_SIZE = 1000  # of hypotheses, each with a cache of its own


class GenerationTask(TextTask):
    """Base class of tasks that generate texts.

    A subclass implements three methods:

    - `_prepared` takes the texts and options of a call. It returns (rows of sequences of tokens,
      the maximum number of new tokens or None, `SearchOptions`, a function from the hypotheses of
      all rows to a list of `ScoredText` for each text).
    - `_inputs` returns the arguments of `search` and `draw` for a batch: (arrays [B, ...], the
      maximum number of new tokens, the length of the buffer for them).
    - `_start` returns (the first cache, the tokens that precede the new ones in place of the start
      token, or None).

    Args:
        model, special_tokens: see `TextTask`.
        search_options: dict of fields of `zoo.decoding.SearchOptions`, or None.

    Attributes:
        beam_size, length_penalty, search_options: the defaults of all calls.
    """

    beam_size, length_penalty = 1, 0.0
    length_offset, early_stopping = 5.0, "never"  # see `zoo.decoding`

    def __init__(self, model, special_tokens, search_options=None):
        self.search_options = search_options or {}
        super().__init__(model, special_tokens)
        self.options()

    def options(self, given=()):
        """Returns the checked `zoo.decoding.SearchOptions`: those given, or else the task's own.

        Args:
            given: dict of fields; those that are None are not given.
        """
        given = {name: value for name, value in dict(given).items() if value is not None}
        values, sizes = {**self.search_options, **given}, (int, 0, self.model.max_length)
        limits = dict.fromkeys(("min_length", "min_new_tokens", "no_repeat_ngram_size"), sizes)
        limits["repetition_penalty"] = (float, 1e-3)
        for name in values.keys() & limits.keys():
            values[name] = as_number(name, values[name], *limits[name])
        if "suppress_tokens" in values:
            last = self._tokenizers()[-1].vocab_size - 1
            ids = {
                as_number("suppress_tokens", id, int, 0, last) for id in values["suppress_tokens"]
            }
            values["suppress_tokens"] = tuple(sorted(ids))
        return SearchOptions(**values)  # a TypeError if an option is unknown

    def __call__(self, texts, **options):
        """Returns the best output for each text, a list of str; see `n_best`."""
        return [best.text for [best, *_] in self.n_best(texts, **options)]

    def n_best(self, texts, n=1, beam_size=None, length_penalty=None, **options):
        """Returns the n best outputs for each text, by beam search.

        Args:
            texts: list of str.
            n: number of outputs for each text.
            beam_size: number of hypotheses, from `n` to 1,000; 1 is greedy search. By default that
                of the task, or `n` if that is larger.
            length_penalty: see `zoo.decoding.length_penalty`; by default that of the task.
            **options: see `__call__`.

        Returns:
            For each text a list of `zoo.text.answers.ScoredText`, the best first.

        Raises:
            TaskError: if a text is too long, an option is invalid or outputs are NaN.
        """
        rows, most, options, answers = self._prepared(texts, **options)
        n = as_number("n", n, int, 1, MAX_BEAM_SIZE)
        beam_size = max(n, self.beam_size) if beam_size is None else beam_size
        alpha = self.length_penalty if length_penalty is None else length_penalty
        alpha = np.float32(as_number("length_penalty", alpha, float))
        beam_size = as_number("beam_size", beam_size, int, n, MAX_BEAM_SIZE)
        settings = {"beam_size": beam_size, "best_only": n == 1, "options": options}

        def search(batch):
            (first, *others), length, buffer = self._inputs(batch, most, options)
            if self.engine is not None:  # of a translator
                first, *others = (x[: len(batch.indices)] for x in (first, *others))
                return without_nan(self.engine(first, alpha, length, *others, **settings))
            inputs = (first, alpha, length, *others)
            return self.run(self.search, *inputs, buffer_length=buffer, **settings)

        best = self.compute(rows, search, most or 0)
        return answers([[array[:n] for array in arrays] for arrays in best])

    def sample(self, texts, n=1, temperature=1.0, top_k=None, top_p=None, seed=0, **options):
        """Samples outputs for each text from the distribution of the model.

        Args:
            texts: list of str.
            n: number of samples for each text.
            temperature: at least 0.001; values below 1 make likely tokens more likely.
            top_k: if given, samples from the k most likely tokens only.
            top_p: if given, samples from the most likely tokens with this total probability only.
            seed: random seed. The samples of a text depend on it and on the number of texts, or
                parts of split texts, before it, not counting those that are left empty.
            **options: see `__call__`.

        Returns:
            See `n_best`; scores are log-probabilities.

        Raises:
            TaskError: see `n_best`.
        """
        rows, most, options, answers = self._prepared(texts, **options)
        n, seed = as_number("n", n, int, 1), as_number("seed", seed, int, 0)
        temperature = np.float32(as_number("temperature", temperature, float, 1e-3))
        top_k = None if top_k is None else as_number("top_k", top_k, int, 1)
        top_p = np.float32(1.0 if top_p is None else as_number("top_p", top_p, float, 1e-6, 1.0))

        def draw(batch):
            (first, *others), length, buffer = self._inputs(batch, most, options)
            random = np.zeros((len(first), n, buffer), np.float32)
            for row, index in zip(random, batch.indices):  # those of a text depend on it alone
                row[:] = np.random.default_rng([seed, index]).random((buffer, n), np.float32).T
            inputs = (first, random, length, temperature, top_p, *others)
            return self.run(self.draw, *inputs, top_k=top_k, options=options)

        return answers(self.compute(rows, draw, most or 0))

    def search(
        self,
        tokens,
        alpha,
        max_length,
        first=None,
        candidates=None,
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
            max_length: maximum number of new tokens, including `first`: an int, a scalar tensor,
                or int32 [B].
            first: see `zoo.decoding.SpecialTokens`; that of the task by default.
            candidates: int32 [B, C], the tokens that hypotheses consist of, see
                `zoo.tasks.shortlist.Shortlist.candidates`; all by default.
            beam_size: K.
            options: `zoo.decoding.SearchOptions`.
            buffer_length, best_only: see `zoo.decoding.beam_search`.

        Returns:
            `zoo.decoding.Hypotheses`.
        """
        length = max_length if buffer_length is None else buffer_length
        step, cache, special, settings = self._begun(
            tokens, length, beam_size, first, candidates, options
        )
        penalty = decoding.LengthPenalty(alpha, self.length_offset)
        settings |= {"alpha": penalty, "buffer_length": length}
        inputs = (step, cache, ops.shape(tokens)[0], special, max_length)
        if beam_size == 1:
            found = decoding.greedy_search(*inputs, **settings)
        else:
            settings |= {"early_stopping": self.early_stopping, "best_only": best_only}
            found = decoding.beam_search(*inputs, beam_size, **settings)
        return found if candidates is None else shortlist.as_tokens(found, candidates)

    def draw(
        self,
        tokens,
        uniforms,
        max_length,
        temperature,
        top_p,
        first=None,
        candidates=None,
        *,
        top_k=None,
        options,
    ):
        """Sampling as a graph: see `search` and `zoo.decoding.sample`."""
        _, draws, length = ops.shape(uniforms)
        step, cache, special, settings = self._begun(
            tokens, length, draws, first, candidates, options
        )
        inputs = (step, cache, uniforms, special, max_length, temperature, top_k, top_p)
        found = decoding.sample(*inputs, **settings)
        return found if candidates is None else shortlist.as_tokens(found, candidates)

    def _begun(self, tokens, length, num_hypotheses, first, candidates, options):
        """The step, first cache, special tokens and options of a search, see `search`."""
        cache, before = self._start(tokens, length, num_hypotheses)
        step, special = self.model.step, self.special_tokens
        special = special if first is None else special._replace(first=first)
        if candidates is not None:
            step = self.model.step_among(candidates)
            special, suppressed = shortlist.as_places(candidates, special, options.suppress_tokens)
            options = options._replace(suppress_tokens=suppressed)
        return step, cache, special, {"before": before, **options._asdict()}

    def _scored(self, tokens, log_probs, scores, before=()):
        """The `ScoredText` of each hypothesis of a sequence, which the tokens `before` precede."""
        special, exists = self.special_tokens, np.isfinite(log_probs)
        control, tokens = {special.start, special.end, special.pad}, tokens[exists].tolist()
        rows = [[id for id in (*before, *row) if id not in control] for row in tokens]
        texts = self._tokenizers()[-1].decode(rows)
        return [ScoredText(text, float(score)) for text, score in zip(texts, scores[exists])]
