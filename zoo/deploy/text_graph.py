"""Tokenizers as TensorFlow graphs, with operations of tensorflow-text.

They must be available when a graph is loaded: a Python program imports tensorflow_text first, and
TensorFlow Serving contains them. Axes: B texts.
"""

import zlib

import tensorflow as tf

from zoo.deploy.byte_level_graph import ByteLevelPieces
from zoo.errors import ExportError, needed
from zoo.text.sentencepiece import LANGUAGE, SPACE

# Assumed maximum number of bytes per token: an unknown word of BERT is one token, and spaces are
# none, whatever their length. Without a limit, tokenizing a long text would take minutes.
_LONGEST_TOKEN = 64
_NO_TOKEN = "<pad>"  # label of ids outside the vocabulary


class TextGraph(tf.Module):
    """A tokenizer for tensors, with the same ids, texts and labels, but without its prefix.

    It always runs on the CPU.

    Args:
        tokenizer: `zoo.text.sentencepiece.SentencePieceTokenizer` or
            `zoo.text.published.LibraryTokenizer`.

    Attributes:
        longest_token: maximum number of bytes of text that one token represents: a text of n bytes
            has at least n / longest_token tokens.
        has_own_operations: whether the graph has operations of tensorflow-text.

    Raises:
        UserError: if tensorflow-text is not installed.
        ExportError: if the graph does not support an option of the tokenizer.
    """

    def __init__(self, tokenizer):
        super().__init__()
        needed("tensorflow_text")
        self._vocab_size, self._kind = tokenizer.vocab_size, tokenizer.kind
        self.has_own_operations = self._kind != "BPE"
        spelled, labels = tokenizer.token_bytes, tokenizer.pieces(range(tokenizer.vocab_size))
        self.longest_token = max(_LONGEST_TOKEN, *map(len, spelled))
        with tf.device("CPU"):
            self._graph = _GRAPHS[self._kind](tokenizer)
            self._spelled = tf.constant([*spelled, b""])
            self._labels = tf.constant([*labels, _NO_TOKEN])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def encode(self, texts):
        """Encodes texts like the tokenizer's `encode`, without control ids.

        Args:
            texts: string [B]. Invalid UTF-8 is replaced by U+FFFD, as by
                `bytes.decode(errors="replace")`.

        Returns:
            RaggedTensor int32 [B, None].
        """
        with tf.device("CPU"):
            return tf.cast(self._graph(utf8(texts)), tf.int32)

    def decode(self, ids):
        """Decodes sequences of ids like the tokenizer's `decode`.

        Args:
            ids: int32 [..., T]. Control ids and ids outside the vocabulary are skipped.

        Returns:
            string [...]. Invalid UTF-8 is replaced by U+FFFD.
        """
        with tf.device("CPU"):
            if self._kind == "sentencepiece":
                return self._graph.decode(ids)
            texts = tf.strings.reduce_join(tf.gather(self._spelled, self._known(ids)), axis=-1)
            if self._kind == "WordPiece":  # its words begin with a space
                texts = tf.strings.regex_replace(texts, "^ ", "")
            return utf8(texts)

    def pieces(self, ids):
        """Returns a label for each id, like the tokenizer's `pieces`: int32 [...], string [...]."""
        with tf.device("CPU"):
            return tf.gather(self._labels, self._known(ids))

    def _known(self, ids):
        return tf.where((ids >= 0) & (ids < self._vocab_size), ids, self._vocab_size)


class SentencePieces(tf.Module):
    """A `SentencePieceTokenizer`, by the library itself: string [B] to ragged ids [B, None]."""

    def __init__(self, tokenizer):
        super().__init__()
        has_own_ids = tokenizer.vocab is None
        self._language_prefixes = tokenizer.language_prefixes
        self._tokenizer = needed("tensorflow_text").SentencepieceTokenizer(
            tokenizer.model,
            out_type=tf.int32 if has_own_ids else tf.string,
            # In a loaded SavedModel, all tokenizers of the same name share one model.
            name=f"sentencepiece_{zlib.crc32(tokenizer.model):08x}",
        )
        tokens = [tokenizer.tokens.get(id, "") for id in range(tokenizer.vocab_size)]
        left_out = () if has_own_ids else ("", *tokenizer.control)
        self._tokens = tf.constant(tokens)
        self._is_decoded = tf.constant([token not in left_out for token in tokens])
        normalizer, self._first = tokenizer.proto.normalizer_spec, None
        if not normalizer.remove_extra_whitespaces:
            # The operation removes spaces at the beginning of a text, but not after another piece.
            letters = [id for id, token in enumerate(tokens) if token.isalpha()]
            self._first = letters[0] if letters else tokens.index("<0x41>")
            self._first_text = tokens[self._first] if letters else "A"
            # The library removes the space of the first piece of a text, unless it is a byte piece.
            spaced = [t.startswith(SPACE) and normalizer.add_dummy_prefix for t in tokens]
            self._is_spaced = tf.constant(spaced)
            self._is_text = tf.constant([token not in tokenizer.control for token in tokens])
        self._ids = None
        if not has_own_ids:
            entries = [[*tokenizer.vocab], [*tokenizer.vocab.values()], tf.string, tf.int64]
            initializer = tf.lookup.KeyValueTensorInitializer(*entries)
            self._ids = tf.lookup.StaticHashTable(initializer, tokenizer.unknown)

    def __call__(self, texts):
        if self._ids is None:
            return self._tokenizer.tokenize(texts)
        if not self._language_prefixes:
            return self._lookup(self._tokenizer.tokenize(texts))
        language = tf.strings.regex_replace(texts, f"(?s)^({LANGUAGE.pattern})?.*", r"\1")
        texts = tf.strings.substr(texts, tf.strings.length(language), tf.strings.length(texts))
        language = tf.ragged.boolean_mask(language[:, None], (language != "")[:, None])
        return self._lookup(tf.concat([language, self._tokenizer.tokenize(texts)], axis=1))

    def decode(self, ids):
        """Decodes int32 [..., T] to string [...], without control tokens."""
        last, shape = tf.size(self._is_decoded) - 1, tf.shape(ids)
        flat, known = [tf.reduce_prod(shape[:-1]), shape[-1]], tf.clip_by_value(ids, 0, last)
        is_decoded = (ids == known) & tf.gather(self._is_decoded, known)
        rows = tf.ragged.boolean_mask(tf.reshape(ids, flat), tf.reshape(is_decoded, flat))
        if self._first is not None:
            first = tf.ragged.boolean_mask(rows, tf.gather(self._is_text, rows))[:, :1]
            is_spaced = tf.reduce_any(tf.gather(self._is_spaced, first), axis=1)
            rows = tf.concat([tf.fill([flat[0], 1], self._first), rows], axis=1)
        if self._ids is not None:
            rows = rows.with_values(tf.gather(self._tokens, rows.values))
        texts = self._tokenizer.detokenize(rows)
        # spaces from byte pieces, or from pieces that are not in the model
        texts = tf.strings.regex_replace(texts, SPACE, " ")
        if self._first is None:
            texts = tf.strings.regex_replace(texts, "^ +| +$", "")
        else:
            length = tf.cast(is_spaced, tf.int32) + len(self._first_text.encode())
            texts = tf.strings.substr(texts, length, tf.strings.length(texts))
        return tf.ensure_shape(tf.reshape(texts, shape[:-1]), ids.shape[:-1])

    def _lookup(self, pieces):
        return pieces.with_values(self._ids.lookup(pieces.values))


class BertPieces(tf.Module):
    """BERT's tokenizer: string [B] to ragged ids [B, None].

    Characters are normalized here, in the order of the library `tokenizers`. FastBertTokenizer can
    also do so, but by case folding, which changes "ß" to "ss".
    """

    def __init__(self, tokenizer):
        super().__init__()
        normalizer = tokenizer.settings["normalizer"]
        if not normalizer["handle_chinese_chars"]:
            raise ExportError("A BERT tokenizer without handle_chinese_chars cannot be exported.")
        self._lowers, strips = normalizer["lowercase"], normalizer["strip_accents"]
        self._strips = self._lowers if strips is None else strips
        self._text = needed("tensorflow_text")
        self._tokenizer = self._text.FastBertTokenizer(
            [tokenizer.tokens[id] for id in range(tokenizer.vocab_size)],
            unknown_token=tokenizer.settings["model"]["unk_token"],
            token_out_type=tf.int32,
        )

    def __call__(self, texts):
        texts = tf.strings.regex_replace(texts, r"[^\P{C}\t\n\r]+|\x{fffd}", "")
        if self._strips:
            texts = self._text.normalize_utf8(texts, "NFD")
            texts = tf.strings.regex_replace(texts, r"\p{Mn}+", "")
        if self._lowers:  # without the special rule for a sigma at the end of a word
            texts = tf.strings.lower(tf.strings.regex_replace(texts, "Σ", "σ"), "utf-8")
        return self._tokenizer.tokenize(texts)


_GRAPHS = {"sentencepiece": SentencePieces, "WordPiece": BertPieces, "BPE": ByteLevelPieces}


def utf8(texts):
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
