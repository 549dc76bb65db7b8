"""The result of a search, and the length penalty that ranks it.

Axes: B sentences, K hypotheses of a sentence, T tokens of a hypothesis.
"""

from typing import Any, NamedTuple

from keras import ops


class Hypotheses(NamedTuple):
    """The result of a search: K hypotheses of each sentence.

    Fields:
        tokens: int32 [B, K, T], without the start token and the prompt, the end token included,
            then padding. A hypothesis without an end token was cut off at the maximum length.
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
    if not isinstance(alpha, LengthPenalty):
        alpha = LengthPenalty(alpha)
    length = ops.cast(length, "float32")
    return ((alpha.offset + length) / (alpha.offset + 1.0)) ** alpha.alpha
