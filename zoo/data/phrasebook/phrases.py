"""Noun phrases, places and times, drawn in both languages at once: pairs (English, Spanish)."""

import re
from typing import NamedTuple

from zoo.data.phrasebook import words
from zoo.data.phrasebook.words import BEINGS, HUMAN, MASS, NOUNS, PRONOUNS, PROPER, THINGS, Noun

_DEFINITE = "the my your his her our their this these that those".split()
_COUNTING = ("a", "every", "another")
_ARTICLES = "el la los las".split()
_PARTS = [words.WORDS["invented"][part].split() for part in ("onsets", "vowels", "codas")]
_PARTS[2] += 34 * ["-"]
_LETTERS, _ACCENTS = "abcdefghijklmnopqrstuvwxyz", "áéíóúñüöäçøåšžł"
_LISTED = f"{words.WORDS} {NOUNS} {words.VERBS} {words.PHRASES}"
_KNOWN = {*re.findall(r"\w+", _LISTED.lower())}


class Phrase(NamedTuple):
    """A subject or an object; `person` counts yo, tú, él, nosotros, ellos."""

    english: str
    spanish: str
    person: int = 2
    gender: str = "m"
    kind: str = ""

    @property
    def both(self):
        return self.english, self.spanish


def join(*pairs):
    """Pairs of texts, one after the other; empty ones are left out."""
    return tuple(" ".join(filter(None, texts)) for texts in zip(*pairs))


class Phrases:
    """Draws phrases by a `random.Random`."""

    def __init__(self, generator):
        self.generator = generator
        self.pick = generator.choice

    def chance(self, probability):
        return self.generator.random() < probability

    def weighted(self, weights):
        """A key of a dict of weights."""
        return self.generator.choices(list(weights), list(weights.values()))[0]

    def by_weight(self, rows):
        """One of some rows, by their weights."""
        return self.generator.choices(rows, [row.weight for row in rows])[0]

    def noun(self, kinds):
        kind = self.pick(kinds)
        if kind == "unknown":
            return invented_noun(self.generator)
        if kind in ("name", "city") and self.chance(0.3):
            return invented_name(self.generator, kind)
        return self.pick(NOUNS[kind])

    def noun_phrase(self, kinds, use=""):
        """A noun of one of `kinds` with what belongs to it; `use` as in `described`."""
        return self.described(self.noun(kinds), use)

    def described(self, noun, use="", several=None):
        """A noun with determiner, owner and adjectives; its number is drawn if not given.

        The use "subject" gives a bare noun a Spanish article; "object" puts the personal *a* before
        people, "had" only before definite ones, "loved" before animals, too; "there" is never
        definite; "profession" has no Spanish article when alone.
        """
        if noun.kind in PROPER:
            a = "a " if noun.kind == "name" and use in ("object", "had", "loved") else ""
            return Phrase(noun.english[0], a + noun.spanish[0], 2, noun.gender, noun.kind)
        if several is None:
            several = noun.kind not in MASS and self.chance(0.3)
        place = 2 * several + (noun.gender == "f")
        determiner = self._determiner(noun, several, use)
        before, article = determiner.english, determiner.forms[place]
        owner = None
        if use != "there" and self.chance(0.04):
            owner = self.described(self.noun(("name", "relative", "person")), several=False)
            before, article = f"{owner.english}'s", _ARTICLES[place]
        elif not before and use in ("subject", "loved"):
            article = _ARTICLES[place]
        adjectives, left, right = self._adjectives(noun, several)
        english = " ".join(filter(None, (adjectives, noun.english[several])))
        if before == "a":
            before = "an" if english[0] in "aeiou" else "a"
            article = "" if use == "profession" and not adjectives else article
        personal = {
            "object": noun.kind in HUMAN and before,
            "had": noun.kind in HUMAN and (owner or before in _DEFINITE),
            "loved": noun.kind in BEINGS,
        }
        if personal.get(use):
            article = f"a {article}"
        spanish = [article, left, noun.spanish[several], right, owner and f"de {owner.spanish}"]
        both = join((before, ""), (english, " ".join(filter(None, spanish))))
        return Phrase(*both, 4 if several else 2, noun.gender, noun.kind)

    def _determiner(self, noun, several, use):
        mass, bare = noun.kind in MASS, use != "subject" or noun.kind not in THINGS
        return self.by_weight(
            [
                determiner
                for determiner in words.DETERMINERS
                if determiner.forms[2 * several] is not None
                and not (mass and determiner.english in _COUNTING)
                and not (use == "there" and determiner.english in _DEFINITE)
                and (determiner.english or mass or (several and bare))
            ]
        )

    def _adjectives(self, noun, several):
        """English, Spanish before and Spanish after the noun: "big red", "", "rojo grande"."""
        if not self.chance(0.22):
            return "", "", ""
        adjective = self.pick(fitting_adjectives(noun.kind))
        english, form = adjective.english, adjective.agree(noun.gender, several)
        left, right = "", form
        if adjective.before:
            short = noun.gender == "m" and not several
            left, right = adjective.before if short else form, ""
        if noun.kind not in HUMAN and adjective.describes != "color" and self.chance(0.15):
            color = self.pick(words.COLORS)
            english = f"{english} {color.english}"
            right = f"{color.agree(noun.gender, several)} {right}".strip()
        return english, left, right

    def pair(self, kinds, use=""):
        """Two noun phrases joined by "and"."""
        left, right = (self.noun_phrase(kinds, use) for _ in range(2))
        gender = "f" if left.gender == right.gender == "f" else "m"
        kind = left.kind if left.kind == right.kind else "person"
        return Phrase(*join(left.both, ("and", "y"), right.both), 4, gender, kind)

    def subject(self, things=0.05):
        """A pronoun, a being, or with a given probability a thing."""
        if self.chance(0.42):
            pronoun = self.pick(PRONOUNS)
            return Phrase(
                pronoun.english, pronoun.spanish, pronoun.person, pronoun.gender, "pronoun"
            )
        if self.chance(0.05):
            return self.pair(BEINGS, "subject")
        kinds = THINGS + MASS if self.chance(things) else BEINGS + ("name", "unknown")
        return self.noun_phrase(kinds, "subject")

    def place(self):
        kind = self.weighted({"here": 12, "city": 13, "in": 40, "with": 10, "near": 25})
        if kind == "here":
            return self.pick(words.pairs("adverbs", "place"))
        if kind == "city":
            return join(("in", "en"), self.noun_phrase(("city",)).both)
        preposition = self.pick(words.pairs("prepositions", kind))
        if kind != "in" and self.chance(0.12):
            pronoun = self.pick(PRONOUNS)
            return join(preposition, (pronoun.english_object, pronoun.prepositional))
        kinds = ("place", "furniture", "vehicle", "thing", "unknown")
        kinds += {"in": ("place",), "with": BEINGS + ("food", "dish"), "near": BEINGS}[kind]
        return join(preposition, self.noun_phrase(kinds).both)

    def time(self, *tenses):
        return self.pick([time for tense in tenses for time in words.pairs("times", tense)])


def fitting_adjectives(kind):
    """Those that describe a kind of noun."""
    human = kind in (*HUMAN, "pronoun")
    unfit = {"animal": "thing", "unknown": ""}.get(kind, "thing color" if human else "being")
    return [adjective for adjective in words.ADJECTIVES if adjective.describes not in unfit]


def invented_word(generator):
    """A word in lower case that is in no table."""
    while True:
        parts = _PARTS * generator.choice((1, 2, 2, 2, 3, 3))
        word = "".join(generator.choice(part) for part in parts).replace("-", "")
        if generator.random() < 0.1:  # any letter beside any other
            place = generator.randrange(len(word))
            letters = _ACCENTS if generator.random() < 0.2 else _LETTERS
            word = word[:place] + generator.choice(letters) + word[place + 1 :]
        if 3 <= len(word) <= 11 and word not in _KNOWN:
            return word


def invented_name(generator, kind):
    """A made-up name, the same in both languages; what ends in -a is feminine."""
    first, second = (invented_word(generator).capitalize() for _ in range(2))
    name = f"{first} {second}" if kind == "name" and generator.random() < 0.1 else first
    return Noun(kind, (name, name), (name, name), "f" if first.endswith("a") else "m")


def invented_noun(generator):
    """A made-up noun, the same in both languages; as for a name, and -s makes the plural."""
    while (word := invented_word(generator)).endswith("s"):
        pass
    forms = (word, word + "s")
    return Noun("unknown", forms, forms, "f" if word.endswith("a") else "m")
