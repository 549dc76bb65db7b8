"""Noun phrases, places and times of the phrasebook, each in both languages at once."""

from typing import NamedTuple

from zoo.data.phrasebook.invented import invented_name, invented_noun
from zoo.data.phrasebook.words import (
    ADJECTIVES,
    BEINGS,
    COLORS,
    HUMAN,
    MASS,
    NOUNS,
    PROPER,
    ROWS,
    THINGS,
)

_DEFINITE = "the my your his her their our this these that those".split() + ["all the"]
_ARTICLES = "el la los las".split()


class Phrase(NamedTuple):
    """A subject or an object.

    `person` counts yo, tú, él, nosotros, ellos; `kind` is that of its noun, or "pronoun".
    """

    english: str
    spanish: str
    person: int
    gender: str
    kind: str


class Pronoun(NamedTuple):
    subject: Phrase
    english: str
    direct: str
    indirect: str
    prepositional: str


class Determiner(NamedTuple):
    """`forms` by number and gender; None for a number that it has not. `one`: of what one counts."""

    weight: int
    english: str
    forms: tuple
    one: bool


def _pronoun(subject, spanish, english, forms, person, gender):
    phrase = Phrase(subject, spanish, int(person), gender, "pronoun")
    return Pronoun(phrase, english, *forms.split())


def _determiner(weight, english, forms):
    forms = [form.replace("_", " ") for form in forms.split()]
    one = forms[:1] == ["one"]
    forms = forms[one:] + [None] * 4 if forms else ["", "", "", ""]
    return Determiner(int(weight), english, tuple(None if f == "-" else f for f in forms[:4]), one)


PRONOUNS = [_pronoun(*row) for row in ROWS["pronoun"]]
DETERMINERS = [_determiner(*row) for row in ROWS["determiner"]]


def joined(*words):
    """The words that are not empty, with spaces."""
    return " ".join(filter(None, words))


class Phrases:
    """Draws phrases by a `random.Random`."""

    def __init__(self, generator):
        self.generator = generator
        self.pick = generator.choice

    def chance(self, probability):
        return self.generator.random() < probability

    def weighted(self, choices):
        """One of a dict of choices and weights."""
        return self.generator.choices(list(choices), list(choices.values()))[0]

    def noun(self, kind):
        if kind == "unknown":
            return invented_noun(self.generator)
        if kind == "name" and self.chance(0.5) or kind == "city" and self.chance(0.3):
            return invented_name(self.generator, kind)
        return self.pick(NOUNS[kind])

    def noun_phrase(self, kinds, use=""):
        """A noun of one of `kinds` with what belongs to it; see `described`."""
        return self.described(self.noun(self.pick(kinds)), use)

    def described(self, noun, use="", several=None):
        """A noun with what belongs to it.

        Args:
            noun: the noun.
            use: "subject" puts an article before a Spanish noun that has none in English;
                "object" puts the personal "a" before people, "had" only before definite ones;
                "there" leaves definite ones out; "profession" has no Spanish article alone.
            several: the number; drawn if not given.
        """
        if noun.kind in PROPER:
            several, definite = False, True
            english, spanish = noun.english[0], noun.spanish[0]
        else:
            if several is None:
                several = noun.kind not in MASS and self.chance(0.3)
            english, spanish, definite = self._with_determiner(noun, several, use)
        if noun.kind in HUMAN and (definite if use == "had" else use == "object" and definite != None):
            spanish = f"a {spanish}"
        return Phrase(english, spanish, 4 if several else 2, noun.gender, noun.kind)

    def _with_determiner(self, noun, several, use):
        """English, Spanish, and whether it is definite: None for a noun without determiner."""
        place = 2 * several + (noun.gender == "f")
        mass = noun.kind in MASS
        fitting = {
            determiner: determiner.weight
            for determiner in DETERMINERS
            if determiner.forms[place] is not None
            and not (determiner.one and mass)
            and (determiner.english or several or mass)
            and not (use == "there" and determiner.english in _DEFINITE)
        }
        determiner = self.weighted(fitting)
        before, article = determiner.english, determiner.forms[place]
        owner = None
        if use != "there" and self.chance(0.07):
            owner = self.described(self.noun(self.pick(("name", "relative", "person"))), several=False)
            before, article = f"{owner.english}'s", _ARTICLES[place]
        elif not article and use == "subject":
            article = _ARTICLES[place]
        english, left, right = self._adjectives(noun, several)
        if use == "profession" and before == "a" and not english:
            article = ""
        words = joined(english, noun.english[several])
        if before == "a" and words[0] in "aeiou":
            before = "an"
        spanish = joined(article, left, noun.spanish[several], right, owner and "de", owner and owner.spanish)
        definite = True if owner or before in _DEFINITE else None if not before else False
        return joined(before, words), spanish, definite

    def _adjectives(self, noun, several):
        """English, Spanish before and Spanish after the noun."""
        english, left, right = "", "", ""
        if self.chance(0.3):
            adjective = self.pick(fitting_adjectives(noun.kind))
            english = adjective.english
            form = adjective.agree(noun.gender, several, before=True)
            left, right = (form, "") if adjective.short else ("", form)
            if adjective not in COLORS and self.chance(0.15):
                color = self.pick(COLORS)
                english = f"{english} {color.english}"
                right = joined(color.agree(noun.gender, several), right)
        return english, left, right

    def pair(self, kinds, use=""):
        """Two noun phrases and what joins them."""
        left, right = (self.noun_phrase(kinds, use) for _ in range(2))
        gender = "f" if left.gender == right.gender == "f" else "m"
        kind = left.kind if left.kind == right.kind else "unknown"
        english, spanish = (f"{left[i]} {word} {right[i]}" for i, word in enumerate(("and", "y")))
        return Phrase(english, spanish, 4, gender, kind)

    def subject(self, things=0.05):
        """Who or, as often as given, what."""
        if self.chance(0.42):
            return self.pick(PRONOUNS).subject
        kinds = THINGS + MASS if self.chance(things) else BEINGS + ("name", "unknown")
        return self.pair(BEINGS, "subject") if self.chance(0.06) else self.noun_phrase(kinds, "subject")

    def place(self):
        if self.chance(0.12):
            return self.pick(ROWS["here"])
        if self.chance(0.15):
            city = self.noun_phrase(("city",))
            return f"in {city.english}", f"en {city.spanish}"
        english, spanish = self.pick(ROWS["preposition"])
        if english in ("in", "on", "at"):
            kinds = ("place", "place", "furniture", "vehicle", "thing", "unknown")
        elif english in ("with", "without"):
            kinds = BEINGS + ("thing", "food", "dish", "unknown")
        else:
            kinds = BEINGS + ("place", "furniture", "vehicle", "thing", "unknown")
        if english not in ("in", "on", "at") and self.chance(0.12):
            pronoun = self.pick(PRONOUNS)
            return f"{english} {pronoun.english}", f"{spanish} {pronoun.prepositional}"
        what = self.noun_phrase(kinds)
        return f"{english} {what.english}", f"{spanish} {what.spanish}"

    def time(self, tense, only=False):
        """A time of a tense; `only` leaves out those of any tense."""
        fitting = [row[1:] for row in ROWS["time"] if row[0] == tense or row[0] == "any" and not only]
        return self.pick(fitting)


def fitting_adjectives(kind):
    """Those that describe a kind of noun."""
    kinds = {"any"}
    if kind in BEINGS + ("pronoun", "unknown"):
        kinds.add("being")
    if kind not in BEINGS + ("pronoun",):
        kinds.add("thing")
    if kind not in HUMAN + ("pronoun",):
        kinds.add("color")
    return [adjective for adjective in ADJECTIVES if adjective.kind in kinds]
