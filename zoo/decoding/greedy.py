"""Greedy search, and the loop that it shares with sampling.

Axes: B sentences, K hypotheses of a sentence, T tokens of a hypothesis, V vocabulary, P tokens of a
prompt, F tokens of a prefix.
"""

from keras import ops

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
    buffer_length=None,
    prompt=None,
    prefix=None,
    **options,
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
        buffer_length: T, if `max_length` is a tensor in a graph that needs fixed shapes;
            `max_length` by default.
        prompt, prefix: int [B, P] and [B, F], see `LogitsProcessor`.
        **options: fields of `SearchOptions`.

    Returns:
        `Hypotheses` with K = 1.
    """
    length = max_length if buffer_length is None else buffer_length
    process = LogitsProcessor(special, max_length, prompt, prefix, **options)

    def most_likely(logits, position):
        _, token = blockwise_top_k(logits, 1)  # [B, 1, 1]
        return token[..., 0]

    return extend_hypotheses(step, cache, (batch_size, 1, length), process, alpha, most_likely)


def extend_hypotheses(step, cache, shape, process, alpha, choose):
    """Adds one token after the other to hypotheses until all have ended.

    Args:
        step, cache, alpha: see `greedy_search`, with K for 1.
        shape: (B, K, T).
        process: `LogitsProcessor`.
        choose: function (logits [B, K, V], position []) -> the next tokens, int32 [B, K].

    Returns:
        `Hypotheses`.
    """
    special = process.special
    rows = shape[:2]

    def unfinished(position, tokens, last, log_probs, lengths, done, cache):
        return ~ops.all(done)

    def body(position, tokens, last, log_probs, lengths, done, cache):
        # 1. The next token of each hypothesis
        logits, cache = step(last, cache)
        logits = ops.cast(logits, "float32")  # [B, K, V]
        token = choose(process(logits, tokens, position), position)  # [B, K]
        # 2. Its log-probability, which is 0 for a token that is forced
        gained = ops.take_along_axis(logits, token[..., None], axis=-1)[..., 0]  # [B, K]
        gained = gained - ops.logsumexp(logits, axis=-1)
        forced = process.forced(position)
        if forced is not None:
            gained = ops.where(forced.is_forced, 0.0, gained)
        # 3. Hypotheses that have ended are filled up with padding
        token = ops.where(done, special.pad, token)
        is_next = ops.arange(shape[2]) == position  # [T]
        tokens = ops.where(is_next, token[..., None], tokens)  # [B, K, T]
        log_probs = log_probs + ops.where(done, 0.0, gained)
        lengths = lengths + ops.where(done, 0, 1)
        done = done | (token == special.end) | (position + 1 >= process.max_length)
        return position + 1, tokens, token, log_probs, lengths, done, cache

    start = (
        ops.zeros((), "int32"),
        ops.full(shape, special.pad, "int32"),
        process.first_input(rows),
        ops.zeros(rows, "float32"),
        ops.zeros(rows, "int32"),
        ops.zeros(rows, "bool"),
        cache,
    )
    _, tokens, _, log_probs, lengths, _, _ = ops.while_loop(unfinished, body, start)
    lengths = ops.maximum(lengths - process.prefix_length, 1)
    return Hypotheses(tokens, log_probs, log_probs / length_penalty(lengths, alpha))
