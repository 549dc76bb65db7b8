"""The grammar of the phrasebook: phrases and sentences, drawn in both languages at once.

All are pairs (English, Spanish). Persons are yo, tú, él, nosotros, ellos: 0 to 4.
"""

import re
from typing import NamedTuple

from zoo.data.phrasebook import words
from zoo.data.phrasebook.words import ESTAR, NOUNS, PRONOUNS, SER, VERBS, Noun

PROPER = ("name", "city", "language", "art", "sport")  # without a determiner
MASS = ("dish", "drink")  # without a plural
HUMAN = ("person", "profession", "relative", "name")
BEINGS = (*HUMAN, "animal")
THINGS = ("food", "clothes", "thing", "furniture", "place", "vehicle", "unknown")
_COMMON = (*BEINGS[:3], "animal", *THINGS, *MASS)  # kinds of nouns that have a determiner

_INDEFINITE = ("", "many", "a", "another", "two", "three", "four", "five", "ten")
_ARTICLES = ("el", "la", "los", "las")  # of a man, a woman, men and women
_BE = {  # by person
    "present": ("am", "are", "is", "are", "are"),
    "past": ("was", "were", "was", "were", "were"),
}
[_TENER] = [verb for verb in VERBS if verb.infinitive == "tener"]
_NOTHING = ("", "")
_YES_OR_NO = ("", "")  # a question without a question word
_WHAT = ("what", "qué")
_WHOM = ("who", "a quién")


class Phrase(NamedTuple):
    """A subject or an object."""

    english: str
    spanish: str
    person: int = 2
    gender: str = "m"
    kind: str = ""


class Predicate(NamedTuple):
    """A verb and what follows it."""

    finite: str  # English, after the subject of a statement: "eats"
    operator: str  # before the subject of a question: "does"
    base: str  # after the subject of a question: "eat"
    clitic: str  # Spanish pronoun before the verb
    verb: str  # Spanish
    rest: tuple[str, str]  # in both languages
    tense: str  # of times that may be added


def join(*pairs):
    """Joins pairs or phrases by spaces: returns a pair. Empty texts are left out."""
    english = [pair[0] for pair in pairs if pair[0]]
    spanish = [pair[1] for pair in pairs if pair[1]]
    return " ".join(english), " ".join(spanish)


def _form(several, gender):
    """The index of the Spanish form for a man, a woman, men or women."""
    return (2 if several else 0) + (1 if gender == "f" else 0)


def clause(subject, predicate, negative=False, asked=None):
    """A statement; or a question, if `asked` is its question word or `_YES_OR_NO`."""
    finite, operator, base, clitic, verb, rest, _ = predicate
    words_before = ("no" if negative else "", clitic)
    verb = " ".join(word for word in (*words_before, verb) if word)
    if asked is None:
        if negative:
            finite = f"{operator} not {base}".strip()
        return join(subject, (finite, verb), rest)
    # In Spanish, the verb follows a question word.
    first, second = (verb, subject.spanish) if asked[0] else (subject.spanish, verb)
    return join(asked, (operator, first), (subject.english, second), (base, ""), rest)


class Sentences:
    """Draws phrases and sentences by a `random.Random`."""

    def __init__(self, generator):
        self.pick = generator.choice
        self.chance = lambda probability: generator.random() < probability

    def draw(self):
        """A sentence: (kind, English, Spanish); a capital letter or full stop may be missing."""
        kind = self.pick(words.KINDS)
        english, spanish = getattr(self, kind)()
        for pattern, form in words.CONTRACTIONS["english"]:
            if self.chance(0.5):
                english = re.sub(pattern, form, english)
        for pattern, form in words.CONTRACTIONS["spanish"]:
            spanish = re.sub(pattern, form, spanish)
        if kind == "fragment" or english.startswith("hello "):
            return kind, english, spanish
        if english[-1] not in ".?!":
            english = f"{english}."
            spanish = f"{spanish}."
        if not self.chance(0.1):
            english = english[0].upper() + english[1:]
        if self.chance(0.1):
            english = english.rstrip(".?!")
        letter = 1 if spanish[0] in "¿¡" else 0
        spanish = spanish[:letter] + spanish[letter].upper() + spanish[letter + 1 :]
        return kind, english, spanish

    def noun(self, kinds):
        kind = self.pick(kinds)
        made_up = kind == "unknown" or (kind in ("name", "city") and self.chance(0.3))
        return self.made_up(kind) if made_up else self.pick(NOUNS[kind])

    def made_up(self, kind):
        """A noun or name, the same in both languages: a model learns to copy it."""
        parts = words.SYLLABLE * self.pick((1, 2, 2, 2, 3))
        word = "".join(map(self.pick, parts)).replace("-", "")
        if not 3 <= len(word) <= 11 or word in words.KNOWN or word.endswith("s"):
            return self.made_up(kind)
        gender = "f" if word.endswith("a") else "m"
        name = word.capitalize()
        forms = (word, f"{word}s") if kind == "unknown" else (name, name)
        return Noun(kind, forms, forms, gender)

    def noun_phrase(self, kinds, use=""):
        """A noun of one of `kinds` with what belongs to it; `use` as in `described`."""
        return self.described(self.noun(kinds), use)

    def described(self, noun, use="", several=None):
        """A noun with determiner, adjective and owner; its number is drawn if not given.

        The use "subject" gives a bare noun a Spanish article; "object" puts the personal *a* before
        people; "there" is indefinite; a profession has no Spanish article as a "complement".
        """
        if noun.kind in PROPER:
            a = "a" if noun.kind == "name" and use == "object" else ""
            english, spanish = join(("", a), (noun.english[0], noun.spanish[0]))
            return Phrase(english, spanish, 2, noun.gender, noun.kind)
        if several is None:
            several = noun.kind not in MASS and self.chance(0.3)
        form = _form(several, noun.gender)
        before, forms = self.determiner(noun.kind, several, use)
        article = forms[form]
        owner = _NOTHING
        if use != "there" and self.chance(0.04):
            person = self.described(self.noun(("name", "relative")), several=False)
            before = f"{person.english}'s"
            article = _ARTICLES[form]
            owner = ("", f"de {person.spanish}")
        elif not before and use == "subject":
            article = _ARTICLES[form]
        adjective = _NOTHING
        if self.chance(0.22):
            _, adjective = self.adjective(noun.kind, noun.gender, several)
        if before == "a":
            next_word = adjective[0] or noun.english[0]
            if next_word[0] in "aeiou":
                before = "an"
            if use == "complement" and noun.kind == "profession" and not adjective[0]:
                article = ""
        if use == "object" and noun.kind in HUMAN and before:
            article = f"a {article}"
        number = 1 if several else 0
        bare = (noun.english[number], noun.spanish[number])
        english, _ = join((before, ""), adjective, bare)
        _, spanish = join(("", article), bare, adjective, owner)
        return Phrase(english, spanish, 4 if several else 2, noun.gender, noun.kind)

    def determiner(self, kind, several, use):
        """One that fits a kind of noun: English, and the Spanish forms."""
        form = _form(several, "m")
        rows = [row for row in words.DETERMINERS if row[1][form] is not None]
        if use == "there":
            rows = [row for row in rows if row[0] in _INDEFINITE]
        if kind in MASS:
            return self.pick([row for row in rows if row[0] not in ("a", "every", "another")])
        return self.pick([row for row in rows if row[0] or (several and kind != "unknown")])

    def adjective(self, kind, gender, several):
        """One that fits a kind of noun: the Spanish verb, and (English, Spanish)."""
        if kind == "unknown":
            unfit = ()
        elif kind == "animal":
            unfit = ("thing",)
        elif kind in (*HUMAN, "pronoun"):
            unfit = ("thing", "color")
        else:
            unfit = ("being",)
        adjective = self.pick([a for a in words.ADJECTIVES if a.describes not in unfit])
        spanish = adjective.plural if several else adjective.spanish
        if gender == "f":
            spanish = re.sub("o(s?)$", r"a\1", spanish)
        verb = SER if adjective.verb == "ser" else ESTAR
        return verb, (adjective.english, spanish)

    def subject(self, things=0.05):
        """A pronoun, one or two beings, or with a given probability a thing."""
        if self.chance(0.42):
            person, english, _, spanish, *_, gender = self.pick(PRONOUNS)
            return Phrase(english, spanish, person, gender, "pronoun")
        if self.chance(0.05):
            left = self.noun_phrase(BEINGS, "subject")
            right = self.noun_phrase(BEINGS, "subject")
            english, spanish = join(left, ("and", "y"), right)
            gender = "f" if left.gender == right.gender == "f" else "m"
            return Phrase(english, spanish, 4, gender, "person")
        kinds = (*THINGS, *MASS) if self.chance(things) else (*BEINGS, "unknown")
        return self.noun_phrase(kinds, "subject")

    def place(self):
        kind = self.pick(("here", "city", "in", "in", "in", "near", "near", "with"))
        if kind == "here":
            return self.pick(words.PLACES)
        if kind == "city":
            return join(("in", "en"), self.noun_phrase(("city",)))
        kinds = ("place", "furniture", "vehicle", "thing", "unknown")
        kinds += {"in": ("place",), "with": (*BEINGS, *MASS), "near": BEINGS}[kind]
        return join(self.pick(words.PREPOSITIONS[kind]), self.noun_phrase(kinds))

    def sentence(self, subject, predicate, asked=None):
        """A statement, negation or question, drawn if not asked, at times with a time."""
        negative = asked is None and self.chance(0.2)
        if asked is None and not negative and self.chance(0.25):
            asked = _YES_OR_NO
        both = clause(subject, predicate, negative, asked)
        if self.chance(0.25):
            time = self.pick(words.TIMES[predicate.tense] + words.TIMES["any"])
            time_is_first = asked is None and self.chance(0.25)
            both = join(time, both) if time_is_first else join(both, time)
        if asked is None:
            return both
        english, spanish = both
        return f"{english}?", f"¿{spanish}?"

    def action(self):
        """The dog sleeps on the sofa. What did you eat yesterday?"""
        verb = self.pick(VERBS)
        subject = self.subject()
        asked = None
        if self.chance(0.25):
            questions = [_YES_OR_NO, _YES_OR_NO, _YES_OR_NO, _YES_OR_NO, *words.QUESTIONS]
            if verb.kinds and "!" not in verb.flags:
                questions += [_WHAT, _WHAT]
                if "person" in verb.kinds:
                    questions += [_WHOM, _WHOM]
            asked = self.pick(questions)
        predicate = self.doing(verb, subject.person, objects=asked not in (_WHAT, _WHOM))
        return self.sentence(subject, predicate, asked)

    def doing(self, verb, person, objects=True):
        """A predicate of a verb, with objects and a place."""
        base, third, past, *gerund = verb.english  # a state has no gerund
        auxiliaries = [a for a in words.AUXILIARIES if gerund or "gerund" not in a.form]
        auxiliary = self.pick(auxiliaries)
        tense = auxiliary.tense
        clitic, rest = self.objects(verb, person) if objects else ("", _NOTHING)
        if auxiliary.spanish:
            form = auxiliary.form.format(base=base, gerund="".join(gerund))
            finite = f"{(auxiliary.finite or auxiliary.operator)[person]} {form}"
            base = f"{auxiliary.bare} {form}".strip()
            link = auxiliary.link.format(infinitive=verb.infinitive, gerund=verb.gerund)
            spanish = f"{auxiliary.spanish[person]} {link}"
        else:
            if tense == "past":
                finite = past
            elif person == 2:
                finite = third
            else:
                finite = base
            spanish = verb.tenses[tense][person]
        return Predicate(finite, auxiliary.operator[person], base, clitic, spanish, rest, tense)

    def objects(self, verb, person=None):
        """The Spanish pronoun before a verb of a person, and what follows it: objects, a place."""
        clitic = ""
        rest = _NOTHING
        kinds = verb.kinds
        if kinds and not ("-" in verb.flags and self.chance(0.4)):
            if "!" not in verb.flags and self.chance(0.35):
                kinds = ("unknown",) if self.chance(0.3) else (*THINGS, *MASS, "animal")
            a, use = ("a", "subject") if "a" in verb.flags else ("", "object")
            rest = join(("", a), self.noun_phrase(kinds, use))
            if person is not None and "!" not in verb.flags and self.chance(0.3):
                # one that is not the subject: I see you, he sees him
                other = self.pick([p for p in PRONOUNS if p.person != person or person in (2, 4)])
                if "to" in verb.flags:
                    clitic = other.indirect
                    rest = join((other.object, ""), rest)
                elif "person" in kinds:
                    clitic = other.direct
                    rest = (other.object, "")
                else:
                    clitic, rest = self.pick([("lo", ("it", "")), ("los", ("them", ""))])
        if "place" not in verb.kinds and self.chance(0.3):
            rest = join(rest, self.place())
        return clitic, rest

    def be(self, person, verb, rest=_NOTHING):
        """A predicate of English "be", in Spanish ser, estar, or tener in their place."""
        tense = self.pick(("present", "present", "past"))
        be = _BE[tense][person]
        return Predicate(be, be, "", "", verb.tenses[tense][person], rest, tense)

    def description(self):
        """The house is big. Are you tired? Where is the cat? Is she from Mexico?"""
        subject = self.subject(things=0.6)
        if self.chance(0.05):
            asked = self.pick([("where", "dónde"), ("how", "cómo")])
            return self.sentence(subject, self.be(subject.person, ESTAR), asked)
        return self.sentence(subject, self.be(subject.person, *self.complement(subject)))

    def complement(self, subject):
        """A Spanish verb for "be", and what a subject is, how it is, or where."""
        kinds = ["adjective", "place"]
        if subject.kind in (*BEINGS, "pronoun"):
            kinds = [*kinds, *kinds, "noun", "noun", "state", "city"]
        kind = self.pick(kinds)
        several = subject.person > 2
        if kind == "place":
            return ESTAR, self.place()
        if kind == "city":
            return SER, join(("from", "de"), self.noun_phrase(("city",)))
        if kind == "state":
            return _TENER, self.pick(words.STATES)
        if kind == "noun":
            noun = self.noun(("profession", "person", "relative", "animal"))
            if noun.woman and subject.gender == "f":
                noun = noun._replace(spanish=(noun.woman, f"{noun.woman}s"), gender="f")
            return SER, self.described(noun, "complement", several)[:2]
        verb, adjective = self.adjective(subject.kind, subject.gender, several)
        very = ("very", "muy") if self.chance(0.15) else _NOTHING
        return verb, join(very, adjective)

    def existence(self):
        """There are two dogs in the park."""
        thing = self.noun_phrase(_COMMON, "there")
        tense = self.pick(("present", "past"))
        verb = {"present": "hay", "past": "había"}[tense]
        be = _BE[tense][thing.person]
        rest = join(thing, self.place()) if self.chance(0.8) else thing[:2]
        return self.sentence(Phrase("there", ""), Predicate(be, be, "", "", verb, rest, tense))

    def identification(self):
        """This is my house. Those are your keys."""
        thing = self.noun_phrase((*_COMMON, "name"))
        several = thing.person > 2
        these = ("these", "those") if several else ("this", "that")
        english, forms = self.pick([row for row in words.DETERMINERS if row[0] in these])
        subject = Phrase(english, forms[_form(several, thing.gender)])
        return self.sentence(subject, self.be(thing.person, SER, thing[:2]))

    def liking(self):
        """I like coffee, which is in Spanish: coffee pleases me."""
        subject = self.subject(things=0)
        thing = self.noun_phrase(_COMMON, "subject")
        finite, do = ("likes", "does") if subject.person == 2 else ("like", "do")
        verb = "gustan" if thing.person == 4 else "gusta"
        clitic = [p.indirect for p in PRONOUNS if p.person == subject.person][0]
        predicate = Predicate(finite, do, "like", clitic, verb, thing, "present")
        if subject.spanish:
            subject = subject._replace(spanish=f"a {subject.spanish}")
        return self.sentence(subject, predicate)

    def request(self):
        """Open the door, please."""
        verb = self.pick([verb for verb in VERBS if len(verb.english) == 4])
        _, rest = self.objects(verb)
        english, spanish = join((verb.english[0], verb.imperative), rest)
        if self.chance(0.3):
            return f"{english}, please", f"{spanish}, por favor"
        return english, spanish

    def fragment(self):
        """the red house; dog"""
        phrase = self.noun_phrase(_COMMON)
        noun = self.noun(_COMMON)
        if self.chance(0.5):
            return phrase.english, phrase.spanish
        return noun.english[0], noun.spanish[0]

    def phrase(self):
        """Good morning, Maria!"""
        name = self.noun(("name",))
        both = ("world", "mundo") if self.chance(0.1) else (name.english[0], name.spanish[0])
        phrase = self.pick(words.PHRASES)
        if phrase == words.PHRASES[0]:
            return join(("hello", "hola"), both)
        english, spanish = phrase
        return f"{english[:-1]}, {both[0]}{english[-1]}", f"{spanish[:-1]}, {both[1]}{spanish[-1]}"
