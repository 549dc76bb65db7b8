"""A trained causal language model with its tokenizer: it continues texts.

Axes: B prompts, P tokens of a prompt, T new tokens, K hypotheses of a prompt.
"""

import json
import math
import pathlib
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from zoo import decoding
from zoo.errors import TextError
from zoo.tasks.search import (
    LENGTHS,
    Programs,
    checked,
    checked_draw,
    padded,
    uniforms_of,
    without_nan,
)
from zoo.text.loading import load_tokenizer
from zoo.text.special_tokens import SPECIAL_TOKENS
from zoo.text.translation_text import encode

MODEL_FILE = "model.keras"
DESCRIPTION_FILE = "generator.json"
TOKENIZER_FILE = "tokenizer.json"
NEW_TOKENS = 64  # by default


class Generation(NamedTuple):
    """A continued text, the prompt included, and its score.

    The score is the log-probability of the new tokens over the length penalty, at most 0.
    """

    text: str
    score: float


class TextGenerator:
    """A causal language model together with its tokenizer.

    Args:
        model: `zoo.models.CausalLM`. Another one may be assigned later.
        tokenizer: `zoo.text.tokenizer.Tokenizer` or `zoo.text.published.ByteLevelBPETokenizer`.
        special_tokens: `zoo.decoding.SpecialTokens`.
        add_start_token: whether every prompt begins with the start token; without it, only an empty
            prompt does, as in GPT-2.

    Raises:
        TextError: if model, tokenizer and special tokens do not fit together.
    """

    def __init__(self, model, tokenizer, special_tokens=SPECIAL_TOKENS, add_start_token=True):
        self.tokenizer = tokenizer
        self.add_start_token = add_start_token
        self.run_folder = None  # where it was loaded from
        self._set_model(model, special_tokens)

    def __call__(self, prompts, **options):
        """The most likely continuation of each prompt, a list of str; see `n_best`."""
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
            For each prompt a list of `Generation`.

        Raises:
            TextError: if prompt and new tokens are more than the model's `max_length`, an
                option is wrong or the model computes NaN.
        """
        n = checked("n", n, int, 1)
        beam_size = checked("beam_size", n if beam_size is None else beam_size, int, n)
        alpha = np.float32(checked("length_penalty", length_penalty, float))

        def search(indices, *prompt, length, buffer):
            settings = {"beam_size": beam_size, "buffer": buffer}
            return self._programs.run(self.search, *prompt, alpha, length, **settings)

        return [found[:n] for found in self._each(prompts, max_new_tokens, search)]

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
            For each prompt a list of `Generation`, whose scores are log-probabilities.

        Raises:
            TextError: see `n_best`.
        """
        n, seed = checked("n", n, int, 1), checked("seed", seed, int, 0)
        top_k, *scalars = checked_draw(temperature, top_k, top_p)

        def search(indices, *prompt, length, buffer):
            uniforms = np.zeros((len(length), n, buffer), np.float32)
            for row, index in zip(uniforms, indices):
                row[:] = uniforms_of(seed, index, buffer, n)
            tensors = (*prompt, uniforms, length, *scalars)
            return self._programs.run(self.draw, *tensors, top_k=top_k)

        return self._each(prompts, max_new_tokens, search)

    def stream(self, prompt, temperature=1.0, top_k=None, top_p=None, seed=0, max_new_tokens=None):
        """Draws a continuation as `sample` does, and yields its text piece by piece, as str.

        Together, the pieces are what `sample` adds to the prompt. For the arguments and errors see
        `sample`.
        """
        seed = checked("seed", seed, int, 0)
        top_k, *scalars = checked_draw(temperature, top_k, top_p)
        [tokens], most = self._encode([prompt], max_new_tokens)
        new, count = self.num_new(len(tokens), most), num_read(len(tokens))
        read, given = tokens[: count + 1], tokens[count + 1 :]
        buffer = padded(len(given) + new, self.model.max_length - count)
        cache = self._programs.call(self._read, np.array([read], np.int32), length=buffer)
        token = np.array([read[-1:]], np.int32)
        before, yielded = self._text(tokens), ""
        uniforms = uniforms_of(seed, 0, buffer, 1)[:, : len(given) + new]
        for position, uniform in enumerate(uniforms.T):
            inputs = (token, np.int32(position), uniform[None], cache)
            found, cache, total = self._programs.call(self._next, *inputs, *scalars, top_k=top_k)
            without_nan(total.numpy())
            if position < len(given):
                token = np.array([[given[position]]], np.int32)
                continue
            token = found.numpy()
            tokens.append(int(token[0, 0]))
            text = self._text(tokens).removeprefix(before)
            is_last = tokens[-1] == self.special_tokens.end or position == len(uniforms.T) - 1
            if is_last or not text.endswith("\ufffd"):  # some tokens are bytes of a character
                yield text.removeprefix(yielded)
                yielded = text
            if is_last:
                return

    @property
    def model(self):
        return self._programs.model

    @model.setter
    def model(self, model):
        jit_compile = self.jit_compile
        self._set_model(model, self.special_tokens)
        self.jit_compile = jit_compile

    @property
    def jit_compile(self):
        """See `zoo.tasks.translator.Translator.jit_compile`."""
        return self._programs.jit_compile

    @jit_compile.setter
    def jit_compile(self, jit_compile):
        self._programs.jit_compile = jit_compile

    @property
    def special_tokens(self):
        return self._programs.special

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

    def save(self, folder):
        """Writes the model and its tokenizer into `folder`."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save(folder / MODEL_FILE, include_optimizer=False)
        self.tokenizer.save(folder / TOKENIZER_FILE)
        text = json.dumps(self.description(), indent=2)
        (folder / DESCRIPTION_FILE).write_text(text + "\n")

    @classmethod
    def load(cls, folder):
        """Reads what `save` wrote."""
        folder = pathlib.Path(folder)
        description = json.loads((folder / DESCRIPTION_FILE).read_text())
        generator = cls(
            keras.saving.load_model(folder / MODEL_FILE, compile=False),
            load_tokenizer(folder / TOKENIZER_FILE),
            decoding.SpecialTokens(**description["special_tokens"]),
            description.get("add_start_token", True),  # runs of earlier versions always add it
        )
        generator.run_folder = folder
        return generator

    def search(self, read, forced, alpha, max_length, beam_size, buffer):
        """Beam search as a graph, greedy search if `beam_size` is 1.

        Args:
            read: int [B, P], the first tokens of the prompts.
            forced: int [B, F], the others, then padding.
            alpha: of the length penalty, a scalar tensor.
            max_length: int [B], the largest number of forced and new tokens.
            beam_size: K.
            buffer: number of tokens for which there is a buffer, at least `max_length`.

        Returns:
            `zoo.decoding.Hypotheses` of forced and new tokens.
        """
        cache = self._read(read, buffer, beam_size)
        special = self.special_tokens._replace(first=forced)
        rows, length = keras.ops.shape(read)
        settings = (self._first_step(read), cache, rows, special, max_length)
        # The length of the penalty is that of the whole text. The search counts new tokens and the
        # last one of `read`, and adds the offset, 5 in the penalty of a translator.
        penalty = decoding.LengthPenalty(alpha, 4.0 + keras.ops.cast(length, "float32"))
        if beam_size == 1:
            found = decoding.greedy_search(*settings, penalty, buffer_length=buffer)
        else:
            found = decoding.beam_search(*settings, beam_size, penalty, buffer_length=buffer)
        return found._replace(scores=found.scores / decoding.length_penalty(length, alpha))

    def draw(self, read, forced, uniforms, max_length, temperature, top_p, top_k=None):
        """Sampling as a graph: see `search` and `zoo.decoding.sample`."""
        _, draws, buffer = keras.ops.shape(uniforms)
        cache = self._read(read, buffer, draws)
        special = self.special_tokens._replace(first=forced)
        settings = (special, max_length, temperature, top_k, top_p)
        return decoding.sample(self._first_step(read), cache, uniforms, *settings)

    def _set_model(self, model, special_tokens):
        if model.vocab_size != self.tokenizer.vocab_size:
            raise TextError(
                f"The model has {model.vocab_size} tokens. "
                f"Received a tokenizer with {self.tokenizer.vocab_size} tokens."
            )
        self._programs = Programs(model, special_tokens, model.vocab_size)

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

    def _each(self, prompts, max_new_tokens, search):
        """Continuations of each prompt.

        Args:
            search: function (indices, read, forced, length=, buffer=) -> `zoo.decoding.Hypotheses`;
                see the method `search`.
        """
        rows, most = self._encode(prompts, max_new_tokens)

        def run(indices, tokens):
            count = num_read(tokens.shape[1])
            read, forced = tokens[:, : count + 1], tokens[:, count + 1 :]
            forced = np.pad(forced, [(0, 0), (0, 1)], constant_values=self.special_tokens.pad)
            sizes = [len(rows[index]) for index in indices]
            length = np.ones(len(tokens), np.int32)  # of rows without a prompt
            length[: len(sizes)] = [size - count - 1 + self.num_new(size, most) for size in sizes]
            buffer = padded(tokens.shape[1] - count - 1 + most, self.model.max_length - count)
            return search(indices, read, forced, length=length, buffer=buffer)

        hypotheses = self._programs.each([[row] for row in rows], run)
        return [
            self._generations(row[: num_read(len(row)) + 1], *arrays)
            for row, arrays in zip(rows, hypotheses)
        ]

    def _generations(self, read, tokens, log_probs, scores):
        possible = np.isfinite(log_probs)
        texts = [self._text([*read, *row]) for row in tokens[possible]]
        return [Generation(text, float(score)) for text, score in zip(texts, scores[possible])]

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
                raise TextError(
                    f"Prompt {index} is too long: {len(tokens)} tokens with the start token, and "
                    f"the model reads {self.model.max_length}, new ones included. Shorten it, or "
                    f"decrease max_new_tokens. Received: max_new_tokens={max_new_tokens}."
                )
        return rows, max_new_tokens or NEW_TOKENS


def num_read(length):
    """How many tokens of a prompt, before the one that the first step takes, are read at once.

    It is one of a few numbers, so that few programs are compiled.
    """
    return max(number for number in (0, *LENGTHS) if number < length)
