"""Text generation with a causal language model.

Axes: B texts, P tokens of a prompt, F tokens of a prefix.
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
        model: `zoo.models.CausalLM`.
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
        self, prompts, beam_size=None, length_penalty=None, max_new_tokens=None, **search_options
    ):
        """Returns each prompt with its best continuation: a list of str.

        The arguments and errors are those of `n_best`.
        """
        request = self._request(prompts, max_new_tokens, search_options)
        return self._best(request, beam_size, length_penalty)

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
            prompts: list of str, which may be empty.
            n: number of continuations of each prompt.
            beam_size: number of hypotheses, from `n` to 1,000; 1 is greedy search. By default `n`.
            length_penalty: see `zoo.decoding.length_penalty`; by default 0.
            max_new_tokens: maximum number of new tokens. Defaults to 64, to more if `min_length` or
                `min_new_tokens` need them, or to as many as fit. Scores and length penalty are
                computed from the new tokens only.
            **search_options: fields of `zoo.decoding.SearchOptions`; by default those of the
                generator.

        Returns:
            For each prompt a list of `zoo.text.answers.ScoredText`, the best first.

        Raises:
            TaskError: if a prompt and its new tokens exceed the model's `max_length`, an option is
                invalid or outputs are NaN.
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
        """Returns each prompt with n continuations drawn from the distribution of the model.

        Args:
            temperature: at least 0.001; values below 1 make likely tokens more likely.
            top_k: if given, samples from the k most likely tokens only.
            top_p: if given, samples from the most likely tokens with this total probability only.
            seed: random seed. The random numbers for prompt i depend on `seed` and i only.
            prompts, n, max_new_tokens, **search_options: see `n_best`.

        Returns:
            See `n_best`; scores are log-probabilities.
        """
        request = self._request(prompts, max_new_tokens, search_options)
        return self._sample(request, n, temperature, top_k, top_p, seed)

    def max_prompt_length(self, max_new_tokens=None):
        """The maximum number of tokens of a prompt, including the start token.

        The model reads the prompt and all new tokens but the last.
        """
        return self.model.max_length + 1 - (max_new_tokens or 1)

    def most_new_tokens(self, options):
        """The default of `max_new_tokens`: 64, or more if the options, `SearchOptions`, need it."""
        return max(NEW_TOKENS, options.min_length, options.min_new_tokens + 1)

    def num_new(self, length, most):
        """The number of new tokens of a prompt of `length` tokens: `most`, or as many as fit."""
        return min(most, self.model.max_length + 1 - length)

    def _start(self, prompt, length, num_hypotheses):
        """The cache after all tokens of the prompt but the last, for `length` more."""
        read = prompt[:, :-1]
        return self.model.start(read, keras.ops.shape(read)[1] + length, num_hypotheses)

    def _prompt(self, tokens):
        return tokens

    def _inputs(self, batch, request):
        """Cuts each text into a prompt and a prefix of the hypotheses; see `prompt_length`.

        A text of 40 tokens, for example, is padded to 64 tokens::

            token   0 ... 31         32           33 ... 39   40 ... 63
                    read at once     first step   prefix      padding
                    |--- prompt, P = 33 ------|   |--- F = 31 --------|

        With 64 new tokens, its hypotheses have at most 7 + 64 tokens. The buffer has to hold
        31 + 64, and has 128, the next of `LENGTHS`.
        """
        [tokens] = batch.tokens  # [B, P + F]
        size = prompt_length(tokens.shape[1])  # P
        prefix = tokens[:, size:]  # [B, F]
        buffer_length = prefix.shape[1] + request.max_length
        max_length = np.ones(len(tokens), np.int32)  # 1 for rows of padding
        for row, length in enumerate(batch.lengths):
            given = length - size
            max_length[row] = given + self.num_new(length, request.max_length)
            self._check_lengths(request.options, max_length[row], given, size)
        return SearchInputs(
            tokens=tokens[:, :size],
            max_length=max_length,
            buffer_length=padded_length(buffer_length, self.model.max_length + 1 - size),
            # with a column of padding, since a prefix cannot be empty
            prefix=np.pad(prefix, [(0, 0), (0, 1)], constant_values=self.special_tokens.pad),
        )

    def _request(self, prompts, max_new_tokens, search_options):
        if max_new_tokens is not None:
            max_new_tokens = as_number("max_new_tokens", max_new_tokens, int, 1)
        special = self.special_tokens
        encoded = encode(
            self.tokenizer,
            prompts,
            self.max_prompt_length(max_new_tokens) + 1,  # with the end token
            special.end,
            prefix=[special.start] if self.add_start_token else [],
            name="Prompt {}",
            advice=f"Shorten it, or decrease max_new_tokens. Received: {max_new_tokens=}.",
        )
        rows = [row[:-1] or [special.start] for row in encoded]

        def to_answers(hypotheses):
            answers = []
            for found, row in zip(hypotheses, rows):
                # as in `_inputs`: a row and its padded row have the same `prompt_length`
                prompt = row[: prompt_length(len(row))]
                answers.append(self._scored(found, prompt))
            return answers

        options = self.options(**search_options)
        return Request(
            rows=[[row] for row in rows],
            max_length=max_new_tokens or self.most_new_tokens(options),
            options=options,
            to_answers=to_answers,
        )


def prompt_length(length):
    """How many tokens of a text are its prompt; the others are a prefix of the hypotheses.

    The model reads all tokens of the prompt but the last at once. Their number is 0 or one of
    `LENGTHS`, so that few functions are compiled.
    """
    return 1 + max(number for number in (0, *LENGTHS) if number < length)
