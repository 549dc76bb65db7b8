"""Greedy search, beam search and sampling over one seam.

The seam is ``step(tokens, cache) -> (logits, cache)``, as `zoo.models.Transformer` gives it; any
other will do whose cache has a method ``follow(parents)``. All functions are graphs of fixed
shapes: compile them as they are. No hypothesis has start or padding tokens within it.

Axes: B sentences, K hypotheses of a sentence, T tokens of a hypothesis, V vocabulary.
"""

import math
from typing import Any, NamedTuple

from keras import ops

_NEVER = -math.inf


class Hypotheses(NamedTuple):
    """What a search found, the best of each sentence first, those that were cut off last.

    Fields:
        tokens: int32 [B, K, T], without the start token, the end token included, then padding. A
            hypothesis without an end token was cut off at T tokens.
        log_probs: float32 [B, K], sum of the log-probabilities of the tokens; minus infinity where
            a sentence has fewer hypotheses than K.
        scores: float32 [B, K], `log_probs` divided by `length_penalty` of the number of tokens.
    """

    tokens: Any
    log_probs: Any
    scores: Any


class SpecialTokens(NamedTuple):
    """Token ids that a search must know."""

    start: int
    end: int
    pad: int


def length_penalty(length, alpha):
    """((5 + length) / 6)^alpha. Source: Wu et al. 2016, "Google's Neural Machine Translation
    System", section 7, equation 14.

    Args:
        length: number of tokens, the end token included.
        alpha: 0 favours short hypotheses, as plain log-probabilities do; the larger, the longer.
    """
    return ((5.0 + ops.cast(length, "float32")) / 6.0) ** alpha


def greedy_search(step, cache, batch_size, special, max_length, alpha=0.0, min_length=0):
    """The likeliest token at each step.

    Args:
        step: function (tokens int [B, 1], cache) -> (logits [B, 1, V], cache).
        cache: the first cache.
        batch_size: B.
        special: `SpecialTokens`.
        max_length: T, the largest number of tokens of a hypothesis, the end token included.
        alpha: of the length penalty in the scores.
        min_length: number of tokens before which no hypothesis ends.

    Returns:
        `Hypotheses` with K = 1.
    """

    def likeliest(logits, position):
        return ops.cast(_argmax(logits), "int32")

    return _extend(step, cache, (batch_size, 1), special, max_length, alpha, min_length, likeliest)


def sample(
    step,
    cache,
    uniforms,
    special,
    max_length,
    temperature=1.0,
    top_k=None,
    top_p=None,
    alpha=0.0,
    min_length=0,
):
    """Draws each token by its probability; K draws of each sentence.

    Args:
        step, cache, special, max_length, alpha, min_length: see `greedy_search`, with K for 1.
        uniforms: float32 [B, K, T], random numbers in [0, 1), one for each token.
        temperature: logits are divided by it; below 1 likely tokens become likelier.
        top_k: only the k likeliest tokens are drawn from (Fan et al. 2018, section 5.1).
        top_p: only the likeliest tokens that together have this probability are drawn from
            (Holtzman et al. 2019, section 3.1).

    Returns:
        `Hypotheses`, in the order of the draws; their scores are those of the whole distribution.
    """
    uniforms = ops.convert_to_tensor(uniforms)

    def draw(logits, position):
        return _draw(logits / temperature, uniforms[:, :, position], top_k, top_p)

    shape = ops.shape(uniforms)[:2]
    return _extend(step, cache, shape, special, max_length, alpha, min_length, draw)


def _extend(step, cache, shape, special, max_length, alpha, min_length, choose):
    """Adds a token to each hypothesis until all have ended: `choose(logits, position)`."""
    every_position = ops.arange(max_length)

    def unfinished(position, tokens, last, log_probs, lengths, done, cache):
        return ops.logical_and(position < max_length, ops.logical_not(ops.all(done)))

    def body(position, tokens, last, log_probs, lengths, done, cache):
        logits, cache = step(last, cache)
        logits = ops.cast(logits, "float32")
        token = choose(_allowed(logits, position, special, min_length), position)
        gained = ops.take_along_axis(logits, token[..., None], axis=-1)[..., 0]
        gained = gained - ops.logsumexp(logits, axis=-1)
        token = ops.where(done, special.pad, token)
        tokens = ops.where(every_position == position, token[..., None], tokens)
        log_probs = log_probs + ops.where(done, 0.0, gained)
        lengths = lengths + ops.cast(ops.logical_not(done), "int32")
        done = ops.logical_or(done, token == special.end)
        return position + 1, tokens, token, log_probs, lengths, done, cache

    start = (
        ops.zeros((), "int32"),
        ops.full((*shape, max_length), special.pad, "int32"),
        ops.full(shape, special.start, "int32"),
        ops.zeros(shape, "float32"),
        ops.zeros(shape, "int32"),
        ops.zeros(shape, "bool"),
        cache,
    )
    _, tokens, _, log_probs, lengths, _, _ = ops.while_loop(unfinished, body, start)
    return Hypotheses(tokens, log_probs, log_probs / length_penalty(lengths, alpha))


class BeamState(NamedTuple):
    """A beam search under way.

    Fields:
        position: int32 [], number of tokens of each live hypothesis.
        live: `Hypotheses` that go on; their scores are not used.
        finished: `Hypotheses` that have ended, the best first; scores of minus infinity stand for
            none.
        last: int32 [B, K], the last token of each live hypothesis.
        cache: of the seam.
    """

    position: Any
    live: Hypotheses
    finished: Hypotheses
    last: Any
    cache: Any


def beam_search(step, cache, batch_size, special, max_length, beam_size=4, alpha=0.6, min_length=0):
    """The K best hypotheses found by going on from the K likeliest at each step.

    At each step the 2K best continuations are looked at. Those that end, if they are among the K
    best, join the finished ones; the K best others go on. A sentence is done when it has K finished
    hypotheses: what goes on then is less likely, and longer. Source: Wu et al. 2016, section 7;
    the rule of when to stop as in fairseq (Ott et al. 2019).

    Args:
        step, cache, batch_size, special, max_length, min_length: see `greedy_search`, with K for 1.
        beam_size: K.
        alpha: of the length penalty, by which finished hypotheses are ranked.

    Returns:
        `Hypotheses`. If fewer than K have ended after T tokens, the others, which were cut off,
        stand after them.
    """
    empty = Hypotheses(
        ops.full((batch_size, beam_size, max_length), special.pad, "int32"),
        ops.full((batch_size, beam_size), _NEVER, "float32"),
        ops.full((batch_size, beam_size), _NEVER, "float32"),
    )
    first = ops.arange(beam_size) == 0  # at the start there is one hypothesis, not K equal ones
    state = BeamState(
        position=ops.zeros((), "int32"),
        live=empty._replace(log_probs=ops.where(first, 0.0, empty.log_probs)),
        finished=empty,
        last=ops.full((batch_size, beam_size), special.start, "int32"),
        cache=cache,
    )

    def unfinished(state):
        return ops.logical_and(state.position < max_length, ops.logical_not(ops.all(_done(state))))

    def body(state):
        return (_advance(step, state, special, alpha, min_length),)

    (state,) = ops.while_loop(unfinished, body, (state,))
    return _ranked(state, alpha)


def _done(state):
    """Which sentences have K finished hypotheses: bool [B]."""
    return ops.all(state.finished.scores > _NEVER, axis=-1)


def _advance(step, state, special, alpha, min_length):
    """One step of beam search: `BeamState` -> `BeamState`."""
    beam_size = ops.shape(state.last)[1]
    logits, cache = step(state.last, state.cache)
    logits = ops.cast(logits, "float32")
    log_probs = state.live.log_probs - ops.logsumexp(logits, axis=-1)
    logits = _allowed(logits, state.position, special, min_length)
    parents, token, log_probs = _continuations(logits, log_probs, 2 * beam_size)
    tokens = ops.take_along_axis(state.live.tokens, parents[:, :, None], axis=1)
    now = ops.arange(ops.shape(tokens)[2]) == state.position
    tokens = ops.where(now, token[..., None], tokens)

    is_end = token == special.end
    scores = log_probs / length_penalty(state.position + 1, alpha)
    counts = ops.logical_and(is_end, ops.arange(2 * beam_size) < beam_size)
    counts = ops.logical_and(counts, ops.logical_not(_done(state))[:, None])
    ended = Hypotheses(tokens, log_probs, ops.where(counts, scores, _NEVER))
    pool = [ops.concatenate(pair, axis=1) for pair in zip(state.finished, ended)]
    finished = _pick(Hypotheses(*pool), ops.top_k(pool[2], beam_size)[1])

    going_on = ops.where(is_end, _NEVER, log_probs)
    chosen = ops.top_k(going_on, beam_size)[1]
    live = _pick(Hypotheses(tokens, going_on, scores), chosen)
    return BeamState(
        state.position + 1,
        live,
        finished,
        ops.take_along_axis(token, chosen, axis=1),
        cache.follow(ops.take_along_axis(parents, chosen, axis=1)),
    )


def _continuations(logits, log_probs, count):
    """The `count` likeliest continuations of the hypotheses of each sentence.

    Args:
        logits: [B, K, V].
        log_probs: [B, K], of the hypotheses, less the logarithm of the sum of ``exp(logits)``.
        count: at most K·V.

    Returns:
        (hypothesis gone on from, token, log-probability), each [B, count], the likeliest first.
    """
    each = min(count, logits.shape[-1])
    best, token = _top_k(logits, each)
    total = best + log_probs[..., None]
    flat = (ops.shape(total)[0], -1)
    log_probs, index = ops.top_k(ops.reshape(total, flat), count)
    token = ops.take_along_axis(ops.reshape(token, flat), index, axis=1)
    return index // each, token, log_probs


def _ranked(state, alpha):
    """The finished hypotheses, and after them, in free places, live ones."""
    finished = state.finished
    live = state.live._replace(scores=state.live.log_probs / length_penalty(state.position, alpha))
    beam_size = ops.shape(finished.scores)[1]
    count = ops.sum(ops.cast(finished.scores > _NEVER, "int32"), axis=1, keepdims=True)
    place = ops.arange(beam_size, dtype="int32")[None]
    chosen = ops.where(place < count, place, beam_size + place - count)
    pool = [ops.concatenate(pair, axis=1) for pair in zip(finished, live)]
    return _pick(Hypotheses(*pool), chosen)


def _pick(hypotheses, chosen):
    """The hypotheses of the given numbers, int [B, K]."""
    return Hypotheses(
        ops.take_along_axis(hypotheses.tokens, chosen[:, :, None], axis=1),
        ops.take_along_axis(hypotheses.log_probs, chosen, axis=1),
        ops.take_along_axis(hypotheses.scores, chosen, axis=1),
    )


def _allowed(logits, position, special, min_length):
    """Minus infinity for tokens that must not come next."""
    token = ops.arange(ops.shape(logits)[-1])
    forbidden = ops.logical_or(token == special.start, token == special.pad)
    if min_length:
        early = ops.logical_and(token == special.end, position + 1 < min_length)
        forbidden = ops.logical_or(forbidden, early)
    return ops.where(forbidden, _NEVER, logits)


def _top_k(values, k, block=128):
    """`ops.top_k` over a long last axis: the k largest lie in the k blocks with the largest maxima.

    Compilers sort the whole axis for a top-k; this way there is little to sort.
    """
    length = values.shape[-1]
    if length <= 4 * k * block:
        values, index = ops.top_k(values, k)
        return values, ops.cast(index, "int32")
    rows = values.shape[:-1] if None not in values.shape[:-1] else ops.shape(values)[:-1]
    padding = [(0, 0)] * len(rows) + [(0, -length % block)]
    blocks = ops.reshape(ops.pad(values, padding, constant_values=_NEVER), (*rows, -1, block))
    _, chosen = ops.top_k(ops.max(blocks, axis=-1), k)
    chosen = ops.sort(ops.cast(chosen, "int32"), axis=-1)  # equal values keep their order
    candidates = ops.reshape(
        ops.take_along_axis(blocks, chosen[..., None], axis=-2), (*rows, k * block)
    )
    best, place = ops.top_k(candidates, k)
    place = ops.cast(place, "int32")
    index = ops.take_along_axis(chosen, place // block, axis=-1) * block + place % block
    return best, index


def _argmax(values):
    """The first place of the largest value."""
    return _top_k(values, 1)[1][..., 0]


def _draw(logits, uniform, top_k, top_p):
    """The token at which the cumulative probability passes `uniform`: int32 [B, K].

    Args:
        logits: [B, K, V].
        uniform: [B, K], in [0, 1).
        top_k, top_p: see `sample`.
    """
    count = min(top_k or logits.shape[-1], logits.shape[-1])
    ordered, tokens = ops.top_k(logits, count)
    probabilities = ops.softmax(ordered, axis=-1)
    before = ops.cumsum(probabilities, axis=-1) - probabilities
    if top_p is not None:
        probabilities = ops.where(before < top_p, probabilities, 0.0)
    cumulative = ops.cumsum(probabilities, axis=-1)
    passed = cumulative > uniform[..., None] * cumulative[..., -1:]
    # rounding may leave no place that is passed: then it is the last that can be drawn
    place = ops.minimum(
        ops.sum(ops.cast(ops.logical_not(passed), "int32"), axis=-1),
        ops.sum(ops.cast(probabilities > 0, "int32"), axis=-1) - 1,
    )
    chosen = ops.take_along_axis(ops.cast(tokens, "int32"), place[..., None], axis=-1)
    return chosen[..., 0]
