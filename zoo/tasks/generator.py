"""Text generation with a causal language model.

Axes: B prompts, P tokens of a prompt, T new tokens, K hypotheses of a prompt.
"""

import keras
import numpy as np

from zoo.errors import as_number
from zoo.tasks.generation import GenerationTask
from zoo.tasks.padded_batches import LENGTHS, padded
from zoo.text.encoding import encode
from zoo.text.special_tokens import SPECIAL_TOKENS

NEW_TOKENS = 64  # by default


class TextGenerator(GenerationTask):
    """A causal language model together with its tokenizer.

    Args:
        model: `zoo.models.CausalLM`. Another one may be assigned later.
        tokenizer: `zoo.text.sentencepiece.SentencePieceTokenizer` or
            `zoo.text.library_tokenizer.LibraryTokenizer`.
        special_tokens: `zoo.decoding.SpecialTokens`.
        add_start_token: whether every prompt begins with the start token. If False, only an empty
            prompt does, as in GPT-2.
        search_options: dict of fields of `zoo.decoding.SearchOptions`, the defaults of all calls.

    Raises:
        TaskError: if model, tokenizer and special tokens do not match.
    """

    description_file, verb = "generator.json", "generate"
    tokenizer_names = {"tokenizer": "text"}
    settings = ("add_start_token", "search_options")

    def __init__(
        self,
        model,
        tokenizer,
        special_tokens=SPECIAL_TOKENS,
        add_start_token=True,
        search_options=None,
    ):
        self.tokenizer = tokenizer
        self.add_start_token = add_start_token
        super().__init__(model, special_tokens, search_options)

    def __call__(self, prompts, max_new_tokens=None, **options):
        """Returns each prompt with its best continuation: a list of str.

        Args:
            prompts: list of str, which may be empty.
            max_new_tokens: maximum number of new tokens; by default 64, or as many as fit. Scores
                and the length penalty are those of the new tokens.
            **options: `beam_size` and `length_penalty`, see `n_best`, and fields of
                `zoo.decoding.SearchOptions`; by default those of the generator.

        Raises:
            TaskError: if a prompt and its new tokens exceed the model's `max_length`, an option is
                invalid or outputs are NaN.
        """
        return super().__call__(prompts, max_new_tokens=max_new_tokens, **options)

    def max_prompt_length(self, max_new_tokens=None):
        """The maximum number of tokens of a prompt, including the start token."""
        return self.model.max_length + 1 - (max_new_tokens or 1)  # the last new token is not read

    def num_new(self, length, most):
        """The number of new tokens of a prompt of `length` tokens: `most`, or as many as fit."""
        return min(most, self.max_prompt_length() + 1 - length)

    def _start(self, read, length, num_hypotheses):
        """The cache after all tokens of `read` but the last, for `length` more."""
        count = keras.ops.shape(read)[1] - 1
        return self.model.start(read[:, :-1], count + length, num_hypotheses), read

    def _inputs(self, batch, most, options):
        [tokens] = batch.tokens
        count = num_read(tokens.shape[1])
        read, forced = tokens[:, : count + 1], tokens[:, count + 1 :]
        forced = np.pad(forced, [(0, 0), (0, 1)], constant_values=self.special_tokens.pad)
        length = np.ones(len(tokens), np.int32)  # of rows without a prompt
        for row, size in enumerate(batch.lengths):
            length[row] = size - count - 1 + self.num_new(size, most)
        buffer = padded(tokens.shape[1] - count - 1 + most, self.model.max_length - count)
        return [read, forced], length, buffer

    def _prepared(self, prompts, max_new_tokens=None, **options):
        if max_new_tokens is not None:
            max_new_tokens = as_number("max_new_tokens", max_new_tokens, int, 1)
        special, limit = self.special_tokens, self.max_prompt_length(max_new_tokens) + 1
        control = (special.end, special.start if self.add_start_token else None)
        advice = f"Shorten it, or decrease max_new_tokens. Received: {max_new_tokens=}."
        encoded = encode(self.tokenizer, prompts, limit, *control, "Prompt {}", advice)
        rows = [row[:-1] or [special.start] for row in encoded]

        def texts(hypotheses):
            read = (row[: num_read(len(row)) + 1] for row in rows)
            return [self._scored(*arrays, before) for arrays, before in zip(hypotheses, read)]

        most = max_new_tokens or NEW_TOKENS
        return [[row] for row in rows], most, self.options(options), texts


def num_read(length):
    """How many tokens of a prompt, before the one that the first step takes, are read at once.

    It is one of a few numbers, so that few functions are compiled.
    """
    return max(number for number in (0, *LENGTHS) if number < length)
