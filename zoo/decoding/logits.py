"""Options of all searches, and the logits processor that applies them.

Axes: B sentences, K hypotheses of a sentence, T tokens of a hypothesis, V vocabulary, P tokens
that precede.
"""

import math
from numbers import Integral
from typing import Any, NamedTuple

from keras import ops

NEG_INF = -math.inf
_LAST_RESORT = -1e9  # of the end token, where no token may come next


class SpecialTokens(NamedTuple):
    """The token ids that a search treats specially.

    Fields:
        start: the input of the first step.
        end: the token that ends a hypothesis.
        pad: padding after the end; it may be the end token, as in GPT-2.
        first: the token, if given, that every hypothesis begins with, such as a language code. Or
            the tokens int [B, P], followed by padding, that the hypotheses of each sentence begin
            with, such as a prefix; the length penalty does not count these.
    """

    start: int
    end: int
    pad: int
    first: Any = None


class SearchOptions(NamedTuple):
    """Options of all searches, as in `generate` of transformers; the defaults have no effect.

    Given tokens, which are the start token, a prompt and `SpecialTokens.first`, count for
    repetitions and lengths, but are themselves not restricted. If no token is allowed, the
    hypothesis ends.

    Fields:
        min_length: minimum number of tokens before the end token, including the prompt, or the
            start token of a translation.
        min_new_tokens: minimum number of tokens between the given ones and the end token.
        no_repeat_ngram_size: if n > 0, no n tokens in a row occur twice. Source: Paulus et al.
            2017, "A Deep Reinforced Model for Abstractive Summarization", section 2.5.
        repetition_penalty: logits of tokens that have occurred are divided by it if they are
            positive, and multiplied by it otherwise; values above 1 make repetitions less likely.
            Beam search applies it to log-probabilities. Source: Keskar et al. 2019, "CTRL",
            section 4.1.
        suppress_tokens: ids of tokens that are never generated.
        forced_eos: whether a hypothesis of the maximum length ends with the end token, with a
            probability of one.
    """

    min_length: int = 0
    min_new_tokens: int = 0
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    suppress_tokens: tuple = ()
    forced_eos: bool = False


def excluded(special, options):
    """The ids that are never generated, a sorted list.

    They are `suppress_tokens`, and the start token and padding unless they are the end token.
    """
    return sorted({special.start, special.pad} - {special.end} | {*options.suppress_tokens})


class LogitsProcessor:
    """Applies `SearchOptions` to logits.

    Args:
        special: `SpecialTokens`.
        max_length: maximum number of tokens of a hypothesis, int [], [1] or [B].
        before: int [B, P], the tokens before a hypothesis; by default the start token.
        **options: fields of `SearchOptions`.
    """

    def __init__(self, special, max_length, before=None, **options):
        self.special, self.options = special, SearchOptions(**options)
        self.max_length = ops.reshape(ops.convert_to_tensor(max_length, "int32"), (-1, 1))
        self.before, self.first, self.given = before, None, 0  # how many the penalty leaves out
        if isinstance(special.first, Integral):
            self.first = ops.convert_to_tensor([[special.first]], "int32")
        elif special.first is not None:
            self.first = ops.convert_to_tensor(special.first, "int32")
            is_given = ops.cast(self.first != special.pad, "int32")
            self.given = ops.sum(is_given, axis=1, keepdims=True)

    def __call__(self, logits, tokens, position):
        """Returns the logits, with minus infinity for tokens that are not allowed.

        Args:
            logits: float32 [B, K, V]; log-probabilities in beam search.
            tokens: int32 [B, K, T], of which the first `position` are known.
        """
        special, options = self.special, self.options
        token = ops.arange(logits.shape[-1], dtype="int32")
        never = ops.convert_to_tensor(excluded(special, options), "int32")
        forbidden = ops.any(token[:, None] == never, axis=-1)
        history, size = self._history(tokens), logits.shape[-1]
        length = position + ops.shape(history)[2] - ops.shape(tokens)[2]
        if options.repetition_penalty != 1:
            occurred = _chosen(history, ops.arange(ops.shape(history)[2]) < length, size)
            penalty = options.repetition_penalty
            penalized = ops.where(logits < 0, logits * penalty, logits / penalty)
            logits = ops.where(occurred, penalized, logits)
        if options.no_repeat_ngram_size:
            repeats = _repeats(history, length, options.no_repeat_ngram_size)
            forbidden = forbidden | _chosen(history, repeats, size)
        if options.min_length or options.min_new_tokens:
            is_early = position < self.given + options.min_new_tokens
            is_early = ops.reshape(is_early | (length < options.min_length), (-1, 1, 1))
            forbidden = forbidden | ((token == special.end) & is_early)
        allowed = ops.where(forbidden & ~ops.isnan(logits), NEG_INF, logits)  # NaN is an error
        if options.no_repeat_ngram_size or options.suppress_tokens:
            none = ops.max(allowed, axis=-1, keepdims=True) == NEG_INF
            allowed = ops.where(none & (token == special.end), _LAST_RESORT, allowed)
        forced = self.forced(position)
        if forced is not None:
            only = ops.where(token == forced[0][..., None], 0.0, NEG_INF)
            allowed = ops.where(forced[1][..., None], only, allowed)
        return allowed

    def first_input(self, rows):
        """The input of the first step: int32 [B, K], the shape `rows`."""
        return self._history(ops.zeros((*rows, 0), "int32"))[:, :, -1]

    def forced(self, position):
        """(The token that must come next, bool: whether there is one), each [1, 1] or [B, 1].

        None if no token is ever forced.
        """
        if self.first is None and not self.options.forced_eos:
            return None
        token, is_forced = ops.full((1, 1), self.special.end, "int32"), ops.zeros((1, 1), "bool")
        if self.first is not None:
            count = ops.shape(self.first)[1]
            token = ops.take(self.first, ops.minimum(position, count - 1), axis=1)[:, None]
            is_forced = (position < count) & (token != self.special.pad)
        if self.options.forced_eos:
            is_last = position + 1 >= self.max_length
            token, is_forced = ops.where(is_last, self.special.end, token), is_forced | is_last
        return token, is_forced

    def _history(self, tokens):
        """All tokens [B, K, P + T]: those before the hypothesis, by default the start, and its."""
        before = self.before
        if before is None:
            before = ops.full((ops.shape(tokens)[0], 1), self.special.start, "int32")
        before = ops.repeat(before[:, None], ops.shape(tokens)[1], axis=1)
        return ops.concatenate([before, tokens], axis=-1)


def _repeats(history, length, n):
    """Which tokens of a history [B, K, T] follow the last n - 1 of its first `length` tokens."""
    place = ops.arange(ops.shape(history)[2])
    follows = (place >= n - 1) & (place < length)
    for distance in range(1, n):
        last = ops.take(history, ops.maximum(length - distance, 0), axis=2)
        follows = follows & (ops.roll(history, distance, axis=2) == last[..., None])
    return follows


def _chosen(tokens, chosen, size):
    """Whether each of V tokens is among tokens [B, K, T] that are chosen, a bool: [B, K, V]."""
    rows, beams, _ = ops.shape(tokens)
    index = ops.reshape(ops.arange(rows * beams), (rows, beams, 1)) * size + tokens
    index, counts = ops.reshape(index, (-1, 1)), ops.where(chosen, ops.ones_like(tokens), 0)
    none = ops.zeros((rows * beams * size,), "int32")
    counts = ops.scatter_update(none, index, ops.reshape(counts, (-1,)), "add")
    return ops.reshape(counts > 0, (rows, beams, size))
