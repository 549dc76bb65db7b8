"""Lexical shortlists: the target tokens that may translate each source token.

Axes: B sentences, S source tokens, C candidates.
"""

import dataclasses

import numpy as np

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

    def candidates(self, source, special, suppressed, prefix):
        """Returns the tokens that each translation consists of: int32 [B, C].

        Args:
            source: int [B, S].
            special, suppressed: `zoo.decoding.SpecialTokens`, and the tokens that are never
                generated. They are the first of each row, see `places`; rows are filled up with
                padding to a common length.
            prefix: int [B, P], the tokens that the translations begin with, and padding.
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


def places(special, suppressed):
    """The special and suppressed tokens, as their places among candidates."""
    first = _first(special, suppressed)
    special = special._replace(
        **{name: first.index(getattr(special, name)) for name in ("start", "end", "pad")}
    )
    return special, tuple(map(first.index, suppressed))


def _first(special, suppressed):
    return list(dict.fromkeys((special.end, special.pad, special.start, *suppressed)))
