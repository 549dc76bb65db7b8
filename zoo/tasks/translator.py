"""A trained translation model with its tokenizers: text in, text out.

Axes: B sentences, S source tokens, T target tokens, K hypotheses of a sentence.
"""

import json
import pathlib

import keras
import numpy as np

from zoo.decoding import is_early_stopping
from zoo.errors import TextError
from zoo.tasks.search import (
    TranslationSearch,
    checked,
    checked_draw,
    padded,
    uniforms_of,
    without_nan,
)
from zoo.text import translation_text
from zoo.text.loading import load_tokenizer
from zoo.text.special_tokens import SPECIAL_TOKENS
from zoo.text.translation_text import Alignment

MODEL_FILE = "model.keras"
DESCRIPTION_FILE = "translator.json"
SOURCE_FILE, TARGET_FILE = "source_tokenizer.json", "target_tokenizer.json"
_SEARCH = ("beam_size", "length_penalty", "length_offset", "early_stopping", "max_length")
TranslationError = TextError  # another name of the same class


class Translator:
    """A Keras model together with its tokenizers and the defaults of its search.

    Args:
        model: `zoo.models.Transformer`. Another one may be assigned later.
        source_tokenizer: `zoo.text.tokenizer.Tokenizer` of the source language, or
            `zoo.text.sentencepiece.SentencePieceTokenizer`.
        target_tokenizer: of the target language.
        beam_size: number of hypotheses of a search; 1 is greedy search.
        length_penalty: see `zoo.decoding.length_penalty`; 0 favors short translations.
        special_tokens: `zoo.decoding.SpecialTokens`. Translations have its `first` left out.
        length_offset: see `zoo.decoding.LengthPenalty`.
        early_stopping: see `zoo.decoding.beam_search`.
        max_length: maximum number of tokens of a translation; by default twice the length to which
            the source is padded: 16, 32, 64, ...

    Attributes:
        engine: function that searches in place of the model; see `zoo.load`. Several threads may
            call it at once. None by default.

    Raises:
        TextError: if model, tokenizers and special tokens do not fit together, or an option
            is wrong.
    """

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
    ):
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.beam_size = checked("beam_size", beam_size, int, 1)
        self.length_penalty = checked("length_penalty", length_penalty, float)
        length_offset = checked("length_offset", length_offset, float, 0)
        if not is_early_stopping(early_stopping):
            raise TextError(
                'early_stopping must be True, False or "never". '
                f"Received: early_stopping={early_stopping!r}."
            )
        self.run_folder = None  # where it was loaded from
        self.max_length = max_length
        self._set_model(model, special_tokens, length_offset, early_stopping)

    def __call__(self, texts, **options):
        """The best translation of each text, a list of str; see `n_best`."""
        return [best.text for [best, *_] in self.n_best(texts, **options)]

    def n_best(
        self, texts, n=1, beam_size=None, length_penalty=None, max_length=None, too_long="error"
    ):
        """Several translations of each text, the best first, with scores.

        Args:
            texts: list of str; an empty text gives an empty translation.
            n: number of translations; a text that is empty or split gets one.
            beam_size: at least `n`; by default that of the translator, or `n` if that is larger.
            length_penalty: that of the translator by default.
            max_length: the largest number of target tokens; that of the translator by default.
            too_long: "error"; or "split", which translates a text that is too long for the model
                in parts.

        Returns:
            For each text a list of `Translation`.

        Raises:
            TextError: if a text is too long, an option is wrong or the model computes NaN.
        """
        n = checked("n", n, int, 1)
        beam_size = max(n, self.beam_size) if beam_size is None else beam_size
        beam_size = checked("beam_size", beam_size, int, n)
        alpha = self.length_penalty if length_penalty is None else length_penalty
        alpha = np.float32(checked("length_penalty", alpha, float))

        def search(indices, source, length, buffer):
            if self.engine is not None:
                return without_nan(self.engine(source[: len(indices)], alpha, length, beam_size))
            settings = {"beam_size": beam_size, "buffer_length": buffer, "best_only": n == 1}
            return self._search.run(self.search, source, alpha, length, **settings)

        return [found[:n] for found in self._each(texts, search, max_length, too_long)]

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
    ):
        """Draws translations of each text by their probability.

        Args:
            texts, max_length, too_long: see `n_best`.
            n: number of draws.
            temperature: at least 0.001; below 1 likely tokens become more likely, above 1 less.
            top_k: if given, draws from the k most likely tokens only.
            top_p: if given, draws from the most likely tokens with this total probability only.
            seed: of the draws; a text's draws depend on it and on how many texts, or parts of
                split texts, precede it. Empty texts do not count.

        Returns:
            For each text a list of `Translation`, whose scores are log-probabilities.

        Raises:
            TextError: see `n_best`.
        """
        n, seed = checked("n", n, int, 1), checked("seed", seed, int, 0)
        top_k, *scalars = checked_draw(temperature, top_k, top_p)

        def search(indices, source, length, buffer):
            uniforms = np.zeros((len(source), n, buffer), np.float32)
            for row, index in zip(uniforms, indices):
                row[:] = uniforms_of(seed, index, buffer, n)
            tensors = (source, uniforms, length, *scalars)
            return self._search.run(self._search.sample, *tensors, top_k=top_k)

        return self._each(texts, search, max_length, too_long)

    def score(self, texts, translations):
        """The log-probability of a translation of each text, the end token included.

        Args:
            texts, translations: lists of str.

        Returns:
            list of float.

        Raises:
            TextError: if there are not as many translations as texts, one is too long or
                the model computes NaN.
        """

        def log_probs(indices, source, target):
            return [self._search.run(self.log_probs, source, target)]

        pairs = self._pairs(texts, translations)
        return [float(score) for (score,) in self._search.each(pairs, log_probs)]

    def alignment(self, text, translation=None):
        """The `Alignment` of a text and a translation, by default the model's own.

        Raises:
            TextError: if one of them is too long.
        """
        translation = self([text])[0] if translation is None else translation
        [(source, target)] = self._pairs([text], [translation])
        before = self._search.shifted(np.asarray([target], np.int32))
        maps = self.model.cross_attention_maps({"source": np.asarray([source]), "target": before})
        weights = keras.ops.convert_to_numpy(keras.ops.cast(maps, "float32")).mean(axis=(0, 1, 2))
        labels = self.source_tokenizer.pieces(source), self.target_tokenizer.pieces(target)
        return Alignment(weights, *labels)

    @property
    def model(self):
        return self._search.model

    @model.setter
    def model(self, model):
        jit_compile = self.jit_compile
        self._set_model(model, self.special_tokens, self.length_offset, self.early_stopping)
        self.jit_compile = jit_compile

    @property
    def jit_compile(self):
        """Whether XLA compiles the searches, as it does by default.

        It takes seconds for each padded shape, and pays off after some batches of that shape.
        Without it, results may differ by rounding.
        """
        return self._search.jit_compile

    @jit_compile.setter
    def jit_compile(self, jit_compile):
        self._search.jit_compile = jit_compile

    @property
    def special_tokens(self):
        return self._search.special

    @property
    def length_offset(self):
        return self._search.length_offset

    @property
    def early_stopping(self):
        return self._search.early_stopping

    @property
    def max_source_length(self):
        """The largest number of source tokens, the end token included."""
        return self.model.max_length

    def description(self):
        """The metadata of tokenizers and search, as JSON can hold it."""
        return {
            "tokenizers": {
                side: {"kind": tokenizer.kind, "vocab_size": tokenizer.vocab_size}
                for side, tokenizer in self._tokenizers().items()
            },
            "search": {name: getattr(self, name) for name in _SEARCH},
            "special_tokens": self.special_tokens._asdict(),
        }

    def save(self, folder):
        """Writes the model, its tokenizers and the defaults of its search into `folder`."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save(folder / MODEL_FILE, include_optimizer=False)
        self.source_tokenizer.save(folder / SOURCE_FILE)
        self.target_tokenizer.save(folder / TARGET_FILE)
        text = json.dumps(self.description(), indent=2)
        (folder / DESCRIPTION_FILE).write_text(text + "\n")

    @classmethod
    def load(cls, folder):
        """Reads what `save` wrote."""
        folder = pathlib.Path(folder)
        description = json.loads((folder / DESCRIPTION_FILE).read_text())
        translator = cls(
            keras.saving.load_model(folder / MODEL_FILE, compile=False),
            load_tokenizer(folder / SOURCE_FILE),
            load_tokenizer(folder / TARGET_FILE),
            **description["search"],
            special_tokens=SPECIAL_TOKENS._replace(**description.get("special_tokens", {})),
        )
        translator.run_folder = folder
        return translator

    def _set_model(self, model, special, *options):
        for side, tokenizer in self._tokenizers().items():
            size = getattr(model, f"{side}_vocab_size")
            if size != tokenizer.vocab_size:
                raise TextError(
                    f"The model has {size} {side} tokens. "
                    f"Received a tokenizer with {tokenizer.vocab_size} tokens."
                )
        if self.max_length is not None:
            self.max_length = checked("max_length", self.max_length, int, 1, model.max_length)
        self._search, self.engine = TranslationSearch(model, special, *options), None
        self.search, self.log_probs = self._search.search, self._search.log_probs  # as graphs

    def _tokenizers(self):
        return {"source": self.source_tokenizer, "target": self.target_tokenizer}

    def _each(self, texts, search, max_length, too_long):
        """Translations of each text: ``search(indices, source [B, S], max_length, T)``."""
        limit, special = self.max_source_length, self.special_tokens
        if max_length is not None:
            max_length = checked("max_length", max_length, int, 1, limit)
        max_length = max_length or self.max_length

        def run(indices, source):
            length = max_length or min(2 * source.shape[1], limit)
            return search(indices, source, np.int32(length), padded(length, limit))

        tokenizers, found = (self.source_tokenizer, self.target_tokenizer), [[] for _ in texts]
        parts = translation_text.encode_parts(tokenizers[0], texts, limit, special.end, too_long)
        hypotheses = self._search.each([[tokens] for _, tokens in parts], run, max_length or 0)
        for (index, _), arrays in zip(parts, hypotheses):
            found[index].append(translation_text.decode(tokenizers[1], special, *arrays))
        return [translation_text.joined(parts) for parts in found]

    def _pairs(self, texts, translations):
        """(source tokens, target tokens) of each text."""
        limit, tokenizers = self.max_source_length, self._tokenizers().values()
        return translation_text.encode_pairs(
            tokenizers, (texts, translations), limit, self.special_tokens
        )
