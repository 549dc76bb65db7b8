"""A trained translation model as people use it: text in, text out.

Axes: B sentences, S source tokens, T target tokens, K hypotheses of a sentence.
"""

import json
import pathlib
import re
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo import decoding
from zoo.errors import UserError
from zoo.text import BOS_ID, EOS_ID, PAD_ID
from zoo.text.tokenizer import Tokenizer

MODEL_FILE = "model.keras"
DESCRIPTION_FILE = "translator.json"
SOURCE_FILE, TARGET_FILE = "source_tokenizer.json", "target_tokenizer.json"

_SPECIAL = decoding.SpecialTokens(start=BOS_ID, end=EOS_ID, pad=PAD_ID)
# Every search runs at one of a few shapes, for each of which it is compiled once: sources are
# padded to the next of these lengths, and batches to the next of these numbers of sentences.
LENGTHS = tuple(16 * 2**n for n in range(16))
BATCHES = (1, 8, 32)
TOKENS_IN_BATCH = 4096  # padded source tokens; longer sentences come in smaller batches


class TranslationError(UserError):
    """Text or options that cannot be translated with; the message says which and why."""


class Translation(NamedTuple):
    """A translation and its score: log-probability over length penalty, at most 0."""

    text: str
    score: float


class Alignment(NamedTuple):
    """Where the model looked.

    Fields:
        weights: float32 [T, S], the attention of each target token to each source token, mean of
            all blocks and heads.
        source, target: labels of the tokens.
    """

    weights: np.ndarray
    source: list[str]
    target: list[str]


class Translator:
    """A Keras model together with its tokenizers and the defaults of its search.

    Args:
        model: `zoo.models.Transformer`.
        source_tokenizer: `zoo.text.tokenizer.Tokenizer` of the language translated from.
        target_tokenizer: of the language translated to.
        beam_size: hypotheses that a search goes on with; 1 is greedy search.
        length_penalty: see `zoo.decoding.length_penalty`; 0 favours short translations.

    Raises:
        TranslationError: if model and tokenizers do not fit together.
    """

    def __init__(self, model, source_tokenizer, target_tokenizer, beam_size=4, length_penalty=0.6):
        _check_vocabulary("source", model.source_vocab_size, source_tokenizer)
        _check_vocabulary("target", model.target_vocab_size, target_tokenizer)
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.beam_size = beam_size
        self.length_penalty = length_penalty
        self.run_folder = None  # where it was loaded from
        self._compiled = {}  # (graph, shapes, settings): what `_run` compiled

    def __call__(self, texts, **options):
        """Translates.

        Args:
            texts: list of str; an empty text gives an empty translation.
            **options: see `n_best`.

        Returns:
            list of str, in the order of `texts`.

        Raises:
            TranslationError: if a text is too long, or an option is wrong.
        """
        return [best.text for [best, *_] in self.n_best(texts, **options)]

    def n_best(
        self,
        texts,
        n=1,
        beam_size=None,
        length_penalty=None,
        max_length=None,
        too_long="error",
    ):
        """Several translations of each text, the best first, with scores.

        Args:
            texts: list of str.
            n: number of translations; a text that is empty or split gets one.
            beam_size: at least `n`; that of the translator by default, if it is.
            length_penalty: that of the translator by default.
            max_length: the largest number of target tokens; about twice the source's by default.
            too_long: "error"; or "split", which translates a text that is too long for the model
                in parts.

        Returns:
            For each text a list of `Translation`.

        Raises:
            TranslationError: if a text is too long, or an option is wrong.
        """
        beam_size = max(n, self.beam_size) if beam_size is None else beam_size
        alpha = self.length_penalty if length_penalty is None else length_penalty
        _check_range("beam_size", beam_size, 1)
        if not 1 <= n <= beam_size:
            raise TranslationError(f"n must be from 1 to beam_size={beam_size}. Received: n={n}.")
        alpha = np.float32(alpha)

        def search(source, indices, length):
            return self._run(self.search, [source, alpha], length, beam_size)

        found = self._each(texts, search, max_length, too_long)
        return [hypotheses[:n] for hypotheses in found]

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
            texts: list of str.
            n: number of draws.
            temperature: below 1 likely tokens become likelier; above 1, less likely.
            top_k: if given, only the k likeliest tokens are drawn from.
            top_p: if given, only the likeliest tokens that together have this probability are.
            seed: of the draws; a text's draws depend on it and on the text's place in the list.
            max_length, too_long: see `n_best`.

        Returns:
            For each text a list of `Translation`, whose scores are log-probabilities.

        Raises:
            TranslationError: if a text is too long, or an option is wrong.
        """
        _check_range("n", n, 1)
        _check_range("temperature", temperature, 1e-3)
        _check_range("top_k", 1 if top_k is None else top_k, 1)
        _check_range("top_p", 1.0 if top_p is None else top_p, 1e-6, 1.0)

        def search(source, indices, length):
            # a stream of numbers for each text, so that its neighbours do not matter
            streams = [np.random.default_rng([seed, index]) for index in indices]
            uniforms = [stream.random((length, n), np.float32).T for stream in streams]
            empty = np.zeros((len(source) - len(indices), n, length), np.float32)
            uniforms = np.concatenate([np.stack(uniforms), empty])
            numbers = [source, uniforms, np.float32(temperature), np.float32(top_p or 1.0)]
            return self._run(self._sample_graph, numbers, top_k)

        return self._each(texts, search, max_length, too_long)

    def alignment(self, text, translation=None):
        """Where the model looks in `text` for each token of a translation.

        Args:
            text: str.
            translation: str; the model's own by default.

        Returns:
            `Alignment`.
        """
        if translation is None:
            [translation] = self([text])
        [source], [target] = self._encode([text]), self.target_tokenizer.encode([translation])
        maps = self.model.cross_attention_maps(
            {"source": np.asarray([source]), "target": np.asarray([[BOS_ID, *target]])}
        )
        weights = keras.ops.convert_to_numpy(keras.ops.cast(maps, "float32"))
        return Alignment(
            weights.mean(axis=(0, 1, 2)),
            self.source_tokenizer.pieces(source),
            self.target_tokenizer.pieces([*target, EOS_ID]),
        )

    def score(self, texts, translations):
        """How likely the model finds given translations.

        Args:
            texts: list of str.
            translations: list of str, one for each text.

        Returns:
            For each text the log-probability of its translation, the end of it included: float.

        Raises:
            TranslationError: if there are not as many translations as texts, or one is too long.
        """
        sources, targets = self._encode(texts), self._encode(translations, "target")
        if len(sources) != len(targets):
            raise TranslationError(
                f"Each text has one translation. Received: {len(sources)} texts and "
                f"{len(targets)} translations."
            )
        limit, found = self.model.max_length, []
        for index, pair in enumerate(zip(sources, targets)):
            if max(map(len, pair)) > limit:
                raise TranslationError(
                    f"Text {index} or its translation is too long: {max(map(len, pair))} tokens, "
                    f"and the model takes {limit}."
                )
        for start in range(0, len(sources), BATCHES[-1]):
            rows = slice(start, start + BATCHES[-1])
            batch = [_batch(side[rows], limit) for side in (sources, targets)]
            found.extend(self._run(self.log_probs, batch).numpy()[: len(sources[rows])].tolist())
        return found

    def search(self, source, alpha, length, beam_size):
        """The search as a graph: int [B, S] -> `zoo.decoding.Hypotheses` of up to `length` tokens.

        Args:
            source: tokens, each row ending with EOS_ID, then PAD_ID.
            alpha: of the length penalty, a scalar tensor.
            length: T, an int or a scalar tensor.
            beam_size: K; 1 is greedy search.
        """
        cache = self.model.start(source, length, beam_size)
        settings = (self.model.step, cache, keras.ops.shape(source)[0], _SPECIAL, length)
        if beam_size == 1:
            return decoding.greedy_search(*settings, alpha)
        return decoding.beam_search(*settings, beam_size, alpha)

    def log_probs(self, source, target):
        """The log-probability of each target as a graph: float32 [B].

        Args:
            source, target: tokens [B, S] and [B, T], each row ending with EOS_ID, then PAD_ID.
        """
        before = tf.concat([tf.fill([tf.shape(target)[0], 1], BOS_ID), target[:, :-1]], axis=1)
        logits = self.model({"source": source, "target": before}, training=False)
        of_tokens = tf.nn.sparse_softmax_cross_entropy_with_logits(
            target, tf.cast(logits, tf.float32)
        )
        return -tf.reduce_sum(tf.where(target == PAD_ID, 0.0, of_tokens), axis=1)

    @property
    def max_source_length(self):
        """The largest number of source tokens, the end token included."""
        return self.model.max_length

    def description(self):
        """What it is beside the model, as JSON can hold it."""
        sides = (("source", self.source_tokenizer), ("target", self.target_tokenizer))
        return {
            "tokenizers": {
                side: {"kind": tokenizer.kind, "vocab_size": tokenizer.vocab_size}
                for side, tokenizer in sides
            },
            "search": {"beam_size": self.beam_size, "length_penalty": self.length_penalty},
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
        import zoo.models  # noqa: F401  Keras finds our classes once they are imported

        folder = pathlib.Path(folder)
        translator = cls(
            keras.saving.load_model(folder / MODEL_FILE, compile=False),
            Tokenizer.load(folder / SOURCE_FILE),
            Tokenizer.load(folder / TARGET_FILE),
            **json.loads((folder / DESCRIPTION_FILE).read_text())["search"],
        )
        translator.run_folder = folder
        return translator

    def _run(self, graph, tensors, *settings):
        """`graph(*tensors, *settings)`, compiled once for the shapes of the tensors."""
        key = (graph.__name__, *(np.shape(tensor) for tensor in tensors), *settings)
        if key not in self._compiled:
            self._compiled[key] = tf.function(
                lambda *tensors: graph(*tensors, *settings), autograph=False, jit_compile=True
            )
        return self._compiled[key](*map(tf.constant, tensors))

    def _sample_graph(self, source, uniforms, temperature, top_p, top_k):
        count, length = uniforms.shape[1:]
        cache = self.model.start(source, length, count)
        return decoding.sample(
            self.model.step, cache, uniforms, _SPECIAL, length, temperature, top_k, top_p
        )

    def _each(self, texts, search, max_length, too_long):
        """Translations of each text, in order; `search(source [B, S], indices, length)`."""
        _check_range("max_length", max_length or 1, 1, self.model.max_length)
        sources, owners = self._sources(texts, too_long)
        found = [None] * len(sources)
        # A bar is shown on a terminal, for work that takes longer than a moment.
        with tqdm(
            total=len(sources), unit="text", delay=1.0, leave=False, disable=None
        ) as progress:
            for indices in _batches([len(source) for source in sources], self.max_source_length):
                batch = _batch([sources[index] for index in indices], self.max_source_length)
                length = max_length or min(2 * batch.shape[1], self.model.max_length)
                hypotheses = search(batch, indices, length)
                for index, answer in zip(indices, self._read(hypotheses, len(indices))):
                    found[index] = answer
                progress.update(len(indices))
        return _joined(found, owners, len(texts))

    def _read(self, hypotheses, count):
        """The first `count` sentences' hypotheses as lists of `Translation`."""
        tokens, scores = hypotheses.tokens.numpy()[:count], hypotheses.scores.numpy()[:count]
        texts = iter(self.target_tokenizer.decode(tokens.reshape(-1, tokens.shape[-1])))
        return [
            [
                Translation(text, float(score))
                for score, text in zip(row, texts)
                if np.isfinite(score)
            ]
            for row in scores
        ]

    def _encode(self, texts, side="source"):
        """Tokens of each text, the end token included."""
        tokenizer = self.source_tokenizer if side == "source" else self.target_tokenizer
        return [[*ids, EOS_ID] for ids in tokenizer.encode(texts)]

    def _sources(self, texts, too_long):
        """Source tokens that fit into the model, and for each the number of the text it is of."""
        if too_long not in ("error", "split"):
            raise TranslationError(
                f'too_long must be "error" or "split". Received: too_long={too_long!r}.'
            )
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise TranslationError(f"Texts are given as a list of str: [{texts!r}].")
        sources, owners, limit = [], [], self.max_source_length
        for owner, (text, ids) in enumerate(zip(texts, self._encode(texts))):
            if len(ids) <= limit:
                parts = [ids] if text.strip() else []
            elif too_long == "split":
                parts = self._encode(_split(text, lambda t: len(self._encode([t])[0]) <= limit))
            else:
                raise TranslationError(
                    f"Text {owner} is too long: {len(ids)} tokens, and the model takes "
                    f'{limit}. Shorten it, or say too_long="split". It begins: {text[:60]!r}.'
                )
            sources.extend(parts)
            owners.extend([owner] * len(parts))
        return sources, owners


def _batches(lengths, limit):
    """Groups the indices of sources by padded length, so that none depends on its neighbours."""
    by_width = {}
    for index, length in sorted(enumerate(lengths), key=lambda item: item[1]):
        by_width.setdefault(_padded(length, limit), []).append(index)
    for width, indices in sorted(by_width.items()):
        rows = max(n for n in BATCHES if n == 1 or n * width <= TOKENS_IN_BATCH)
        for start in range(0, len(indices), rows):
            yield indices[start : start + rows]


def _batch(sources, limit):
    """Lists of ids -> int32 [B, S], filled up to one of the shapes that searches run at."""
    rows = next(n for n in BATCHES if n >= len(sources))
    batch = np.full((rows, _padded(max(map(len, sources)), limit)), PAD_ID, np.int32)
    batch[:, 0] = EOS_ID  # a row without a sentence translates nothing, and soon
    for row, source in zip(batch, sources):
        row[: len(source)] = source
    return batch


def _padded(length, limit):
    return min(limit, next(n for n in LENGTHS if n >= length))


def _joined(found, owners, count):
    """The translations of each text from those of its parts."""
    parts = [[] for _ in range(count)]
    for owner, translations in zip(owners, found):
        parts[owner].append(translations)
    joined = []
    for of_text in parts:
        if len(of_text) == 1:
            joined.append(of_text[0])
        else:
            best = [translations[0] for translations in of_text]
            text = " ".join(translation.text for translation in best)
            joined.append([Translation(text, sum((t.score for t in best), 0.0))])
    return joined


def _split(text, fits):
    """Parts of a text, each of which `fits`: cut between sentences, else words, else anywhere."""
    text = text.strip()
    if not text or fits(text):
        return [text] if text else []
    middle = len(text) // 2
    for pattern in (r"(?<=[.!?…;:])\s+|(?<=[。！？])|\n+", r"\s+"):
        places = [match.end() for match in re.finditer(pattern, text)]
        places = [place for place in places if 0 < place < len(text)]
        if places:
            middle = min(places, key=lambda place: abs(place - len(text) // 2))
            break
    return _split(text[:middle], fits) + _split(text[middle:], fits)


def _check_vocabulary(side, size, tokenizer):
    if size != tokenizer.vocab_size:
        raise TranslationError(
            f"The model has {size} {side} tokens. "
            f"Received a tokenizer with {tokenizer.vocab_size} tokens."
        )


def _check_range(name, value, low, high=float("inf")):
    if not low <= value <= high:
        raise TranslationError(f"{name} must be from {low} to {high}. Received: {name}={value}.")
