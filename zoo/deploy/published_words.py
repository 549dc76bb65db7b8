"""Words of GPT-2's and BERT's tokenizers as TensorFlow graphs of core ops.

Both mark the end of each word by the byte `END`. Sources: the library `tokenizers`:
pre_tokenizers/byte_level.rs, pre_tokenizers/bert.rs and normalizers/bert.rs.
Axes: B texts.
"""

import functools
import itertools
import unicodedata

import tensorflow as tf
from tokenizers import Regex, normalizers, pre_tokenizers

from zoo.deploy.merge_graph import END, hash_table
from zoo.deploy.unicode_graph import NormalFormC, apply_where, character_ranges


class ByteLevelWords(tf.Module):
    """The words of `zoo.text.published.ByteLevelBPETokenizer`."""

    def __init__(self, tokenizer):
        super().__init__()
        self._add_prefix_space = tokenizer.add_prefix_space
        letter, digit, space = (library_ranges(name) for name in (r"\p{L}", r"\p{N}", r"\s"))
        # The last space of several belongs to what follows. RE2 cannot look ahead.
        self._spaces = f"([{space}])([{space}][^{space}])"
        words = f" ?[{letter}]+| ?[{digit}]+| ?[^{space}{letter}{digit}]+|[{space}]+"
        self._words = f"'s|'t|'re|'ve|'m|'ll|'d|{words}"

    def __call__(self, texts):
        """Marks the words of texts, string [B] to string [B]."""
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        if self._add_prefix_space:
            without = (texts != "") & (tf.strings.substr(texts, 0, 1) != " ")
            texts = tf.where(without, tf.strings.join([" ", texts]), texts)
        texts = tf.strings.regex_replace(texts, self._spaces, rb"\1" + END + rb"\2")
        return tf.strings.regex_replace(texts, self._words, rb"\0" + END)


class BertWords(tf.Module):
    """The words of `zoo.text.published.BertWordPieceTokenizer`, normalized."""

    def __init__(self, tokenizer):
        super().__init__()
        removed = {c for c, text in _changed_characters(clean_text=True).items() if not text}
        self._removed = f"[{character_ranges(sorted(removed))}]+"
        chinese = character_ranges(sorted(_changed_characters(handle_chinese_chars=True)))
        self._chinese = f"([{chinese}])" if tokenizer.chinese_chars else None
        strips = tokenizer.lowercase if tokenizer.strip_accents is None else tokenizer.strip_accents
        self._normalize = NormalFormC() if strips else None
        kept = [c for c in _characters() if c not in removed]
        # two characters whose decompositions meet with marks
        decomposed = {c: unicodedata.normalize("NFD", c) for c in kept}
        before, after = (
            character_ranges([c for c, d in decomposed.items() if unicodedata.combining(d[at])])
            for at in (-1, 0)
        )
        self._marks = f"[{before}][{after}]"
        options = {"strip_accents": strips, "lowercase": tokenizer.lowercase}
        replaced = _changed_characters(clean_text=True, **options)
        replaced = {c: text for c, text in replaced.items() if c not in removed}
        ends = {c: c.encode().join([END, END]) for c in _punctuation(kept)} | {" ": END}
        texts = {
            c: b"".join(ends.get(x, x.encode()) for x in replaced.get(c, c))
            for c in sorted(replaced.keys() | ends)
        }
        self._rows = hash_table({c.encode(): row for row, c in enumerate(texts)}, END, -1)
        self._texts = tf.constant([*texts.values()])

    def __call__(self, texts):
        """Marks the words of texts, string [B] to string [B]."""
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        texts = tf.strings.regex_replace(texts, self._removed, "")
        if self._chinese is not None:
            texts = tf.strings.regex_replace(texts, self._chinese, r" \1 ")
        if self._normalize is not None:  # several marks of a letter have an order
            meets = tf.strings.regex_full_match(texts, f"(?s).*{self._marks}.*")
            texts = apply_where(meets, self._normalize.decomposed, texts)
        characters = tf.strings.unicode_split(texts, "UTF-8")
        rows = self._rows.lookup(characters.values)
        parts = tf.gather(self._texts, tf.maximum(rows, 0))
        parts = tf.where(rows < 0, characters.values, parts)
        return tf.strings.reduce_join(characters.with_values(parts), axis=-1)


@functools.cache
def library_ranges(pattern):
    """The characters that match an escape of the library, such as \\p{L}, for an RE2 class."""
    others = normalizers.Replace(Regex(rf"[^{pattern}]+"), "")
    return character_ranges(others.normalize_str("".join(_characters())))


def _punctuation(characters):
    """The characters that are words of their own."""
    words = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{'a'.join(characters)}a")
    return [word for word, _ in words if len(word) == 1 and word != "a"]


@functools.cache
def _changed_characters(
    clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False
):
    """{character: its normalized text} of those that BERT's normalizer changes."""
    options = {"strip_accents": strip_accents, "lowercase": lowercase}
    normalizer = normalizers.BertNormalizer(clean_text, handle_chinese_chars, **options)
    characters = [c for c in _characters() if c != "|"]
    texts = normalizer.normalize_str("|".join(characters)).split("|")
    return {c: text for c, text in zip(characters, texts, strict=True) if c != text}


def _characters():
    """All but those of planes 4 to 13, which are not assigned."""
    ranges = range(0xD800), range(0xE000, 0x40000), range(0xE0000, 0x110000)
    return map(chr, itertools.chain(*ranges))
