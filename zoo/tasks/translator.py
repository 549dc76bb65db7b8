"""Translation with an encoder-decoder Transformer.

Axes: B sentences, S source tokens, T target tokens, K hypotheses of a sentence, H heads, V target
vocabulary, F tokens of a prefix.
"""

import itertools

import keras
import numpy as np
import tensorflow as tf

from zoo.decoding.logits import NEG_INF, never_generated
from zoo.errors import TaskError, as_number, check_bool
from zoo.tasks.generation import MAX_BEAM_SIZE, GenerationTask, Request, SearchInputs
from zoo.tasks.padded_batches import padded_length
from zoo.text.answers import Alignment, join_parts
from zoo.text.encoding import encode, encode_parts
from zoo.text.special_tokens import SPECIAL_TOKENS


class Translator(GenerationTask):
    """A translation model together with its tokenizers and its default search options.

    Args:
        model: `zoo.models.Transformer`.
        source_tokenizer: `zoo.text.sentencepiece.SentencePieceTokenizer` of the source language.
        target_tokenizer: of the target language.
        beam_size: number of hypotheses of beam search; 1 is greedy search.
        length_penalty: see `zoo.decoding.length_penalty`; 0 favors short translations.
        special_tokens: `zoo.decoding.SpecialTokens`. Its `prefix` is not part of translations.
        length_offset: see `zoo.decoding.length_penalty`.
        early_stopping: see `zoo.decoding.beam_search`.
        max_length: maximum number of tokens of a translation; by default twice the length to which
            the source is padded: 16, 32, 64, ...
        search_options: dict of fields of `zoo.decoding.SearchOptions`, the defaults of all calls.
        keep_numbers: whether texts and sentences without a letter, such as numbers, dates and
            emoji, are kept as they are.
        keep_signs: whether signs and emoji that are not tokens of the source keep their places:
            what is before and after them is translated separately.

    Attributes:
        engine: thread-safe function that searches in place of the model, see `zoo.load`.
        shortlist: `zoo.tasks.shortlist.Shortlist`, which limits the tokens of translations; it is
            not saved.

    Raises:
        TaskError: if model, tokenizers and special tokens do not match, or an option is invalid.
    """

    description_file = "translator.json"
    verb = "translate"
    splits_sentences = True  # by default, a call translates each sentence separately
    long_texts = "split"  # `too_long` of commands and reports
    tokenizer_names = {"source_tokenizer": "source", "target_tokenizer": "target"}
    saved_arguments = (
        "beam_size",
        "length_penalty",
        "length_offset",
        "early_stopping",
        "max_length",
        "search_options",
        "keep_numbers",
        "keep_signs",
    )

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
        keep_numbers=True,
        keep_signs=False,
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
        self.max_length = None
        if max_length is not None:
            self.max_length = as_number("max_length", max_length, int, 1)
        check_bool("keep_numbers", keep_numbers)
        check_bool("keep_signs", keep_signs)
        self.keep_numbers = keep_numbers
        self.keep_signs = keep_signs
        self.shortlist = None
        super().__init__(model, special_tokens, search_options)

    @property
    def shortlist(self):
        return self._shortlist

    @shortlist.setter
    def shortlist(self, shortlist):
        if shortlist is not None:
            _check_output(self.model)
        self._shortlist = shortlist
        self.engine = None  # engines do not support shortlists

    def __call__(
        self,
        texts,
        beam_size=None,
        length_penalty=None,
        max_length=None,
        too_long="error",
        sentences=None,
        target_prefix=None,
        **search_options,
    ):
        """Returns the best translation of each text, a list of str.

        By default, each sentence of a text is translated separately, unlike in `n_best`. The
        arguments and errors are those of `n_best`.
        """
        if sentences is None:
            sentences = self.splits_sentences
        request = self._request(
            texts, max_length, too_long, sentences, target_prefix, search_options
        )
        return self._best(request, beam_size, length_penalty)

    def n_best(
        self,
        texts,
        n=1,
        beam_size=None,
        length_penalty=None,
        max_length=None,
        too_long="error",
        sentences=False,
        target_prefix=None,
        **search_options,
    ):
        """Returns the n best translations of each text, by beam search.

        By default, each text is translated as a whole.

        Args:
            texts: list of str; a text that is empty, or has no letter, is its only translation.
            n: number of translations of each text.
            beam_size: number of hypotheses, from `n` to 1,000; 1 is greedy search. By default that
                of the translator, or `n` if that is larger.
            length_penalty: see `zoo.decoding.length_penalty`; by default that of the translator.
            max_length: maximum number of target tokens; by default that of the translator.
            too_long: "error"; "split", to translate a text, or a sentence, that is too long for
                the model in parts and to keep the space between them; or "truncate", to read only
                its beginning.
            sentences: whether to translate each sentence and line separately and to keep the layout
                between them, see `zoo.text.layout.split_sentences`. A text of several parts has one
                translation: the best of each part, with the sum of their scores.
            target_prefix: beginning of the translations, normalized by the tokenizer: a str, or a
                list with one for each text. It counts towards `max_length`, but not for the score
                and the length penalty. A text without letters stays as it is.
            **search_options: fields of `zoo.decoding.SearchOptions`; by default those of the
                translator.

        Returns:
            For each text a list of `zoo.text.answers.ScoredText`, the best first.

        Raises:
            TaskError: if a text is too long, an option is invalid or outputs are NaN.
        """
        request = self._request(
            texts, max_length, too_long, sentences, target_prefix, search_options
        )
        return self._n_best(request, n, beam_size, length_penalty)

    def sample(
        self,
        texts,
        n=1,
        temperature=1.0,
        top_k=None,
        top_p=None,
        seed=0,
        max_length=None,
        too_long="error",
        sentences=False,
        target_prefix=None,
        **search_options,
    ):
        """Draws n translations of each text from the distribution of the model.

        By default, each text is translated as a whole.

        Args:
            temperature, top_k, top_p: see `zoo.tasks.generator.TextGenerator.sample`.
            seed: random seed. The random numbers for text i depend on `seed` and i only, where
                empty texts do not count, but each part of a text that is split does.
            texts, n, max_length, too_long, sentences, target_prefix, **search_options: see
                `n_best`.

        Returns:
            See `n_best`; scores are log-probabilities.
        """
        request = self._request(
            texts, max_length, too_long, sentences, target_prefix, search_options
        )
        return self._sample(request, n, temperature, top_k, top_p, seed)

    def score(self, texts, translations):
        """Returns the log-probability of each translation, including its end token.

        With the search option `renormalize_logits`, it is that among the tokens that searches can
        generate, and minus infinity for other tokens.

        Args:
            texts, translations: lists of str of the same length.

        Raises:
            TaskError: if the lists differ in length, a text is too long, or outputs are NaN.
        """

        options = self.options()
        excluded = ()
        if options.renormalize_logits:
            excluded = tuple(never_generated(self.special_tokens, options.suppress_tokens))

        def log_probs(batch):
            return [self.run(self.log_probs, *batch.tokens, excluded=excluded)]

        pairs = self._pairs(texts, translations)
        return [float(score) for (score,) in self.map_batches(pairs, log_probs)]

    def alignment(self, text, translation=None):
        """Returns the `Alignment` of a text and a translation, by default that of the model.

        Raises:
            TaskError: if the text or the translation is too long.
        """
        if translation is None:
            [translation] = self([text], sentences=False)
        [(source, target)] = self._pairs([text], [translation])
        weights = self.attention(np.asarray([source]), np.asarray([target], np.int32))
        return Alignment(
            weights=keras.ops.convert_to_numpy(weights)[0],  # [T, S]
            source=self.source_tokenizer.pieces(source),
            target=self.target_tokenizer.pieces(target),
        )

    def check_model(self, model):
        super().check_model(model)
        if self.shortlist is not None:
            _check_output(model)
        if self.max_length is not None:
            as_number("max_length", self.max_length, int, 1, model.max_length)

    def log_probs(self, source, target, excluded=()):
        """The log-probability of each target as a graph: float32 [B].

        Args:
            source, target: int [B, S] and [B, T], each row ending with the end token, then padding.
            excluded: ids whose probability is zero.
        """
        inputs = {"source": source, "target": self._shifted(target)}
        logits = tf.cast(self.model(inputs, training=False), tf.float32)  # [B, T, V]
        if excluded:
            is_excluded = np.isin(range(logits.shape[-1]), excluded)  # [V]
            logits = tf.where(is_excluded, NEG_INF, logits)
        log_probs = -tf.nn.sparse_softmax_cross_entropy_with_logits(target, logits)  # [B, T]
        is_scored = target != self.special_tokens.pad  # [B, T]
        if self.special_tokens.prefix:  # its probability is one
            is_scored &= tf.range(tf.shape(target)[1]) >= len(self.special_tokens.prefix)
        return tf.reduce_sum(tf.where(is_scored, log_probs, 0.0), axis=1)

    def attention(self, source, target):
        """The mean attention weights of blocks and heads as a graph: float32 [B, T, S]."""
        inputs = {"source": source, "target": self._shifted(target)}
        maps = self.model.cross_attention_maps(inputs)  # [B, blocks, H, T, S]
        return keras.ops.mean(keras.ops.cast(maps, "float32"), axis=(1, 2))

    def _shifted(self, target):
        """The decoder's input for tokens [B, T]: the start token, then all but the last."""
        start = tf.fill([tf.shape(target)[0], 1], self.special_tokens.start)  # [B, 1]
        return tf.concat([start, target[:, :-1]], axis=1)

    def _start(self, source, length, num_hypotheses):
        return self.model.start(source, length, num_hypotheses)

    def _inputs(self, batch, request):
        source = batch.tokens[0]  # [B, S]
        prefix = batch.tokens[1] if len(batch.tokens) == 2 else None  # [B, F]
        options = request.options
        candidates = None
        if self.shortlist is not None:
            candidates = self.shortlist.candidates(
                source, prefix, self.special_tokens, options.suppress_tokens
            )
        given = 0  # tokens of the longest prefix
        if prefix is not None:
            given = int((prefix != self.special_tokens.pad).sum(axis=1).max())
        limit = self.model.max_length
        length = request.max_length
        if length is None:
            least = max(options.min_length, given + options.min_new_tokens + 1)
            length = min(max(2 * source.shape[1], least), limit)
        self._check_lengths(options, length, given, prompt=1)
        return SearchInputs(
            tokens=source,
            max_length=np.int32(length),
            buffer_length=padded_length(length, limit),
            prefix=prefix,
            candidates=candidates,
        )

    def _request(self, texts, max_length, too_long, sentences, target_prefix, search_options):
        special = self.special_tokens
        limit = self.model.max_length
        if max_length is None:
            max_length = self.max_length
        else:
            max_length = as_number("max_length", max_length, int, 1, limit)
        layouts, sources = encode_parts(
            self.source_tokenizer,
            texts,
            limit,
            special.end,
            too_long,
            sentences,
            self.keep_numbers,
            self.keep_signs,
        )
        # A layout is [space, part, space, part, ..., space].
        num_parts = [len(layout) // 2 for layout in layouts]
        rows = [[source] for source in sources]
        # With a shortlist, tokens are numbered by candidates, also those of `special.prefix`.
        if isinstance(target_prefix, str) and not target_prefix:
            target_prefix = None
        if target_prefix is not None or self.shortlist is not None:
            prefixes = self._prefixes(target_prefix, num_parts, max_length or limit)
            rows = [[source, prefix] for source, prefix in zip(sources, prefixes)]

        def to_answers(hypotheses):
            parts = []
            for found in hypotheses:
                tokens = found.tokens[:, len(special.prefix) :]
                parts.append(self._scored(found._replace(tokens=tokens)))
            remaining = iter(parts)
            answers = []
            for layout, count in zip(layouts, num_parts):
                answers.append(join_parts(layout, list(itertools.islice(remaining, count))))
            return answers

        return Request(rows, max_length, self.options(**search_options), to_answers)

    def _prefixes(self, target_prefix, num_parts, max_length):
        """The tokens that the translation of each part begins with.

        The first part of a text has its `target_prefix`, the others have `special.prefix` only.
        """
        special = self.special_tokens
        tokenizer = self.target_tokenizer
        texts = "" if target_prefix is None else target_prefix
        if isinstance(texts, str):
            texts = [texts] * len(num_parts)
        encoded = encode(
            tokenizer,
            texts,
            max_length,
            special.end,
            prefix=special.prefix,
            name="The target_prefix of text {}",
        )
        if len(encoded) != len(num_parts) or any(tokenizer.unknown in row for row in encoded):
            raise TaskError(
                "target_prefix must be a str, or a list with one for each text, of characters in "
                "the vocabulary of the tokenizer. Received: "
                f"target_prefix={target_prefix!r} for {len(num_parts)} texts."
            )
        no_prefix = list(special.prefix) or [special.pad]  # a row of tokens cannot be empty
        prefixes = []
        for row, count in zip(encoded, num_parts):
            if count:
                prefixes.append(row[:-1] or no_prefix)  # without the end token
                prefixes += [no_prefix] * (count - 1)
        return prefixes

    def _pairs(self, texts, translations):
        """(source tokens, target tokens) of each text."""
        special = self.special_tokens
        limit = self.model.max_length
        sources = encode(self.source_tokenizer, texts, limit, special.end)
        targets = encode(
            self.target_tokenizer,
            translations,
            limit,
            special.end,
            prefix=special.prefix,
            name="Translation {}",
        )
        if len(sources) != len(targets):
            raise TaskError(
                f"Each text has one translation. Received: {len(sources)} texts and "
                f"{len(targets)} translations."
            )
        return list(zip(sources, targets))


def _check_output(model):
    """Raises `TaskError` if the output layer of a model does not fit a shortlist."""
    if model.output_projection is not None:
        raise TaskError("A shortlist needs a model whose output layer is the target embedding.")
