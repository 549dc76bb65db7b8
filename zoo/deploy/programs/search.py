"""Beam search with decoder.onnx, in numpy.

encoder.onnx is run once per source. decoder.onnx takes the last token of each hypothesis, its
position and the cache of the previous step, and returns the log-probabilities of the next token and
the new cache. Axes: B sentences, S source tokens, K hypotheses of a sentence, T tokens of a
hypothesis, V target vocabulary.
"""

from typing import NamedTuple

import numpy as np

PAD_ID, START_ID, END_ID = 0, 1, 2
_NEG_INF = np.float32(-np.inf)


class Hypotheses(NamedTuple):
    """K hypotheses of each sentence.

    Fields:
        tokens: int32 [B, K, T], without the start token, with the end token, then padding.
        log_probs: float32 [B, K]; -inf if there is no hypothesis.
        scores: float32 [B, K], `log_probs` divided by the length penalty.
    """

    tokens: np.ndarray
    log_probs: np.ndarray
    scores: np.ndarray

    def pick(self, chosen):
        """Selects hypotheses by index, int [B, K]."""
        return Hypotheses(
            np.take_along_axis(self.tokens, chosen[..., None], axis=1),
            np.take_along_axis(self.log_probs, chosen, axis=1),
            np.take_along_axis(self.scores, chosen, axis=1),
        )


def beam_search(steps, shape, length, alpha):
    """Finds the K best hypotheses of each sentence.

    Each step considers the 2K best continuations. Those of the K best that end are added to the
    finished hypotheses; the K best of the others are continued. A sentence is done when it has K
    finished hypotheses and no other can score higher than the best of them. With K = 1 this is
    greedy search, which is done at the first end. Source: Wu et al. 2016, "Google's Neural Machine
    Translation System", section 7; Huang et al. 2017, "When to Finish?", section 3.

    Args:
        steps: `Steps`.
        shape: (B, K).
        length: T, the maximum number of tokens, end token included.
        alpha: exponent of the length penalty.

    Returns:
        `Hypotheses`, the best first; finished hypotheses come before unfinished ones.
    """
    beam_size, alpha, position = shape[1], np.float32(alpha), 0
    nothing = np.full(shape, _NEG_INF)
    empty = Hypotheses(np.full((*shape, length), PAD_ID, np.int32), nothing, nothing)
    first = np.arange(beam_size) == 0  # the search starts with one hypothesis, not K equal ones
    live = empty._replace(log_probs=np.where(first, np.float32(0), nothing))
    finished, last = empty, np.full(shape, START_ID, np.int32)
    done = np.zeros(shape[0], bool)
    while position < length and not done.all():
        log_probs = live.log_probs[..., None] + steps.log_probs(last)
        log_probs[..., [PAD_ID, START_ID]] = _NEG_INF
        parents, token, log_probs = _continuations(log_probs, 2 * beam_size)
        continued = live.pick(parents)._replace(
            log_probs=log_probs, scores=log_probs / length_penalty(position + 1, alpha)
        )
        continued.tokens[..., position] = token

        is_end = token == END_ID
        is_new = is_end & (np.arange(2 * beam_size) < beam_size) & ~done[:, None]
        ended = continued._replace(scores=np.where(is_new, continued.scores, _NEG_INF))
        pool = _concatenate(finished, ended)
        finished = pool.pick(_top(pool.scores, beam_size))

        log_probs = np.where(is_end, _NEG_INF, log_probs)
        chosen = _top(log_probs, beam_size)
        live = continued._replace(log_probs=log_probs).pick(chosen)
        last = np.take_along_axis(token, chosen, axis=1)
        steps.follow(np.take_along_axis(parents, chosen, axis=1))
        position += 1
        done = _done(finished, live, (position + 1, length), alpha)
    live = live._replace(scores=live.log_probs / length_penalty(position, alpha))
    return _ranked(finished, live)


def runner(session):
    """The model of an `onnxruntime.InferenceSession`, from a dict of arrays to a dict of arrays."""
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs)))


class Steps:
    """Runs the decoder step by step for the K hypotheses of each sentence.

    The hypotheses of a sentence share one buffer of keys and values, to which each step adds K
    entries. Each hypothesis is a path of indices into the buffer, so reordering hypotheses does not
    move keys and values. The buffer grows as needed.

    Args:
        encode, decode: see `runner`, of encoder.onnx and decoder.onnx.
        source: int32 [B, S].
        beam_size: K.
    """

    def __init__(self, encode, decode, source, beam_size):
        self._decode, self._position = decode, 0
        self._memory = encode({"source": source})
        self._state = {"paths": np.zeros((len(source), beam_size, 0), np.int32)}
        for name, heads in self._memory.items():
            if name != "memory_mask":
                empty = np.zeros((*heads.shape[:2], 0, heads.shape[3]), np.float32)
                self._state[name.replace("memory", "target")] = empty

    def log_probs(self, tokens):
        """Decodes tokens, int32 [B, K]; returns log-probabilities, float32 [B, K, V]."""
        if self._position == self._state["paths"].shape[2]:
            self._grow(max(16, self._position))
        step = {"tokens": tokens, "position": np.array(self._position, np.int32)}
        found = self._decode({**step, **self._state, **self._memory})
        self._state = {name: found[f"next_{name}"] for name in self._state}
        self._position += 1
        return found["log_probs"]

    def follow(self, parents):
        """Replaces the history of hypothesis k by that of hypothesis ``parents[b, k]``."""
        paths = self._state["paths"]
        self._state["paths"] = np.take_along_axis(paths, parents[..., None], axis=1)

    def _grow(self, length):
        """Enlarges the buffers for `length` more target tokens."""
        beam_size = self._state["paths"].shape[1]
        for name, value in self._state.items():
            more = (0, length) if name == "paths" else (0, length * beam_size)
            axes = [(0, 0)] * value.ndim
            axes[2] = more
            self._state[name] = np.pad(value, axes)


def length_penalty(length, alpha):
    """((5 + length) / 6)^alpha, Wu et al. 2016, equation 14."""
    return (np.float32(5 + length) / np.float32(6)) ** alpha


def _continuations(log_probs, count):
    """The `count` best of float32 [B, K, V]: (parent hypothesis, token, log-probability)."""
    each = min(count, log_probs.shape[-1])
    token = _top(log_probs, each)
    flat = np.take_along_axis(log_probs, token, axis=-1).reshape(len(log_probs), -1)
    index = _top(flat, count)
    token = np.take_along_axis(token.reshape(flat.shape), index, axis=1).astype(np.int32)
    return index // each, token, np.take_along_axis(flat, index, axis=1)


def _top(values, count):
    """Indices of the `count` largest values of the last axis, in descending order."""
    best = np.sort(np.argpartition(-values, count - 1)[..., :count])
    order = np.argsort(-np.take_along_axis(values, best, axis=-1), kind="stable")
    return np.take_along_axis(best, order, axis=-1)


def _done(finished, live, lengths, alpha):
    """Which sentences have K finished hypotheses that no live one, of these lengths, surpasses."""
    is_full = (finished.scores > _NEG_INF).all(axis=1)
    if finished.scores.shape[1] == 1:
        return is_full
    # A continuation scores best either at once or at the maximum length.
    best = live.log_probs.max(axis=1)
    bounds = [best / length_penalty(length, alpha) for length in lengths]
    return is_full & (np.maximum(*bounds) <= finished.scores.max(axis=1))


def _concatenate(one, other):
    """Concatenates the hypotheses of both along K."""
    return Hypotheses(*(np.concatenate(parts, axis=1) for parts in zip(one, other)))


def _ranked(finished, live):
    """The finished hypotheses, filled up to K with unfinished ones."""
    count = (finished.scores > _NEG_INF).sum(axis=1, keepdims=True)
    index = np.arange(finished.scores.shape[1])[None]
    chosen = np.where(index < count, index, index.shape[1] + index - count)
    return _concatenate(finished, live).pick(chosen)
