"""Labeled texts as token ids.

Axes: B rows of a batch, T tokens, n texts.
"""

import itertools

import numpy as np
import tensorflow as tf

from zoo.data.encoded_pairs import by_length, padded
from zoo.text.special_tokens import encode_texts, truncated

_BLOCK = 2000  # texts to encode per call


class EncodedTexts:
    """Labeled texts as token ids, for `zoo.data.translation_batches`.

    Args:
        texts: `zoo.data.labeled_text.LabeledTexts`.
        tokenizer: `zoo.text.tokenizer.Tokenizer`.
        max_length: maximum number of tokens of a text, control ids included; longer texts are
            truncated.

    Fields:
        longest_first: uint32 [n], the texts by descending length.
        length_counts: int64 [longest + 1], number of texts of each length, control ids included.
        num_tokens: number of labels, n.
        truncated: number of texts that were truncated.
        signature: `tf.TensorSpec` of the outputs of `batch`.
    """

    signature = (
        tf.TensorSpec((None, None), tf.int32),
        tf.TensorSpec((None,), tf.int32),
        tf.TensorSpec((None,), tf.float32),
    )

    def __init__(self, texts, tokenizer, max_length):
        self.truncated, rows = 0, []
        for start in range(0, len(texts), _BLOCK):
            for row in encode_texts(tokenizer, texts.texts[start : start + _BLOCK]):
                self.truncated += len(row) > max_length
                rows.append(np.asarray(truncated(row, max_length), np.int32))
        self._labels = np.asarray(texts.labels, np.int32)
        self._ids = np.concatenate(rows)
        self._offsets = np.fromiter(itertools.accumulate(map(len, rows), initial=0), np.int64)
        self.longest_first, self.length_counts = by_length(np.diff(self._offsets))
        self.num_tokens = len(self)

    def __len__(self):
        return len(self._labels)

    def num_labels(self, texts):
        """Number of labels of some texts: one each."""
        return len(texts)

    def batch(self, texts, shape, weight):
        """Makes one batch.

        Args:
            texts: int [up to B], indices of the texts for the first rows; other rows are padding.
            shape: (B, T).
            weight: weight of each real label.

        Returns:
            (tokens int32 [B, T], labels int32 [B], weights float32 [B]).
        """
        labels, weights = np.zeros(shape[0], np.int32), np.zeros(shape[0], np.float32)
        labels[: len(texts)], weights[: len(texts)] = self._labels[texts], weight
        return padded(self._ids, self._offsets, texts, shape), labels, weights
