"""Searches on tokens: in batches of a few shapes, each traced and compiled once.

Axes: B sentences, S source tokens, T target tokens, K hypotheses of a sentence.
"""

import concurrent.futures
import functools
import itertools
import math
import operator
import os
import threading

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo import decoding
from zoo.errors import TextError

# Sequences are padded to the next of these lengths, and batches to the next of these numbers of
# sentences. Buffers for hypotheses have one of these lengths too, whatever `max_length` is.
LENGTHS = tuple(16 * 2**n for n in range(16))
BATCHES = (1, 8, 32)
TOKENS_IN_BATCH = 4096  # padded source tokens; batches of long sentences have fewer sentences
PROGRAMS = 32  # compiled programs that are kept, the last used ones
# Batches that are computed at once, at most, by a CPU with a model of up to this size: the matrix
# products of a small model leave cores idle.
CONCURRENT_BATCHES, CONCURRENT_PARAMETERS = 8, 30_000_000
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_lock = threading.Lock()
JIT_COMPILE = True  # by XLA; False for all searches, exported ones as well


class Programs:
    """Runs functions of a model on tokens, each traced once for its shapes and settings.

    New values of the model's variables take effect at once. If the variables are not the same as
    before, as after `enable_lora` or `quantize`, the functions are traced again. XLA compiles them
    if the attribute `jit_compile` is true.

    Args:
        model: a `keras.Model` with a `max_length`.
        special: `zoo.decoding.SpecialTokens`, less than `vocab_size`.

    Raises:
        TextError: if a special token is no token of the model.
    """

    def __init__(self, model, special, vocab_size):
        tokens = special._asdict()
        for name, token in tokens.items():
            if (name, token) != ("first", None):
                tokens[name] = checked(f"special_tokens.{name}", token, int, 0, vocab_size - 1)
        self.model = model
        self.special = decoding.SpecialTokens(**tokens)
        self.jit_compile = True
        self._variables = []  # of the programs
        self._program = functools.lru_cache(PROGRAMS)(_graph_function)

    def call(self, graph, *tensors, **settings):
        """``graph(*tensors, **settings)`` as a program."""
        tensors = tf.nest.map_structure(tf.convert_to_tensor, tensors)
        shapes = tuple(tuple(tensor.shape) for tensor in tf.nest.flatten(tensors))
        compiled = self.jit_compile and JIT_COMPILE
        with _lock:
            now, before = self.model.weights, self._variables
            if len(now) != len(before) or any(map(operator.is_not, now, before)):
                self._program.cache_clear()
                self._variables = now
            program = self._program(graph, shapes, compiled, **settings)
        return program(*tensors)

    def run(self, graph, *tensors, **settings):
        """The same as arrays.

        Raises:
            TextError: if the model computes NaN.
        """
        found = self.call(graph, *tensors, **settings)
        return without_nan(keras.tree.map_structure(np.asarray, found))

    def each(self, rows, run, buffer_length=0):
        """Runs all rows in batches of one padded length, so that none depends on the others.

        Args:
            rows: for each a tuple of sequences of tokens, such as source and target.
            run: function (indices of the rows, int array [B, padded length] of each sequence) ->
                arrays [B, ...]. Several threads may call it at once.
            buffer_length: number of tokens that `run` allocates memory for, if that is more than
                the padded length.

        Returns:
            For each row a tuple of arrays.
        """
        found, batches = [None] * len(rows), list(self._batches(rows, buffer_length))

        def run_batch(width, indices):
            sides = zip(*(rows[index] for index in indices))
            return run(indices, *(self._batch(side, width) for side in sides))

        # A bar is shown on a terminal, for work that takes longer than a moment.
        with tqdm(total=len(rows), unit="text", delay=1.0, leave=False, disable=None) as progress:
            for (_, indices), arrays in zip(batches, self._several(run_batch, batches)):
                for index, values in zip(indices, zip(*arrays)):
                    found[index] = values
                progress.update(len(indices))
        return found

    def _batches(self, rows, buffer_length):
        """(padded length, indices of the rows) of each batch, the longest rows first."""
        lengths, by_width = [max(map(len, row)) for row in rows], {}
        for index in sorted(range(len(rows)), key=lengths.__getitem__, reverse=True):
            by_width.setdefault(padded(lengths[index], self.model.max_length), []).append(index)
        for width, indices in by_width.items():
            tokens = max(width, buffer_length)
            count = max(n for n in BATCHES if n == 1 or n * tokens <= TOKENS_IN_BATCH)
            for start in range(0, len(indices), count):
                yield width, indices[start : start + count]

    def _several(self, function, arguments):
        """``function(*each)`` of each of the arguments, in order, several at once on CPUs."""
        count = min(len(arguments), CONCURRENT_BATCHES, CORES)
        on_gpu = tf.config.list_logical_devices("GPU")
        if count < 2 or on_gpu or self.model.count_params() > CONCURRENT_PARAMETERS:
            yield from itertools.starmap(function, arguments)
            return
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            yield from pool.map(function, *zip(*arguments))

    def _batch(self, sequences, width):
        """Lists of tokens -> int32 [B, width], with B one of `BATCHES`."""
        rows = next(n for n in BATCHES if n >= len(sequences))
        batch = np.full((rows, width), self.special.pad, np.int32)
        batch[:, 0] = self.special.end  # for rows without a sentence
        for row, sequence in zip(batch, sequences):
            row[: len(sequence)] = sequence
        return batch


class TranslationSearch(Programs):
    """The searches of a translation model.

    Args:
        model: `zoo.models.Transformer`.
        special: `zoo.decoding.SpecialTokens`.
        length_offset: of `zoo.decoding.LengthPenalty`.
        early_stopping: of `zoo.decoding.beam_search`.

    Raises:
        TextError: if the special tokens are not those of the model.
    """

    def __init__(self, model, special, length_offset=5.0, early_stopping="never"):
        super().__init__(model, special, model.target_vocab_size)
        self.length_offset, self.early_stopping = length_offset, early_stopping
        if self.special.pad != model.pad_id:
            raise TextError(
                f"The model's padding token is {model.pad_id} (pad_id). "
                f"Received special tokens with pad={special.pad}."
            )

    def search(self, source, alpha, max_length, beam_size, buffer_length=None, best_only=False):
        """Beam search as a graph; greedy search if `beam_size` is 1.

        Args:
            source: int [B, S], each row ending with the end token, then padding.
            alpha: of the length penalty, a scalar tensor.
            max_length: the largest number of target tokens, an int or a scalar tensor.
            beam_size: K.
            buffer_length: T; `max_length` by default.
            best_only: see `zoo.decoding.beam_search`.

        Returns:
            `zoo.decoding.Hypotheses`.
        """
        length = max_length if buffer_length is None else buffer_length
        alpha = decoding.LengthPenalty(alpha, self.length_offset)
        cache, rows = self.model.start(source, length, beam_size), keras.ops.shape(source)[0]
        settings = (self.model.step, cache, rows, self.special, max_length)
        if beam_size == 1:
            return decoding.greedy_search(*settings, alpha, buffer_length=buffer_length)
        return decoding.beam_search(
            *settings,
            beam_size,
            alpha,
            buffer_length=buffer_length,
            early_stopping=self.early_stopping,
            best_only=best_only,
        )

    def sample(self, source, uniforms, max_length, temperature, top_p, top_k):
        """`zoo.decoding.sample` as a graph; `source` as for `search`."""
        cache = self.model.start(source, uniforms.shape[2], uniforms.shape[1])
        settings = (self.special, max_length, temperature, top_k, top_p)
        return decoding.sample(self.model.step, cache, uniforms, *settings)

    def log_probs(self, source, target):
        """The log-probability of each target as a graph: float32 [B].

        Args:
            source, target: int [B, S] and [B, T], each row ending with the end token, then padding.
        """
        logits = self.model({"source": source, "target": self.shifted(target)}, training=False)
        of_tokens = -tf.nn.sparse_softmax_cross_entropy_with_logits(
            target, tf.cast(logits, tf.float32)
        )
        counted = target != self.special.pad
        if self.special.first is not None:  # which counts as certain
            counted &= tf.range(tf.shape(target)[1]) > 0
        return tf.reduce_sum(tf.where(counted, of_tokens, 0.0), axis=1)

    def shifted(self, target):
        """The decoder's input for tokens [B, T]: the start token, then all but the last."""
        return tf.concat([tf.fill([tf.shape(target)[0], 1], self.special.start), target[:, :-1]], 1)


def without_nan(found):
    """An array or `zoo.decoding.Hypotheses`; raises `TextError` if it contains NaN."""
    if np.isnan(found.log_probs if isinstance(found, decoding.Hypotheses) else found).any():
        raise TextError(
            "There is no result: the model computed NaN. Its weights are not finite, perhaps "
            "because its training diverged."
        )
    return found


def padded(length, limit):
    """The next of `LENGTHS`, but at most `limit`."""
    return min(limit, next(n for n in LENGTHS if n >= length))


def checked(name, value, kind, low=-math.inf, high=math.inf):
    """An option as `kind`, int or float; raises `TextError` if it is none or out of range.

    A bool is rejected, and so are a float for int, NaN and infinity.
    """
    try:
        number = operator.index(value) if kind is int else float(+value)
    except (TypeError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not (low <= number <= high and abs(number) < math.inf):
        what = "an integer" if kind is int else "a finite number"
        least = "" if low == -math.inf else f" of at least {low}"
        limits = least if high == math.inf else f" from {low} to {high}"
        raise TextError(f"{name} must be {what}{limits}. Received: {name}={value!r}.")
    return number


def checked_draw(temperature, top_k, top_p):
    """(top_k, temperature, top_p) of sampling, the last two as scalars for a graph."""
    temperature = checked("temperature", temperature, float, 1e-3)
    top_k = None if top_k is None else checked("top_k", top_k, int, 1)
    top_p = 1.0 if top_p is None else checked("top_p", top_p, float, 1e-6, 1.0)
    return top_k, np.float32(temperature), np.float32(top_p)


def uniforms_of(seed, index, length, n):
    """Random numbers [n, length] of a text, which do not depend on its neighbors."""
    return np.random.default_rng([seed, index]).random((length, n), np.float32).T


def _graph_function(graph, shapes, jit_compile, **settings):
    """A function of tensors of these shapes."""
    graph = functools.partial(graph, **settings)
    return tf.function(graph, autograph=False, jit_compile=jit_compile)
