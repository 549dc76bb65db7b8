"""Text generation with a causal language model.

Axes: B texts, K hypotheses of a text. A text to be continued consists of P tokens of a prompt,
which the model reads at once, and of F tokens of a prefix, with which the hypotheses begin.
"""

import keras
import numpy as np

from zoo.errors import as_number
from zoo.tasks.generation import GenerationTask, Request, SearchInputs
from zoo.tasks.padded_batches import LENGTHS, padded_length
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

    description_file = "generator.json"
    verb = "generate"
    tokenizer_names = {"tokenizer": "text"}
    saved_arguments = ("add_start_token", "search_options")

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

    def __call__(
        self,
        prompts,
        max_new_tokens=None,
        beam_size=None,
        length_penalty=None,
        **search_options,
    ):
        """Returns each prompt with its best continuation: a list of str.

        Args:
            prompts: list of str, which may be empty.
            max_new_tokens: maximum number of new tokens; by default 64, or as many as fit. Scores
                and the length penalty are those of the new tokens.
            beam_size, length_penalty: see `n_best`.
            **search_options: fields of `zoo.decoding.SearchOptions`; by default those of the
                generator.

        Raises:
            TaskError: if a prompt and its new tokens exceed the model's `max_length`, an option is
                invalid or outputs are NaN.
        """
        request = self._request(prompts, max_new_tokens, search_options)
        answers = self._n_best(request, 1, beam_size, length_penalty)
        return [best.text for [best, *_] in answers]

    def n_best(
        self,
        prompts,
        n=1,
        beam_size=None,
        length_penalty=None,
        max_new_tokens=None,
        **search_options,
    ):
        """Returns each prompt with its n best continuations, by beam search.

        Args:
            n: number of continuations of each prompt.
            beam_size: number of hypotheses, from `n` to 1,000; 1 is greedy search. By default `n`.
            length_penalty: see `zoo.decoding.length_penalty`; by default 0.
            prompts, max_new_tokens, **search_options: see `__call__`.

        Returns:
            For each prompt a list of `zoo.text.answers.ScoredText`, the best first.

        Raises:
            TaskError: see `__call__`.
        """
        request = self._request(prompts, max_new_tokens, search_options)
        return self._n_best(request, n, beam_size, length_penalty)

    def sample(
        self,
        prompts,
        n=1,
        temperature=1.0,
        top_k=None,
        top_p=None,
        seed=0,
        max_new_tokens=None,
        **search_options,
    ):
        """Returns each prompt with continuations drawn from the distribution of the model.

        Args:
            n: number of samples of each prompt.
            temperature: at least 0.001; values below 1 make likely tokens more likely.
            top_k: if given, samples from the k most likely tokens only.
            top_p: if given, samples from the most likely tokens with this total probability only.
            seed: random seed. The samples of a prompt depend on it and on the number of prompts
                before it.
            prompts, max_new_tokens, **search_options: see `__call__`.

        Returns:
            See `n_best`; scores are log-probabilities.

        Raises:
            TaskError: see `__call__`.
        """
        request = self._request(prompts, max_new_tokens, search_options)
        return self._sample(request, n, temperature, top_k, top_p, seed)

    def max_prompt_length(self, max_new_tokens=None):
        """The maximum number of tokens of a prompt, including the start token."""
        return self.model.max_length + 1 - (max_new_tokens or 1)  # the last new token is not read

    def num_new(self, length, most):
        """The number of new tokens of a prompt of `length` tokens: `most`, or as many as fit."""
        return min(most, self.max_prompt_length() + 1 - length)

    def _start(self, prompt, length, num_hypotheses):
        """The cache after all tokens of the prompt but the last, for `length` more."""
        read = prompt[:, :-1]
        return self.model.start(read, keras.ops.shape(read)[1] + length, num_hypotheses)

    def _prompt(self, tokens):
        return tokens

    def _inputs(self, batch, request):
        [tokens] = batch.tokens  # [B, P + F]
        width = tokens.shape[1]
        size = prompt_length(width)  # P
        prefix = tokens[:, size:]
        prefix = np.pad(prefix, [(0, 0), (0, 1)], constant_values=self.special_tokens.pad)
        most = request.max_length
        max_length = np.ones(len(tokens), np.int32)  # of rows without a prompt
        for row, length in enumerate(batch.lengths):
            max_length[row] = length - size + self.num_new(length, most)
        return SearchInputs(
            tokens=tokens[:, :size],
            max_length=max_length,
            buffer_length=padded_length(width - size + most, self.model.max_length + 1 - size),
            prefix=prefix,
        )

    def _request(self, prompts, max_new_tokens, search_options):
        if max_new_tokens is not None:
            max_new_tokens = as_number("max_new_tokens", max_new_tokens, int, 1)
        special = self.special_tokens
        encoded = encode(
            self.tokenizer,
            prompts,
            self.max_prompt_length(max_new_tokens) + 1,
            special.end,
            prefix=[special.start] if self.add_start_token else [],
            name="Prompt {}",
            advice=f"Shorten it, or decrease max_new_tokens. Received: {max_new_tokens=}.",
        )
        rows = [row[:-1] or [special.start] for row in encoded]

        def answers(hypotheses):
            return [
                self._scored(found, prompt=row[: prompt_length(len(row))])
                for found, row in zip(hypotheses, rows)
            ]

        return Request(
            rows=[[row] for row in rows],
            max_length=max_new_tokens or NEW_TOKENS,
            options=self.options(**search_options),
            answers=answers,
        )


def prompt_length(length):
    """How many of the tokens of a text are its prompt, which the model reads at once.

    It is one of a few numbers, so that few functions are compiled. The other tokens are the prefix
    of the hypotheses.
    """
    return 1 + max(number for number in (0, *LENGTHS) if number < length)
