"""The base class of translators and text generators: beam search and sampling.

Axes: B texts, K hypotheses of a text, S source tokens, F tokens of a prefix, C candidates.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from keras import ops

from zoo import decoding
from zoo.decoding import Hypotheses, SearchOptions
from zoo.errors import TaskError, as_number, check_bool
from zoo.tasks import shortlist
from zoo.tasks.padded_batches import padded_length
from zoo.tasks.task import TextTask, without_nan
from zoo.text.answers import ScoredText

MAX_BEAM_SIZE = 1000  # of hypotheses, each with a cache of its own
NO_OPTIONS = SearchOptions()


class Request(NamedTuple):
    """The texts and the options of a call, as tokens.

    Fields:
        rows: list of rows, see `zoo.tasks.padded_batches.pad_and_batch`.
        max_length: maximum number of new tokens; None if it depends on the length of the row.
        options: `zoo.decoding.SearchOptions`.
        to_answers: function from the `zoo.decoding.Hypotheses` of each row, [K, ...], to a list of
            `zoo.text.answers.ScoredText` for each text.
    """

    rows: list
    max_length: int | None
    options: SearchOptions
    to_answers: Callable


class SearchInputs(NamedTuple):
    """Arguments of `GenerationTask.search` for a batch. With `candidates`, there is a `prefix`."""

    tokens: np.ndarray
    max_length: np.ndarray
    buffer_length: int
    prefix: np.ndarray | None = None
    candidates: np.ndarray | None = None


class GenerationTask(TextTask):
    """Base class of tasks that generate texts.

    The public methods of a subclass make a `Request` of texts, and pass it to `_n_best` or
    `_sample`. A subclass also implements:

    - `_inputs(batch, request)`, the `SearchInputs` of a `zoo.tasks.padded_batches.Batch`;
    - `_start(tokens, length, num_hypotheses)`, the first cache of a search;
    - `_prompt(tokens)`, the prompt of a search; None by default.

    Attributes:
        beam_size, length_penalty, search_options: the defaults of all calls.
        length_offset, early_stopping: see `zoo.decoding.beam_search`.
    """

    beam_size = 1
    length_penalty = 0.0
    length_offset = 5.0
    early_stopping = "never"
    graph_constants = ("special_tokens", "length_offset", "early_stopping")

    def __init__(self, model, special_tokens, search_options=None):
        self.search_options = search_options or {}
        super().__init__(model, special_tokens)
        self.options()  # raises an error if one is invalid

    def description(self):
        options = self.options()._asdict()  # as numbers and tuples of Python
        stored = {name: options[name] for name in self.search_options}
        return {**super().description(), "search_options": stored}

    def options(self, **search_options):
        """Returns the checked `zoo.decoding.SearchOptions` of a call.

        Args:
            **search_options: fields that replace those of the task, unless they are None.
        """
        values = dict(self.search_options)
        for name, value in search_options.items():
            if value is not None:
                values[name] = value
        for name in ("min_length", "min_new_tokens", "no_repeat_ngram_size"):
            if name in values:
                values[name] = as_number(name, values[name], int, 0, self.model.max_length)
        if "repetition_penalty" in values:
            penalty = values["repetition_penalty"]
            values["repetition_penalty"] = as_number("repetition_penalty", penalty, float, 1e-3)
        if "suppress_tokens" in values:
            last = self._output_tokenizer.vocab_size - 1
            tokens = values["suppress_tokens"]
            if isinstance(tokens, (bytes, Mapping)) or not isinstance(tokens, Iterable):
                raise TaskError(f"suppress_tokens must be a list of ids. Received: {tokens!r}.")
            ids = {as_number("suppress_tokens", token, int, 0, last) for token in tokens}
            values["suppress_tokens"] = tuple(sorted(ids))
        for name in ("forced_eos", "renormalize_logits"):
            check_bool(name, values.get(name, False))
        return SearchOptions(**values)  # a TypeError if an option is unknown

    def _best(self, request, beam_size, length_penalty):
        """The best output of each text, a list of str."""
        if length_penalty is not None and (beam_size or self.beam_size) == 1:
            raise TaskError(
                "length_penalty has no effect on greedy search: it ranks the hypotheses of beam "
                f"search. Pass a beam_size above 1 with it. Received: {length_penalty=}."
            )
        answers = self._n_best(request, 1, beam_size, length_penalty)
        return [best.text for [best, *_] in answers]

    def _check_lengths(self, options, max_length, given, prompt):
        """Raises `TaskError` if the least number of tokens exceeds the largest.

        Args:
            options: `zoo.decoding.SearchOptions`.
            max_length: maximum number of tokens of a hypothesis.
            given, prompt: number of tokens of the prefix, and before the hypothesis.
        """
        if max(options.min_length - prompt, options.min_new_tokens + given) > max_length:
            raise TaskError(
                f"Outputs have at most {max_length - given} new tokens here. Decrease min_length "
                "and min_new_tokens, or increase the maximum. Received: "
                f"min_length={options.min_length}, min_new_tokens={options.min_new_tokens}."
            )

    def _n_best(self, request, n, beam_size, length_penalty):
        """The n best outputs of each text, by beam search."""
        n = as_number("n", n, int, 1, MAX_BEAM_SIZE)
        if beam_size is None:
            beam_size = max(n, self.beam_size)
        if length_penalty is None:
            length_penalty = self.length_penalty
        alpha = np.float32(as_number("length_penalty", length_penalty, float))
        beam_size = as_number("beam_size", beam_size, int, n, MAX_BEAM_SIZE)
        best_only = n == 1

        def search_batch(batch):
            inputs = self._inputs(batch, request)
            if self.engine is not None:  # of a translator
                count = len(batch.indices)
                found = self.engine(
                    inputs.tokens[:count],
                    alpha,
                    inputs.max_length,
                    None if inputs.prefix is None else inputs.prefix[:count],
                    beam_size=beam_size,
                    best_only=best_only,
                    options=request.options,
                )
                return without_nan(found)
            return self.run(
                self.search,
                inputs.tokens,
                alpha,
                inputs.max_length,
                inputs.prefix,
                inputs.candidates,
                _as_arguments(request.options),
                buffer_length=inputs.buffer_length,
                beam_size=beam_size,
                best_only=best_only,
            )

        found = self.map_batches(request.rows, search_batch, request.max_length or 0, beam_size)
        return request.to_answers([Hypotheses(*(array[:n] for array in row)) for row in found])

    def _sample(self, request, n, temperature, top_k, top_p, seed):
        """Samples outputs for each text from the distribution of the model."""
        n = as_number("n", n, int, 1, MAX_BEAM_SIZE)
        seed = as_number("seed", seed, int, 0)
        temperature = np.float32(as_number("temperature", temperature, float, 1e-3))
        largest_k = None
        if top_k is not None:
            top_k = as_number("top_k", top_k, int, 1)
            top_k = np.int32(min(top_k, self._output_tokenizer.vocab_size))
            largest_k = padded_length(top_k, np.inf)
        if top_p is None:
            top_p = 1.0
        top_p = np.float32(as_number("top_p", top_p, float, 1e-6, 1.0))

        def draw_batch(batch):
            inputs = self._inputs(batch, request)
            length = inputs.buffer_length
            uniforms = np.zeros((len(inputs.tokens), n, length), np.float32)
            # The numbers of a text do not depend on its batch, and the first ones not on the
            # buffer's length.
            for row, index in zip(uniforms, batch.indices):
                random = np.random.default_rng([seed, index])
                row[:] = random.random((length, n), np.float32).T  # [n, length]
            return self.run(
                self.draw,
                inputs.tokens,
                uniforms,
                inputs.max_length,
                temperature,
                top_p,
                inputs.prefix,
                inputs.candidates,
                _as_arguments(request.options),
                top_k,
                largest_k=largest_k,
            )

        found = self.map_batches(request.rows, draw_batch, request.max_length or 0, n)
        return request.to_answers([Hypotheses(*row) for row in found])

    def search(
        self,
        tokens,
        alpha,
        max_length,
        prefix=None,
        candidates=None,
        options=NO_OPTIONS,
        *,
        beam_size,
        buffer_length=None,
        best_only=False,
    ):
        """Beam search as a graph, or greedy search if `beam_size` is 1.

        Args:
            tokens: int32 [B, S], each source with its end token, then padding; or prompts.
            alpha, max_length, prefix, buffer_length, best_only: see `zoo.decoding.beam_search`.
            candidates: int32 [B, C], the only tokens of hypotheses, see `Shortlist.candidates`; all
                tokens by default.
            options: `zoo.decoding.SearchOptions`.
            beam_size: K.

        Returns:
            `zoo.decoding.Hypotheses`.
        """
        if buffer_length is None:
            buffer_length = max_length
        cache = self._start(tokens, buffer_length, beam_size)
        step = self.model.step
        special = self.special_tokens
        if candidates is not None:
            step = self.model.step_among(candidates)
            special, prefix, options = shortlist.to_places(candidates, special, prefix, options)
        algorithm = decoding.greedy_search
        if beam_size > 1:
            algorithm = functools.partial(
                decoding.beam_search,
                beam_size=beam_size,
                early_stopping=self.early_stopping,
                best_only=best_only,
            )
        found = algorithm(
            step,
            cache,
            ops.shape(tokens)[0],
            special,
            max_length,
            alpha=alpha,
            length_offset=self.length_offset,
            buffer_length=buffer_length,
            prompt=self._prompt(tokens),
            prefix=prefix,
            **options._asdict(),
        )
        return found if candidates is None else shortlist.to_tokens(found, candidates)

    def draw(
        self,
        tokens,
        uniforms,
        max_length,
        temperature,
        top_p,
        prefix=None,
        candidates=None,
        options=NO_OPTIONS,
        top_k=None,
        *,
        largest_k=None,
    ):
        """Sampling as a graph: see `search` and `zoo.decoding.sample`."""
        _, num_hypotheses, length = ops.shape(uniforms)
        cache = self._start(tokens, length, num_hypotheses)
        step = self.model.step
        special = self.special_tokens
        if candidates is not None:
            step = self.model.step_among(candidates)
            special, prefix, options = shortlist.to_places(candidates, special, prefix, options)
        found = decoding.sample(
            step,
            cache,
            uniforms,
            special,
            max_length,
            temperature,
            top_k,
            top_p,
            largest_k,
            prompt=self._prompt(tokens),
            prefix=prefix,
            **options._asdict(),
        )
        return found if candidates is None else shortlist.to_tokens(found, candidates)

    def _prompt(self, tokens):
        return None

    def _scored(self, hypotheses, prompt=()):
        """The `ScoredText` of each hypothesis [K, ...], after its prompt."""
        special = self.special_tokens
        control = {special.start, special.end, special.pad}
        exists = np.isfinite(hypotheses.log_probs)
        rows = []
        for tokens in hypotheses.tokens[exists].tolist():
            rows.append([token for token in (*prompt, *tokens) if token not in control])
        texts = self._output_tokenizer.decode(rows)
        scores = hypotheses.scores[exists].tolist()
        return [ScoredText(text, score) for text, score in zip(texts, scores)]


def _as_arguments(options):
    """`SearchOptions` whose numbers, where they have an effect, are arrays: inputs of a graph."""
    arrays = {}
    for name in ("min_length", "min_new_tokens", "no_repeat_ngram_size"):
        if getattr(options, name):
            arrays[name] = np.int32(getattr(options, name))
    if options.repetition_penalty != 1:
        arrays["repetition_penalty"] = np.float32(options.repetition_penalty)
    tokens = options.suppress_tokens
    if tokens:  # repeated to one of few lengths
        arrays["suppress_tokens"] = np.resize(np.int32(tokens), padded_length(len(tokens), np.inf))
    return options._replace(**arrays)
