"""Lexical shortlists: the target tokens that may translate each source token.

Axes: B sentences, K hypotheses of a sentence, S source tokens, T target tokens, F tokens of a
prefix, C candidates.
"""

import dataclasses

import numpy as np
from keras import ops

from zoo.decoding import SpecialTokens
from zoo.tasks.padded_batches import padded_length


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
        """Returns the tokens that each translation may consist of.

        Args:
            source: int [B, S].
            prefix: int [B, F], the tokens that the translations begin with, and padding.
            special: `zoo.decoding.SpecialTokens`.
            suppressed: the tokens that are never generated.

        Returns:
            int32 [B, C]. Each row begins with the special and the suppressed tokens, and is filled
            up with padding.
        """
        reserved = _reserved(special, suppressed)
        rows = []
        for source_tokens, prefix_tokens in zip(source, prefix):
            source_tokens = np.unique(source_tokens)
            parts = [np.arange(self.always), prefix_tokens]
            for id in source_tokens:
                parts.append(self.tokens[self.offsets[id] : self.offsets[id + 1]])
            if self.shared:
                parts.append(source_tokens)
            rows.append([*reserved, *np.setdiff1d(np.concatenate(parts), reserved)])
        size = padded_length(max(map(len, rows)), np.inf)
        candidates = np.full((len(rows), size), special.pad, np.int32)
        for filled, row in zip(candidates, rows):
            filled[: len(row)] = row
        return candidates


def to_places(candidates, special, prefix, options):
    """Converts the tokens of a search to their places among candidates.

    Args:
        candidates: int32 [B, C].
        special: `zoo.decoding.SpecialTokens`.
        prefix: int32 [B, F].
        options: `zoo.decoding.SearchOptions`.

    Returns:
        (special tokens, prefix, options).
    """
    reserved = _reserved(special, ())
    special = SpecialTokens(
        start=reserved.index(special.start),
        end=reserved.index(special.end),
        pad=reserved.index(special.pad),
    )
    prefix = ops.argmax(candidates[:, None] == prefix[..., None], axis=-1)  # [B, F]
    if ops.is_tensor(options.suppress_tokens):  # each row of candidates begins with them
        places = ops.argmax(candidates[0] == options.suppress_tokens[:, None], axis=-1)
        options = options._replace(suppress_tokens=ops.cast(places, "int32"))
    return special, ops.cast(prefix, "int32"), options


def to_tokens(hypotheses, candidates):
    """Converts places among candidates [B, C] in `zoo.decoding.Hypotheses` to tokens."""
    tokens = ops.take_along_axis(candidates[:, None], hypotheses.tokens, axis=-1)  # [B, K, T]
    return hypotheses._replace(tokens=tokens)


def _reserved(special, suppressed):
    """The tokens that each row of candidates begins with."""
    return list(dict.fromkeys((special.start, special.end, special.pad, *suppressed)))
