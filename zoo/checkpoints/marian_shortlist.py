"""Reads binary lexical shortlists, the files ``lex*.bin`` beside the models of Firefox.

Source: browsermt/marian-dev, src/data/shortlist.h and shortlist.cpp (BinaryShortlistGenerator).
"""

import struct

import numpy as np

from zoo.errors import CheckpointError
from zoo.tasks.shortlist import Shortlist

_MAGIC = 0xF11A48D5013417F5
_HEADER = struct.Struct("<6Q")  # magic, checksum, counts: always, at most, offsets, tokens


def read(path, sizes, pad, shared):
    """Reads the `Shortlist` in a file.

    Args:
        path: path of the file.
        sizes: numbers of source and target tokens in the file, which has no padding token.
        pad: id of the padding token: ids from there on are one less in the file.
        shared: see `Shortlist`.
    """
    content = path.read_bytes()
    header = _HEADER.unpack(content[: _HEADER.size].ljust(_HEADER.size))
    magic, _, always, _, num_offsets, num_tokens = header
    offsets_end = _HEADER.size + 8 * num_offsets
    if magic != _MAGIC or not num_offsets or offsets_end + 4 * num_tokens != len(content):
        raise CheckpointError(f"{path} is damaged, or not a binary shortlist of Marian.")
    offsets = np.frombuffer(content[_HEADER.size : offsets_end], "<u8")
    tokens = np.frombuffer(content[offsets_end:], "<u4")
    if (np.diff(offsets.astype(np.int64), prepend=0, append=num_tokens) < 0).any():
        raise CheckpointError(f"{path} is damaged: its offsets do not increase.")
    largest = max(int(tokens.max(initial=0)), always - 1)
    if largest >= sizes[1]:
        raise CheckpointError(f"{path} has ids up to {largest}, and the model {sizes[1]} tokens.")
    # Tokens that the file does not know have no candidates; nor has the padding token.
    every = np.full(sizes[0] + 1, offsets[-1], np.int64)
    every[:num_offsets] = offsets[: sizes[0] + 1]
    every = np.insert(every, pad, every[pad])
    tokens = np.where(tokens >= pad, tokens + 1, tokens).astype(np.int32)
    if always > pad:
        always += 1
    return Shortlist(tokens, every, always, shared)
