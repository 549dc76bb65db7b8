"""The grammar of the phrasebook: all constructions and how often each is drawn.

A construction is a set of pairs of sentences, most often a `Union` of cells, such as one for each
form of each verb. Cells are drawn in equal shares, not by the number of their sentences: so the
rare forms of a language are not rare here, and a small model sees each of them often enough.
"""

import functools

from zoo.data.phrasebook import actions, descriptions, everyday
from zoo.data.phrasebook.spaces import Union


@functools.cache
def grammar():
    """All constructions but the fixed phrases, as one `Union` with weights."""
    parts = [
        (860, actions.verbs()),
        (12, actions.dated()),
        (82, actions.modals()),
        (42, actions.plans()),
        (50, actions.happenings()),
        (35, actions.animals()),
        (64, actions.object_pronouns()),
        (25, actions.commands()),
        (60, actions.question_words()),
        (20, actions.joined()),
        (78, descriptions.qualities()),
        (15, descriptions.placed_qualities()),
        (84, descriptions.states_of_people()),
        (32, descriptions.comparisons()),
        (48, descriptions.jobs()),
        (70, descriptions.placements()),
        (35, descriptions.existence()),
        (48, descriptions.identities()),
        (90, descriptions.counts()),
        (72, descriptions.fragments()),
        (75, everyday.likings()),
        (20, everyday.needs()),
        (24, everyday.ages()),
        (20, everyday.clock()),
        (10, everyday.choices()),
        (12, everyday.prices_and_colours()),
        (6, everyday.weather()),
        (35, everyday.addressed()),
    ]
    return Union([part for _, part in parts], [weight for weight, _ in parts])
