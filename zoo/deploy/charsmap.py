"""The normalization rules of a SentencePiece model.

A model stores them "precompiled": the number of bytes of a trie, the trie, which is a double array
(Aoe 1989, "An Efficient Digital Search Algorithm by Using a Double-Array Structure") as the library
Darts-clone writes it, and the replacements, each ending with a zero byte.
"""

import numpy as np


def replacements(precompiled):
    """{bytes: the bytes that replace them} of `NormalizerSpec.precompiled_charsmap`."""
    if not precompiled:
        return {}
    size = int.from_bytes(precompiled[:4], "little")
    units, strings = np.frombuffer(precompiled, "<u4", size // 4, 4), precompiled[4 + size :]
    labels, found = np.arange(256, dtype=np.uint32), {}
    nodes, prefixes = _offsets(units[:1]), [b""]
    while len(nodes):
        children = nodes[:, None] ^ labels
        children = np.where(children < len(units), children, 0)
        exists = ((units[children] & 0x800000FF) == labels) & (labels > 0)
        parents, bytes_ = np.nonzero(exists)
        children = children[exists]
        nodes = children ^ _offsets(units[children])
        prefixes = [prefixes[p] + bytes([b]) for p, b in zip(parents, bytes_)]
        for index in np.flatnonzero(units[children] >> 8 & 1):
            start = int(units[nodes[index]] & 0x7FFFFFFF)
            found[prefixes[index]] = strings[start : strings.index(b"\0", start)]
    return found


def _offsets(units):
    return (units >> 10) << ((units & (1 << 9)) >> 6)
