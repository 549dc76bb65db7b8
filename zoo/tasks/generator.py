"""A trained causal language model with its tokenizer: it continues texts.

Axes: B prompts, P tokens of a prompt, T new tokens, K hypotheses of a prompt.
"""

import math
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from zoo import decoding
from zoo.errors import TaskError
from zoo.tasks.compiled_functions import without_nan
from zoo.tasks.options import checked, checked_sampling, checked_search, uniforms
from zoo.tasks.padded_batches import LENGTHS, padded
from zoo.tasks.task import TextTask
from zoo.text.special_tokens import SPECIAL_TOKENS
from zoo.text.translation_text import encode

NEW_TOKENS = 64  # by default


class Generation(NamedTuple):
    """A continued text, the prompt included, and its score.

    The score is the log-probability of the new tokens over the length penalty, at most 0.
    """

    text: str
    score: float


class TextGenerator(TextTask):
    """A causal language model together with its tokenizer.

    Args:
        model: `zoo.models.CausalLM`. Another one may be assigned later.
        tokenizer: `zoo.text.tokenizer.Tokenizer` or `zoo.text.published.ByteLevelBPETokenizer`.
        special_tokens: `zoo.decoding.SpecialTokens`.
        add_start_token: whether every prompt begins with the start token; without it, only an empty
            prompt does, as in GPT-2.

    Raises:
        TaskError: if model, tokenizer and special tokens do not fit together.
    """

    description_file = "generator.json"
    tokenizer_files = {"tokenizer": "tokenizer.json"}

    def __init__(self, model, tokenizer, special_tokens=SPECIAL_TOKENS, add_start_token=True):
        self.tokenizer = tokenizer
        self.add_start_token = add_start_token
        super().__init__(model, special_tokens, tokenizer.vocab_size)

    def __call__(self, prompts, **options):
        """Each prompt with its most likely continuation, a list of str; see `n_best`."""
        return [best.text for [best, *_] in self.n_best(prompts, **options)]

    def n_best(self, prompts, n=1, beam_size=None, length_penalty=0.0, max_new_tokens=None):
        """Several continuations of each prompt, the best first, found by beam search.

        Args:
            prompts: list of str; an empty prompt begins a text.
            n: number of continuations.
            beam_size: at least `n`, which is the default; 1 is greedy search.
            length_penalty: see `zoo.decoding.length_penalty`, of new tokens and prompt together;
                the first token of the prompt does not count.
            max_new_tokens: the largest number of new tokens; by default 64, or as many as fit.

        Returns:
            For each prompt a list of `Generation`, whose texts begin with the prompt.

        Raises:
            TaskError: if prompt and new tokens are more than the model's `max_length`, an
                option is wrong or the model computes NaN.
        """
        n, beam_size, alpha = checked_search(n, beam_size, length_penalty)
        rows, most = self._encode(prompts, max_new_tokens)

        def search(batch):
            read, forced, length, buffer = self._prompts(batch, most)
            settings = {"beam_size": beam_size, "buffer": buffer}
            return self.run(self.search, read, forced, alpha, length, **settings)

        return [best[:n] for best in self._generations(rows, search, most)]

    def sample(
        self, prompts, n=1, temperature=1.0, top_k=None, top_p=None, seed=0, max_new_tokens=None
    ):
        """Draws continuations of each prompt by their probability.

        Args:
            prompts, max_new_tokens: see `n_best`.
            n: number of draws.
            temperature: at least 0.001; below 1 likely tokens become more likely, above 1 less.
            top_k: if given, draws from the k most likely tokens only.
            top_p: if given, draws from the most likely tokens with this total probability only.
            seed: of the draws; a prompt's draws depend on it and on the prompt's place in the list.

        Returns:
            For each prompt a list of `Generation`, whose texts begin with the prompt and whose
            scores are log-probabilities.

        Raises:
            TaskError: see `n_best`.
        """
        n, seed, top_k, *scalars = checked_sampling(n, seed, temperature, top_k, top_p)
        rows, most = self._encode(prompts, max_new_tokens)

        def draw(batch):
            read, forced, length, buffer = self._prompts(batch, most)
            random = uniforms(seed, batch.indices, len(length), n, buffer)
            return self.run(self.draw, read, forced, random, length, *scalars, top_k=top_k)

        return self._generations(rows, draw, most)

    def stream(self, prompt, temperature=1.0, top_k=None, top_p=None, seed=0, max_new_tokens=None):
        """Draws a continuation as `sample` does, and yields its text piece by piece, as str.

        Together, the pieces are what `sample` adds to the prompt. For the arguments and errors see
        `sample`; wrong arguments are reported before the first piece is asked for.
        """
        _, *settings = checked_sampling(1, seed, temperature, top_k, top_p)
        [tokens], most = self._encode([prompt], max_new_tokens)
        return self._stream(tokens, most, *settings)

    def _stream(self, tokens, most, seed, top_k, *scalars):
        count, size = num_read(len(tokens)), len(tokens)
        last = size + self.num_new(size, most) - 1
        buffer = padded(last - count, self.model.max_length - count)
        [[random]] = uniforms(seed, [0], 1, 1, buffer)
        cache = self.call(self._read, np.array([tokens[: count + 1]], np.int32), length=buffer)
        before, yielded = self._text(tokens), ""
        for position in range(count, last):
            token = np.array([[tokens[position]]], np.int32)
            inputs = (token, np.int32(position - count), random[None, position - count, None])
            drawn, cache, total = self.call(self._next, *inputs, cache, *scalars, top_k=top_k)
            without_nan(total.numpy())
            if position + 1 < size:  # the next token is given
                continue
            tokens.append(int(drawn[0, 0]))
            text = self._text(tokens).removeprefix(before)
            is_last = tokens[-1] == self.special_tokens.end or position + 1 == last
            if is_last or not text.endswith("\ufffd"):  # some tokens are bytes of a character
                yield text.removeprefix(yielded)
                yielded = text
            if is_last:
                return

    def max_prompt_length(self, max_new_tokens=None):
        """The largest number of tokens of a prompt, the start token included."""
        return self.model.max_length + 1 - (max_new_tokens or 1)  # the last new one is not read

    def num_new(self, length, most):
        """The number of new tokens of a prompt of `length` tokens: `most`, or as many as fit."""
        return min(most, self.max_prompt_length() + 1 - length)

    def description(self):
        """The metadata of the tokenizer, as JSON can hold it."""
        return {
            "tokenizer": {"kind": self.tokenizer.kind, "vocab_size": self.tokenizer.vocab_size},
            "special_tokens": self.special_tokens._asdict(),
            "add_start_token": self.add_start_token,
        }

    @classmethod
    def from_description(cls, description, model, tokenizer):
        special_tokens = decoding.SpecialTokens(**description["special_tokens"])
        return cls(model, tokenizer, special_tokens, description["add_start_token"])

    def check(self, model):
        if model.vocab_size != self.tokenizer.vocab_size:
            raise TaskError(
                f"The model has {model.vocab_size} tokens. "
                f"Received a tokenizer with {self.tokenizer.vocab_size} tokens."
            )

    def search(self, read, forced, alpha, max_length, beam_size, buffer):
        """Beam search as a graph, greedy search if `beam_size` is 1.

        Args:
            read: int32 [B, P], the first tokens of prompts, which the model reads at once.
            forced: int32 [B, F], their other tokens, then padding.
            alpha: of the length penalty, a scalar tensor.
            max_length: int32 [B], the largest number of forced and new tokens.
            beam_size: K.
            buffer: number of tokens for which there is a buffer, at least `max_length`.

        Returns:
            `zoo.decoding.Hypotheses` of forced and new tokens.
        """
        cache = self._read(read, buffer, beam_size)
        special = self.special_tokens._replace(first=forced)
        rows, length = keras.ops.shape(read)
        settings = (self._first_step(read), cache, rows, special, max_length)
        # A text of P read tokens and t others has the length P - 1 + t, as its first token does not
        # count, and so the penalty ((4 + P + t) / 6) ** alpha. The search, with the offset 4 + P,
        # divides by ((4 + P + t) / (5 + P)) ** alpha; the rest is the penalty of P tokens.
        penalty = decoding.LengthPenalty(alpha, 4.0 + keras.ops.cast(length, "float32"))
        if beam_size == 1:
            best = decoding.greedy_search(*settings, penalty, buffer_length=buffer)
        else:
            best = decoding.beam_search(*settings, beam_size, penalty, buffer_length=buffer)
        return best._replace(scores=best.scores / decoding.length_penalty(length, alpha))

    def draw(self, read, forced, uniforms, max_length, temperature, top_p, top_k=None):
        """Sampling as a graph: see `search` and `zoo.decoding.sample`."""
        _, draws, buffer = keras.ops.shape(uniforms)
        cache = self._read(read, buffer, draws)
        special = self.special_tokens._replace(first=forced)
        settings = (special, max_length, temperature, top_k, top_p)
        return decoding.sample(self._first_step(read), cache, uniforms, *settings)

    def _next(self, token, position, uniform, cache, temperature, top_p, top_k):
        """One step of sampling: (the next token, the next cache, NaN if a logit is)."""
        logits, cache = self.model.step(token, cache)
        settings = (self.special_tokens, position, uniform, temperature, top_k, top_p)
        return decoding.next_token(logits, *settings), cache, keras.ops.logsumexp(logits)

    def _read(self, read, length, num_hypotheses=1):
        """The cache after all tokens of `read` but the last, for `length` more."""
        count = keras.ops.shape(read)[1] - 1
        return self.model.start(read[:, :-1], count + length, num_hypotheses)

    def _first_step(self, read):
        """The model's step; the first one takes the last tokens of `read`."""

        def step(tokens, cache):
            is_first = cache.position == keras.ops.shape(read)[1] - 1
            return self.model.step(tf.where(is_first, read[:, -1][:, None], tokens), cache)

        return step

    def _prompts(self, batch, most):
        """(read, forced, max_length, buffer) of a batch for `search`: up to `most` new tokens."""
        [tokens] = batch.tokens
        count = num_read(tokens.shape[1])
        read, forced = tokens[:, : count + 1], tokens[:, count + 1 :]
        forced = np.pad(forced, [(0, 0), (0, 1)], constant_values=self.special_tokens.pad)
        length = np.ones(len(tokens), np.int32)  # of rows without a prompt
        for row, size in enumerate(batch.lengths):
            length[row] = size - count - 1 + self.num_new(size, most)
        buffer = padded(tokens.shape[1] - count - 1 + most, self.model.max_length - count)
        return read, forced, length, buffer

    def _generations(self, rows, search, most):
        """For each row of tokens a list of `Generation`; `search` is a function of a batch."""
        generations, buffer_length = [], self.num_new(1, most)
        hypotheses = self.compute([[row] for row in rows], search, buffer_length)
        for row, (tokens, log_probs, scores) in zip(rows, hypotheses):
            read, possible = row[: num_read(len(row)) + 1], np.isfinite(log_probs)
            texts = [self._text([*read, *new]) for new in tokens[possible]]
            scores = map(float, scores[possible])
            generations.append([Generation(*pair) for pair in zip(texts, scores)])
        return generations

    def _text(self, tokens):
        special = self.special_tokens
        control = (special.start, special.end, special.pad)
        return self.tokenizer.decode([[id for id in tokens if id not in control]])[0]

    def _encode(self, prompts, max_new_tokens):
        """The start token and the tokens of each prompt; the largest number of new tokens."""
        if max_new_tokens is not None:
            max_new_tokens = checked("max_new_tokens", max_new_tokens, int, 1)
        special, limit = self.special_tokens, self.max_prompt_length(max_new_tokens)
        start = special.start if self.add_start_token else None
        rows = encode(self.tokenizer, prompts, math.inf, special.end, start)
        rows = [row[:-1] or [special.start] for row in rows]
        for index, tokens in enumerate(rows):
            if len(tokens) > limit:
                raise TaskError(
                    f"Prompt {index} is too long: {len(tokens)} tokens with the start token, and "
                    f"the model reads {self.model.max_length}, new ones included. Shorten it, or "
                    f"decrease max_new_tokens. Received: max_new_tokens={max_new_tokens}."
                )
        return rows, max_new_tokens or NEW_TOKENS


def num_read(length):
    """How many tokens of a prompt, before the one that the first step takes, are read at once.

    It is one of a few numbers, so that few functions are compiled.
    """
    return max(number for number in (0, *LENGTHS) if number < length)
