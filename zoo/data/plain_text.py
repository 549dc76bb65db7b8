"""Plain text for language models: files, and batches of windows of their tokens.

Axes: B windows of a batch, T tokens of a window.
"""

import itertools
import pathlib

import numpy as np
import tensorflow as tf

from zoo.data.worker_batches import not_tuned
from zoo.errors import UserError
from zoo.text import BOS_ID, PAD_ID

HELD_OUT = 0.05  # share of each text, at its end


def read_texts(paths):
    """Reads text files.

    Args:
        paths: list of paths.

    Returns:
        list of str, one for each file.

    Raises:
        UserError: if a file cannot be read, is empty or is not UTF-8.
    """
    texts = []
    for path in map(pathlib.Path, paths):
        try:
            text = path.read_text("utf-8-sig")  # which removes a byte order mark
        except OSError as error:
            raise UserError(f"The file {path} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path} is not UTF-8 ({error.reason} at byte {error.start + 1:,}). "
                "Convert the file to UTF-8."
            ) from None
        if not text.strip():
            raise UserError(f"{path} contains no text.")
        texts.append(text)
    return texts


def project_texts():
    """The documentation and the source code of this project: list of str."""
    package = pathlib.Path(__file__).parents[1]
    documents = [*package.parent.glob("*.md"), *package.parent.glob("docs/*.md")]
    files = sorted(documents) + sorted(package.rglob("*.py"))
    return [text for text in (file.read_text("utf-8") for file in files) if text.strip()]


def hold_out(texts):
    """Splits off the end of each text: (training texts, held-out texts).

    Raises:
        UserError: if all held-out texts are blank.
    """
    ends = [len(text) - int(HELD_OUT * len(text)) for text in texts]
    train = [text[:end] for text, end in zip(texts, ends)]
    valid = [text[end:] for text, end in zip(texts, ends) if text[end:].strip()]
    if not valid:
        raise UserError(
            f"The last {HELD_OUT:.0%} of each text, which are held out for validation, contain no "
            "text. Use longer texts, and remove blank lines at their ends."
        )
    return train, valid


def encode_texts(tokenizer, texts, end):
    """Encodes and concatenates texts, with the token `end` after each: int32 [n]."""
    return np.array(
        [token for ids in tokenizer.encode(texts) for token in (*ids, end)], dtype=np.int32
    )


def steps_per_epoch(tokens, batch_size, length):
    """Number of training batches in an epoch.

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

    Each epoch cuts the text into windows at different positions. Each window begins with the start
    token. The order depends only on `seed` and the epoch, so a resumed run sees the same batches
    as an uninterrupted one. The label weights of a batch sum to one.

    Args:
        tokens: int [n].
        batch_size: B.
        length: T.
        seed: seed of the order.
        first_step: first batch, counted from the beginning of the run.

    Returns:
        `tf.data.Dataset` of (inputs int32 [B, T], labels int32 [B, T], weights float32 [B, T]).
    """
    steps = steps_per_epoch(tokens, batch_size, length)
    first_epoch, skipped = divmod(first_step, steps)
    weights = np.full((batch_size, length), 1.0 / (batch_size * length), np.float32)

    def batches():
        for epoch in itertools.count(first_epoch):
            random = np.random.default_rng([seed, epoch])
            offset = random.integers(length)
            order = random.permutation((len(tokens) - length) // length)
            for step in range(skipped if epoch == first_epoch else 0, steps):
                starts = offset + length * order[step * batch_size : (step + 1) * batch_size]
                labels = tokens[starts[:, None] + np.arange(length)]
                yield _inputs(labels), labels, weights

    return _dataset(batches)


def evaluation_windows(tokens, batch_size, length):
    """Returns all tokens once, in batches like those of `training_windows`.

    The weight of a label is number of batches / number of tokens: with a summed loss, the mean over
    the batches, which Keras reports, is then the mean over all tokens.
    """
    count = -(-len(tokens) // (batch_size * length))
    shape = (count, batch_size, length)
    padded = np.pad(tokens, (0, np.prod(shape) - len(tokens)), constant_values=PAD_ID)
    labels, is_real = padded.reshape(shape), (np.arange(padded.size) < len(tokens)).reshape(shape)
    weights = (is_real * (count / len(tokens))).astype(np.float32)

    def batches():
        return ((_inputs(ids), ids, weight) for ids, weight in zip(labels, weights))

    return _dataset(batches).apply(tf.data.experimental.assert_cardinality(count))


def _inputs(labels):
    """The start token, then all labels but the last."""
    return np.pad(labels[:, :-1], [(0, 0), (1, 0)], constant_values=BOS_ID)


def _dataset(batches):
    ids, weights = (tf.TensorSpec((None, None), dtype) for dtype in (tf.int32, tf.float32))
    signature = (ids, ids, weights)
    batches = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return not_tuned(batches).prefetch(2)
