"""The special tokens of models that are trained here, and around the tokens of a text."""

from zoo.decoding import SpecialTokens
from zoo.text import BOS_ID, EOS_ID, PAD_ID

SPECIAL_TOKENS = SpecialTokens(start=BOS_ID, end=EOS_ID, pad=PAD_ID)


def truncated(row, limit):
    """The first tokens of a row that is too long, and the end token."""
    return row if len(row) <= limit else [*row[: limit - 1], row[-1]]
