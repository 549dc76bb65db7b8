"""Greedy search, beam search and sampling over one function.

The function is ``step(tokens, cache) -> (logits, cache)``, such as that of
`zoo.models.Transformer`; its cache needs a method ``follow(parents)``. All searches are graphs of
fixed shapes, which can be compiled. Padding and the start token are never generated, unless they
are the end token as well.

Axes: B sentences, K hypotheses of a sentence, T tokens of a hypothesis, V vocabulary.
"""

import math
from numbers import Integral, Real
from typing import Any, NamedTuple

from keras import ops

from zoo import kernels
from zoo.layers.cache import take_rows

NEG_INF = -math.inf


class Hypotheses(NamedTuple):
    """The result of a search: K hypotheses of each sentence.

    Fields:
        tokens: int32 [B, K, T], without the start token, the end token included, then padding. A
            hypothesis without an end token was cut off at the maximum length.
        log_probs: float32 [B, K], sum of the log-probabilities of the tokens; minus infinity where
            a sentence has fewer hypotheses than K.
        scores: float32 [B, K], `log_probs` divided by `length_penalty` of the number of tokens.
    """

    tokens: Any
    log_probs: Any
    scores: Any


class SpecialTokens(NamedTuple):
    """Token ids that a search must know.

    Fields:
        start: input of the first step.
        end: ends a hypothesis.
        pad: fills up what follows the end; it may be the end token, as in GPT-2.
        first: if given, every hypothesis begins with this token, such as a language code; or with
            the tokens of its sentence, int [B, P], filled up with padding, such as a prompt.
    """

    start: int
    end: int
    pad: int
    first: Any = None

    def forced(self, position):
        """The token that must come next, and whether there is one: each [1, 1] or [B, 1]."""
        first = ops.convert_to_tensor(self.first, "int32")
        first = ops.reshape(first, (1, 1)) if isinstance(self.first, Integral) else first
        count = ops.shape(first)[1]
        token = ops.take(first, ops.minimum(position, count - 1), axis=1)[:, None]
        return token, (position < count) & (token != self.pad)


class LengthPenalty(NamedTuple):
    """The parameters of `length_penalty`; it can be passed wherever an `alpha` is expected.

    Fields:
        alpha: the exponent.
        offset: 5 in Wu et al. 2016; 0, so that the penalty is length^alpha, in the libraries Marian
            and transformers.
    """

    alpha: Any
    offset: float = 5.0


def length_penalty(length, alpha):
    """((5 + length) / 6)^alpha. Source: Wu et al. 2016, "Google's Neural Machine Translation
    System", section 7, equation 14.

    Args:
        length: number of tokens, the end token included.
        alpha: 0 ranks by plain log-probability, which favors short hypotheses; larger values
            favor longer ones. A `LengthPenalty` sets an offset other than 5.
    """
    alpha, offset = alpha if isinstance(alpha, LengthPenalty) else LengthPenalty(alpha)
    return ((offset + ops.cast(length, "float32")) / (offset + 1.0)) ** alpha


def greedy_search(
    step, cache, batch_size, special, max_length, alpha=0.0, min_length=0, buffer_length=None
):
    """The most likely token at each step.

    Args:
        step: function (tokens int [B, 1], cache) -> (logits [B, 1, V], cache).
        cache: the first cache.
        batch_size: B.
        special: `SpecialTokens`.
        max_length: the largest number of tokens of a hypothesis, the end token included; a number,
            or int [B] with one for each sentence.
        alpha: of the length penalty in the scores.
        min_length: number of tokens before which no hypothesis ends.
        buffer_length: T, if `max_length` is a tensor in a graph that needs fixed shapes;
            `max_length` by default.

    Returns:
        `Hypotheses` with K = 1.
    """
    shape = (batch_size, 1, max_length if buffer_length is None else buffer_length)
    settings = (special, max_length, alpha, min_length)
    return _extend(step, cache, shape, *settings, lambda logits, _: _top_k(logits, 1)[1][..., 0])


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
        temperature: logits are divided by it; below 1 likely tokens become more likely.
        top_k: draws from the k most likely tokens only (Fan et al. 2018).
        top_p: draws from the most likely tokens that together have this probability only
            (Holtzman et al. 2019, section 3.1).

    Returns:
        `Hypotheses`, in the order of the draws; their scores are those of the full distribution.
    """
    uniforms = ops.convert_to_tensor(uniforms, "float32")

    def draw(logits, position):
        return _draw(logits / temperature, uniforms[:, :, position], top_k, top_p)

    shape = ops.shape(uniforms)
    _check(shape[2], temperature=temperature, top_k=top_k, top_p=top_p)
    return _extend(step, cache, shape, special, max_length, alpha, min_length, draw)


def _extend(step, cache, shape, special, max_length, alpha, min_length, choose):
    """Adds tokens to hypotheses [B, K, T] until all have ended: ``choose(logits, position)``."""
    _check(shape[2], max_length=max_length)
    max_length = ops.reshape(ops.convert_to_tensor(max_length, "int32"), (-1, 1))

    def unfinished(position, tokens, last, log_probs, lengths, done, cache):
        return ~ops.all(done)

    def body(position, tokens, last, log_probs, lengths, done, cache):
        logits, cache = step(last, cache)
        logits, total, allowed = _allowed(logits, position, special, min_length)
        token = choose(allowed, position)
        gained = ops.take_along_axis(logits, token[..., None], axis=-1)[..., 0] - total
        if special.first is not None:  # with a probability of one
            gained = ops.where(special.forced(position)[1], 0.0, gained)
        token = ops.where(done, special.pad, token)
        tokens = ops.where(ops.arange(shape[2]) == position, token[..., None], tokens)
        log_probs = log_probs + ops.where(done, 0.0, gained)
        lengths = lengths + ops.where(done, 0, 1)
        done = done | (token == special.end) | (position + 1 >= max_length)
        return position + 1, tokens, token, log_probs, lengths, done, cache

    rows = shape[:2]
    start = (
        ops.zeros((), "int32"),
        ops.full(shape, special.pad, "int32"),
        ops.full(rows, special.start, "int32"),
        ops.zeros(rows, "float32"),
        ops.zeros(rows, "int32"),
        ops.zeros(rows, "bool"),
        cache,
    )
    _, tokens, _, log_probs, lengths, _, _ = ops.while_loop(unfinished, body, start)
    return Hypotheses(tokens, log_probs, log_probs / length_penalty(lengths, alpha))


class BeamState(NamedTuple):
    """The state of a beam search.

    Fields:
        position: int32 [], number of tokens of each live hypothesis.
        live: `Hypotheses` that can be continued; their scores are not used. Those of a sentence
            that is done no longer change; if it stopped early, there are none.
        finished: `Hypotheses` that have ended, the best first; empty places have a score of minus
            infinity.
        last: int32 [B, K], the last token of each live hypothesis.
        done: bool [B], whether the search stops early, or all hypotheses have the maximum length.
        cache: of `step`.
    """

    position: Any
    live: Hypotheses
    finished: Hypotheses
    last: Any
    done: Any
    cache: Any


def beam_search(
    step,
    cache,
    batch_size,
    special,
    max_length,
    beam_size=4,
    alpha=0.6,
    min_length=0,
    buffer_length=None,
    early_stopping="never",
    best_only=False,
):
    """The K best hypotheses, by continuing the K most likely ones at each step.

    Source: Wu et al. 2016, section 7. Each step considers the 2K best continuations. Those of the K
    best that end join the finished hypotheses; the K best others stay live. By default, a sentence
    is done when it has K finished hypotheses and no live one can score higher than the best of
    them, whatever follows (Huang et al. 2017, "When to Finish? Optimal Beam Search for Neural Text
    Generation", section 3). So the best hypothesis is that of a search that never stops early.

    Args:
        step, cache, batch_size, special, max_length, min_length, buffer_length: see
            `greedy_search`, with K for 1.
        beam_size: K.
        alpha: of the length penalty, by which finished hypotheses are ranked.
        early_stopping: as in transformers: "never"; True, which stops at K finished hypotheses; or
            False, which stops once there are K and the worst of them scores at least as high as any
            live one would if it ended now. With True and False, hypotheses that are cut off at the
            maximum length are ranked with the finished ones.
        best_only: with "never", whether one finished hypothesis is enough instead of K. The best is
            the same, the others may be missing.

    Returns:
        `Hypotheses`, the best first. If fewer than K have ended, live ones follow them.
    """
    rows, length = (batch_size, beam_size), max_length if buffer_length is None else buffer_length
    _check(length, max_length=max_length, beam_size=beam_size)
    if not is_early_stopping(early_stopping):
        raise ValueError(
            f'early_stopping must be True, False or "never". Received: {early_stopping!r}.'
        )
    max_length = ops.convert_to_tensor(max_length, "int32")
    none = ops.full(rows, NEG_INF, "float32")
    empty = Hypotheses(ops.full((*rows, length), special.pad, "int32"), none, none)
    first = ops.arange(beam_size) == 0  # the search starts from one hypothesis, not K equal ones
    state = BeamState(
        position=ops.zeros((), "int32"),
        live=empty._replace(log_probs=ops.where(first, 0.0, none)),
        finished=empty,
        last=ops.full(rows, special.start, "int32"),
        done=ops.zeros((batch_size,), "bool"),
        cache=cache,
    )

    def body(state):
        state = _advance(step, state, special, alpha, min_length)
        return (_with_done(state, alpha, max_length, early_stopping, best_only),)

    [state] = ops.while_loop(lambda state: ~ops.all(state.done), body, (state,))
    return _ranked(state, alpha, max_length, early_stopping)


def is_early_stopping(value):
    """Whether a value is one that `beam_search` takes as `early_stopping`."""
    return isinstance(value, bool) or (isinstance(value, str) and value == "never")


def _with_done(state, alpha, max_length, early_stopping, best_only):
    """The state, in which more sentences may be done.

    Those that are done before the maximum length have no live hypotheses: the log-probabilities of
    these become minus infinity.
    """
    live, scores = ops.max(state.live.log_probs, axis=1), state.finished.scores
    worst = ops.min(scores, axis=1)
    stops = worst > NEG_INF
    if early_stopping is False:
        now = live / length_penalty(state.position, alpha)
        stops = stops & (now <= worst)
    elif early_stopping == "never":
        # Log-probabilities only fall: a continuation scores best either now or at the maximum
        # length.
        bounds = [live / length_penalty(n, alpha) for n in (state.position + 1, max_length)]
        best = ops.max(scores, axis=1)
        stops = best > NEG_INF if best_only else stops
        stops = stops & (ops.maximum(*bounds) <= best)
    is_cut = state.position >= max_length
    none = (stops & ~is_cut)[:, None]
    live = state.live._replace(log_probs=ops.where(none, NEG_INF, state.live.log_probs))
    return state._replace(live=live, done=state.done | stops | is_cut)


def _advance(step, state, special, alpha, min_length):
    """One step of beam search, in which sentences that are done keep their hypotheses."""
    beam_size = ops.shape(state.last)[1]
    logits, cache = step(state.last, state.cache)
    _, total, logits = _allowed(logits, state.position, special, min_length)
    parents, token, log_probs = _continuations(logits, state.live.log_probs - total, 2 * beam_size)
    tokens = take_rows(state.live.tokens, parents)
    now = ops.arange(ops.shape(tokens)[2]) == state.position
    tokens = ops.where(now, token[..., None], tokens)

    is_end = token == special.end
    joins = is_end & (ops.arange(2 * beam_size) < beam_size) & ~state.done[:, None]
    scores = log_probs / length_penalty(state.position + 1, alpha)
    ended = Hypotheses(tokens, log_probs, ops.where(joins, scores, NEG_INF))
    finished = _concatenated(state.finished, ended)
    finished = _pick(finished, ops.top_k(finished.scores, beam_size)[1])

    continued = ops.where(is_end, NEG_INF, log_probs)
    indices = ops.top_k(continued, beam_size)[1]
    live = _pick(Hypotheses(tokens, continued, scores), indices)
    done = ops.reshape(state.done, (-1, 1, 1))
    return BeamState(
        state.position + 1,
        live._replace(
            tokens=ops.where(done, state.live.tokens, live.tokens),
            log_probs=ops.where(done[:, 0], state.live.log_probs, live.log_probs),
        ),
        finished,
        ops.take_along_axis(token, indices, axis=1),
        state.done,
        cache.follow(ops.take_along_axis(parents, indices, axis=1)),
    )


def _continuations(logits, log_probs, count):
    """The `count` most likely continuations of hypotheses, given logits [B, K, V].

    `log_probs` [B, K] are those of the hypotheses less the logarithm of the sum of ``exp(logits)``.
    Returns (index of the continued hypothesis, token, log-probability), each [B, count].
    """
    each = min(count, logits.shape[-1])
    best, token = _top_k(logits, each)
    flat = (ops.shape(best)[0], -1)
    log_probs, index = ops.top_k(ops.reshape(best + log_probs[..., None], flat), count)
    token = ops.take_along_axis(ops.reshape(token, flat), index, axis=1)
    return index // each, token, log_probs


def _ranked(state, alpha, max_length, early_stopping):
    """The finished hypotheses, followed by or ranked with live ones; see `beam_search`."""
    finished, length = state.finished, ops.minimum(state.position, max_length)
    penalty = ops.reshape(length_penalty(length, alpha), (-1, 1))
    live = state.live._replace(scores=state.live.log_probs / penalty)
    every, beam_size = _concatenated(finished, live), ops.shape(finished.scores)[1]
    if early_stopping != "never":
        return _pick(every, ops.top_k(every.scores, beam_size)[1])
    ended = ops.sum(ops.cast(finished.scores > NEG_INF, "int32"), axis=1, keepdims=True)
    place = ops.arange(beam_size, dtype="int32")[None]
    return _pick(every, ops.where(place < ended, place, beam_size + place - ended))


def _concatenated(first, second):
    return Hypotheses(*(ops.concatenate(pair, axis=1) for pair in zip(first, second)))


def _pick(hypotheses, indices):
    """The hypotheses with the given indices, int [B, K]."""
    tokens = take_rows(hypotheses.tokens, indices)
    return Hypotheses(tokens, *(ops.take_along_axis(x, indices, axis=1) for x in hypotheses[1:]))


def _allowed(logits, position, special, min_length):
    """Of logits [B, K, V]: them in float32; the logarithm of the sum of their exponentials, [B, K];
    and those of tokens that may come next, the others being minus infinity: [B, K, V].
    """
    logits = ops.cast(logits, "float32")
    total = ops.logsumexp(logits, axis=-1)
    token = ops.arange(ops.shape(logits)[-1])
    forbidden = token < 0
    for other in (special.start, special.pad):
        if other != special.end:  # some models start, or are padded, with the end token
            forbidden = forbidden | (token == other)
    if min_length:
        forbidden = forbidden | ((token == special.end) & (position + 1 < min_length))
    allowed = ops.where(forbidden, NEG_INF, logits)
    if special.first is not None:  # with a probability of one
        forced, is_forced = special.forced(position)
        only = ops.where(token == forced[..., None], total[..., None], NEG_INF)
        allowed = ops.where(is_forced[..., None], only, allowed)
    return logits, total, allowed


@kernels.accelerated_by(kernels.top_k)
def _top_k(values, k):
    """The k largest values of the last axis, and their indices, int32."""
    values, indices = ops.top_k(values, k)
    return values, ops.cast(indices, "int32")


def _draw(logits, uniform, top_k, top_p):
    """The token at which the cumulative probability exceeds `uniform` [B, K]: int32 [B, K]."""
    count = min(top_k or logits.shape[-1], logits.shape[-1])
    ordered, tokens = ops.top_k(logits, count)
    probabilities = ops.softmax(ordered, axis=-1)
    before = ops.cumsum(probabilities, axis=-1) - probabilities
    if top_p is not None:
        probabilities = ops.where(before < top_p, probabilities, 0.0)
    cumulative = ops.cumsum(probabilities, axis=-1)
    before = ops.sum(ops.cast(cumulative <= uniform[..., None] * cumulative[..., -1:], "int32"), -1)
    # Rounding can place all tokens before: then take the last that can be drawn.
    place = ops.minimum(before, ops.sum(ops.cast(probabilities > 0, "int32"), axis=-1) - 1)
    return ops.take_along_axis(ops.cast(tokens, "int32"), place[..., None], axis=-1)[..., 0]


def _check(buffer_length, max_length=None, **arguments):
    """Checks those arguments that are numbers, not tensors."""
    for name, value in {"max_length": max_length, **arguments}.items():
        if isinstance(value, Real) and not value > 0:
            raise ValueError(f"{name} must be positive. Received: {name}={value}.")
    is_known = isinstance(buffer_length, Real) and isinstance(max_length, Real)
    if is_known and buffer_length < max_length:
        raise ValueError(f"There is a buffer for {buffer_length} of {max_length} tokens.")
