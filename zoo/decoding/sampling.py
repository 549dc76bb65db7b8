"""Sampling.

Axes: B sentences, K hypotheses of a sentence, T tokens of a hypothesis, V vocabulary.
"""

from keras import ops

from zoo.decoding.greedy import extend_hypotheses
from zoo.decoding.logits import NEG_INF, LogitsProcessor


def sample(
    step,
    cache,
    uniforms,
    special,
    max_length,
    temperature=1.0,
    top_k=None,
    top_p=None,
    largest_k=None,
    prompt=None,
    prefix=None,
    **options,
):
    """Sampling: draws each token by its probability.

    Args:
        step: function (tokens int [B, K], cache) -> (logits [B, K, V], cache).
        cache, special, max_length, prompt, prefix, **options: see `greedy_search`. The options
            apply before the temperature.
        uniforms: float32 [B, K, T], random numbers in [0, 1), one for each token of K hypotheses.
            They are an argument, so that the search is a pure function.
        temperature: logits are divided by it; below 1 likely tokens become more likely.
        top_k: draws from the k most likely tokens only (Fan et al. 2018); a number or a tensor.
        largest_k: the largest value of `top_k`, a number. Defaults to `top_k`.
        top_p: draws from the most likely tokens that together have this probability only
            (Holtzman et al. 2019, section 3.1).

    Returns:
        `Hypotheses` in the order of the draws. Their scores are log-probabilities of the full
        distribution, or with `renormalize_logits` of that of the allowed tokens.
    """
    uniforms = ops.convert_to_tensor(uniforms, "float32")
    processor = LogitsProcessor(special, max_length, prompt, prefix, **options)

    def draw(logits, position):
        uniform = uniforms[:, :, position]
        return _draw(logits / temperature, uniform, top_k, top_p, largest_k or top_k)

    return extend_hypotheses(step, cache, ops.shape(uniforms), processor, draw)


def _draw(logits, uniform, top_k, top_p, largest_k):
    """The token at which the cumulative probability exceeds a random number.

    Args:
        logits: [B, K, V].
        uniform: [B, K].

    Returns:
        int32 [B, K].
    """
    count = min(largest_k or logits.shape[-1], logits.shape[-1])
    ordered, tokens = ops.top_k(logits, count)  # [B, K, count]
    if top_k is not None:
        ordered = ops.where(ops.arange(count, dtype="int32") < top_k, ordered, NEG_INF)
    probabilities = ops.softmax(ordered, axis=-1)
    if top_p is not None:
        more_likely = ops.cumsum(probabilities, axis=-1) - probabilities
        probabilities = ops.where(more_likely < top_p, probabilities, 0.0)
    cumulative = ops.cumsum(probabilities, axis=-1)
    is_passed = cumulative <= uniform[..., None] * cumulative[..., -1:]  # [B, K, count]
    place = ops.sum(ops.cast(is_passed, "int32"), axis=-1)  # [B, K]
    # Rounding can pass all tokens: then take the last one that can be drawn.
    last = ops.sum(ops.cast(probabilities > 0, "int32"), axis=-1) - 1
    place = ops.minimum(place, last)
    tokens = ops.cast(tokens, "int32")
    return ops.take_along_axis(tokens, place[..., None], axis=-1)[..., 0]
