"""A built-in English-Spanish corpus, made by a grammar of some hundred words of each language.

`words` holds the tables, `english` and `spanish` the word forms, `phrases` and `clauses` build both
sides of a sentence at once, `actions`, `descriptions` and `everyday` are the constructions, and
`grammar` says how often each is drawn. Nothing is read or downloaded.
"""

import random

from zoo.data.phrasebook.everyday import fixed_phrases
from zoo.data.phrasebook.grammar import grammar
from zoo.errors import UserError


def phrasebook_pairs(count=60_000, seed=0):
    """Pairs of an English sentence and its Spanish translation, in a shuffled order.

    An English sentence has one translation and occurs once. The fixed phrases, "hello world" first
    of all, are among the pairs; the other pairs are drawn from the grammar.

    Args:
        count: number of pairs.
        seed: of the choice and the order.

    Returns:
        list of (English, Spanish).

    Raises:
        UserError: if `count` is not positive or more than the grammar has.
    """
    fixed, sentences = fixed_phrases(), grammar()
    most = len(fixed) + sentences.size
    if not 1 <= count <= most:
        raise UserError(
            f"The phrasebook has {most:,} different pairs: ask for a count from 1 to that. "
            f"Received: {count}."
        )
    generator = random.Random(seed)
    pairs = fixed[:count]
    pairs += sentences.draw(count - len(pairs), generator)
    generator.shuffle(pairs)
    return pairs
