"""A built-in English-Spanish corpus: the words of `words.toml`, combined by a small grammar.

`phrases` and `sentences` build both sides of a sentence at once. Nothing is downloaded.
"""

import random

from zoo.data.phrasebook.sentences import Sentences, fixed_phrases
from zoo.errors import UserError

_MOST = 1_000_000


def phrasebook_pairs(count=60_000, seed=0):
    """Pairs of an English sentence and its Spanish translation, in a shuffled order.

    An English sentence has one translation and occurs once. The fixed phrases, "hello world" first
    of all, are among the pairs; the others are drawn from the grammar. Some names and nouns are
    made up, so that a model learns to copy what it does not know.

    Args:
        count: number of pairs, up to a million.
        seed: of the choice and the order.

    Returns:
        list of (English, Spanish).

    Raises:
        UserError: if `count` is not positive or more than a million.
    """
    generator = _generator(count, seed)
    sentences, pairs = Sentences(generator), dict(fixed_phrases()[:count])
    while len(pairs) < count:
        _, english, spanish = sentences.draw()
        pairs.setdefault(english, spanish)
    pairs = list(pairs.items())
    generator.shuffle(pairs)
    return pairs


def sentence_kinds(count=20_000, seed=0):
    """Different English sentences of the grammar and their kinds, in the order they are drawn.

    The kinds are action, liking, description, existence, identification, request, phrase (a fixed
    phrase and a name) and fragment. Actions, descriptions and others are statements, negations or
    questions. For arguments and errors see `phrasebook_pairs`.

    Returns:
        list of (English, kind).
    """
    sentences, kinds = Sentences(_generator(count, seed)), {}
    while len(kinds) < count:
        kind, english, _ = sentences.draw()
        kinds.setdefault(english, kind)
    return list(kinds.items())


def _generator(count, seed):
    if not 1 <= count <= _MOST:
        raise UserError(
            f"The phrasebook makes 1 to {_MOST:,} different sentences. Received: {count}."
        )
    return random.Random(seed)
