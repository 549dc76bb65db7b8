"""Greedy search and sampling, and the length penalty.

Axes: B sentences, K hypotheses of a sentence, T tokens of a hypothesis, V vocabulary.
"""

from typing import Any, NamedTuple

from keras import ops

from zoo import kernels
from zoo.decoding.logits import LogitsProcessor


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
    step, cache, batch_size, special, max_length, alpha=0.0, buffer_length=None, **options
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
        **options: fields of `SearchOptions`; and ``before``, int [B, P], tokens that precede the
            hypotheses in place of the start token: the last one is the input of the first step.

    Returns:
        `Hypotheses` with K = 1.
    """
    shape = (batch_size, 1, max_length if buffer_length is None else buffer_length)
    process = LogitsProcessor(special, max_length, **options)
    return _extend(step, cache, shape, process, alpha, lambda x, _: largest(x, 1)[1][..., 0])


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
    **options,
):
    """Draws each token by its probability; K draws of each sentence.

    Args:
        step, cache, special, max_length, alpha, **options: see `greedy_search`, with K for 1. The
            options apply before the temperature.
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
    process = LogitsProcessor(special, max_length, **options)
    return _extend(step, cache, shape, process, alpha, draw)


def _extend(step, cache, shape, process, alpha, choose):
    """Adds tokens to hypotheses [B, K, T] until all have ended: ``choose(logits, position)``."""
    special, rows = process.special, shape[:2]

    def unfinished(position, tokens, last, log_probs, lengths, done, cache):
        return ~ops.all(done)

    def body(position, tokens, last, log_probs, lengths, done, cache):
        logits, cache = step(last, cache)
        logits = ops.cast(logits, "float32")
        token = choose(process(logits, tokens, position), position)
        gained = ops.take_along_axis(logits, token[..., None], axis=-1)[..., 0]
        gained = gained - ops.logsumexp(logits, axis=-1)
        forced = process.forced(position)
        gained = gained if forced is None else ops.where(forced[1], 0.0, gained)
        token = ops.where(done, special.pad, token)
        tokens = ops.where(ops.arange(shape[2]) == position, token[..., None], tokens)
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
    return Hypotheses(
        tokens,
        log_probs,
        log_probs / length_penalty(ops.maximum(lengths - process.given, 1), alpha),
    )


@kernels.accelerated_by(kernels.top_k)
def largest(values, k):
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
