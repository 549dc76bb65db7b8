"""Noun phrases in both languages: determiner, adjective and noun, in agreement and order."""

from typing import NamedTuple

from zoo.data.phrasebook import english, spanish
from zoo.data.phrasebook.words import ADJECTIVES, NOUNS, find_nouns


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
# What may stand before a noun, as (determiner, plural), for each kind.
_THINGS = [("a", False), ("the", False), ("my", False), ("the", True), ("", True)]
_PLACES = [("a", False), ("the", False), ("this", False), ("that", False)]
_FRAMES = {
    "people": [("the", False), ("my", False), ("your", False), ("the", True), ("our", True)],
    "relatives": [("my", False), ("your", False), ("her", False), ("his", False)],
    "animals": [("a", False), ("the", False), ("that", False), ("the", True)],
    "vehicles": [*_PLACES, ("the", True)],
    "places": _PLACES,
    "foods": [("", False), ("the", False), ("my", False)],
    "drinks": [("", False), ("the", False), ("my", False)],
    "instruments": [("the", False), ("my", False), ("this", False), ("that", False)],
}
_BARE = [("", False)]
# "My woman" would be a wife.
_OWNED_BY_NOBODY = ("man", "woman")
_OWNERLESS = ("the", "a", "some", "many", "this", "that")


def noun_phrase(noun, determiner="", several=False, adjective=None):
    """A noun with a determiner of `DETERMINERS` and, if given, an adjective.

    Example: the noun of "house", "the" and "red" give "the red house", "la casa roja".
    """
    singular, plural, forms = DETERMINERS[determiner]
    article = forms[2 * several + (noun.gender == "f")]
    word = noun.spanish_plural if several else noun.spanish
    words = [word]
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


def common_phrases(nouns):
    """Phrases without adjectives, with the determiners that suit the kind of each noun."""
    phrases = []
    for noun in nouns:
        if noun.kind == "sports":  # Spanish has the article where English has none: al fútbol
            phrases.append(Phrase(noun.english, f"el {noun.spanish}"))
            continue
        bare = noun.style == "name" or noun.kind in ("languages", "subjects")
        frames = _BARE if bare else _FRAMES.get(noun.kind, _THINGS)
        phrases += [noun_phrase(noun, *frame) for frame in frames if fits(noun, frame[0])]
    return phrases


def fits(noun, determiner):
    """Whether a noun may have a determiner, by its meaning."""
    return noun.english not in _OWNED_BY_NOBODY or determiner in _OWNERLESS


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


def possessed(owner, noun):
    """What belongs to somebody: "Maria's house", "la casa de María"."""
    thing = noun_phrase(noun, "the")
    return thing._replace(
        english=f"{owner.english}'s {noun.english}",
        spanish=f"{thing.spanish} {spanish.contract('de', owner.spanish)}",
    )


def people():
    """Human subjects, singular and plural, with names and pairs among them."""
    single = common_phrases([*NOUNS["relatives"], *NOUNS["people"], *NOUNS["names"]])
    names = [noun_phrase(noun) for noun in NOUNS["names"]]
    pairs = [both(first, second) for first in names for second in names if first != second]
    return single, pairs


def join(*words):
    """The words that are not empty, with a space between them."""
    return " ".join(word for word in words if word)
