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


def length_penalty(length, alpha, offset=5.0):
    """((offset + length) / (offset + 1))^alpha.

    Source: Wu et al. 2016, "Google's Neural Machine Translation System", section 7, equation 14.

    Args:
        length: number of tokens, the end token included.
        alpha: 0 ranks by plain log-probability, which favors short hypotheses; larger values
            favor longer ones.
        offset: 5 in the paper. With 0, as in Marian and transformers, the penalty is length^alpha.
    """
    length = ops.cast(length, "float32")
    return ((offset + length) / (offset + 1.0)) ** alpha
