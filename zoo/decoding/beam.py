"""Beam search.

Axes: B sentences, K hypotheses of a sentence, T tokens of a hypothesis, V vocabulary, P tokens of a
prompt, F tokens of a prefix.
"""

from typing import Any, NamedTuple

from keras import ops

from zoo import kernels
from zoo.decoding.hypotheses import Hypotheses, length_penalty
from zoo.decoding.logits import NEG_INF, LogitsProcessor
from zoo.decoding.top_k import blockwise_top_k
from zoo.layers.cache import take_rows


class BeamState(NamedTuple):
    """The state of a beam search.

    Fields:
        position: int32 [], number of tokens of each live hypothesis.
        tokens: int32 [B, K, T], the live hypotheses, which can be continued. They no longer change
            when a sentence is done.
        log_probs: float32 [B, K], log-probabilities of the live hypotheses; minus infinity once the
            search of a sentence has stopped early.
        finished: `Hypotheses` that have ended, the best first; empty places have a score of minus
            infinity.
        last: int32 [B, K], the last token of each live hypothesis.
        done: bool [B], whether the search stops early, or all hypotheses have the maximum length.
        cache: of `step`.
    """

    position: Any
    tokens: Any
    log_probs: Any
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
    length_offset=5.0,
    buffer_length=None,
    early_stopping="never",
    best_only=False,
    prompt=None,
    prefix=None,
    **options,
):
    """Beam search.

    Each step considers the 2K best continuations of the K live hypotheses. If one of the K best
    ends, it joins the finished hypotheses; the K best others stay live. Source: Wu et al. 2016,
    section 7.

    By default, a sentence is done when it has K finished hypotheses and no live one can score
    higher than the best of them, whatever follows, so stopping never changes the best hypothesis.
    Source: Huang et al. 2017, "When to Finish? Optimal Beam Search for Neural Text Generation",
    section 3.

    Args:
        step: function (tokens int [B, K], cache) -> (logits [B, K, V], cache).
        cache, batch_size, special, max_length, buffer_length, prompt, prefix, **options: see
            `greedy_search`.
        beam_size: K.
        alpha, length_offset: arguments of `length_penalty`, by which scores are divided.
        early_stopping: as in transformers: "never"; True, which stops at K finished hypotheses; or
            False, which stops once there are K and the worst of them scores at least as high as any
            live one would if it ended now. With True and False, hypotheses that are cut off at the
            maximum length are ranked with the finished ones.
        best_only: whether only the best hypothesis is needed. With "never", the search then stops
            earlier, and others may be missing.

    Returns:
        `Hypotheses`, the best first. If fewer than K have ended, live ones follow them.
    """
    rows = (batch_size, beam_size)
    length = max_length if buffer_length is None else buffer_length
    processor = LogitsProcessor(special, max_length, prompt, prefix, **options)
    max_length = processor.max_length  # [B, 1] or [1, 1]

    def penalty(length):
        scored_length = ops.maximum(length - processor.given_length, 1)
        return length_penalty(scored_length, alpha, length_offset)

    def stops(state):
        if early_stopping == "never":
            return _stop_never(state, penalty, max_length, best_only)
        if early_stopping:
            return _stop_when_full(state)
        return _stop_heuristic(state, penalty)

    def body(state):
        state = _advance(step, state, processor, penalty)
        return (_mark_done(state, stops(state), state.position >= max_length),)

    no_tokens = ops.full((*rows, length), special.pad, "int32")
    no_scores = ops.full(rows, NEG_INF, "float32")
    # The search starts from one hypothesis, not K equal ones.
    is_first = ops.arange(beam_size, dtype="int32") == 0
    state = BeamState(
        position=ops.zeros((), "int32"),
        tokens=no_tokens,
        log_probs=ops.where(is_first, 0.0, no_scores),
        finished=Hypotheses(no_tokens, no_scores, no_scores),
        last=processor.first_input(rows),
        done=ops.zeros((batch_size,), "bool"),
        cache=cache,
    )
    with kernels.constant_weights():
        [state] = ops.while_loop(lambda state: ~ops.all(state.done), body, (state,))
    return _ranked(state, penalty, max_length, early_stopping)


# --- one step -------------------------------------------------------------------------------------


def _advance(step, state, processor, penalty):
    """One step of beam search, in which sentences that are done keep their hypotheses."""
    beam_size = ops.shape(state.last)[1]
    count = 2 * beam_size

    # 1. The 2K most likely continuations
    logits, cache = step(state.last, state.cache)  # [B, K, V]
    logits = ops.cast(logits, "float32")
    if not processor.normalizes_logits:  # which gives the same log-probabilities
        logits = ops.log_softmax(logits, axis=-1)
    allowed = processor(logits, state.tokens, state.position)  # [B, K, V]
    parents, token, log_probs = _continuations(allowed, state.log_probs, count)  # [B, 2K]
    tokens = take_rows(state.tokens, parents)  # [B, 2K, T]
    is_next = ops.arange(ops.shape(tokens)[2], dtype="int32") == state.position  # [T]
    tokens = ops.where(is_next, token[..., None], tokens)  # [B, 2K, T]

    # 2. If one of the K best ends, it joins the finished hypotheses
    is_end = token == processor.special.end  # [B, 2K]
    is_best = ops.arange(count, dtype="int32") < beam_size  # [2K]
    joins = is_end & is_best & ~state.done[:, None]  # [B, 2K]
    scores = log_probs / penalty(state.position + 1)  # [B, 2K]
    ended = Hypotheses(tokens, log_probs, ops.where(joins, scores, NEG_INF))
    finished = _concatenate(state.finished, ended)  # [B, 3K]
    _, best = ops.top_k(finished.scores, beam_size)  # [B, K]
    finished = _pick(finished, best)

    # 3. The K best others stay live
    log_probs = ops.where(is_end, NEG_INF, log_probs)  # [B, 2K]
    _, best = ops.top_k(log_probs, beam_size)  # [B, K]
    tokens = take_rows(tokens, best)  # [B, K, T]
    log_probs = ops.take_along_axis(log_probs, best, axis=1)  # [B, K]
    done = ops.reshape(state.done, (-1, 1, 1))  # [B, 1, 1]
    return BeamState(
        position=state.position + 1,
        tokens=ops.where(done, state.tokens, tokens),  # [B, K, T]
        log_probs=ops.where(done[:, 0], state.log_probs, log_probs),  # [B, K]
        finished=finished,
        last=ops.take_along_axis(token, best, axis=1),  # [B, K]
        done=state.done,
        cache=cache.reorder(ops.take_along_axis(parents, best, axis=1)),
    )


def _continuations(allowed, log_probs, count):
    """The most likely continuations of the hypotheses of each sentence.

    Args:
        allowed: [B, K, V], the log-probabilities of the next token.
        log_probs: [B, K], those of the hypotheses.

    Returns:
        (index of the hypothesis, token, log-probability of both) of each, [B, count].
    """
    num_per_hypothesis = min(count, allowed.shape[-1])
    best, token = blockwise_top_k(allowed, num_per_hypothesis)  # [B, K, num_per_hypothesis]
    flat = (ops.shape(best)[0], -1)
    log_probs = ops.reshape(best + log_probs[..., None], flat)  # [B, K·num_per_hypothesis]
    log_probs, index = ops.top_k(log_probs, count)  # [B, count]
    token = ops.take_along_axis(ops.reshape(token, flat), index, axis=1)  # [B, count]
    return index // num_per_hypothesis, token, log_probs


def _mark_done(state, stops, is_cut):
    """Marks sentences as done.

    Args:
        stops: bool [B, 1], whether a sentence stops early. It has no live hypotheses then.
        is_cut: bool [B, 1], whether its hypotheses have the maximum length.
    """
    log_probs = ops.where(stops & ~is_cut, NEG_INF, state.log_probs)  # [B, K]
    return state._replace(log_probs=log_probs, done=state.done | (stops | is_cut)[:, 0])


# --- stopping rules: whether a sentence stops, bool [B, 1] ----------------------------------------


def _stop_when_full(state):
    """``early_stopping=True``: K hypotheses have finished."""
    return ops.min(state.finished.scores, axis=1, keepdims=True) > NEG_INF


def _stop_heuristic(state, penalty):
    """``early_stopping=False``: K hypotheses have finished, and no live one would score higher than
    the worst of them if it ended now.
    """
    worst = ops.min(state.finished.scores, axis=1, keepdims=True)  # [B, 1]
    live = ops.max(state.log_probs, axis=1, keepdims=True)  # [B, 1]
    return (worst > NEG_INF) & (live / penalty(state.position) <= worst)


def _stop_never(state, penalty, max_length, best_only):
    """``early_stopping="never"``: K hypotheses have finished, or one with `best_only`, and no
    continuation of a live one can score higher than the best of them.

    Log-probabilities only fall, and the penalty is monotonic in the length: a continuation scores
    best if it ends with the next token, or at the maximum length.
    """
    best = ops.max(state.finished.scores, axis=1, keepdims=True)  # [B, 1]
    worst = ops.min(state.finished.scores, axis=1, keepdims=True)  # [B, 1]
    is_enough = (best if best_only else worst) > NEG_INF
    live = ops.max(state.log_probs, axis=1, keepdims=True)  # [B, 1]
    bound = ops.maximum(live / penalty(state.position + 1), live / penalty(max_length))
    return is_enough & (bound <= best)


# --- the result -----------------------------------------------------------------------------------


def _ranked(state, penalty, max_length, early_stopping):
    """The finished hypotheses, followed by or ranked with live ones; see `beam_search`."""
    finished = state.finished
    beam_size = ops.shape(finished.scores)[1]
    scores = state.log_probs / penalty(ops.minimum(state.position, max_length))  # [B, K]
    live = Hypotheses(state.tokens, state.log_probs, scores)
    every = _concatenate(finished, live)  # [B, 2K]
    if early_stopping != "never":
        _, best = ops.top_k(every.scores, beam_size)  # [B, K]
        return _pick(every, best)
    is_finished = ops.cast(finished.scores > NEG_INF, "int32")
    ended = ops.sum(is_finished, axis=1, keepdims=True)  # [B, 1]
    place = ops.arange(beam_size, dtype="int32")[None]  # [1, K]
    return _pick(every, ops.where(place < ended, place, beam_size + place - ended))


def _concatenate(first, second):
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
