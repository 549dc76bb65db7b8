"""Greedy search, and the loop that it shares with sampling.

Axes: B sentences, K hypotheses of a sentence, T tokens of a hypothesis, V vocabulary, P tokens of a
prompt, F tokens of a prefix.
"""

from typing import Any, NamedTuple

from keras import ops

from zoo import kernels
from zoo.decoding.hypotheses import Hypotheses, length_penalty
from zoo.decoding.logits import LogitsProcessor
from zoo.decoding.top_k import blockwise_top_k


def greedy_search(
    step,
    cache,
    batch_size,
    special,
    max_length,
    alpha=0.0,
    length_offset=5.0,
    buffer_length=None,
    prompt=None,
    prefix=None,
    **options,
):
    """Greedy search: takes the most likely token at each step.

    Args:
        step: function (tokens int [B, 1], cache) -> (logits [B, 1, V], cache).
        cache: the first cache.
        batch_size: B.
        special: `SpecialTokens`.
        max_length: the largest number of tokens of a hypothesis, the end token included; a number,
            or int [B] with one for each sentence.
        alpha, length_offset: arguments of `length_penalty`, by which scores are divided.
        buffer_length: T, the static length of the buffer for tokens. Defaults to `max_length`,
            which has to be a Python number then.
        prompt, prefix: int [B, P] and [B, F], see `LogitsProcessor`.
        **options: fields of `SearchOptions`.

    Returns:
        `Hypotheses` with K = 1.
    """
    length = max_length if buffer_length is None else buffer_length
    processor = LogitsProcessor(special, max_length, prompt, prefix, **options)

    def most_likely(logits, position):
        _, token = blockwise_top_k(logits, 1)  # [B, 1, 1]
        return token[..., 0]

    shape = (batch_size, 1, length)
    return extend_hypotheses(step, cache, shape, processor, most_likely, alpha, length_offset)


class _State(NamedTuple):
    """The state of the loop.

    Fields:
        position: int32 [], number of tokens of each hypothesis that has not ended.
        tokens: int32 [B, K, T].
        last: int32 [B, K], the last token of each hypothesis.
        log_probs: float32 [B, K].
        lengths: int32 [B, K].
        done: bool [B, K], whether a hypothesis has ended.
        cache: of `step`.
    """

    position: Any
    tokens: Any
    last: Any
    log_probs: Any
    lengths: Any
    done: Any
    cache: Any


def extend_hypotheses(step, cache, shape, processor, choose, alpha=0.0, length_offset=5.0):
    """Adds one token after the other to hypotheses until all have ended.

    Args:
        step, cache, alpha, length_offset: see `greedy_search`, with K for 1.
        shape: (B, K, T).
        processor: `LogitsProcessor`.
        choose: function (logits [B, K, V], position []) -> the next tokens, int32 [B, K].

    Returns:
        `Hypotheses`.
    """
    special = processor.special
    rows = shape[:2]

    def body(state):
        # 1. The next token of each hypothesis
        logits, cache = step(state.last, state.cache)
        logits = ops.cast(logits, "float32")  # [B, K, V]
        allowed = processor(logits, state.tokens, state.position)  # [B, K, V]
        token = choose(allowed, state.position)  # [B, K]
        # 2. Its log-probability, which is 0 for a token that is forced
        if processor.options.renormalize_logits:
            logits = allowed
        gained = ops.take_along_axis(logits, token[..., None], axis=-1)[..., 0]  # [B, K]
        gained = gained - ops.logsumexp(logits, axis=-1)
        forced = processor.forced(state.position)
        if forced is not None:
            gained = ops.where(forced.applies, 0.0, gained)
        # 3. Hypotheses that have ended are filled up with padding
        token = ops.where(state.done, special.pad, token)
        is_next = ops.arange(shape[2], dtype="int32") == state.position  # [T]
        is_last = state.position + 1 >= processor.max_length  # [B, 1] or [1, 1]
        state = _State(
            position=state.position + 1,
            tokens=ops.where(is_next, token[..., None], state.tokens),  # [B, K, T]
            last=token,
            log_probs=state.log_probs + ops.where(state.done, 0.0, gained),
            lengths=state.lengths + ops.cast(~state.done, "int32"),
            done=state.done | (token == special.end) | is_last,
            cache=cache,
        )
        return (state,)

    state = _State(
        position=ops.zeros((), "int32"),
        tokens=ops.full(shape, special.pad, "int32"),
        last=processor.first_input(rows),
        log_probs=ops.zeros(rows, "float32"),
        lengths=ops.zeros(rows, "int32"),
        done=ops.zeros(rows, "bool"),
        cache=cache,
    )
    with kernels.constant_weights():
        [state] = ops.while_loop(lambda state: ~ops.all(state.done), body, (state,))
    lengths = ops.maximum(state.lengths - processor.given_length, 1)
    scores = state.log_probs / length_penalty(lengths, alpha, length_offset)
    return Hypotheses(state.tokens, state.log_probs, scores)
