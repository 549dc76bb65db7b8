"""The special tokens of models that are trained here."""

from zoo.decoding import SpecialTokens
from zoo.text import BOS_ID, EOS_ID, PAD_ID

SPECIAL_TOKENS = SpecialTokens(start=BOS_ID, end=EOS_ID, pad=PAD_ID)


def truncated(row, limit):
    """Shortens a row to `limit` tokens, of which the last is still its end token."""
    if len(row) <= limit:
        return row
    return [*row[: limit - 1], row[-1]]
