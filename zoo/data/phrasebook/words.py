"""The words of the phrasebook, read from `words.toml`, which describes the columns."""

import functools
import importlib.resources
import re
import tomllib
from collections import namedtuple

PROPER = ("name", "city", "language", "art", "sport")  # without a determiner
MASS = ("dish", "drink")  # without a plural
HUMAN = ("person", "profession", "relative", "name")
BEINGS = (*HUMAN, "animal")
THINGS = ("food", "clothes", "thing", "furniture", "place", "vehicle", "unknown")

# `english` and `spanish` are (singular, plural); `woman` is the Spanish word for a woman.
Noun = namedtuple("Noun", "kind english spanish gender woman", defaults=[""])
Determiner = namedtuple("Determiner", "weight english forms")
Pronoun = namedtuple(
    "Pronoun",
    "english english_object spanish direct indirect reflexive prepositional person gender",
)
Auxiliary = namedtuple("Auxiliary", "weight tense operator finite bare before spanish link")
Verb = namedtuple(
    "Verb",
    "english infinitive gerund tenses imperative kinds only optional preposition receiver",
)


class Adjective(namedtuple("Adjective", "describes verb english spanish plural before")):
    """`verb` links it to a subject; `before` is the form before a masculine noun, if any."""

    def agree(self, gender, several):
        """The form for a gender, "m" or "f", and a number."""
        form = self.plural if several else self.spanish
        return re.sub("o(s?)$", r"a\1", form) if gender == "f" else form


def english_plural(word):
    if re.search("(s|x|ch|sh)$", word):
        return word + "es"
    return word[:-1] + "ies" if re.search("[^aeiou]y$", word) else word + "s"


def spanish_plural(word):
    if word[-1] == "z":
        return word[:-1] + "ces"
    return word + ("s" if word[-1] in "aeioáéó" else "es")


def entries(section, kind="all"):
    """The entries of a kind of words, which stand between commas."""
    return re.split(r",\s+", WORDS[section][kind].strip())


@functools.cache
def pairs(section, kind="all"):
    """Entries "English = Spanish"."""
    return [tuple(entry.split(" = ")) for entry in entries(section, kind)]


def rows(section):
    """Lines of columns, which stand between bars."""
    for line in WORDS[section]["all"].strip().splitlines():
        yield [column.strip() for column in line.split("|")]


def _noun(kind, entry):
    english, *spanish, gender = entry.split()
    spanish, _, woman = " ".join(spanish).partition(":")
    (one, _, many), (uno, _, muchos) = english.partition("/"), spanish.partition("/")
    forms = (one, many or english_plural(one)), (uno, muchos or spanish_plural(uno))
    return Noun(kind, *forms, gender, woman)


def _adjective(kind, entry):
    english, spanish = entry.split()
    before, _, forms = spanish.rpartition(":")
    one, _, many = forms.partition("/")
    return Adjective(*kind.split("_"), english, one, many or spanish_plural(one), before)


def _determiner(entry):
    weight, english, *forms = entry.split()
    return Determiner(int(weight), english, [None if f == "-" else f for f in forms])


def _pronoun(entry):
    *words, person, gender = entry.replace("-", "").split(" ")
    return Pronoun(*words, int(person), gender)


def _verbs():
    imperatives = dict(entry.split() for entry in entries("verbs", "imperative"))
    for english, spanish, present, past, objects in rows("verbs"):
        english, _, after = english.partition(" +")
        infinitive, _, gerund = spanish.partition(" ")
        if present:
            tenses = {"present": present.split(), "past": past.split()}
        kinds = objects.replace("!", "").split()
        yield Verb(
            [f"{form} {after}".strip() for form in english.split()],
            infinitive,
            gerund,
            tenses,
            imperatives.get(infinitive, tenses["present"][2]),
            [kind for kind in kinds if kind not in ("-", "a", "to")],
            only="!" in objects,
            optional="-" in kinds,
            preposition="a" if "a" in kinds else "",
            receiver="to" in kinds,
        )


def _auxiliary(weight, tense, operator, finite, bare, before, spanish, link):
    forms = operator.split(), finite.split(), bare, before, spanish.split(), link
    return Auxiliary(int(weight), tense, *forms)


WORDS = tomllib.loads(
    importlib.resources.files(__package__).joinpath("words.toml").read_text("utf-8")
)
NOUNS = {kind: [_noun(kind, entry) for entry in entries("nouns", kind)] for kind in WORDS["nouns"]}
ADJECTIVES = [
    _adjective(kind, entry) for kind in WORDS["adjectives"] for entry in entries("adjectives", kind)
]
COLORS = [adjective for adjective in ADJECTIVES if adjective.describes == "color"]
DETERMINERS = [_determiner(entry) for entry in entries("determiners")]
DETERMINERS.append(Determiner(4, "", [""] * 4))
DEMONSTRATIVES = [
    [determiner for determiner in DETERMINERS if determiner.english in words]
    for words in (("this", "that"), ("these", "those"))
]
PRONOUNS = [_pronoun(entry) for entry in entries("pronouns")]
CONTRACTIONS = WORDS.pop("contractions")
SER, ESTAR, *VERBS = _verbs()
AUXILIARIES = [_auxiliary(*row) for row in rows("auxiliaries")]
PHRASES = [tuple(phrase.split(" = ")) for row in rows("phrases") for phrase in row]
