"""The words of the phrasebook, read from `words.toml`, which describes the columns."""

import importlib.resources
import re
import tomllib
from collections import namedtuple

# `english` and `spanish` are (singular, plural); `woman` is the Spanish word for a woman.
Noun = namedtuple("Noun", "kind english spanish gender woman", defaults=[""])
Adjective = namedtuple("Adjective", "describes verb english spanish plural")
Pronoun = namedtuple("Pronoun", "person english object spanish direct indirect gender")
Auxiliary = namedtuple("Auxiliary", "tense operator finite bare form spanish link")
Verb = namedtuple("Verb", "english infinitive gerund tenses imperative flags kinds")

_TEXT = importlib.resources.files(__package__).joinpath("words.toml").read_text("utf-8")
_WORDS = tomllib.loads(_TEXT)


def english_plural(word):
    plural = re.sub("([^aeiou])y$", r"\1ie", word)
    return plural + ("es" if re.search("(s|x|ch|sh)$", word) else "s")


def spanish_plural(word):
    return re.sub("z$", "c", word) + ("s" if word[-1] in "aeioáéó" else "es")


def _entries(text):
    """The entries of a text, which stand between commas."""
    return re.split(r",\s+", text.strip())


def _rows(name, separator):
    """The columns of each line of a text."""
    for line in _WORDS[name].strip().splitlines():
        yield [column.strip() for column in line.split(separator)]


def _noun(kind, entry):
    english, *spanish, gender = entry.split()
    spanish, _, woman = " ".join(spanish).partition(":")
    (one, _, many), (uno, _, muchos) = english.partition("/"), spanish.partition("/")
    forms = (one, many or english_plural(one)), (uno, muchos or spanish_plural(uno))
    return Noun(kind, *forms, gender, woman)


def _adjective(kind, entry):
    english, spanish = entry.split()
    one, _, many = spanish.partition("/")
    return Adjective(*kind.split("_"), english, one, many or spanish_plural(one))


def _determiners():
    for entry in _entries(_WORDS["determiners"]):
        weight, english, *forms = entry.split()
        forms = [None if form == "-" else form for form in forms]
        yield from int(weight) * [(english.strip("-"), forms or 4 * [""])]


def _verb(english, spanish, present, past, flags="", kinds=""):
    english, _, after = english.partition(" +")
    infinitive, _, gerund = spanish.partition(" ")
    forms = [f"{form} {after}".strip() for form in english.split()]
    tenses = {"present": present.split(), "past": past.split()}
    imperative = _WORDS["imperatives"].get(infinitive, tenses["present"][2])
    return Verb(forms, infinitive, gerund, tenses, imperative, flags.split(), kinds.split())


def _auxiliaries():
    for weight, tense, operator, finite, *middle, spanish, link in _rows("auxiliaries", "|"):
        forms = operator.split(), finite.split(), *middle, spanish.split(), link
        yield from int(weight) * [Auxiliary(tense, *forms)]


NOUNS = {kind: [_noun(kind, e) for e in _entries(t)] for kind, t in _WORDS["nouns"].items()}
ADJECTIVES = [_adjective(k, e) for k, text in _WORDS["adjectives"].items() for e in _entries(text)]
DETERMINERS = list(_determiners())  # each as often as it weighs
PRONOUNS = [Pronoun(int(row[0]), *row[1:]) for row in _rows("pronouns", "|")]
SER, ESTAR, *VERBS = [_verb(*row) for row in _rows("verbs", "|")]
AUXILIARIES = list(_auxiliaries())  # each as often as it weighs
# pairs (English, Spanish)
PHRASES, PLACES, QUESTIONS, STATES = (
    [tuple(pair) for pair in _rows(name, " = ")]
    for name in ("phrases", "places", "questions", "states")
)
TIMES, PREPOSITIONS = (
    {key: [tuple(e.split(" = ")) for e in _entries(text)] for key, text in _WORDS[name].items()}
    for name in ("times", "prepositions")
)
CONTRACTIONS = _WORDS["contractions"]
SYLLABLE = [part.split() for part in _WORDS["invented"].values()]
KNOWN = {*re.findall(r"\w+", f"{_TEXT} {NOUNS}".lower())}
KINDS = [kind for kind, weight in _WORDS["sentences"].items() for _ in range(weight)]
