"""The words of the phrasebook, read from `words.tsv`, and their forms."""

import dataclasses
import importlib.resources
import re

PROPER = ("name", "city", "language", "art", "sport")  # nouns without a determiner
MASS = ("dish", "drink")  # nouns without a plural
HUMAN = ("person", "profession", "relative", "name")  # as objects they take the Spanish personal "a"
BEINGS = (*HUMAN, "animal")
THINGS = ("food", "clothes", "thing", "furniture", "place", "vehicle", "unknown")


@dataclasses.dataclass(frozen=True)
class Noun:
    """A noun; `spanish` is (singular, plural), `woman` the word for a woman of this profession."""

    kind: str
    english: tuple[str, str]
    spanish: tuple[str, str]
    gender: str
    woman: str = ""


@dataclasses.dataclass(frozen=True)
class Adjective:
    """An adjective; `verb` is the one that links it to a subject, ser or estar.

    One that stands before its noun has a short form as well: "un buen perro".
    """

    kind: str
    english: str
    spanish: tuple[str, str, str, str]
    verb: str
    short: str = ""

    def agree(self, gender, several, before=False):
        """The form for a gender, "m" or "f", and a number."""
        if self.short and before and (gender, several) == ("m", False):
            return self.short
        return self.spanish[2 * several + (gender == "f")]


@dataclasses.dataclass(frozen=True)
class Verb:
    """A verb.

    Fields:
        english: base, third person, past and gerund, which a state has not.
        particle: English word after it.
        infinitive, gerund: in Spanish.
        forms: present, past and future, each of yo, tú, él, nosotros, ellos.
        imperative: for tú.
        kinds: of nouns that it usually has as objects.
        only: whether it has no others.
        optional: whether it may have none.
        preposition: Spanish one before the object.
        receiver: whether somebody receives the object.
    """

    english: list[str]
    particle: str
    infinitive: str
    gerund: str
    forms: dict[str, list[str]]
    imperative: str
    kinds: list[str]
    only: bool
    optional: bool
    preposition: str
    receiver: bool

    @property
    def reflexive(self):
        return self.infinitive.endswith("se")

    def english_finite(self, tense, person):
        """The form of a statement: eats, ate, is waiting for."""
        form = self.english[2 if tense == "past" else int(person == 2)]
        return f"{form} {self.particle}".strip()

    @property
    def english_base(self):
        return f"{self.english[0]} {self.particle}".strip()

    @property
    def english_gerund(self):
        return f"{self.english[3]} {self.particle}".strip()


def english_plural(word):
    if re.search("(s|x|ch|sh)$", word):
        return word + "es"
    return word[:-1] + "ies" if re.search("[^aeiou]y$", word) else word + "s"


def spanish_plural(word):
    if word[-1] == "z":
        return word[:-1] + "ces"
    return word + ("s" if word[-1] in "aeioáéó" else "es")


def _rows():
    text = importlib.resources.files(__package__).joinpath("words.tsv").read_text("utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            kind, *columns = line.split("\t")
            yield kind, columns


def _noun(kind, english, spanish, gender):
    spanish, _, woman = spanish.partition(",")
    pairs = []
    for forms, plural in ((english, english_plural), (spanish, spanish_plural)):
        one, _, several = forms.partition("/")
        pairs.append((one, several or plural(one)))
    return Noun(kind, *pairs, gender, woman)


def _adjective(kind, english, spanish, verb):
    short, _, forms = spanish.rpartition("_")
    forms = forms.split()
    if len(forms) == 2:
        one, several = forms
        forms = [one, one, several, several]
    else:
        [man] = forms
        woman = re.sub("o$", "a", man)
        forms = [man, woman, man + "s", woman + "s"]
    return Adjective(kind, english, tuple(forms), verb, short)


def _verbs(rows, irregular):
    known = {}
    for english, particle, spanish, present, past, objects in rows:
        infinitive, _, gerund = spanish.partition(" ")
        if present:
            known[infinitive] = gerund, {"present": present.split(), "past": past.split()}
        gerund, forms = known[infinitive]
        stem, imperative = irregular.get(infinitive, (infinitive.removesuffix("se"), None))
        endings = "é ás á emos án".split()
        kinds = objects.split()
        yield Verb(
            english=english.split("/"),
            particle=particle,
            infinitive=infinitive,
            gerund=gerund,
            forms={**forms, "future": [stem + ending for ending in endings]},
            imperative=imperative or forms["present"][2],
            kinds=[kind.strip("!") for kind in kinds if kind not in ("-", "a", "to")],
            only="!" in objects,
            optional="-" in kinds,
            preposition="a" if "a" in kinds else "",
            receiver="to" in kinds,
        )


ROWS = {}
for _kind, _columns in _rows():
    ROWS.setdefault(_kind, []).append(_columns)
NOUNS = {
    kind: [_noun(kind, *columns) for columns in ROWS[kind]]
    for kind in (*BEINGS, *THINGS, *MASS, *PROPER, "instrument")
    if kind in ROWS
}
COLORS = [_adjective(*columns) for columns in ROWS["color"]]
ADJECTIVES = COLORS + [_adjective(*columns) for columns in ROWS["adjective"]]
_all = list(_verbs(ROWS["verb"], {word: forms for word, *forms in ROWS["irregular"]}))
LINKS = {verb.infinitive: verb for verb in _all if verb.english == ["be"]}
VERBS = [verb for verb in _all if verb.infinitive not in LINKS]
