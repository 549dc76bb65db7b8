"""SavedModel signatures of a translator: texts to translations.

Axes: B texts, M parts of all texts that are translated, N translations of a text, S source tokens,
T target tokens.
"""

import tensorflow as tf

from zoo.deploy.layout_graph import Layout, join_parts, split_sentences
from zoo.deploy.signatures import TEXTS, Signature, TextSignatures, example_texts, search_signatures
from zoo.deploy.text_graph import TextGraph, utf8
from zoo.text.sentencepiece import LANGUAGE

_BLANK = r"[\t-\r\x1c-\x1f\x{85}\pZ]*"  # the characters that `str.strip` removes
_MAX_SENTENCES = 256  # of a text, so that it does not block others
_MAX_BYTES = 2**17  # of a text: splitting it takes 0.2 s


class TranslatorSignatures(TextSignatures):
    """`Signatures` of a `zoo.tasks.translator.Translator`; see `zoo.export` for the arguments."""

    def __init__(self, translator, n_best, beam_size, length_penalty, sentences=True):
        self._n_best = n_best
        self._beam_size = beam_size
        self._length_penalty = length_penalty
        self._sentences = sentences
        source = translator.source_tokenizer
        target = translator.target_tokenizer
        self._source_text = TextGraph(source)
        self._target_text = self._source_text
        if source.with_prefix() != target.with_prefix():
            self._target_text = TextGraph(target)
        super().__init__(
            translator, translator.model.max_length, self._source_text, self._target_text
        )

    def signatures(self):
        tokens = tf.TensorSpec([None, None], tf.int32)
        signatures = search_signatures(
            self.translate, self._search, [tokens], "texts to translations"
        )
        signatures["attention"] = Signature(
            self.attention,
            [TEXTS, tf.TensorSpec([None], tf.string, "translations")],
            "texts and translations to cross-attention weights",
        )
        return signatures

    def examples(self):
        texts = example_texts(self._task.source_tokenizer, self._limit - 1)
        if self._sentences:
            texts.append("\n ".join(texts[:2]))
        answers = self._task.n_best(
            texts, self._n_best, self._beam_size, self._length_penalty, sentences=self._sentences
        )
        return texts, answers

    def translate(self, texts, search):
        """Translates texts, string [B], by a search, a function of int32 [group, S]."""
        size = tf.size(texts)
        num_bytes = tf.strings.length(texts)
        huge = num_bytes > _MAX_BYTES
        texts, codes = self._codes(utf8(tf.where(huge, "", texts)))
        if self._sentences:
            layout = split_sentences(texts)
        else:
            is_blank = tf.strings.regex_full_match(texts, _BLANK)
            places = tf.where(~is_blank)[:, 0]
            layout = Layout(tf.where(is_blank, "", texts), tf.range(size), places)
        if self._task.keep_numbers:
            layout = layout.without_numbers()
        counts = tf.math.bincount(layout.of_parts(tf.range(size)), minlength=size)  # [B]
        parts = layout.of_parts(codes) + tf.gather(layout.fields, layout.places)  # [M]
        tokens, error = self._source(parts)
        too_many = layout.of_parts(counts) > _MAX_SENTENCES
        error = tf.where(too_many, f"The text has more than {_MAX_SENTENCES} sentences.", error)
        translations, scores = self._searched(
            lambda _, tokens: search(tokens),
            tokens,
            error,
            self._n_best,
            self._target_text.decode,
            self._task.max_length or 0,
        )
        translations, scores, error = join_parts(layout, counts, translations, scores, error)
        too_long = "The text is too long: it has " + tf.strings.as_string(num_bytes)
        error = tf.where(huge, too_long + f" bytes. The maximum is {_MAX_BYTES}.", error)
        return {"translations": translations, "scores": scores, "error": error}

    def _codes(self, texts):
        """Splits texts, string [B], after their language codes: (texts, codes)."""
        if not self._task.source_tokenizer.language_prefixes:
            return texts, tf.fill(tf.shape(texts), "")
        codes = tf.strings.regex_replace(texts, f"(?s)^({LANGUAGE.pattern} *)?.*", r"\1")
        return tf.strings.substr(texts, tf.strings.length(codes), tf.strings.length(texts)), codes

    def attention(self, texts, translations):
        """Returns the cross-attention weights, averaged over blocks and heads."""
        same = tf.debugging.assert_equal(
            tf.size(texts), tf.size(translations), "Each text needs one translation."
        )
        with tf.control_dependencies([same]):
            source, source_error = self._source(texts)
        target, target_error = self._encode(
            self._target_text, translations, self._special.prefix, [self._special.end]
        )
        error = tf.where(source_error == "", target_error, source_error)
        target_ids = self._dense(target)  # [B, T]
        source_ids = self._dense(source)  # [B, S]
        shape = [tf.size(texts), tf.shape(target_ids)[1], tf.shape(source_ids)[1]]  # B, T, S

        def weights_of_group(_, source, target):
            weights = self._task.attention(source, target)
            weights = tf.RaggedTensor.from_tensor(weights, ragged_rank=2)
            return [weights.to_tensor(shape=[-1, *shape[1:]])]  # cropped, or padded with 0

        [weights] = self._computed(weights_of_group, [source, target], error, [tf.zeros(shape)])
        is_valid = (error == "")[:, None]
        is_target = is_valid & (target_ids != self._special.pad)
        is_source = is_valid & (source_ids != self._special.pad)
        shown = is_target[:, :, None] & is_source[:, None, :]  # [B, T, S]
        return {
            "attention": tf.where(shown, weights, 0.0),
            "source_tokens": _labels(self._task.source_tokenizer, source_ids, is_source),
            "target_tokens": _labels(self._task.target_tokenizer, target_ids, is_target),
            "error": error,
        }

    def _search(self, source):
        options = self._task.options()
        length = self._task.max_length
        if length is None:
            least = max(options.min_length, options.min_new_tokens + 1)
            length = tf.minimum(tf.maximum(2 * tf.shape(source)[1], least), self._limit)
        return self._task.search(
            source,
            self._length_penalty,
            length,
            beam_size=self._beam_size,
            options=options,
            best_only=self._n_best == 1,
        )

    def _source(self, texts):
        prefix = self._task.source_tokenizer.prefix
        return self._encode(self._source_text, texts, prefix, [self._special.end])


def _labels(tokenizer, ids, shown):
    """The pieces of ids, int32 [B, T], where `shown` is True."""
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    return tf.where(shown, tf.gather(pieces, ids), "")
