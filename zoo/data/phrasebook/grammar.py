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
        (640, actions.verbs()),
        (52, actions.with_noun_subjects()),
        (35, actions.with_described_objects()),
        (38, actions.object_pronouns()),
        (68, actions.modals()),
        (25, actions.plans()),
        (30, actions.happenings()),
        (25, actions.commands()),
        (40, actions.question_words()),
        (25, actions.joined()),
        (72, descriptions.qualities()),
        (40, descriptions.states_of_people()),
        (31, descriptions.comparisons()),
        (42, descriptions.jobs()),
        (50, descriptions.placements()),
        (22, descriptions.existence()),
        (50, descriptions.possessions()),
        (72, descriptions.counts()),
        (63, descriptions.fragments()),
        (30, everyday.likings()),
        (26, everyday.needs()),
        (35, everyday.ages()),
        (20, everyday.clock()),
        (12, everyday.choices()),
        (8, everyday.prices_and_colours()),
        (5, everyday.weather()),
        (35, everyday.addressed()),
    ]
    return Union([part for _, part in parts], [weight for weight, _ in parts])
