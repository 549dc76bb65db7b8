"""Translation with an encoder-decoder Transformer.

Axes: B sentences, S source tokens, T target tokens, K hypotheses of a sentence.
"""

import keras
import numpy as np
import tensorflow as tf

from zoo.errors import TaskError, as_number
from zoo.tasks.generation import MAX_BEAM_SIZE, GenerationTask
from zoo.tasks.padded_batches import padded
from zoo.text.answers import Alignment, join_parts
from zoo.text.encoding import encode, encode_parts
from zoo.text.special_tokens import SPECIAL_TOKENS


class Translator(GenerationTask):
    """A translation model together with its tokenizers and its default search options.

    Args:
        model: `zoo.models.Transformer`. Another one may be assigned later.
        source_tokenizer: `zoo.text.sentencepiece.SentencePieceTokenizer` of the source language.
        target_tokenizer: of the target language.
        beam_size: number of hypotheses of beam search; 1 is greedy search.
        length_penalty: see `zoo.decoding.length_penalty`; 0 favors short translations.
        special_tokens: `zoo.decoding.SpecialTokens`. Its `first` is not part of translations.
        length_offset: see `zoo.decoding.LengthPenalty`.
        early_stopping: see `zoo.decoding.beam_search`.
        max_length: maximum number of tokens of a translation; by default twice the length to which
            the source is padded: 16, 32, 64, ...
        search_options: dict of fields of `zoo.decoding.SearchOptions`, the defaults of all calls.

    Attributes:
        engine: function that searches in place of the model, see `zoo.load`; it must be
            thread-safe. None by default.
        shortlist: `zoo.tasks.shortlist.Shortlist`, which limits the tokens of translations. None by
            default; it is not saved.

    Raises:
        TaskError: if model, tokenizers and special tokens do not match, or an option is invalid.
    """

    description_file, verb = "translator.json", "translate"
    tokenizer_names = {"source_tokenizer": "source", "target_tokenizer": "target"}
    settings = "beam_size length_penalty length_offset early_stopping max_length search_options"
    settings = tuple(settings.split())

    def __init__(
        self,
        model,
        source_tokenizer,
        target_tokenizer,
        beam_size=4,
        length_penalty=0.6,
        special_tokens=SPECIAL_TOKENS,
        length_offset=5.0,
        early_stopping="never",
        max_length=None,
        search_options=None,
    ):
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.beam_size = as_number("beam_size", beam_size, int, 1, MAX_BEAM_SIZE)
        self.length_penalty = as_number("length_penalty", length_penalty, float)
        self.length_offset = as_number("length_offset", length_offset, float, 0)
        if not isinstance(early_stopping, bool) and early_stopping != "never":
            raise TaskError(
                f'early_stopping must be True, False or "never". Received: {early_stopping!r}.'
            )
        self.early_stopping = early_stopping
        self.max_length, self.shortlist = max_length, None
        super().__init__(model, special_tokens, search_options)

    def __call__(self, texts, sentences=True, **options):
        """Returns the best translation of each text, a list of str.

        Args:
            texts: list of str; an empty text gives an empty translation.
            sentences: whether to translate each sentence and line separately and to keep the layout
                between them, see `zoo.text.layout.split_sentences`. If False, the default of
                `n_best` and `sample`, each text is translated as a whole. A text of several parts
                has one translation: the best of each part, with the sum of their scores.
            **options: `beam_size` and `length_penalty`, see `n_best`, and:
                max_length: maximum number of target tokens; by default that of the translator.
                too_long: "error"; or "split", to translate a text, or a sentence, that is too long
                    for the model in parts and to keep the space between them.
                target_prefix: beginning of the translations, normalized by the tokenizer: a str, or
                    a list with one for each text. It counts towards `max_length`, but not for the
                    score and the length penalty. An empty text stays empty.
                Fields of `zoo.decoding.SearchOptions`; by default those of the translator.

        Raises:
            TaskError: if a text is too long, an option is invalid or outputs are NaN.
        """
        return super().__call__(texts, sentences=sentences, **options)

    def score(self, texts, translations):
        """Returns the log-probability of the given translation of each text.

        Args:
            texts, translations: lists of str of the same length.

        Returns:
            list of float, sums over the tokens, including the end token.

        Raises:
            TaskError: if the lists differ in length, a text is too long, or outputs are NaN.
        """

        def log_probs(batch):
            return [self.run(self.log_probs, *batch.tokens)]

        pairs = self._pairs(texts, translations)
        return [float(score) for (score,) in self.compute(pairs, log_probs)]

    def alignment(self, text, translation=None):
        """Returns the `Alignment` of a text and a translation, by default that of the model.

        Raises:
            TaskError: if the text or the translation is too long.
        """
        translation = self([text], sentences=False)[0] if translation is None else translation
        [(source, target)] = self._pairs([text], [translation])
        weights = self.attention(np.asarray([source]), np.asarray([target], np.int32))
        labels = self.source_tokenizer.pieces(source), self.target_tokenizer.pieces(target)
        return Alignment(keras.ops.convert_to_numpy(weights)[0], *labels)

    def check(self, model):
        super().check(model)
        if self.max_length is not None:
            as_number("max_length", self.max_length, int, 1, model.max_length)

    def _start(self, source, length, num_hypotheses):
        return self.model.start(source, length, num_hypotheses), None

    def log_probs(self, source, target):
        """The log-probability of each target as a graph: float32 [B].

        Args:
            source, target: int [B, S] and [B, T], each row ending with the end token, then padding.
        """
        inputs = {"source": source, "target": self._shifted(target)}
        logits = tf.cast(self.model(inputs, training=False), tf.float32)
        log_probs = -tf.nn.sparse_softmax_cross_entropy_with_logits(target, logits)
        counted = target != self.special_tokens.pad
        if self.special_tokens.first is not None:  # its probability is one
            counted &= tf.range(tf.shape(target)[1]) > 0
        return tf.reduce_sum(tf.where(counted, log_probs, 0.0), axis=1)

    def attention(self, source, target):
        """The attention weights as a graph, the mean of blocks and heads: float32 [B, T, S].

        Args: see `log_probs`.
        """
        maps = self.model.cross_attention_maps({"source": source, "target": self._shifted(target)})
        return keras.ops.mean(keras.ops.cast(maps, "float32"), axis=(1, 2))

    def _shifted(self, target):
        """The decoder's input for tokens [B, T]: the start token, then all but the last."""
        start = tf.fill([tf.shape(target)[0], 1], self.special_tokens.start)
        return tf.concat([start, target[:, :-1]], 1)

    def _inputs(self, batch, most, options):
        tokens, limit = batch.tokens, self.model.max_length
        least = max(2 * tokens[0].shape[1], options.min_length, options.min_new_tokens + 1)
        length = most or min(least, limit)
        if self.shortlist is not None:
            limits = self.special_tokens, options.suppress_tokens
            tokens = (*tokens, self.shortlist.candidates(*tokens, *limits))
        return tokens, np.int32(length), padded(length, limit)

    def _rows(self, sources, counts, prefix, most):
        """The sequences of each part: its source, and the tokens that its translation begins with.

        `counts` are the numbers of parts of the texts; the first part of each has the prefix.
        """
        if not prefix and self.shortlist is None:
            return [[source] for source in sources]
        special, tokenizer, prefix = self.special_tokens, self.target_tokenizer, prefix or ""
        prefixes = [prefix] * len(counts) if isinstance(prefix, str) else prefix
        settings = (most or self.model.max_length, special.end, special.first)
        rows = encode(tokenizer, prefixes, *settings, "The target_prefix of text {}")
        if len(rows) != len(counts) or any(tokenizer.unknown in row for row in rows):
            raise TaskError(
                "target_prefix must be a str, or a list with one for each text, of characters in "
                "the vocabulary of the tokenizer. Received: "
                f"target_prefix={prefix!r} for {len(counts)} texts."
            )
        none = [special.pad if special.first is None else special.first]
        rows = [[row[:-1] or none, *[none] * count][:count] for row, count in zip(rows, counts)]
        return [[source, begin] for source, begin in zip(sources, sum(rows, []))]

    def _prepared(
        self,
        texts,
        max_length=None,
        too_long="error",
        sentences=False,
        target_prefix=None,
        **options,
    ):
        limit, most = self.model.max_length, self.max_length
        if max_length is not None:
            most = as_number("max_length", max_length, int, 1, limit)
        tokenizer, end = self.source_tokenizer, self.special_tokens.end
        layouts, rows = encode_parts(tokenizer, texts, limit, end, too_long, sentences)
        rows = self._rows(rows, [len(fields) // 2 for fields in layouts], target_prefix, most)
        forced = self.special_tokens.first is not None

        def translations(hypotheses):
            parts = (self._scored(tokens[:, forced:], *others) for tokens, *others in hypotheses)
            return [join_parts(fields, [next(parts) for _ in fields[1::2]]) for fields in layouts]

        return rows, most, self.options(options), translations

    def _pairs(self, texts, translations):
        """(source tokens, target tokens) of each text."""
        special, limit = self.special_tokens, self.model.max_length
        sources = encode(self.source_tokenizer, texts, limit, special.end)
        settings = (limit, special.end, special.first, "Translation {}")
        targets = encode(self.target_tokenizer, translations, *settings)
        if len(sources) != len(targets):
            raise TaskError(
                f"Each text has one translation. Received: {len(sources)} texts and "
                f"{len(targets)} translations."
            )
        return list(zip(sources, targets))
