"""The words of the phrasebook, read from `words.toml`, which describes the columns."""

import importlib.resources
import re
import tomllib
from typing import NamedTuple


class Noun(NamedTuple):
    kind: str
    english: tuple[str, str]  # singular and plural
    spanish: tuple[str, str]
    gender: str
    woman: str = ""  # Spanish word for a woman


class Adjective(NamedTuple):
    describes: str
    verb: str  # ser or estar
    english: str
    spanish: str
    plural: str


class Pronoun(NamedTuple):
    person: int
    english: str
    object: str
    spanish: str
    direct: str
    indirect: str
    gender: str


class Auxiliary(NamedTuple):
    tense: str
    operator: list[str]  # English, of each person
    finite: list[str]
    bare: str
    form: str
    spanish: list[str]  # of each person
    link: str


class Verb(NamedTuple):
    english: list[str]
    infinitive: str
    gerund: str
    tenses: dict[str, list[str]]  # of each person
    imperative: str
    flags: list[str]
    kinds: list[str]  # of objects


_TEXT = importlib.resources.files(__package__).joinpath("words.toml").read_text("utf-8")
_WORDS = tomllib.loads(_TEXT)


def _rows(table):
    """Returns the columns of each line of a table."""
    return [tuple(map(str.strip, line.split("|"))) for line in table.strip().splitlines()]


def _weighted(table):
    """Returns the columns of each line but the first, which says how often to repeat the line."""
    return [row for weight, *row in _rows(table) for _ in range(int(weight))]


def _noun(kind, one, many, uno, muchos, *others):
    return Noun(kind, (one, many), (uno, muchos), *others)


def _verb(english, infinitive, gerund, present, past, flags="", kinds=""):
    tenses = {"present": present.split(), "past": past.split()}
    imperative = _WORDS["imperatives"].get(infinitive, tenses["present"][2])
    return Verb(
        english.split(", "), infinitive, gerund, tenses, imperative, flags.split(), kinds.split()
    )


def _auxiliary(tense, operator, finite, bare, form, spanish, link):
    return Auxiliary(tense, operator.split(), finite.split(), bare, form, spanish.split(), link)


NOUNS = {
    kind: [_noun(kind, *row) for row in _rows(table)] for kind, table in _WORDS["nouns"].items()
}
ADJECTIVES = [
    Adjective(*kind.split("_"), *row)
    for kind, table in _WORDS["adjectives"].items()
    for row in _rows(table)
]
DETERMINERS = [
    (english, [None if form == "-" else form for form in forms])
    for english, *forms in _weighted(_WORDS["determiners"])
]
PRONOUNS = [Pronoun(int(person), *row) for person, *row in _rows(_WORDS["pronouns"])]
SER, ESTAR, *VERBS = [_verb(*row) for row in _rows(_WORDS["verbs"])]
AUXILIARIES = [_auxiliary(*row) for row in _weighted(_WORDS["auxiliaries"])]
# Pairs (English, Spanish).
PHRASES = _rows(_WORDS["phrases"])
PLACES = _rows(_WORDS["places"])
QUESTIONS = _rows(_WORDS["questions"])
STATES = _rows(_WORDS["states"])
TIMES = {tense: _rows(table) for tense, table in _WORDS["times"].items()}
PREPOSITIONS = {kind: _rows(table) for kind, table in _WORDS["prepositions"].items()}
CONTRACTIONS = _WORDS["contractions"]
SYLLABLE = [part.split() for part in _WORDS["invented"].values()]
KNOWN = {*re.findall(r"\w+", _TEXT.lower())}
KINDS = [kind for kind, weight in _WORDS["sentences"].items() for _ in range(weight)]
