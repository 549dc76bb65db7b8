"""The sentences of the phrasebook: a subject and a predicate in one of a few modes."""

import re
from typing import NamedTuple

from zoo.data.phrasebook import words
from zoo.data.phrasebook.phrases import Phrase, Phrases, fitting_adjectives, join
from zoo.data.phrasebook.words import (
    BEINGS,
    ESTAR,
    MASS,
    Noun,
    PHRASES,
    PRONOUNS,
    SER,
    THINGS,
    VERBS,
)

_BE = {
    "present": "am are is are are".split(),
    "past": "was were was were were".split(),
    "future": ["will"] * 5,
}
_REFLEXIVE = "me te se nos se".split()
_INDIRECT = "me te le nos les".split()
_WILL = "voy vas va vamos van".split()
_YES_OR_NO = ("", "")
_WHO = Phrase("who", "quién")
_WORLD = Noun("name", ("world", ""), ("mundo", ""), "m")
_IT = Phrase("it", "")
_THIS = [("this", "este esta"), ("that", "ese esa")]
_THESE = [("these", "estos estas"), ("those", "esos esas")]
_LINKS = [("and", "y"), ("but", ", pero"), ("because", "porque"), ("when", "cuando")]
_HAVING = {verb.infinitive: verb for verb in VERBS if verb.infinitive in ("tener", "hacer")}
_ACTIVE = [v for v in VERBS if len(v.english) == 4 and not v.infinitive.endswith("se")]
_COMMON = (*BEINGS[:3], "animal", *THINGS, *MASS)  # kinds of nouns with a determiner
_SHORT = [
    (r"\b(do|does|did|is|are|was|were) not\b", r"\1n't"),
    (r"\bcan not\b", "can't"),
    (r"\bwill not\b", "won't"),
    (r"\bI am\b", "I'm"),
    (r"^(he|she|it|where|what|who|that|there) is\b", r"\1's"),
    (r"^(you|we|they) are\b", r"\1're"),
    (r"^(I|you|he|she|it|we|they) will\b", r"\1'll"),
]
_CONTRACTIONS = [
    (r"\bla agua\b", "el agua"),
    (r"\ba el ", "al "),
    (r"\bde el ", "del "),
    (r"\bcon (mí|ti)\b", lambda found: {"mí": "conmigo", "ti": "contigo"}[found[1]]),
    (r"\by (?=h?[ií](?![aeo]))", "e "),
    (r" ,", ","),
]


class Predicate(NamedTuple):
    """What is said of a subject.

    Fields:
        finite: English words after the subject of a statement: "eats", "is eating".
        operator, base: those of a question and a negation: "does", "eat"; "is", "eating".
        clitic, verb: Spanish words before the verb, and the verb.
        rest: what follows, in both languages.
    """

    finite: str
    operator: str
    base: str
    clitic: str
    verb: str
    rest: tuple


def clause(subject, predicate, negative=False, asked=None):
    """A statement, or the question for `asked`: "where", yes or no."""
    finite, operator, base, clitic, verb, rest = predicate
    no, none = ("not", "no") if negative else ("", "")
    verb = " ".join(filter(None, (none, clitic, verb)))
    if asked is None:
        finite = f"{operator} {no} {base}".strip() if negative else finite
        return join(subject.both, (finite, verb), rest)
    order = (verb, subject.spanish) if asked[0] else (subject.spanish, verb)
    both = join(asked, (operator, order[0]), (subject.english, order[1]), (base, ""), rest)
    return question(both)


def question(both):
    return f"{both[0]}?", f"¿{both[1]}?"


class Sentences(Phrases):
    """Draws sentences, each a pair (English, Spanish), by a `random.Random`."""

    def draw(self):
        """A sentence with capital letter and full stop, or, at times, as it is typed in haste."""
        kinds = {
            self.action: 46,
            self.being: 22,
            self.what_is_there: 5,
            self.what_this_is: 4,
            self.liking: 6,
            self.loving: 1.5,
            self.weather: 1,
            self.order: 5,
            self.two_clauses: 4,
            self.greeting: 4,
            self.fragment: 4,
        }
        kind = self.weighted(kinds)
        english, spanish = kind()
        for pattern, form in _SHORT:
            if self.chance(0.5):
                english = re.sub(pattern, form, english)
        for pattern, form in _CONTRACTIONS:
            spanish = re.sub(pattern, form, spanish)
        if kind == self.fragment:
            return english, spanish
        if english[-1] not in ".?!":
            english, spanish = f"{english}.", f"{spanish}."
        both = english[0].upper() + english[1:], _first_letter(spanish, str.upper)
        if self.chance(0.1):
            both = in_small_letters(*both)
        return without_stop(*both) if self.chance(0.1) else both

    def mode(self, subject, predicate, negatives=0.2, questions=0.2):
        """A statement, a negation or a question."""
        kind = self.generator.random()
        asked = _YES_OR_NO if negatives <= kind < negatives + questions else None
        return clause(subject, predicate, kind < negatives, asked)

    def loving(self):
        """Unlike things, one loves people."""
        return self.action(next(verb for verb in VERBS if verb.infinitive == "amar"))

    def action(self, verb=None):
        """The dog sleeps on the sofa. What did you eat yesterday?"""
        verb, subject = verb or self.pick(VERBS), self.subject()
        if self.chance(0.75):
            adverb = self.pick(words.pairs("adverbs", "verb")) if self.chance(0.06) else None
            predicate = self.doing(verb, subject.person, adverb=adverb)
            negative = not adverb and self.chance(0.25)
            return self.time_first(clause(subject, predicate, negative))
        asked = self.weighted({"yes or no": 4, "who": 1, "how many": 1, "what": 2, "adverb": 3})
        if asked == "who":
            return question(clause(_WHO, self.doing(verb, 2)))
        if asked == "adverb":
            predicate = self.doing(verb, subject.person, times=False)
            return clause(subject, predicate, asked=self.pick(words.pairs("adverbs", "question")))
        if asked == "yes or no" or verb.only or not verb.kinds:
            return clause(subject, self.doing(verb, subject.person), asked=_YES_OR_NO)
        predicate = self.doing(verb, subject.person, objects=False)
        if asked == "how many":
            noun = self.noun([kind for kind in verb.kinds if kind in THINGS] or THINGS)
            word = "cuántas" if noun.gender == "f" else "cuántos"
            what = f"how many {noun.english[1]}", f"{word} {noun.spanish[1]}"
        else:
            what = ("what", "qué")
            if "person" in verb.kinds and self.chance(0.5):
                what = ("who", "a quién")
        return clause(subject, predicate, asked=what)

    def doing(self, verb, person, objects=True, times=True, adverb=None):
        """A predicate of a verb, with objects, a place and a time."""
        infinitive = verb.infinitive.removesuffix("se")
        auxiliary = self.heaviest(
            [a for a in words.AUXILIARIES if a.before != "gerund" or len(verb.english) == 4][
                : 2 if adverb else None
            ]
        )
        tense, simple = auxiliary.tense, auxiliary.before == "finite"
        operator = auxiliary.operator[person]
        if simple:
            finite, base = verb.english[2 if tense == "past" else person == 2], verb.english[0]
        else:
            form = verb.english[3 if auxiliary.before == "gerund" else 0]
            form = re.sub("(base|gerund)$", form, auxiliary.before)
            finite = f"{(auxiliary.finite or auxiliary.operator)[person]} {form}"
            base = f"{auxiliary.bare} {form}".strip()
        if simple:
            spanish = verb.tenses[tense][person]
        else:
            link = auxiliary.link.replace("gerund", verb.gerund).replace("infinitive", infinitive)
            spanish = f"{auxiliary.spanish[person]} {link}"
        clitic, rest = self.objects(verb, person) if objects else ("", ("", ""))
        if infinitive != verb.infinitive:
            clitic = _REFLEXIVE[person]
        if adverb:
            finite, clitic = f"{adverb[0]} {finite}", f"{adverb[1]} {clitic}".strip()
        if "place" not in verb.kinds and self.chance(0.3):
            rest = join(rest, self.place())
        if simple and tense == "past" and verb.english[0] == verb.english[2]:
            rest = join(rest, self.time("past"))  # I read it: today or yesterday?
        elif times and self.chance(0.25):
            rest = join(rest, self.time(tense, "any"))
        return Predicate(finite, operator, base, clitic, spanish, rest)

    def objects(self, verb, person, clitics=True):
        """Spanish pronouns before the verb, and what follows it."""
        people = "person" in verb.kinds
        if not verb.kinds or (verb.optional and self.chance(0.4)):
            return "", ("", "")
        if clitics and (people or not verb.only) and self.chance(0.2):
            if people:
                pronoun = self.other_pronoun(person)
                return pronoun.direct, (pronoun.english_object, "")
            return self.pick([("lo", ("it", "")), ("los", ("them", ""))])
        thing = self.direct_object(verb)
        if not verb.receiver or not clitics or self.chance(0.4):
            return "", thing
        if self.chance(0.5):
            pronoun = self.other_pronoun(person)
            return pronoun.indirect, join((pronoun.english_object, ""), thing)
        receiver = self.noun_phrase(BEINGS, "subject")
        whom = f"a {receiver.spanish}"
        if self.chance(0.3):
            both = join((receiver.english, ""), thing, ("", whom))
        else:
            both = join(thing, (f"to {receiver.english}", whom))
        return _INDIRECT[receiver.person], both

    def other_pronoun(self, person):
        """One that is not the subject: I see you, he sees him."""
        return self.pick([p for p in PRONOUNS if p.person != person or person in (2, 4)])

    def direct_object(self, verb):
        kinds = verb.kinds
        if not verb.only and self.chance(0.35):
            kinds = ("unknown",) if self.chance(0.4) else (*THINGS, *MASS, "animal")
        use = "had" if verb.infinitive in ("tener", "necesitar") else "object"
        draw = self.pair if self.chance(0.06) else self.noun_phrase
        what = draw(kinds, "subject" if verb.preposition else use)
        return join(("", verb.preposition), what.both)

    def time_first(self, both):
        """Yesterday the dog slept: a time at the end may stand first."""
        for tense in words.WORDS["times"] if self.chance(0.25) else ():
            for english, spanish in words.pairs("times", tense):
                if both[0].endswith(f" {english}"):
                    comma = self.pick(["", "", ","])
                    rest = both[0].removesuffix(f" {english}"), both[1].removesuffix(f" {spanish}")
                    return join((english + comma, spanish), rest)
        return both

    def being(self):
        """The house is big. Are you tired? Where is the cat?"""
        subject = self.subject(things=0.6)
        if self.chance(0.08):
            asked = self.pick([("where", "dónde"), ("how", "cómo")])
            return clause(subject, self.linked(ESTAR, subject.person), asked=asked)
        return self.mode(subject, self.complement(subject))

    def linked(self, verb, person, *rest):
        """A predicate of one of the verbs to be, or of "to have" and "to make" in their place."""
        tense = self.weighted({"present": 6, "past": 3, "future": 1})
        operator, base = _BE[tense][person], "be" if tense == "future" else ""
        if self.chance(0.15):
            rest = (*rest, self.time(tense, "any"))
        finite = f"{operator} {base}".strip()
        spanish = f"{_WILL[person]} a {verb.infinitive}" if base else verb.tenses[tense][person]
        return Predicate(finite, operator, base, "", spanish, join(*rest, ("", "")))

    def complement(self, subject):
        """What a subject is, how it is, or where."""
        several, person = subject.person > 2, subject.person
        kinds = {"adjective": 4, "place": 4}
        if subject.kind in (*BEINGS, "pronoun"):
            kinds |= {"state": 1, "noun": 2, "city": 0.5}
        kind = self.weighted(kinds)
        if kind == "place":
            return self.linked(ESTAR, person, self.place())
        if kind == "city":
            return self.linked(SER, person, ("from", "de"), self.noun_phrase(("city",)).both)
        if kind == "state":
            return self.linked(_HAVING["tener"], person, self.state("being"))
        if kind == "noun":
            noun = self.noun(("profession", "profession", "person", "relative", "animal"))
            if not several and self.chance(0.2):
                noun = self.noun(("name",))
            if noun.woman and subject.gender == "f":
                forms = noun.woman, words.spanish_plural(noun.woman)
                noun = noun._replace(spanish=forms, gender="f")
            what = self.described(noun, "profession" if noun.kind == "profession" else "", several)
            return self.linked(SER, person, what.both)
        adjective = self.pick(fitting_adjectives(subject.kind))
        very = ("very", "muy") if self.chance(0.15) else ("", "")
        both = adjective.english, adjective.agree(subject.gender, several)
        return self.linked(SER if adjective.verb == "ser" else ESTAR, person, very, both)

    def state(self, kind):
        """Hungry, which one has in Spanish; windy, which the weather makes."""
        english, spanish = self.pick(words.pairs("states", kind))
        if self.chance(0.15):
            return f"very {english}", spanish
        return english, spanish.split()[1]

    def weather(self):
        """It was cold yesterday."""
        return self.mode(_IT, self.linked(_HAVING["hacer"], 2, self.state("weather")))

    def what_is_there(self):
        """There are two dogs in the park."""
        what = self.noun_phrase(_COMMON, "there")
        tense, verb = self.pick([("present", "hay"), ("past", "había")])
        operator = _BE[tense][what.person]
        rest = join(what.both, self.place()) if self.chance(0.8) else what.both
        predicate = Predicate(operator, operator, "", "", verb, rest)
        negatives = 0 if what.english.startswith("some") else 0.15
        return self.mode(Phrase("there", ""), predicate, negatives)

    def what_this_is(self):
        """This is my house. Those are your keys."""
        what = self.noun_phrase((*_COMMON, "name"))
        english, forms = self.pick(_THESE if what.person > 2 else _THIS)
        subject = Phrase(english, forms.split()[what.gender == "f"], what.person)
        return self.mode(subject, self.linked(SER, what.person, what.both))

    def liking(self):
        """I like coffee, in Spanish: coffee pleases me."""
        subject = self.subject(things=0)
        person, past = subject.person, self.chance(0.2)
        form, verb = self.pick([("like", "gusta"), ("love", "encanta")])
        if self.chance(0.2):
            liked = self.pick(_ACTIVE)
            rest = join(
                (f"to {liked.english[0]}", liked.infinitive),
                self.objects(liked, person, clitics=False)[1],
            )
        else:
            what = self.noun_phrase((*THINGS, *MASS, *(BEINGS if form == "like" else ())), "subject")
            rest, verb = what.both, verb + "n" * (what.person == 4)
        if past:
            verb = verb.removesuffix("n") + "ba" + "n" * verb.endswith("n")
        operator = "did" if past else "does" if person == 2 else "do"
        finite = form + ("d" if past else "s" if person == 2 else "")
        predicate = Predicate(finite, operator, form, _INDIRECT[person], verb, rest)
        to_whom = subject._replace(spanish=subject.spanish and f"a {subject.spanish}")
        return self.mode(to_whom, predicate, negatives=0.25 if form == "like" else 0)

    def order(self):
        """Open the door, please."""
        verb = self.pick(_ACTIVE)
        rest = self.objects(verb, 1, clitics=False)[1]
        if "place" not in verb.kinds and self.chance(0.3):
            rest = join(rest, self.place())
        both = join((verb.english[0], verb.imperative), rest)
        if self.chance(0.25):
            return f"{both[0]}, please", f"{both[1]}, por favor"
        return join(("please", "por favor,"), both) if self.chance(0.15) else both

    def two_clauses(self):
        """I eat bread because I am hungry."""
        return join(self.statement(), self.pick(_LINKS), self.statement())

    def statement(self):
        subject = self.subject()
        if self.chance(0.4):
            return clause(subject, self.complement(subject))
        predicate = self.doing(self.pick(VERBS), subject.person)
        return clause(subject, predicate, self.chance(0.2))

    def fragment(self):
        """the red house; dog"""
        if self.chance(0.5):
            return self.noun_phrase(_COMMON).both
        noun = self.noun(_COMMON)
        several = noun.kind not in MASS and self.chance(0.3)
        return noun.english[several], noun.spanish[several]

    def greeting(self):
        """Good morning, Maria!"""
        (english, spanish), name = self.pick(PHRASES), self.noun(("name",))
        if self.chance(0.08):
            name = _WORLD
        if english == "hello world":
            return f"hello {name.english[0]}", f"hola {name.spanish[0]}"
        return (
            f"{english[:-1]}, {name.english[0]}{english[-1]}",
            f"{spanish[:-1]}, {name.spanish[0]}{spanish[-1]}",
        )


def fixed_phrases():
    """Those of the table, as they stand and as they are typed in haste; "hello world" first."""
    hasty = [without_stop(*in_small_letters(*both)) for both in PHRASES]
    return list(dict.fromkeys([*PHRASES, *hasty]))


def in_small_letters(english, spanish):
    return english[0].lower() + english[1:], _first_letter(spanish, str.lower)


def without_stop(english, spanish):
    """Without full stop, exclamation marks or the English question mark."""
    return english.rstrip(".?!"), re.sub("^¡(.*)!$", r"\1", spanish.removesuffix("."))


def _first_letter(spanish, change):
    start = re.match("[¿¡]?", spanish).end()
    return spanish[:start] + change(spanish[start]) + spanish[start + 1 :]
