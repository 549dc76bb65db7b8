"""Tokenizers as TensorFlow graphs, with operations of tensorflow-text.

They must be available when a graph is loaded: a Python program imports tensorflow_text first, and
TensorFlow Serving contains them. Axes: B texts.
"""

import base64
import zlib

import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2

from zoo.errors import ExportError, needed
from zoo.text.library_tokenizer import BYTE_OF
from zoo.text.sentencepiece import LANGUAGE

# What the graphs support of a tokenizer.json; a setting other than a type may be missing or null.
_BERT = {
    "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
}
_GPT2 = {
    "normalizer": {"type": None},
    "pre_tokenizer": {"type": "ByteLevel", "use_regex": True},
    "model": {"byte_fallback": False, "ignore_merges": False},
}
_UNIGRAM = ("Precompiled", "Strip", "Replace", "WhitespaceSplit", "Metaspace")


class TextGraph(tf.Module):
    """A `zoo.text.tokenizer.Tokenizer` for tensors, without its prefix. It runs on the CPU.

    Attributes:
        longest_token: see `zoo.text.tokenizer.Tokenizer`.

    Raises:
        ExportError: if the graph does not support an option of the tokenizer.
    """

    def __init__(self, tokenizer):
        super().__init__()
        self._vocab_size = tokenizer.vocab_size
        self._space = tokenizer.space
        if tokenizer.strips:
            self._removed = "^ +| +$"
        elif tokenizer.adds_space:
            self._removed = "^ "
        else:
            self._removed = ""
        self.longest_token = tokenizer.longest_token
        with tf.device("CPU"):
            self._graph = _GRAPHS[tokenizer.kind](tokenizer)
            self._spelled = tf.constant([*tokenizer.token_bytes, b""])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def encode(self, texts):
        """Encodes texts, string [B], to ragged int32 [B, None], without control ids."""
        with tf.device("CPU"):
            return tf.cast(self._graph(utf8(texts)), tf.int32)

    def decode(self, ids):
        """Decodes ids, int32 [..., T], to string [...]; control and unknown ids are skipped."""
        with tf.device("CPU"):
            known = tf.where((ids >= 0) & (ids < self._vocab_size), ids, self._vocab_size)
            texts = utf8(tf.strings.reduce_join(tf.gather(self._spelled, known), axis=-1))
            texts = tf.strings.regex_replace(texts, self._space, " ")
            if self._removed:
                texts = tf.strings.regex_replace(texts, self._removed, "")
            return texts


class SentencePieces(tf.Module):
    """A `SentencePieceTokenizer`, by the library itself: string [B] to ragged ids [B, None]."""

    def __init__(self, tokenizer):
        super().__init__()
        self._language_prefixes = tokenizer.language_prefixes
        vocab = tokenizer.vocab
        if vocab is None:
            self._library = _library(tokenizer.model, tf.int32)
            self._ids = None
        else:
            self._library = _library(tokenizer.model, tf.string)
            table = tf.lookup.KeyValueTensorInitializer(
                [*vocab], [*vocab.values()], tf.string, tf.int64
            )
            self._ids = tf.lookup.StaticHashTable(table, tokenizer.unknown)

    def __call__(self, texts):
        if not self._language_prefixes:
            pieces = self._library.tokenize(texts)
        else:
            code = tf.strings.regex_replace(texts, f"(?s)^({LANGUAGE.pattern})?.*", r"\1")
            texts = tf.strings.substr(texts, tf.strings.length(code), tf.strings.length(texts))
            code = tf.ragged.boolean_mask(code[:, None], (code != "")[:, None])
            pieces = tf.concat([code, self._library.tokenize(texts)], axis=1)
        if self._ids is None:
            return pieces
        return pieces.with_values(self._ids.lookup(pieces.values))


def _library(model, out_type):
    """The operations of a SentencePiece model, bytes."""
    # In a loaded SavedModel, all tokenizers of the same name share one model.
    name = f"sentencepiece_{zlib.crc32(model):08x}"
    return needed("tensorflow_text").SentencepieceTokenizer(model, out_type=out_type, name=name)


class BertPieces(tf.Module):
    """BERT's tokenizer: string [B] to ragged ids [B, None].

    Characters are normalized here, in the order of the library `tokenizers`. FastBertTokenizer can
    also do so, but by case folding, which changes "ß" to "ss".
    """

    def __init__(self, tokenizer):
        super().__init__()
        _check_supported(tokenizer, _BERT)
        normalizer = tokenizer.parts["normalizer"]
        self._lowers = normalizer["lowercase"]
        strips = normalizer["strip_accents"]
        self._strips = self._lowers if strips is None else strips
        self._text = needed("tensorflow_text")
        self._tokenizer = self._text.FastBertTokenizer(
            [tokenizer.tokens[id] for id in range(tokenizer.vocab_size)],
            unknown_token=tokenizer.parts["model"]["unk_token"],
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


_END = b"\xff"  # marks the end of a word; this byte does not occur in UTF-8
_NUL = "\u0100"  # stands for the byte 0, as pieces must not contain it
_SPACE = r"\t-\r\x{85}\p{Z}"
# The last of several spaces belongs to the next word. RE2 has no lookahead.
_SPACES = rf"([{_SPACE}])([{_SPACE}][^{_SPACE}])"
_WORDS = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\pL+| ?\pN+| ?[^{_SPACE}\pL\pN]+|[{_SPACE}]+"


class ByteLevelPieces(tf.Module):
    """GPT-2's tokenizer: string [B] to ragged ids [B, None].

    RE2 splits texts into words, whose bytes SentencePiece merges, as characters of Latin-1. It
    knows the tokens and their order, not the pairs that become tokens. The results are the same if
    each token is what its own text is encoded to, as in all vocabularies that were learned: then
    no other pair of the same text can be left when it is a token's turn.
    """

    def __init__(self, tokenizer):
        super().__init__()
        _check_supported(tokenizer, _GPT2)
        self._add_prefix_space = tokenizer.parts["pre_tokenizer"]["add_prefix_space"]
        self._library = _library(_byte_pair_model(tokenizer), tf.int32)

    def __call__(self, texts):
        if self._add_prefix_space:
            texts = tf.strings.regex_replace(texts, r"(?s)^([^ ])", r" \1")
        texts = tf.strings.regex_replace(texts, _SPACES, rb"\1" + _END + rb"\2")
        texts = tf.strings.regex_replace(texts, _WORDS, rb"\0" + _END)
        words = tf.strings.split(texts, _END)  # the last one is empty and has no ids
        distinct, index = tf.unique(words.values)
        letters = tf.strings.unicode_transcode(distinct, "ISO-8859-1", "UTF-8")
        letters = tf.strings.regex_replace(letters, r"\x00", _NUL)
        ids = tf.gather(self._library.tokenize(letters), index)
        return words.with_values(ids).merge_dims(1, 2)


class UnigramPieces(tf.Module):
    """XLM-RoBERTa's tokenizer: string [B] to ragged ids [B, None], by the library SentencePiece."""

    def __init__(self, tokenizer):
        super().__init__()
        steps = [*_steps(tokenizer, "normalizer"), *_steps(tokenizer, "pre_tokenizer")]
        kinds = [step.get("type") for step in steps]
        if kinds[:1] != ["Precompiled"] or not {*kinds} <= {*_UNIGRAM}:
            raise ExportError(
                f"A Unigram tokenizer of the steps {kinds} cannot be exported: the first must be "
                f"Precompiled, and all of them in {_UNIGRAM}."
            )
        self._splits = "WhitespaceSplit" in kinds
        self._library = _library(_unigram_model(tokenizer), tf.int32)

    def __call__(self, texts):
        if self._splits:  # the only white space that the rules keep
            texts = tf.strings.regex_replace(texts, "\x85", " ")
        return self._library.tokenize(texts)


def _check_supported(tokenizer, supported):
    """Raises `ExportError` if a setting of a `LibraryTokenizer` is not as in {part: settings}."""
    for part, settings in supported.items():
        own = tokenizer.parts.get(part) or {}
        for name, value in settings.items():
            found = own.get(name)
            is_default = found is None and name != "type"
            if found != value and not is_default:
                raise ExportError(
                    f"A tokenizer whose {part} has {name}={found!r} cannot be exported: "
                    f"tensorflow-text supports only {value!r}."
                )


def _byte_pair_model(tokenizer):
    """The SentencePiece model of `ByteLevelPieces`, with the same ids."""
    merges = ["".join(pair) for pair in tokenizer.parts["model"]["merges"]]
    split = tokenizer.library.model.tokenize
    scores = {token: -rank for rank, token in enumerate(merges)}
    if len(scores) < len(merges) or any(len(split(token)) > 1 for token in scores):
        raise ExportError("The merges of this byte-pair tokenizer contradict each other.")
    model = sentencepiece_model_pb2.ModelProto()
    model.trainer_spec.model_type = model.trainer_spec.BPE
    normalizer = model.normalizer_spec
    normalizer.add_dummy_prefix = False
    normalizer.remove_extra_whitespaces = False
    normalizer.escape_whitespaces = False
    for id in range(tokenizer.vocab_size):
        token = tokenizer.tokens[id]
        if token in BYTE_OF or token in scores:
            letters = bytes(map(BYTE_OF.get, token)).decode("latin-1").replace("\0", _NUL)
            model.pieces.add(piece=letters, score=scores.get(token, 0))
        else:  # it is not text, and has a name that no text has
            model.pieces.add(piece=f"▁{id}", type=model.SentencePiece.CONTROL)
    model.pieces.add(piece="▁", type=model.SentencePiece.UNKNOWN)  # required, not used
    return model.SerializeToString()


def _steps(tokenizer, part):
    """The steps of the normalizer or pre-tokenizer of a `LibraryTokenizer`: a list of dicts."""
    step = tokenizer.parts.get(part) or {}
    return step.get("normalizers") or step.get("pretokenizers") or [step]


def _unigram_model(tokenizer):
    """The SentencePiece model of `UnigramPieces`, with the same ids."""
    model = sentencepiece_model_pb2.ModelProto()
    rules = _steps(tokenizer, "normalizer")[0]["precompiled_charsmap"]
    model.normalizer_spec.precompiled_charsmap = base64.b64decode(rules)
    control = {token["content"] for token in tokenizer.parts["added_tokens"]}
    for id, (token, score) in enumerate(tokenizer.parts["model"]["vocab"]):
        kind = model.SentencePiece.CONTROL if token in control else model.SentencePiece.NORMAL
        if id == tokenizer.unknown:
            kind = model.SentencePiece.UNKNOWN
        model.pieces.add(piece=token, score=score, type=kind)
    return model.SerializeToString()


def utf8(texts):
    """Replaces invalid UTF-8 by U+FFFD, as `bytes.decode(errors="replace")` does."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


_GRAPHS = {
    "sentencepiece": SentencePieces,
    "WordPiece": BertPieces,
    "BPE": ByteLevelPieces,
    "Unigram": UnigramPieces,
}
