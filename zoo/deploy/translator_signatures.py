"""SavedModel signatures of a translator: strings in, strings out.

Axes: B texts, N translations of a text, S source tokens, T target tokens, E model width.
"""

import tensorflow as tf

from zoo.deploy.signatures import TEXTS, UNCOMPILED, Signatures, example_texts
from zoo.deploy.text_graph import text_graphs
from zoo.deploy.text_groups import best, dense, encode, filled, fit, in_groups, nothing, programs

# The characters that Python's `str.strip` removes.
_BLANK = (
    r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}"
    r"\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]*"
)


class TranslatorSignatures(Signatures):
    """See `Signatures`.

    Every search uses one of the few padded shapes of `Translator`, so that a translation does not
    depend on the other texts of its batch and the search is compiled only a few times.

    Args:
        translator: `zoo.translator.Translator`.
        n_best: N.
        beam_size: beam size of the search, at least N; 1 is greedy search.
        length_penalty: see `zoo.decoding.length_penalty`.
    """

    def __init__(self, translator, n_best, beam_size, length_penalty):
        self._translator = translator
        self._limit = translator.max_source_length
        self._n_best, self._beam_size, self._alpha = n_best, beam_size, length_penalty
        self._special = translator.special_tokens
        tokenizers = translator.source_tokenizer, translator.target_tokenizer
        self._source_text, self._target_text = text_graphs(*tokenizers)
        self._prefix = translator.source_tokenizer.prefix
        super().__init__(translator.model, self._source_text, self._target_text)
        tokens = [tf.TensorSpec([None, None], tf.int32)]
        self._compiled, self._plain = programs(self._search, tokens)

    def functions(self):
        pair = [TEXTS, tf.TensorSpec([None], tf.string, "translations")]
        attention = "texts and translations to cross-attention weights"
        return {
            "serving_default": (self.translate, [TEXTS], "texts to translations"),
            "uncompiled": (self.translate_uncompiled, [TEXTS], UNCOMPILED),
            "encode": (self.encode, [TEXTS], "texts to the encoder's states"),
            "score": (self.score, pair, "texts and translations to log-probabilities"),
            "attention": (self.attention, pair, attention),
        }

    def examples(self):
        texts = example_texts(self._translator.source_tokenizer, self._limit - 1)
        search = (self._n_best, self._beam_size, self._alpha)
        return texts, self._translator.n_best(texts, *search)

    def translate(self, texts):
        """Translates texts, string [B]."""
        return self._translate(texts, self._compiled)

    def translate_uncompiled(self, texts):
        """Translates texts, string [B], without XLA."""
        return self._translate(texts, self._plain)

    def encode(self, texts):
        """Returns the encoder's output and the source tokens, end token included."""
        ragged, error = self._tokens(self._source_text, texts, self._prefix)
        valid, tokens = (error == "")[:, None], dense(ragged, self._special.pad)
        tokens = tf.where(valid, tokens, self._special.pad)
        lengths = tf.where(valid[:, 0], ragged.row_lengths(), 0)
        rows, size = tf.unstack(tf.shape(tokens))

        def compute(chosen, width):
            states = self._model.encode(dense(tf.gather(ragged, chosen), self._special.pad, width))
            return [fit(tf.cast(states, tf.float32), [size])]

        initial = [tf.zeros([rows, size, self._model.embed_dim])]
        [states] = in_groups(lengths, self._limit, compute, initial)
        states = tf.where((tokens != self._special.pad)[:, :, None], states, 0.0)
        return {"states": states, "tokens": tokens, "error": error}

    def score(self, texts, translations):
        """Returns log-probability and number of tokens of each translation, end token included."""
        source, target, error = self._pairs(texts, translations)
        initial = tf.zeros(tf.shape(texts))
        log_probs = self._of_pairs(source, target, error, self._translator.log_probs, initial)
        counts = tf.cast(target.row_lengths(), tf.int32)
        return {"log_probs": log_probs, "tokens": tf.where(error == "", counts, 0), "error": error}

    def attention(self, texts, translations):
        """Returns the cross-attention weights, averaged over blocks and heads."""
        source, target, error = self._pairs(texts, translations)
        tokens = [dense(side, self._special.pad) for side in (target, source)]
        sizes = [tf.shape(side)[1] for side in tokens]

        def compute(source, target):
            start = tf.fill([tf.shape(target)[0], 1], self._special.start)
            before = tf.concat([start, target[:, :-1]], axis=1)
            maps = self._model.cross_attention_maps({"source": source, "target": before})
            return fit(tf.reduce_mean(tf.cast(maps, tf.float32), axis=(1, 2)), sizes)

        initial = tf.zeros([tf.size(texts), *sizes])
        weights = self._of_pairs(source, target, error, compute, initial)
        valid = (error == "")[:, None]
        real = [valid & (side != self._special.pad) for side in tokens]
        shown = real[0][:, :, None] & real[1][:, None, :]
        return {
            "attention": tf.where(shown, weights, 0.0),
            "source_tokens": tf.where(real[1], self._source_text.pieces(tokens[1]), ""),
            "target_tokens": tf.where(real[0], self._target_text.pieces(tokens[0]), ""),
            "error": error,
        }

    def _translate(self, texts, search):
        tokens, error = self._tokens(self._source_text, texts, self._prefix)
        is_translated = (error == "") & ~tf.strings.regex_full_match(texts, _BLANK)
        lengths = tf.where(is_translated, tokens.row_lengths(), 0)

        def compute(chosen, width):
            source = dense(tf.gather(tokens, filled(chosen)), self._special.pad, width)
            shape = (tf.size(chosen), self._n_best)
            return best(search(source), shape, self._target_text.decode)

        initial, buffer = nothing(tf.size(texts), self._n_best), self._translator.max_length or 0
        translations, scores = in_groups(lengths, self._limit, compute, initial, buffer)
        return {"translations": translations, "scores": scores, "error": error}

    def _search(self, source):
        length = self._translator.max_length
        if length is None:
            length = tf.minimum(2 * tf.shape(source)[1], self._limit)
        return self._translator.search(source, self._alpha, length, self._beam_size)

    def _pairs(self, texts, translations):
        """Tokenizes both sides: ragged tokens of each, and the first error of each pair."""
        same = tf.debugging.assert_equal(
            tf.size(texts),
            tf.size(translations),
            "texts and translations must have the same length: each text needs one translation.",
        )
        with tf.control_dependencies([same]):
            source, source_error = self._tokens(self._source_text, texts, self._prefix)
        first = () if self._special.first is None else (self._special.first,)
        target, target_error = self._tokens(self._target_text, translations, first)
        error = tf.where(source_error == "", target_error, source_error)
        return source, target, error

    def _of_pairs(self, source, target, error, function, results):
        """The results of a function of int32 [any, S] and [any, T] for pairs without an `error`."""
        lengths = tf.maximum(source.row_lengths(), target.row_lengths())

        def compute(chosen, width):
            sides = (tf.gather(side, chosen) for side in (source, target))
            return [function(*(dense(side, self._special.pad, width) for side in sides))]

        lengths = tf.where(error == "", lengths, 0)
        return in_groups(lengths, self._limit, compute, [results])[0]

    def _tokens(self, text_graph, texts, start):
        return encode(text_graph, texts, self._limit, start, (self._special.end,))
