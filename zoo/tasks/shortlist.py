"""Lexical shortlists: the target tokens that may translate each source token.

Axes: B sentences, S source tokens, C candidates.
"""

import dataclasses

import numpy as np
from keras import ops

from zoo.decoding import SpecialTokens
from zoo.tasks.padded_batches import padded


@dataclasses.dataclass(frozen=True)
class Shortlist:
    """Limits the translation of each sentence to the likely translations of its tokens.

    Most of the time of a small model is spent on the logits of all target tokens. Source: Jean et
    al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation", section 3.3.

    Args:
        tokens: int32, the target tokens for source token 0, followed by those for token 1, ...
        offsets: int [source tokens + 1], where those of each source token begin in `tokens`.
        always: number of target tokens, from 0 on, that are always candidates.
        shared: whether the source tokens are candidates, too: both sides share a vocabulary.
    """

    tokens: np.ndarray
    offsets: np.ndarray
    always: int
    shared: bool

    def candidates(self, source, prefix, special, suppressed):
        """Returns the tokens that each translation consists of: int32 [B, C].

        Args:
            source: int [B, S].
            prefix: int [B, P], the tokens that the translations begin with, and padding.
            special, suppressed: `zoo.decoding.SpecialTokens`, and the tokens that are never
                generated. They are the first of each row; rows are filled up with padding.
        """
        first, rows = _first(special, suppressed), []
        for tokens, begin in zip(source, prefix):
            tokens, parts = np.unique(tokens), [np.arange(self.always), begin]
            parts += [self.tokens[slice(*self.offsets[id : id + 2])] for id in tokens]
            parts += [tokens] * self.shared
            rows.append([*first, *np.setdiff1d(np.concatenate(parts), first)])
        size = padded(max(map(len, rows)), np.inf)
        filled = np.full((len(rows), size), special.pad, np.int32)
        for line, row in zip(filled, rows):
            line[: len(row)] = row
        return filled


def as_places(candidates, special, suppressed):
    """The special tokens, with a `first` [B, P], and those suppressed, as places of candidates."""
    first = _first(special, suppressed)
    begin = ops.argmax(candidates[:, None] == special.first[..., None], axis=-1)
    special = SpecialTokens(*map(first.index, special[:3]), ops.cast(begin, "int32"))
    return special, tuple(map(first.index, suppressed))


def as_tokens(hypotheses, candidates):
    """`zoo.decoding.Hypotheses` of places among candidates as those of tokens."""
    tokens = ops.take_along_axis(candidates[:, None], hypotheses.tokens, axis=-1)
    return hypotheses._replace(tokens=tokens)


def _first(special, suppressed):
    return list(dict.fromkeys((*special[:3], *suppressed)))  # start, end and padding
