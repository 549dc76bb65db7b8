"""The words of the phrasebook, read from `words.toml`."""

import functools
import importlib.resources
import re
import tomllib
from typing import NamedTuple

PROPER = ("name", "city", "language", "art", "sport")  # without a determiner
MASS = ("dish", "drink")  # without a plural
HUMAN = ("person", "profession", "relative", "name")
BEINGS = (*HUMAN, "animal")
THINGS = ("food", "clothes", "thing", "furniture", "place", "vehicle", "unknown")


class Noun(NamedTuple):
    """`english` and `spanish` are (singular, plural); `woman` the Spanish word for a woman."""

    kind: str
    english: tuple
    spanish: tuple
    gender: str
    woman: str = ""


class Adjective(NamedTuple):
    """`verb` links it to a subject; `before` is what stands before a masculine noun, if any."""

    describes: str
    verb: str
    english: str
    spanish: str
    plural: str
    before: str

    def agree(self, gender, several):
        """The form for a gender, "m" or "f", and a number."""
        form = self.plural if several else self.spanish
        return re.sub("o(s?)$", r"a\1", form) if gender == "f" else form


class Determiner(NamedTuple):
    """`forms` are masculine, feminine and their plurals, None if there is none."""

    weight: int
    english: str
    forms: list
    one: bool = False


class Pronoun(NamedTuple):
    english: str
    english_object: str
    spanish: str
    direct: str
    indirect: str
    prepositional: str
    person: int
    gender: str


class Verb(NamedTuple):
    """See `words.toml`; `tenses` has five forms for each of present and past."""

    english: list
    infinitive: str
    gerund: str
    tenses: dict
    imperative: str
    kinds: list
    only: bool
    optional: bool
    preposition: str
    receiver: bool


class Auxiliary(NamedTuple):
    """See `words.toml`: `operator`, `finite` and `spanish` have a form for each person."""

    weight: int
    tense: str
    operator: list
    finite: list
    bare: str
    before: str
    spanish: list
    link: str


def english_plural(word):
    if re.search("(s|x|ch|sh)$", word):
        return word + "es"
    return word[:-1] + "ies" if re.search("[^aeiou]y$", word) else word + "s"


def spanish_plural(word):
    if word[-1] == "z":
        return word[:-1] + "ces"
    return word + ("s" if word[-1] in "aeioáéó" else "es")


def entries(section, kind="all"):
    """The entries of a kind of words."""
    return re.split(r",\s+", WORDS[section][kind].strip())


@functools.cache
def pairs(section, kind="all"):
    """Entries "English = Spanish", as pairs."""
    return [tuple(entry.split(" = ")) for entry in entries(section, kind)]


def _noun(kind, entry):
    english, *spanish, gender = entry.split()
    spanish, _, woman = " ".join(spanish).partition(":")
    (one, _, many), (uno, _, muchos) = english.partition("/"), spanish.partition("/")
    forms = (one, many or english_plural(one)), (uno, muchos or spanish_plural(uno))
    return Noun(kind, *forms, gender, woman)


def _adjective(kind, entry):
    describes, verb = kind.split("_")
    english, spanish = entry.split()
    before, _, forms = spanish.rpartition(":")
    one, _, many = forms.partition("/")
    return Adjective(describes, verb, english, one, many or spanish_plural(one), before)


def _determiner(entry, one=False):
    weight, english, *forms = entry.split()
    return Determiner(int(weight), english, [None if f == "-" else f for f in forms], one)


def _pronoun(entry):
    *words, person, gender = entry.replace("-", "").split(" ")
    return Pronoun(*words, int(person), gender)


def _verbs():
    imperatives = dict(map(str.split, entries("verbs", "irregular")))
    for line in WORDS["verbs"]["all"].strip().splitlines():
        english, spanish, present, past, objects = map(str.strip, line.split("|"))
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


def _auxiliary(line):
    def five(text):
        forms = text.split()
        return forms if len(forms) in (0, 5) else [*forms[:1] * 2, forms[-1], *forms[:1] * 2]

    weight, tense, operator, finite, bare, before, spanish, link = map(str.strip, line.split("|"))
    return Auxiliary(
        int(weight), tense, five(operator), five(finite), bare, before, five(spanish), link
    )


WORDS = tomllib.loads(
    importlib.resources.files(__package__).joinpath("words.toml").read_text("utf-8")
)
NOUNS = {kind: [_noun(kind, entry) for entry in entries("nouns", kind)] for kind in WORDS["nouns"]}
ADJECTIVES = [
    _adjective(kind, entry) for kind in WORDS["adjectives"] for entry in entries("adjectives", kind)
]
COLORS = [adjective for adjective in ADJECTIVES if adjective.describes == "color"]
DETERMINERS = [
    *(_determiner(entry) for entry in entries("determiners")),
    *(_determiner(entry, one=True) for entry in entries("determiners", "one")),
    Determiner(4, "", ["", "", "", ""]),
]
PRONOUNS = [_pronoun(entry) for entry in entries("pronouns")]
VERBS = list(_verbs())
SER, ESTAR = VERBS[:2]
VERBS = VERBS[2:]
AUXILIARIES = [_auxiliary(line) for line in WORDS["auxiliaries"]["all"].strip().splitlines()]
PHRASES = [tuple(line.split(" = ")) for line in WORDS["phrases"]["all"].strip().splitlines()]
