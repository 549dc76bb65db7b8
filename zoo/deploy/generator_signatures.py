"""SavedModel signatures of a text generator: texts to continued texts.

Axes: B texts, N continuations per text, P tokens of a prompt, which are read at once, F tokens of a
prefix, which are forced one by one, T new tokens.
"""

import math

import tensorflow as tf

from zoo.deploy.signatures import TEXTS, Signature, TextSignatures, example_texts, search_signatures
from zoo.deploy.text_graph import TextGraph
from zoo.tasks.padded_batches import LENGTHS

_LEAST_TEMPERATURE = 1e-3
_LEAST_TOP_P = 1e-6
_TEMPERATURE = f"temperature must be a finite number of at least {_LEAST_TEMPERATURE}."
_TOP_P = f"top_p must be from {_LEAST_TOP_P} to 1."
_EACH = "temperature, top_p and seed must have one value for each text."


class GeneratorSignatures(TextSignatures):
    """`Signatures` of a `zoo.tasks.generator.TextGenerator`; see `zoo.export` for the arguments."""

    def __init__(self, generator, n_best, beam_size, length_penalty, max_new_tokens):
        self._n_best = n_best
        self._beam_size = beam_size
        self._length_penalty = length_penalty
        self._max_new_tokens = max_new_tokens
        self.summands = max_new_tokens or generator.most_new_tokens(generator.options())
        self._text_graph = TextGraph(generator.tokenizer)
        limit = generator.max_prompt_length(max_new_tokens)
        super().__init__(generator, limit, self._text_graph)

    def signatures(self):
        tokens = tf.TensorSpec([None, None], tf.int32)
        length = tf.TensorSpec([None], tf.int32)
        what = "texts to their likeliest continuations"
        signatures = search_signatures(self.generate, self._search, [tokens, tokens, length], what)
        signatures["sample"] = Signature(
            self.sample,
            [
                TEXTS,
                tf.TensorSpec([None], tf.float32, "temperature"),
                tf.TensorSpec([None], tf.float32, "top_p"),
                tf.TensorSpec([None], tf.int64, "seed"),
            ],
            "texts to drawn continuations, with a temperature, top_p and seed for each text",
        )
        return signatures

    def examples(self):
        texts = example_texts(self._task.tokenizer, self._limit - 1)
        answers = self._task.n_best(
            texts,
            self._n_best,
            self._beam_size,
            self._length_penalty,
            max_new_tokens=self._max_new_tokens,
        )
        return texts, answers

    def generate(self, texts, search):
        """Continues texts, string [B], by a search; see `_each`."""
        return self._each(texts, "", lambda group, *prompt: search(*prompt))

    def sample(self, texts, temperature, top_p, seed):
        """Draws continuations of texts, string [B]; the other inputs are also [B]."""
        # It is not compiled by XLA, which sorts logits more slowly.
        size = tf.size(texts)
        checks = [
            tf.debugging.assert_equal(tf.size(values), size, _EACH)
            for values in (temperature, top_p, seed)
        ]
        with tf.control_dependencies(checks):
            is_valid = (temperature >= _LEAST_TEMPERATURE) & (temperature < math.inf)
            error = tf.where(is_valid, "", _TEMPERATURE)
        error = tf.where((top_p >= _LEAST_TOP_P) & (top_p <= 1.0), error, _TOP_P)

        def draw(group, prompt, prefix, length):
            shape = [self._n_best, self._buffer(prompt, prefix)]
            # The draws for a text depend only on its own seed and length.
            uniforms = tf.map_fn(
                lambda seed: tf.random.stateless_uniform(shape, [seed, 0], alg="philox"),
                tf.gather(seed, group),
                fn_output_signature=tf.TensorSpec([self._n_best, None], tf.float32),
            )
            return self._task.draw(
                prompt,
                uniforms,
                length,
                tf.gather(temperature, group)[:, None, None],
                tf.gather(top_p, group)[:, None, None],
                prefix,
                options=self._task.options(),
            )

        return self._each(texts, error, draw)

    def _each(self, texts, error, search):
        """Continues the texts, string [B], whose `error` is "".

        `search` takes the indices of texts, their prompts, int32 [B, P], prefixes [B, F] and
        lengths [B], and returns `zoo.decoding.Hypotheses`.
        """
        start = [self._special.start] if self._task.add_start_token else []
        tokens, too_long = self._encode(self._text_graph, texts, start)
        error = tf.where(too_long == "", error, too_long)
        is_empty = tokens.row_lengths() == 0  # the model needs a token
        start_token = tf.fill([tf.size(texts), 1], self._special.start)
        start_token = tf.ragged.boolean_mask(start_token, is_empty[:, None])
        tokens = tf.concat([start_token, tokens], axis=1)
        sizes = tf.cast(tokens.row_lengths(), tf.int32)

        def continued(indices, tokens):
            width = _prompt_length(tf.shape(tokens)[1])
            tokens = tf.pad(tokens, [[0, 0], [0, 1]], constant_values=self._special.pad)
            prompt = tokens[:, :width]
            prefix = tokens[:, width:]
            size = tf.gather(sizes, indices)
            new = tf.minimum(self.summands, self._task.max_prompt_length() + 1 - size)
            found = search(indices, prompt, prefix, size - width + new)
            prompt = tf.repeat(prompt[:, None], tf.shape(found.tokens)[1], axis=1)  # [B, N, P]
            return found._replace(tokens=tf.concat([prompt, found.tokens], axis=-1))

        generated, scores = self._searched(
            continued,
            tokens,
            error,
            self._n_best,
            self._text_graph.decode,
            self._task.num_new(1, self.summands),
        )
        return {"generated_texts": generated, "scores": scores, "error": error}

    def _search(self, prompt, prefix, length):
        return self._task.search(
            prompt,
            self._length_penalty,
            length,
            prefix,
            beam_size=self._beam_size,
            options=self._task.options(),
            buffer_length=self._buffer(prompt, prefix),
        )

    def _buffer(self, prompt, prefix):
        """The length of the buffer for the prefix and new tokens."""
        most = self._task.model.max_length + 1 - tf.shape(prompt)[1]
        return tf.minimum(tf.shape(prefix)[1] + self.summands, most)


def _prompt_length(length):
    """`zoo.tasks.generator.prompt_length` for a tensor."""
    lengths = tf.constant((0, *LENGTHS))
    return 1 + lengths[tf.searchsorted(lengths, [length])[0] - 1]
