"""Beam search.

Axes: B sentences, K hypotheses of a sentence, T tokens of a hypothesis, V vocabulary.
"""

from typing import Any, NamedTuple

from keras import ops

from zoo.decoding.logits import NEG_INF, LogitsProcessor
from zoo.decoding.search import Hypotheses, largest, length_penalty
from zoo.layers.cache import take_rows


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
    buffer_length=None,
    early_stopping="never",
    best_only=False,
    **options,
):
    """The K best hypotheses, by continuing the K most likely ones at each step.

    Source: Wu et al. 2016, section 7. Each step considers the 2K best continuations. Those of the K
    best that end join the finished hypotheses; the K best others stay live. By default, a sentence
    is done when it has K finished hypotheses and no live one can score higher than the best of
    them, whatever follows (Huang et al. 2017, "When to Finish? Optimal Beam Search for Neural Text
    Generation", section 3). So the best hypothesis is that of a search that never stops early.

    Args:
        step, cache, batch_size, special, max_length, buffer_length, **options: see
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
    process = LogitsProcessor(special, max_length, **options)
    none = ops.full(rows, NEG_INF, "float32")
    empty = Hypotheses(ops.full((*rows, length), special.pad, "int32"), none, none)
    first = ops.arange(beam_size) == 0  # the search starts from one hypothesis, not K equal ones
    state = BeamState(
        position=ops.zeros((), "int32"),
        live=empty._replace(log_probs=ops.where(first, 0.0, none)),
        finished=empty,
        last=process.first_input(rows),
        done=ops.zeros((batch_size,), "bool"),
        cache=cache,
    )

    def penalty(length):
        return length_penalty(ops.maximum(length - process.given, 1), alpha)

    def body(state):
        state = _advance(step, state, process, penalty)
        return (_with_done(state, penalty, process.max_length, early_stopping, best_only),)

    [state] = ops.while_loop(lambda state: ~ops.all(state.done), body, (state,))
    return _ranked(state, penalty, process.max_length, early_stopping)


def _with_done(state, penalty, max_length, early_stopping, best_only):
    """The state, in which more sentences may be done.

    Those that are done before the maximum length have no live hypotheses: the log-probabilities of
    these become minus infinity.
    """
    live, scores = ops.max(state.live.log_probs, axis=1, keepdims=True), state.finished.scores
    worst = ops.min(scores, axis=1, keepdims=True)
    stops = worst > NEG_INF
    if early_stopping is False:
        stops = stops & (live / penalty(state.position) <= worst)
    elif early_stopping == "never":
        # Log-probabilities only fall: a continuation scores best either now or at the maximum
        # length.
        bounds = [live / penalty(n) for n in (state.position + 1, max_length)]
        best = ops.max(scores, axis=1, keepdims=True)
        stops = best > NEG_INF if best_only else stops
        stops = stops & (ops.maximum(*bounds) <= best)
    is_cut = state.position >= max_length
    live = ops.where(stops & ~is_cut, NEG_INF, state.live.log_probs)
    done = state.done | (stops | is_cut)[:, 0]
    return state._replace(live=state.live._replace(log_probs=live), done=done)


def _advance(step, state, process, penalty):
    """One step of beam search, in which sentences that are done keep their hypotheses."""
    beam_size = ops.shape(state.last)[1]
    logits, cache = step(state.last, state.cache)
    allowed = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
    allowed = process(allowed, state.live.tokens, state.position)
    parents, token, log_probs = _continuations(allowed, state.live.log_probs, 2 * beam_size)
    tokens = take_rows(state.live.tokens, parents)
    now = ops.arange(ops.shape(tokens)[2]) == state.position
    tokens = ops.where(now, token[..., None], tokens)

    is_end = token == process.special.end
    joins = is_end & (ops.arange(2 * beam_size) < beam_size) & ~state.done[:, None]
    scores = log_probs / penalty(state.position + 1)
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


def _continuations(allowed, log_probs, count):
    """The most likely continuations: (index of the hypothesis, token, log-probability) of each.

    These are [B, count]. `allowed` [B, K, V] are the log-probabilities of the next token,
    `log_probs` [B, K] those of the hypotheses.
    """
    each = min(count, allowed.shape[-1])
    best, token = largest(allowed, each)
    flat = (ops.shape(best)[0], -1)
    log_probs, index = ops.top_k(ops.reshape(best + log_probs[..., None], flat), count)
    token = ops.take_along_axis(ops.reshape(token, flat), index, axis=1)
    return index // each, token, log_probs


def _ranked(state, penalty, max_length, early_stopping):
    """The finished hypotheses, followed by or ranked with live ones; see `beam_search`."""
    finished = state.finished
    scores = state.live.log_probs / penalty(ops.minimum(state.position, max_length))
    live = state.live._replace(scores=scores)
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
