"""SavedModel signatures of a text generator: texts to continued texts.

Axes: B texts, N continuations per text, P tokens of a prompt, which are read at once, F tokens of a
prefix, which are forced one by one, T new tokens.
"""

import math

import tensorflow as tf

from zoo.deploy.signatures import TEXTS, TextSignatures, example_texts, search_signatures
from zoo.deploy.text_graph import TextGraph
from zoo.tasks.generator import NEW_TOKENS
from zoo.tasks.padded_batches import LENGTHS

_LEAST = (1e-3, 1e-6)  # smallest temperature and top_p
_TEMPERATURE = f"temperature must be a finite number of at least {_LEAST[0]}."
_TOP_P = f"top_p must be from {_LEAST[1]} to 1."
_EACH = "temperature, top_p and seed must have one value for each text."


class GeneratorSignatures(TextSignatures):
    """See `Signatures`.

    Args:
        generator: `zoo.tasks.generator.TextGenerator`.
        n_best: N.
        beam_size, length_penalty, max_new_tokens: see `TextGenerator`.
    """

    def __init__(self, generator, n_best, beam_size, length_penalty, max_new_tokens):
        self._settings = (n_best, beam_size, length_penalty, max_new_tokens)
        self._n_best, self.summands = n_best, max_new_tokens or NEW_TOKENS
        self._text_graph = TextGraph(generator.tokenizer)
        limit = generator.max_prompt_length(max_new_tokens)
        super().__init__(generator, limit, self._text_graph)

    def functions(self):
        settings = {"temperature": tf.float32, "top_p": tf.float32, "seed": tf.int64}
        settings = [tf.TensorSpec([None], dtype, name) for name, dtype in settings.items()]
        sample = "texts to drawn continuations, with a temperature, top_p and seed for each text"
        prompt = [tf.TensorSpec(shape, tf.int32) for shape in ([None, None], [None, None], [None])]
        what = "texts to their likeliest continuations"
        return {
            **search_signatures(self.generate, self._search, prompt, what),
            "sample": (self.sample, [TEXTS, *settings], sample),
        }

    def examples(self):
        texts = example_texts(self._task.tokenizer, self._limit - 1)
        *search, most = self._settings
        return texts, self._task.n_best(texts, *search, max_new_tokens=most)

    def generate(self, texts, search):
        """Continues texts, string [B], by a search; see `_each`."""
        return self._each(texts, "", lambda group, *prompt: search(*prompt))

    def sample(self, texts, temperature, top_p, seed):
        """Draws continuations of texts, string [B]; the other inputs are also [B]."""
        # Without XLA, which sorts logits more slowly.
        settings, size = (temperature, top_p), tf.size(texts)
        same = [tf.debugging.assert_equal(tf.size(x), size, _EACH) for x in (*settings, seed)]
        with tf.control_dependencies(same):
            error = tf.where(
                (temperature >= _LEAST[0]) & (temperature < math.inf), "", _TEMPERATURE
            )
        error = tf.where((top_p >= _LEAST[1]) & (top_p <= 1.0), error, _TOP_P)

        def draw(group, prompt, prefix, length):
            shape = [self._n_best, self._buffer(prompt, prefix)]
            # Draws for a text depend only on its own seed and length.
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
        """Continues texts, string [B], whose `error` is "".

        Args:
            search: function of (indices of texts, prompt int32 [B, P], prefix [B, F], length [B])
                that returns `zoo.decoding.Hypotheses`.
        """
        start = [self._special.start] if self._task.add_start_token else []
        tokens, too_long = self._encode(self._text_graph, texts, start)
        error = tf.where(too_long == "", error, too_long)
        is_empty = tokens.row_lengths() == 0
        only = tf.fill([tf.size(texts), 1], self._special.start)
        tokens = tf.concat([tf.ragged.boolean_mask(only, is_empty[:, None]), tokens], axis=1)
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
        _, beam_size, alpha, _ = self._settings
        return self._task.search(
            prompt,
            alpha,
            length,
            prefix,
            beam_size=beam_size,
            options=self._task.options(),
            buffer_length=self._buffer(prompt, prefix),
        )

    def _buffer(self, prompt, prefix):
        """The length of the buffer for the prefix and new tokens."""
        most = self._task.model.max_length + 1 - tf.shape(prompt)[1]
        return tf.minimum(tf.shape(prefix)[1] + self.summands, most)


def _prompt_length(length):
    """`zoo.tasks.generator.prompt_length` for a scalar tensor."""
    lengths = tf.constant((0, *LENGTHS))
    return 1 + lengths[tf.searchsorted(lengths, [length])[0] - 1]
