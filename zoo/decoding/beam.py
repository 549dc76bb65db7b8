"""Beam search.

Axes: B sentences, K hypotheses of a sentence, T tokens of a hypothesis, V vocabulary, P tokens of a
prompt, F tokens of a prefix.
"""

import functools
from typing import Any, NamedTuple

from keras import ops

from zoo.decoding.hypotheses import Hypotheses, length_penalty
from zoo.decoding.logits import NEG_INF, LogitsProcessor
from zoo.decoding.top_k import blockwise_top_k
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
    prompt=None,
    prefix=None,
    **options,
):
    """The K best hypotheses, by continuing the K most likely ones at each step.

    Source: Wu et al. 2016, section 7. Each step considers the 2K best continuations. If one of the
    K best ends, it joins the finished hypotheses; the K best others stay live. By default, a
    sentence is done when it has K finished hypotheses and no live one can score higher than the
    best of them, whatever follows (Huang et al. 2017, "When to Finish? Optimal Beam Search for
    Neural Text Generation", section 3). So the best hypothesis is that of a search that never stops
    early.

    Args:
        step, cache, batch_size, special, max_length, buffer_length, prompt, prefix, **options: see
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
    rows = (batch_size, beam_size)
    length = max_length if buffer_length is None else buffer_length
    process = LogitsProcessor(special, max_length, prompt, prefix, **options)
    max_length = process.max_length  # [B, 1] or [1, 1]

    def penalty(length):
        return length_penalty(ops.maximum(length - process.prefix_length, 1), alpha)

    if early_stopping == "never":
        stops = functools.partial(_the_best_is_certain, max_length=max_length, best_only=best_only)
    elif early_stopping:
        stops = _there_are_enough
    else:
        stops = _none_would_be_better_now

    def body(state):
        state = _advance(step, state, process, penalty)
        return (_with_done(state, stops(state, penalty), state.position >= max_length),)

    none = ops.full(rows, NEG_INF, "float32")
    empty = Hypotheses(ops.full((*rows, length), special.pad, "int32"), none, none)
    is_first = ops.arange(beam_size) == 0  # the search starts from one hypothesis, not K equal ones
    state = BeamState(
        position=ops.zeros((), "int32"),
        live=empty._replace(log_probs=ops.where(is_first, 0.0, none)),
        finished=empty,
        last=process.first_input(rows),
        done=ops.zeros((batch_size,), "bool"),
        cache=cache,
    )
    [state] = ops.while_loop(lambda state: ~ops.all(state.done), body, (state,))
    return _ranked(state, penalty, max_length, early_stopping)


# --- one step -------------------------------------------------------------------------------------


def _advance(step, state, process, penalty):
    """One step of beam search, in which sentences that are done keep their hypotheses."""
    beam_size = ops.shape(state.last)[1]
    count = 2 * beam_size

    # 1. The 2K most likely continuations
    logits, cache = step(state.last, state.cache)  # [B, K, V]
    allowed = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)  # [B, K, V]
    allowed = process(allowed, state.live.tokens, state.position)  # [B, K, V]
    parents, token, log_probs = _continuations(allowed, state.live.log_probs, count)  # [B, 2K]
    tokens = take_rows(state.live.tokens, parents)  # [B, 2K, T]
    is_next = ops.arange(ops.shape(tokens)[2]) == state.position  # [T]
    tokens = ops.where(is_next, token[..., None], tokens)  # [B, 2K, T]

    # 2. If one of the K best ends, it joins the finished hypotheses
    is_end = token == process.special.end  # [B, 2K]
    joins = is_end & (ops.arange(count) < beam_size) & ~state.done[:, None]  # [B, 2K]
    scores = log_probs / penalty(state.position + 1)  # [B, 2K]
    ended = Hypotheses(tokens, log_probs, ops.where(joins, scores, NEG_INF))
    finished = _concatenated(state.finished, ended)  # [B, 3K]
    _, best = ops.top_k(finished.scores, beam_size)  # [B, K]
    finished = _pick(finished, best)

    # 3. The K best others stay live
    log_probs = ops.where(is_end, NEG_INF, log_probs)  # [B, 2K]
    _, best = ops.top_k(log_probs, beam_size)  # [B, K]
    live = _pick(Hypotheses(tokens, log_probs, scores), best)
    done = ops.reshape(state.done, (-1, 1, 1))  # [B, 1, 1]
    live = live._replace(
        tokens=ops.where(done, state.live.tokens, live.tokens),  # [B, K, T]
        log_probs=ops.where(done[:, 0], state.live.log_probs, live.log_probs),  # [B, K]
    )
    return BeamState(
        position=state.position + 1,
        live=live,
        finished=finished,
        last=ops.take_along_axis(token, best, axis=1),  # [B, K]
        done=state.done,
        cache=cache.follow(ops.take_along_axis(parents, best, axis=1)),
    )


def _continuations(allowed, log_probs, count):
    """The most likely continuations of the hypotheses of each sentence.

    Args:
        allowed: [B, K, V], the log-probabilities of the next token.
        log_probs: [B, K], those of the hypotheses.

    Returns:
        (index of the hypothesis, token, log-probability of both) of each, [B, count].
    """
    each = min(count, allowed.shape[-1])  # of a hypothesis
    best, token = blockwise_top_k(allowed, each)  # [B, K, each]
    flat = (ops.shape(best)[0], -1)
    log_probs = ops.reshape(best + log_probs[..., None], flat)  # [B, K·each]
    log_probs, index = ops.top_k(log_probs, count)  # [B, count]
    token = ops.take_along_axis(ops.reshape(token, flat), index, axis=1)  # [B, count]
    return index // each, token, log_probs


def _with_done(state, stops, is_cut):
    """The state, in which more sentences may be done.

    If one is done before the maximum length, it has no live hypotheses: their log-probabilities
    become minus infinity.

    Args:
        stops, is_cut: bool [B, 1], whether a sentence stops early, or has the maximum length.
    """
    log_probs = ops.where(stops & ~is_cut, NEG_INF, state.live.log_probs)  # [B, K]
    live = state.live._replace(log_probs=log_probs)
    return state._replace(live=live, done=state.done | (stops | is_cut)[:, 0])


# --- when a sentence stops, bool [B, 1], by `early_stopping` --------------------------------------


def _there_are_enough(state, penalty):
    """True: K hypotheses have finished."""
    return ops.min(state.finished.scores, axis=1, keepdims=True) > NEG_INF


def _none_would_be_better_now(state, penalty):
    """False: and none would score higher than the worst of them if it ended now."""
    worst = ops.min(state.finished.scores, axis=1, keepdims=True)  # [B, 1]
    live = ops.max(state.live.log_probs, axis=1, keepdims=True)  # [B, 1]
    return (worst > NEG_INF) & (live / penalty(state.position) <= worst)


def _the_best_is_certain(state, penalty, max_length, best_only):
    """ "never": and none can score higher than the best of them, whatever follows.

    Log-probabilities only fall: a continuation scores best either now or at the maximum length.
    """
    best = ops.max(state.finished.scores, axis=1, keepdims=True)  # [B, 1]
    worst = ops.min(state.finished.scores, axis=1, keepdims=True)  # [B, 1]
    there_are_enough = (best if best_only else worst) > NEG_INF
    live = ops.max(state.live.log_probs, axis=1, keepdims=True)  # [B, 1]
    bound = ops.maximum(live / penalty(state.position + 1), live / penalty(max_length))
    return there_are_enough & (bound <= best)


# --- the result -----------------------------------------------------------------------------------


def _ranked(state, penalty, max_length, early_stopping):
    """The finished hypotheses, followed by or ranked with live ones; see `beam_search`."""
    finished = state.finished
    beam_size = ops.shape(finished.scores)[1]
    scores = state.live.log_probs / penalty(ops.minimum(state.position, max_length))  # [B, K]
    every = _concatenated(finished, state.live._replace(scores=scores))  # [B, 2K]
    if early_stopping != "never":
        _, best = ops.top_k(every.scores, beam_size)  # [B, K]
        return _pick(every, best)
    is_finished = ops.cast(finished.scores > NEG_INF, "int32")
    ended = ops.sum(is_finished, axis=1, keepdims=True)  # [B, 1]
    place = ops.arange(beam_size, dtype="int32")[None]  # [1, K]
    return _pick(every, ops.where(place < ended, place, beam_size + place - ended))


def _concatenated(first, second):
    """Hypotheses [B, K, ...] and [B, L, ...] side by side: [B, K + L, ...]."""
    return Hypotheses(
        tokens=ops.concatenate([first.tokens, second.tokens], axis=1),
        log_probs=ops.concatenate([first.log_probs, second.log_probs], axis=1),
        scores=ops.concatenate([first.scores, second.scores], axis=1),
    )


def _pick(hypotheses, indices):
    """The hypotheses with the given indices, int [B, K]."""
    return Hypotheses(
        tokens=take_rows(hypotheses.tokens, indices),
        log_probs=ops.take_along_axis(hypotheses.log_probs, indices, axis=1),
        scores=ops.take_along_axis(hypotheses.scores, indices, axis=1),
    )
