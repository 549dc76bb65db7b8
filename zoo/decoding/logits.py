"""The options of all searches, as rules that change the logits of each step.

Axes: B sentences, K hypotheses of a sentence, T tokens of a hypothesis, V vocabulary, P tokens of a
prompt, F tokens of a prefix. A search can be given two kinds of tokens::

    prompt                       hypothesis
    a text to be continued       prefix             new tokens
    read at once                 forced             chosen, one by one

Without a prompt, the start token takes its place.
"""

import math
from typing import Any, NamedTuple

from keras import ops

NEG_INF = -math.inf
# Log-probability of the end token where no token is allowed. Above minus infinity, so that the
# hypothesis ends, with a very low score.
_LAST_RESORT = -1e9


class SpecialTokens(NamedTuple):
    """The token ids that a search treats specially.

    Fields:
        start: the input of the first step.
        end: the token that ends a hypothesis.
        pad: padding after the end; it may be the end token, as in GPT-2.
        prefix: the tokens that every hypothesis begins with, such as a language code; empty by
            default.
    """

    start: int
    end: int
    pad: int
    prefix: tuple = ()


class SearchOptions(NamedTuple):
    """Options of all searches. By default, none applies.

    They have the names of Hugging Face's `generate`, except for `forced_eos`. The tokens of the
    prompt (or the start token) and of the prefix count towards `min_length` and as tokens that have
    occurred. They themselves are never changed. If no token is allowed, the hypothesis ends.
    Numbers may also be tensors: then searches with other values share a compiled function.

    To add an option, add a field here and a rule in `LogitsProcessor.__call__`. Other places list
    options by name: `zoo.tasks.generation.GenerationTask.options` (limits of its value), `Search`
    in `zoo.commands.shared` (flags), `zoo.checkpoints.generation_config` (Hugging Face's files) and
    `zoo.deploy.ctranslate2_format` (CTranslate2, also as an engine).

    Fields:
        min_length: minimum number of tokens before the end token. The prompt, or the start token of
            a translation, and the prefix count.
        min_new_tokens: minimum number of tokens before the end token. The prompt and the `prefix`
            of a search do not count; `SpecialTokens.prefix` does.
        no_repeat_ngram_size: if n > 0, no n tokens in a row occur twice. Source: Paulus et al.
            2017, "A Deep Reinforced Model for Abstractive Summarization", section 2.5.
        repetition_penalty: logits of tokens that have occurred are divided by it if they are
            positive, and multiplied by it otherwise; values above 1 make repetitions less likely.
            Beam search applies it to log-probabilities. Source: Keskar et al. 2019, "CTRL",
            section 4.1.
        suppress_tokens: ids of tokens that are never generated.
        forced_eos: whether a hypothesis of the maximum length ends with the end token, with a
            probability of one.
        renormalize_logits: whether log-probabilities are those among the allowed tokens, as always
            in CTranslate2. By default, they are those among all tokens.
    """

    min_length: int = 0
    min_new_tokens: int = 0
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    suppress_tokens: tuple = ()
    forced_eos: bool = False
    renormalize_logits: bool = False


class ForcedToken(NamedTuple):
    """A token that is the only one possible.

    Fields:
        token: int32 [B, 1], or [1, 1] for all sentences.
        applies: bool, of the same shape, whether the token is forced.
    """

    token: Any
    applies: Any


class LogitsProcessor:
    """Applies `SearchOptions` to logits: the rules are listed in `__call__`.

    Args:
        special: `SpecialTokens`.
        max_length: maximum number of tokens of a hypothesis, int [], [1] or [B].
        prompt: int [B, P], tokens before the hypotheses; the last one is the input of the first
            step. By default the start token.
        prefix: int [B, F], tokens that the hypotheses of each sentence begin with, then padding.
            The length penalty does not count them. By default `special.prefix`, which it counts.
        **options: fields of `SearchOptions`.
    """

    def __init__(self, special, max_length, prompt=None, prefix=None, **options):
        self.special = special
        self.options = SearchOptions(**options)
        self.max_length = ops.convert_to_tensor(max_length, "int32")
        self.max_length = ops.reshape(self.max_length, (-1, 1))  # [B, 1] or [1, 1]
        is_penalized = _applies(self.options.repetition_penalty, 1)
        self.normalizes_logits = self.options.renormalize_logits and not is_penalized
        self.prompt = prompt
        self.prefix = None
        self.given_length = 0  # tokens of a given prefix, which are neither new nor scored
        if prefix is not None:
            self.prefix = ops.convert_to_tensor(prefix, "int32")  # [B, F]
            is_token = ops.cast(self.prefix != special.pad, "int32")
            self.given_length = ops.sum(is_token, axis=1, keepdims=True)  # [B, 1]
        elif special.prefix:
            self.prefix = ops.convert_to_tensor([special.prefix], "int32")  # [1, F]

    def __call__(self, logits, tokens, position):
        """Returns the logits, with minus infinity for tokens that are not allowed.

        Args:
            logits: float32 [B, K, V]; log-probabilities in beam search.
            tokens: int32 [B, K, T], the hypotheses.
            position: int32 [], how many of their tokens are known.
        """
        special = self.special
        options = self.options
        vocabulary = ops.arange(logits.shape[-1], dtype="int32")  # [V]
        history = self._history(tokens)  # [B, K, P + T]
        prompt_length = ops.shape(history)[2] - ops.shape(tokens)[2]
        length = position + prompt_length  # how many tokens of the history are known

        # 1. Tokens that have occurred become less likely
        if _applies(options.repetition_penalty, 1):
            logits = penalize_repetitions(logits, history, length, options.repetition_penalty)

        # 2. Some tokens are forbidden
        forbidden = _are_in(vocabulary, never_generated(special))  # [V]
        if _applies(options.suppress_tokens, ()):
            forbidden = forbidden | _are_in(vocabulary, options.suppress_tokens)
        if _applies(options.no_repeat_ngram_size, 0):
            repeated = repeated_ngrams(vocabulary, history, length, options.no_repeat_ngram_size)
            forbidden = forbidden | repeated  # [B, K, V]
        if _applies(options.min_length, 0) or _applies(options.min_new_tokens, 0):
            is_early = position < self.given_length + options.min_new_tokens  # [], or [B, 1]
            is_early = is_early | (length < options.min_length)
            is_early = ops.reshape(is_early, (-1, 1, 1))  # [1, 1, 1] or [B, 1, 1]
            forbidden = forbidden | ((vocabulary == special.end) & is_early)
        forbidden = forbidden & ~ops.isnan(logits)  # [B, K, V]; NaN remains, and is an error
        allowed = ops.where(forbidden, NEG_INF, logits)

        # 3. If nothing else is left, the hypothesis ends
        if _applies(options.no_repeat_ngram_size, 0) or _applies(options.suppress_tokens, ()):
            is_nothing = ops.max(allowed, axis=-1, keepdims=True) == NEG_INF  # [B, K, 1]
            is_last_resort = is_nothing & (vocabulary == special.end)
            allowed = ops.where(is_last_resort, _LAST_RESORT, allowed)

        # 4. A prefix, and the end token at the maximum length, are forced
        forced = self.forced(position)
        if forced is not None:
            is_forced = vocabulary == forced.token[..., None]  # [B, 1, V]
            only = ops.where(is_forced, ops.cast(0.0, logits.dtype), NEG_INF)
            allowed = ops.where(forced.applies[..., None], only, allowed)

        # 5. What is left has a total probability of one
        return ops.log_softmax(allowed, axis=-1) if options.renormalize_logits else allowed

    def first_input(self, rows):
        """The input of the first step: int32 [B, K], the shape `rows`."""
        return self._history(ops.zeros((*rows, 0), "int32"))[:, :, -1]

    def forced(self, position):
        """The `ForcedToken` at a position; None if neither prefix nor options force any."""
        if self.prefix is None and not self.options.forced_eos:
            return None
        token = ops.full((1, 1), self.special.end, "int32")
        applies = ops.zeros((1, 1), "bool")
        if self.prefix is not None:
            count = ops.shape(self.prefix)[1]
            place = ops.minimum(position, count - 1)
            token = ops.take(self.prefix, place, axis=1)[:, None]  # [B, 1]
            applies = (position < count) & (token != self.special.pad)
        if self.options.forced_eos:
            is_last = position + 1 >= self.max_length
            token = ops.where(is_last, self.special.end, token)
            applies = applies | is_last
        return ForcedToken(token, applies)

    def _history(self, tokens):
        """The prompt, or the start token, and the hypotheses [B, K, T]: [B, K, P + T]."""
        batch_size, beam_size, _ = ops.shape(tokens)
        prompt = self.prompt
        if prompt is None:
            prompt = ops.full((batch_size, 1), self.special.start, "int32")
        prompt = ops.repeat(prompt[:, None], beam_size, axis=1)  # [B, K, P]
        return ops.concatenate([prompt, tokens], axis=-1)


def never_generated(special, suppress_tokens=()):
    """The ids that are never generated, a sorted list.

    They are `suppress_tokens`, and the start token and padding unless they are the end token.
    """
    control = {special.start, special.pad} - {special.end}
    return sorted(control.union(suppress_tokens))


def _applies(option, neutral):
    """Whether an option has an effect; a tensor may have one."""
    return ops.is_tensor(option) or option != neutral


def _are_in(vocabulary, ids):
    """Whether each token of the vocabulary [V] is in a list of ids: bool [V]."""
    ids = ops.convert_to_tensor(ids, "int32")
    return ops.any(vocabulary[:, None] == ids, axis=-1)


def penalize_repetitions(logits, history, length, penalty):
    """Makes tokens that have occurred less likely, see `SearchOptions.repetition_penalty`.

    Args:
        logits: [B, K, V].
        history: int32 [B, K, P + T], of which the first `length` tokens are known.
    """
    is_known = ops.arange(ops.shape(history)[2], dtype="int32") < length  # [P + T]
    occurred = _scatter_to_vocabulary(history, is_known, logits.shape[-1])  # [B, K, V]
    penalized = ops.where(logits < 0, logits * penalty, logits / penalty)
    return ops.where(occurred, penalized, logits)


def repeated_ngrams(vocabulary, history, length, n):
    """Whether each token would complete n tokens in a row that have occurred: bool [B, K, V].

    These are the tokens that followed the last n - 1 tokens before. With n = 3 and the history
    "a b c a b", the last two tokens are "a b", which "c" followed: "c" would repeat "a b c".

    Args:
        vocabulary: [V].
        history: int32 [B, K, P + T], of which the first `length` tokens are known.
    """
    place = ops.arange(ops.shape(history)[2], dtype="int32")  # [P + T]
    follows = (place >= n - 1) & (place < length) & ops.ones_like(history, "bool")  # [B, K, P + T]

    def compare(distance, follows):
        last = ops.take(history, ops.maximum(length - distance, 0), axis=2)  # [B, K]
        earlier = ops.take(history, ops.maximum(place - distance, 0), axis=2)  # [B, K, P + T]
        return distance + 1, follows & (earlier == last[..., None])

    first = ops.convert_to_tensor(1, "int32")
    _, follows = ops.while_loop(lambda distance, _: distance < n, compare, (first, follows))
    return _scatter_to_vocabulary(history, follows, vocabulary.shape[0])


def _scatter_to_vocabulary(tokens, chosen, vocab_size):
    """Whether each token of the vocabulary is one of the chosen tokens: bool [B, K, V].

    Args:
        tokens: int32 [B, K, N].
        chosen: bool, broadcastable to [B, K, N].
    """
    batch_size, beam_size, _ = ops.shape(tokens)
    row = ops.reshape(ops.arange(batch_size * beam_size, dtype="int32"), (batch_size, beam_size, 1))
    index = ops.reshape(row * vocab_size + tokens, (-1, 1))  # [B·K·N, 1]
    counts = ops.where(chosen, ops.ones_like(tokens), 0)
    counts = ops.reshape(counts, (-1,))  # [B·K·N]
    none = ops.zeros((batch_size * beam_size * vocab_size,), "int32")
    counts = ops.scatter_update(none, index, counts, "add")
    return ops.reshape(counts > 0, (batch_size, beam_size, vocab_size))
