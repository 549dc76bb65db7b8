"""Plain text for language models: reads files, and cuts their tokens into windows.

Axes: B windows of a batch, T tokens of a window.
"""

import math
import pathlib

import numpy as np
import tensorflow as tf

from zoo.data.text_rows import read_lines
from zoo.data.token_batches import computed, shuffled
from zoo.data.worker_batches import split_batches
from zoo.errors import UserError
from zoo.text.special_tokens import SPECIAL_TOKENS

HELD_OUT = 0.05  # share of each text, at its end


def read_texts(paths):
    """Reads UTF-8 files: a str for each path.

    Raises:
        UserError: if a file cannot be read, is empty or is not UTF-8.
    """
    texts = []
    for path in paths:
        text = "".join(read_lines(path)).replace("\r\n", "\n")
        if not text.strip():
            raise UserError(f"{path} contains no text.")
        texts.append(text)
    return texts


def project_texts():
    """The documentation and the source code of this project: list of str."""
    package = pathlib.Path(__file__).parents[1]
    documents = [*package.parent.glob("*.md"), *package.parent.glob("docs/*.md")]
    files = sorted(documents) + sorted(package.rglob("*.py"))
    texts = [file.read_text("utf-8") for file in files]
    return [text for text in texts if text.strip()]


def hold_out(texts):
    """Holds out the end of each text: returns (training texts, held-out texts).

    Raises:
        UserError: if all held-out texts are blank.
    """
    train = []
    valid = []
    for text in texts:
        end = len(text) - int(HELD_OUT * len(text))
        train.append(text[:end])
        if text[end:].strip():
            valid.append(text[end:])
    if not valid:
        raise UserError(
            f"The last {HELD_OUT:.0%} of each text, which are held out for validation, contain no "
            "text. Use longer texts, and remove blank lines at their ends."
        )
    return train, valid


def concatenated_tokens(tokenizer, texts, end):
    """Tokenizes and concatenates texts, with the token `end` after each: int32 [n]."""
    tokens = []
    for ids in tokenizer.encode(texts):
        tokens += [*ids, end]
    return np.array(tokens, np.int32)


def steps_per_epoch(tokens, batch_size, length):
    """Returns the number of training batches in an epoch.

    Raises:
        UserError: if the tokens do not fill a batch.
    """
    windows = (len(tokens) - length) // length
    if windows < batch_size:
        raise UserError(
            f"The training text has {len(tokens):,} tokens, too few for a batch of {batch_size} "
            f"windows of {length} tokens. Use more text, or decrease --batch-size or --max-length."
        )
    return windows // batch_size


def training_windows(tokens, batch_size, length, seed=0, first_step=0):
    """Returns an infinite data set of batches of shuffled windows.

    Each epoch cuts the text into windows at different positions. The inputs of a window begin with
    the start token. A batch depends only on `seed` and its step, so a resumed run sees the same
    batches as an uninterrupted one. The weights of all labels are 1.

    Args:
        tokens: int [n].
        batch_size: B.
        length: T.
        seed: seed of the order.
        first_step: step of the first batch, counted from the beginning of the run.

    Returns:
        `WorkerBatches` of (inputs int32 [B, T], labels int32 [B, T], weights float32 [B, T]).
    """
    steps = steps_per_epoch(tokens, batch_size, length)
    windows = (len(tokens) - length) // length
    weights = np.ones((batch_size, length), np.float32)

    def places(step):
        epoch = step // steps
        first = step % steps * batch_size
        numbers = first + tf.range(batch_size, dtype=tf.int64)  # [B]
        return epoch, shuffled(numbers, windows, seed, epoch)

    def batch(epoch, numbers):
        offset = np.random.default_rng([seed, epoch]).integers(length)  # of the whole epoch
        starts = offset + length * numbers  # [B]
        labels = tokens[starts[:, None] + np.arange(length)]  # [B, T]
        return _inputs(labels), labels, weights

    batches = tf.data.Dataset.counter(first_step).map(places)
    return split_batches(computed(batches, batch, _signature(length)))


def evaluation_windows(tokens, batch_size, length, special=SPECIAL_TOKENS):
    """Returns a data set of all tokens in order, in batches like those of `training_windows`.

    The last batch is filled with labels of weight 0. `special` are the
    `zoo.decoding.SpecialTokens`, of which windows begin with the start token.
    """
    shape = (batch_size, length)
    size = batch_size * length
    count = math.ceil(len(tokens) / size)

    def batch(step):
        own = tokens[step * size : (step + 1) * size]
        labels = np.pad(own, (0, size - len(own)), constant_values=special.pad).reshape(shape)
        weights = (np.arange(size) < len(own)).astype(np.float32).reshape(shape)
        return _inputs(labels, special.start), labels, weights

    return split_batches(computed(tf.data.Dataset.range(count), batch, _signature(length)), count)


def _signature(length):
    """Inputs, labels and weights: [batch, length]."""
    tokens = tf.TensorSpec((None, length), tf.int32)
    return tokens, tokens, tf.TensorSpec((None, length), tf.float32)


def _inputs(labels, start=SPECIAL_TOKENS.start):
    """The start token, then all labels but the last."""
    return np.pad(labels[:, :-1], [(0, 0), (1, 0)], constant_values=start)
