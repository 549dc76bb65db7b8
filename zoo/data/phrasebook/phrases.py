"""Noun phrases in both languages: determiner, adjective and noun, in agreement and order.

`noun_phrases` is the set of all phrases of some nouns in a role; every construction takes its noun
phrases from it, so that each kind of phrase occurs wherever a noun phrase may stand.
"""

import functools
import itertools
from typing import NamedTuple

from zoo.data.phrasebook import english, spanish
from zoo.data.phrasebook.spaces import Product, Union
from zoo.data.phrasebook.words import ADJECTIVES, CLASHES, NOUNS, OWNERLESS, find_nouns


class Phrase(NamedTuple):
    """A noun phrase or pronoun in both languages.

    Fields:
        english, spanish: its text; the Spanish one of a dropped pronoun is empty.
        gender: "m" or "f".
        plural: whether the English is plural.
        person: index in `spanish.PERSONS`.
        human: whether it takes the personal *a* as an object.
    """

    english: str
    spanish: str
    gender: str = "m"
    plural: bool = False
    person: int = 2
    human: bool = False

    @property
    def third(self):
        """Whether English verbs take -s."""
        return self.person == 2


PRONOUNS = [
    Phrase("I", "", person=0),
    Phrase("you", "", person=1),
    Phrase("he", "él"),
    Phrase("she", "ella", "f"),
    Phrase("we", "", plural=True, person=3),
    Phrase("they", "ellos", plural=True, person=4),
]

# English singular and plural, Spanish by gender and number; None where it is not used.
DETERMINERS = {
    "": ("", "", ("", "", "", "")),
    # What is meant in general: "dogs are intelligent", "los perros son inteligentes".
    "all": ("", "", ("el", "la", "los", "las")),
    "the": ("the", "the", ("el", "la", "los", "las")),
    "a": ("a", None, ("un", "una", None, None)),
    "some": (None, "some", (None, None, "unos", "unas")),
    "many": (None, "many", (None, None, "muchos", "muchas")),
    "this": ("this", "these", ("este", "esta", "estos", "estas")),
    "that": ("that", "those", ("ese", "esa", "esos", "esas")),
    "my": ("my", "my", ("mi", "mi", "mis", "mis")),
    "your": ("your", "your", ("tu", "tu", "tus", "tus")),
    "his": ("his", "his", ("su", "su", "sus", "sus")),
    "her": ("her", "her", ("su", "su", "sus", "sus")),
    "our": ("our", "our", ("nuestro", "nuestra", "nuestros", "nuestras")),
    "their": ("their", "their", ("su", "su", "sus", "sus")),
}
_NUMBERS = [english.number(n) for n in range(2, 11)]
DETERMINERS |= {
    word: (None, word, (None, None, *[spanish.number(n, "m")] * 2))
    for n, word in enumerate(_NUMBERS, 2)
}

# How often each is drawn, relative to the others.
_WEIGHTS = {"": 4, "all": 4, "the": 7, "a": 6, "my": 3, "your": 2, "some": 1, "many": 1}
_WEIGHTS |= dict.fromkeys(("this", "that", "his", "her", "our", "their"), 1.2)
_WEIGHTS |= dict.fromkeys(_NUMBERS, 0.35)
_OURS = ("my", "your", "our")
_OWNERS = (*_OURS, "his", "her", "their")
_DEFINITE = ("the", "this", "that", *_OWNERS)
_INDEFINITE = ("a", "some", "many", *_NUMBERS)
# A Spanish subject is never bare; a question is about something definite.
_ROLES = {
    "definite": _DEFINITE,
    "indefinite": (*_INDEFINITE, ""),
    "subject": (*_DEFINITE, *_INDEFINITE),
    "object": (*_DEFINITE, *_INDEFINITE, ""),
    "place": (*_DEFINITE, "a"),
    "identity": ("the", *_OWNERS),
    "bare": ("",),
    "generic": ("all",),
}
_BARE = ("names", "countries", "languages", "subjects", "sports")
_UNIQUE = ("first", "last")  # of these there is one


@functools.cache
def _frames(noun, role, unique=False, number=None):
    """Which (determiner, plural) a noun may have in a role.

    Args:
        unique: whether an adjective says that there is one.
        number: True for the plural alone, False for the singular; None for both.
    """
    words = _ROLES[role]
    numbers = [several for several in (False, True) if number in (None, several)]
    if noun.kind in _BARE or noun.style == "mass":
        if noun.kind in _BARE:
            bare = noun.style == "name" or role in ("object", "bare")
            words = [""] if bare and noun.kind != "sports" else ["all"]
        else:
            fit = ("the", "this", *_OURS, *(("", "all") if noun.kind != "instruments" else ()))
            words = [word for word in words if word in fit]
        return tuple((word, False) for word in words if False in numbers)
    if noun.kind == "relatives":
        words = [word for word in words if word in _OWNERS]
    elif noun.english in OWNERLESS:
        words = [word for word in words if word not in _OWNERS]
    if unique:
        words = [word for word in words if word == "the"]
    bare_plural = role in ("bare", "generic") or (role == "object" and not noun.human)
    return tuple(
        (word, several)
        for word in words
        for several in numbers
        if DETERMINERS[word][several] is not None
        and (word not in ("", "all") or (several and bare_plural))
        and not (several and role == "place" and word in _OWNERS)
        and not (several and noun.english in ("mother", "father"))  # one has one
    )


@functools.cache
def noun_phrase(noun, determiner="", several=False, adjective=None):
    """A noun with a determiner of `DETERMINERS` and, if given, an adjective.

    Example: the noun of "house", "the" and "red" give "the red house", "la casa roja".
    """
    singular, plural, forms = DETERMINERS[determiner]
    article = forms[2 * several + (noun.gender == "f")]
    words = [noun.spanish_plural if several else noun.spanish]
    if adjective and adjective.before:
        words.insert(0, spanish.shorten(adjective.spanish, noun.gender, several))
    elif adjective:
        words.append(spanish.agree(adjective.spanish, noun.gender, several))
    if spanish.begins_with_stressed_a(words[0]):
        article = {"la": "el", "una": "un"}.get(article, article)
    english_words = [adjective.english] if adjective else []
    english_words.append(noun.english_plural if several else noun.english)
    before = plural if several else singular
    if before == "a":
        before = english.article(english_words[0])
    return Phrase(
        join(before, *english_words),
        join(article, *words),
        noun.gender,
        several,
        4 if several else 2,
        noun.human,
    )


def _phrase(described, frame):
    noun, adjective = described
    return noun_phrase(noun, *frame, adjective)


@functools.cache
def find(names, gender=None):
    """A hashable choice of nouns, for `noun_phrases`: those of `find_nouns`, of one gender."""
    return tuple(noun for noun in find_nouns(names) if gender in (None, noun.gender))


@functools.cache
def noun_phrases(nouns, role, several=None, plain=3, besides=None):
    """All phrases of some nouns in a role, with and without one adjective.

    Args:
        nouns: a tuple of nouns, or a text for `find_nouns`.
        role: a key of `_ROLES`: what the phrase is in its sentence.
        several: True for plural phrases alone, False for singular ones; None for both.
        plain: how many phrases come without an adjective for one with; None for all.
        besides: an adjective that is said of the noun elsewhere; none that clashes with it is
            taken.
    """
    nouns = find(nouns) if isinstance(nouns, str) else nouns
    cells, weights = [], []
    for with_adjective in (False, True) if plain else (False,):
        classes = {}
        for noun in nouns:
            for adjective in _suiting(noun, besides) if with_adjective else [None]:
                unique = adjective is not None and adjective.english in _UNIQUE
                frames = _frames(noun, role, unique, several)
                classes.setdefault(frames, []).append((noun, adjective))
        total = sum(map(len, classes.values()))
        for frames, described in classes.items():
            cells.append(Product(_phrase, described, _weighted(frames, role)))
            weights.append((1 if with_adjective else plain or 1) * len(described) / total)
    return Union(cells, weights)


def phrases_with(noun, adjective, several):
    """All phrases of one noun and adjective (or None) that are not bare."""
    frames = _frames(noun, "subject", adjective is not None and adjective.english in _UNIQUE)
    if adjective is None:  # numbers are counted elsewhere
        frames = [frame for frame in frames if frame[0] not in _NUMBERS]
    return [noun_phrase(noun, *frame, adjective) for frame in frames if frame[1] == several]


@functools.cache
def _weighted(frames, role):
    # One is in the house rather than in a house, and seldom in houses.
    rare = {"a": 3, "plural": 8} if role == "place" else {"plural": 2}
    return Union(
        [[frame] for frame in frames],
        [_WEIGHTS[word] / rare.get("plural" if several else word, 1) for word, several in frames],
    )


@functools.cache
def _suiting(noun, besides):
    if noun.kind in _BARE:
        return ()
    return tuple(a for a in ADJECTIVES if noun in find(a.nouns) and not _clash(a, besides))


def _clash(adjective, other):
    if other is None:
        return False
    both = {adjective.english, other.english}
    return adjective == other or any(both <= set(group.split()) for group in CLASHES)


def counted(count, noun):
    """A noun and how many there are: "two hundred houses", "doscientas casas"."""
    several = count > 1
    return Phrase(
        f"{english.number(count)} {noun.english_plural if several else noun.english}",
        f"{spanish.number(count, noun.gender)} {noun.spanish_plural if several else noun.spanish}",
        noun.gender,
        several,
        4 if several else 2,
    )


def both(first, second):
    """Two phrases joined by "and"; the gender is feminine if both are."""
    return Phrase(
        f"{first.english} and {second.english}",
        f"{first.spanish} {spanish.and_(second.spanish)}",
        "f" if first.gender == second.gender == "f" else "m",
        True,
        4,
        first.human,
    )


def described(copula=None):
    """{adjective: nouns that it describes}, of all adjectives or those of one copula."""
    return {
        adjective: find_nouns(adjective.nouns)
        for adjective in ADJECTIVES
        if copula is None or adjective.copula == copula
    }


def possessed(owner, thing):
    """What belongs to somebody: "Maria's red house", "la casa roja de María".

    Args:
        owner: a `Phrase` in the singular.
        thing: a `Phrase` with "the".
    """
    return thing._replace(
        english=f"{owner.english}'s {thing.english.removeprefix('the ')}",
        spanish=f"{thing.spanish} {spanish.contract('de', owner.spanish)}",
    )


@functools.cache
def belongings(nouns, several=None, besides=None):
    """Maria's house, my brother's old shoes, the teacher's book.

    Args:
        nouns, several, besides: as in `noun_phrases`.
    """
    nouns = find(nouns) if isinstance(nouns, str) else nouns
    pairs = [(noun, adjective) for noun in nouns for adjective in (None, *_suiting(noun, besides))]
    frames = [("the", number) for number in (False, True) if several in (None, number)]
    return Product(possessed, _owners(), Product(_phrase, pairs, frames))


@functools.cache
def _owners():
    family = [noun_phrase(noun, word) for noun in NOUNS["relatives"] for word in ("my", "your")]
    trades = [noun_phrase(noun, "the") for noun in NOUNS["people"]]
    return Union([names(), family, trades], [3, 2, 2])


@functools.cache
def names():
    """Maria, Juan."""
    return [noun_phrase(noun) for noun in NOUNS["names"]]


@functools.cache
def couples():
    """Maria and Pedro, my mother and my father."""
    family = [noun_phrase(noun, "my") for noun in NOUNS["relatives"]]
    return [both(*pair) for group in (names(), family) for pair in itertools.permutations(group, 2)]


@functools.cache
def people(several=None, role="subject"):
    """Ana, my tall brother, the doctors, Maria and Pedro; singular, plural or (None) both."""
    kinds = [noun_phrases(kind, role, several) for kind in ("people", "relatives")]
    single = [] if several else names()
    return Union([*kinds, single, [] if several is False else couples()], [5, 4, 3, 2])


def join(*words):
    """The words that are not empty, with a space between them."""
    return " ".join(word for word in words if word)
