"""A built-in English-Spanish corpus: the words of `words.toml`, combined by a small grammar."""

import random

from zoo.data.phrasebook.sentences import Sentences
from zoo.data.phrasebook.words import PHRASES


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
    """
    generator = random.Random(seed)
    sentences = Sentences(generator)
    pairs = dict(PHRASES[:count])
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
    questions. For arguments see `phrasebook_pairs`.

    Returns:
        list of (English, kind).
    """
    sentences = Sentences(random.Random(seed))
    kinds = {}
    while len(kinds) < count:
        kind, english, _ = sentences.draw()
        kinds.setdefault(english, kind)
    return list(kinds.items())
