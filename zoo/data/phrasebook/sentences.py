"""The sentences of the phrasebook: a subject and a predicate, put together in one of a few modes."""

import dataclasses
import re
from typing import NamedTuple

from zoo.data.phrasebook.phrases import PRONOUNS, Phrase, Phrases, fitting_adjectives, joined
from zoo.data.phrasebook.words import (
    ADJECTIVES,
    BEINGS,
    LINKS,
    MASS,
    NOUNS,
    ROWS,
    THINGS,
    VERBS,
    spanish_plural,
)

_BE = {
    "present": "am are is are are".split(),
    "past": "was were was were were".split(),
    "future": ["will"] * 5,
}
_DO = {"present": "do do does do do".split(), "past": ["did"] * 5}
_REFLEXIVE = "me te se nos se".split()
_NOBODY = Phrase("", "", 2, "m", "")
_WHO = Phrase("who", "quién", 2, "m", "")
_IT = Phrase("it", "", 2, "m", "thing")
_THESE = {  # the subject of "this is my house", and its Spanish forms by number and gender
    False: {"this": "este esta", "that": "ese esa"},
    True: {"these": "estos estas", "those": "esos esas"},
}
_BY_ENGLISH = {verb.english[0]: verb for verb in VERBS}
_COMMON = tuple(kind for kind in (*BEINGS, *THINGS, *MASS) if kind != "name")
_SHORTENED = [
    (r"\b(do|does|did|is|are|was|were) not\b", r"\1n't"),
    (r"\b([Cc])an not\b", r"\1an't"),
    (r"\bwill not\b", "won't"),
    (r"\bI am\b", "I'm"),
    (r"^([Hh]e|[Ss]he|[Ii]t|[Ww]here|[Ww]hat|[Ww]ho|[Tt]hat|[Tt]here) is\b", r"\1's"),
    (r"^([Yy]ou|[Ww]e|[Tt]hey) are\b", r"\1're"),
    (r"^(I|[Yy]ou|[Hh]e|[Ss]he|[Ii]t|[Ww]e|[Tt]hey) will\b", r"\1'll"),
]
_CONTRACTIONS = [
    (r"\bla (agua)\b", r"el \1"),
    (r"\b([Aa]) el ", r"\1l "),
    (r"\bde el ", "del "),
    (r"\bcon (m|t)(í|(?<=t)i)\b", r"con\1igo"),
    (r"\by (?=[Hh]?[IiÍí](?![aeo]))", "e "),
]


class Predicate(NamedTuple):
    """What is said of a subject.

    Fields:
        finite: English words after the subject of a statement: "eats", "is eating".
        operator, base: those of a question and a negation: "does", "eat"; "is", "eating".
        english: what follows.
        clitic, verb, spanish: Spanish pronouns, verb and what follows it.
        early: Spanish adverb before all that.
    """

    finite: str
    operator: str
    base: str
    english: str
    clitic: str
    verb: str
    spanish: str
    early: str = ""


def clause(subject, predicate, negative=False, asked=None):
    """A statement, or the question for `asked`: (English, Spanish); ("", "") asks yes or no."""
    p = predicate
    no, refusal = ("not", "no") if negative else ("", "")
    verb = joined(p.early, refusal, p.clitic, p.verb)
    if asked is None:
        words = joined(p.operator, no, p.base) if negative else p.finite
        return (
            joined(subject.english, words, p.english),
            joined(subject.spanish, verb, p.spanish),
        )
    english = joined(asked[0], p.operator, subject.english, no, p.base, p.english) + "?"
    order = (verb, subject.spanish) if asked[1] else (subject.spanish, verb)
    return english, "¿" + joined(asked[1], *order, p.spanish) + "?"


class Sentences(Phrases):
    """Draws sentences, each a pair (English, Spanish), by a `random.Random`."""

    def draw(self):
        """A sentence with its capital letter and its full stop, or, at times, typed in haste."""
        kinds = {
            self.about_an_action: 46,
            self.about_being: 22,
            self.about_what_is_there: 5,
            self.about_what_this_is: 4,
            self.about_liking: 6,
            self.about_the_weather: 1,
            self.order: 5,
            self.two_clauses: 4,
            self.fragment: 4,
            self.greeting: 4,
        }
        kind = self.weighted(kinds)
        english, spanish = kind()
        if kind == self.fragment:
            return corrected(english, spanish)
        for pattern, short in _SHORTENED:
            if self.chance(0.5):
                english = re.sub(pattern, short, english)
        if self.chance(0.1):
            return corrected(*in_haste(english, spanish))
        if english[-1] not in ".?!":
            english, spanish = english + ".", spanish + "."
        return corrected(english[0].upper() + english[1:], _capitalized(spanish))

    def about_an_action(self):
        """The dog sleeps on the sofa. What did you eat yesterday?"""
        verb = self.pick(VERBS)
        negative = self.chance(0.2)
        if negative or self.chance(0.75):
            subject = self.subject()
            predicate = self.action(verb, subject.person, plain=not negative)
            return self.with_early_time(clause(subject, predicate, negative))
        return self.question_of_an_action(verb)

    def question_of_an_action(self, verb):
        subject = self.subject()
        asked = self.weighted({"yes or no": 4, "who": 1, "how many": 1, "object": 2, "adverb": 3})
        if asked == "who":
            english, spanish = clause(_WHO, self.action(verb, 2))
            return f"{english}?", f"¿{spanish}?"
        if asked in ("object", "how many") and verb.kinds and not verb.only:
            question = ("what", "qué")
            if asked == "how many":
                question = self.how_many(verb)
            elif "person" in verb.kinds and self.chance(0.5):
                question = ("who", "a quién")
            predicate = self.action(verb, subject.person, objects=False)
        elif asked == "adverb":
            question = self.pick(ROWS["question"])
            predicate = self.action(verb, subject.person, times=False)
        else:
            question, predicate = ("", ""), self.action(verb, subject.person)
        return clause(subject, predicate, asked=question)

    def how_many(self, verb):
        kinds = [kind for kind in verb.kinds if kind in THINGS + ("animal",)] or ["thing"]
        noun = self.pick(NOUNS[self.pick(kinds)])
        word = "cuántas" if noun.gender == "f" else "cuántos"
        return f"how many {noun.english[1]}", f"{word} {noun.spanish[1]}"

    def action(self, verb, person, plain=False, objects=True, times=True):
        """A predicate; `plain` allows adverbs before the verb."""
        fitting = {
            tuple(row): int(row[0])
            for row in ROWS["auxiliary"]
            if row[3] != "gerund" or verb.english[3]
        }
        _, tense, operators, form, spanish_forms, link = self.weighted(fitting)
        operator, simple = operators.split()[person], False
        if form == "gerund":
            base = verb.english_gerund
            finite = f"{operator} {base}"
        elif form == "base":
            base = verb.english_base
            simple = operator[0] == "d"
            finite = verb.english_finite(tense, person) if simple else f"{operator} {base}"
        else:
            base = f"{form} {verb.english_base}"
            finite = f"{operator} {base}"
            if operator[0] == "d":
                wish = _BY_ENGLISH[form.split()[0]].english_finite(
                    "past" if operator == "did" else "present", person
                )
                finite = f"{wish} to {verb.english_base}"
        if spanish_forms:
            other = verb.gerund if link == "gerund" else verb.infinitive.removesuffix("se")
            spanish = joined(spanish_forms.split()[person], "" if link == "gerund" else link, other)
        else:
            spanish = verb.forms[tense][person]
        english_rest, clitic, spanish_rest = self.objects(verb, person) if objects else ("", "", "")
        if verb.reflexive:
            clitic = _REFLEXIVE[person]
        early = ""
        if plain and simple and self.chance(0.1):
            word, early = self.pick(ROWS["adverb"])
            finite = f"{word} {finite}"
        same_past = verb.english[0] == verb.english[2] and tense == "past" and simple
        places = [self.place()] if self.chance(0.3) and "place" not in verb.kinds else []
        if same_past or times and self.chance(0.25):
            places.append(self.time(tense, only=same_past))
        english_rest = joined(english_rest, *(place[0] for place in places))
        spanish_rest = joined(spanish_rest, *(place[1] for place in places))
        return Predicate(finite, operator, base, english_rest, clitic, spanish, spanish_rest, early)

    def objects(self, verb, person, clitics=True):
        """English objects, Spanish pronouns before the verb, Spanish objects."""
        if not verb.kinds or verb.optional and self.chance(0.4):
            return "", "", ""
        if clitics and self.chance(0.2) and (not verb.only or "person" in verb.kinds):
            if "person" in verb.kinds:
                fitting = [p for p in PRONOUNS if p.subject.person != person or person in (2, 4)]
                pronoun = self.pick(fitting)
                return pronoun.english, pronoun.direct, ""
            return self.pick([("it", "lo", ""), ("them", "los", "")])
        english, spanish = self.direct_object(verb)
        if not verb.receiver or not clitics or self.chance(0.4):
            return english, "", spanish
        if self.chance(0.5):
            fitting = [p for p in PRONOUNS if p.subject.person != person or person in (2, 4)]
            pronoun = self.pick(fitting)
            return f"{pronoun.english} {english}", pronoun.indirect, spanish
        receiver = self.noun_phrase(BEINGS, "subject")
        clitic = "les" if receiver.person == 4 else "le"
        words = (english, f"to {receiver.english}")
        if self.chance(0.3):
            words = (receiver.english, english)
        return " ".join(words), clitic, f"{spanish} a {receiver.spanish}"

    def direct_object(self, verb):
        kinds = verb.kinds
        if not verb.only and self.chance(0.35):
            kinds = ("unknown",) if self.chance(0.4) else THINGS + MASS + ("animal",)
        use = "object"
        if verb.preposition:
            use = "subject"
        elif verb.infinitive in ("tener", "necesitar"):
            use = "had"
        draw = self.pair if self.chance(0.06) else self.noun_phrase
        what = draw(kinds, use)
        return what.english, joined(verb.preposition, what.spanish)

    def with_early_time(self, sentence):
        """Yesterday the dog slept: the time stands first now and then."""
        if self.chance(0.25):
            for _, english, spanish in ROWS["time"]:
                if sentence[0].endswith(f" {english}"):
                    comma = "," if self.chance(0.3) else ""
                    return (
                        f"{english}{comma} {sentence[0].removesuffix(f' {english}')}",
                        f"{spanish} {sentence[1].removesuffix(f' {spanish}')}",
                    )
        return sentence

    def about_being(self):
        """The house is big. Are you tired? Where is the cat?"""
        subject = self.subject(things=0.6)
        if self.chance(0.08):
            question = self.pick([("where", "dónde"), ("how", "cómo")])
            return clause(subject, self.being("estar", subject.person), asked=question)
        predicate = self.complement(subject)
        negative = self.chance(0.2)
        if negative or self.chance(0.75):
            return clause(subject, predicate, negative)
        return clause(subject, predicate, asked=("", ""))

    def being(self, infinitive, person, english="", spanish=""):
        tense = self.weighted({"present": 6, "past": 3, "future": 1})
        operator = _BE[tense][person]
        base = "be" if tense == "future" else ""
        link = LINKS.get(infinitive) or next(v for v in VERBS if v.infinitive == infinitive)
        if self.chance(0.15):
            time = self.time(tense)
            english, spanish = joined(english, time[0]), joined(spanish, time[1])
        verb = link.forms[tense][person]
        return Predicate(joined(operator, base), operator, base, english, "", verb, spanish)

    def complement(self, subject):
        """A predicate of one of the verbs to be."""
        several, person = subject.person > 2, subject.person
        kinds = {"adjective": 4, "place": 4}
        if subject.kind in BEINGS + ("pronoun",):
            kinds |= {"state": 1, "noun": 2, "from": 0.5}
        kind = self.weighted(kinds)
        if kind == "place":
            return self.being("estar", person, *self.place())
        if kind == "from":
            city = self.noun_phrase(("city",))
            return self.being("ser", person, f"from {city.english}", f"de {city.spanish}")
        if kind == "state":
            return self.state("being", person)
        if kind == "noun":
            noun = self.noun(self.pick(("profession", "profession", "person", "relative", "animal")))
            if not several and self.chance(0.2):
                noun = self.noun("name")
            if noun.woman and subject.gender == "f":
                forms = noun.woman, spanish_plural(noun.woman)
                noun = dataclasses.replace(noun, spanish=forms, gender="f")
            use = "profession" if noun.kind == "profession" else ""
            what = self.described(noun, use, several)
            return self.being("ser", person, what.english, what.spanish)
        adjective = self.pick(fitting_adjectives(subject.kind))
        english, spanish = adjective.english, adjective.agree(subject.gender, several)
        if self.chance(0.15):
            english, spanish = f"very {english}", f"muy {spanish}"
        return self.being(adjective.verb, person, english, spanish)

    def state(self, kind, person):
        """To be hungry, which Spanish has."""
        rows = [row for row in ROWS["state"] if row[0] == kind]
        _, english, spanish, verb = self.pick(rows)
        if self.chance(0.15):
            return self.being(verb, person, f"very {english}", spanish)
        return self.being(verb, person, english, spanish.split()[1])

    def about_the_weather(self):
        return clause(_IT, self.state("weather", 2), self.chance(0.2))

    def about_what_is_there(self):
        """There are two dogs in the park."""
        tense = self.pick(("present", "present", "past"))
        verb = {"present": "hay", "past": "había"}[tense]
        what = self.noun_phrase(_COMMON, "there")
        place = self.place() if self.chance(0.8) else ("", "")
        operator = _BE[tense][what.person]
        rest = [f"{a} {b}".strip() for a, b in zip((what.english, what.spanish), place)]
        predicate = Predicate(operator, operator, "", rest[0], "", verb, rest[1])
        there = Phrase("there", "", what.person, "m", "")
        asked = ("", "") if self.chance(0.25) else None
        return clause(there, predicate, negative=not asked and "some" not in what.english and self.chance(0.2), asked=asked)

    def about_what_this_is(self):
        """This is my house. Those are your keys."""
        what = self.noun_phrase(_COMMON + ("name",))
        several = what.person > 2
        english, forms = self.pick([*_THESE[several].items()])
        subject = Phrase(english, forms.split()[what.gender == "f"], what.person, "m", "")
        operator = _BE["present"][what.person]
        verb = LINKS["ser"].forms["present"][what.person]
        predicate = Predicate(operator, operator, "", what.english, "", verb, what.spanish)
        asked = ("", "") if self.chance(0.2) else None
        return clause(subject, predicate, negative=not asked and self.chance(0.2), asked=asked)

    def about_liking(self):
        """I like coffee: in Spanish, coffee pleases me."""
        subject = self.subject(things=0)
        tense = self.weighted({"present": 4, "past": 1})
        operator = _DO[tense][subject.person]
        form = self.pick(("like", "like", "love"))
        finite = form + ("d" if tense == "past" else "s" if subject.person == 2 else "")
        stem = {"like": "gusta", "love": "encanta"}[form] + ("ba" if tense == "past" else "")
        if self.chance(0.2):
            verb = self.pick([v for v in VERBS if v.english[3] and not v.reflexive])
            english, _, spanish = self.objects(verb, subject.person, clitics=False)
            english = joined("to", verb.english_base, english)
            spanish = joined(verb.infinitive, spanish)
        else:
            kinds = THINGS + MASS + (() if form == "love" else BEINGS)
            what = self.noun_phrase(kinds, "subject")
            english, spanish = what.english, what.spanish
            stem += "n" if what.person == 4 else ""
        clitic = next(
            p.indirect
            for p in PRONOUNS
            if p.subject.person == subject.person  # le for him and for her
        )
        who = subject._replace(spanish=subject.spanish and f"a {subject.spanish}")
        predicate = Predicate(finite, operator, form, english, clitic, stem, spanish)
        negative = form == "like" and self.chance(0.25)
        asked = ("", "") if not negative and self.chance(0.2) else None
        return clause(who, predicate, negative, asked)

    def order(self):
        """Open the door, please."""
        verb = self.pick([v for v in VERBS if v.english[3] and not v.reflexive])
        english, _, spanish = self.objects(verb, 1, clitics=False)
        english, spanish = joined(verb.english_base, english), joined(verb.imperative, spanish)
        if "place" not in verb.kinds and self.chance(0.3):
            place = self.place()
            english, spanish = f"{english} {place[0]}", f"{spanish} {place[1]}"
        if self.chance(0.25):
            english, spanish = f"{english}, please", f"{spanish}, por favor"
        elif self.chance(0.15):
            english, spanish = f"please {english}", f"por favor, {spanish}"
        return english, spanish

    def two_clauses(self):
        """I eat bread because I am hungry."""
        english, spanish = self.pick(ROWS["linking"])
        first, second = (self.statement() for _ in range(2))
        return f"{first[0]} {english} {second[0]}", f"{first[1]} {spanish} {second[1]}".replace(" ,", ",")

    def statement(self):
        subject = self.subject()
        if self.chance(0.4):
            return clause(subject, self.complement(subject))
        return clause(subject, self.action(self.pick(VERBS), subject.person), self.chance(0.2))

    def fragment(self):
        """the red house; dog"""
        kind = self.weighted({"phrase": 2, "noun": 2, "adjective": 1})
        if kind == "phrase":
            what = self.noun_phrase(_COMMON)
            return what.english, what.spanish
        if kind == "adjective":
            adjective = self.pick(ADJECTIVES)
            return adjective.english, adjective.spanish[0]
        noun = self.noun(self.pick(_COMMON))
        number = noun.kind not in MASS and self.chance(0.3)
        return noun.english[number], noun.spanish[number]

    def greeting(self):
        """Good morning, Maria!"""
        english, spanish = self.pick(ROWS["phrase"])
        if english == "hello world":
            return "hello " + (name := self.noun("name")).english[0], "hola " + name.spanish[0]
        name = self.noun("name")
        last = slice(None, -1)
        return (
            f"{english[last]}, {name.english[0]}{english[-1]}",
            f"{spanish[last]}, {name.spanish[0]}{spanish[-1]}",
        )


def fixed_phrases():
    """Those of the table, as they stand and as they are typed in haste; "hello world" first."""
    rows = [tuple(row) for row in ROWS["phrase"]]
    return list(dict.fromkeys([*rows, *(in_haste(*row) for row in rows)]))


def in_haste(english, spanish):
    """Without capital letter and full stop: "where is the dog"."""
    spanish = re.sub(r"^¡(.*)!$", r"\1", spanish.removesuffix("."))
    start = re.match("¿?", spanish).end()
    first = english[0] if re.match(r"I\b", english) else english[0].lower()
    return (
        first + english[1:].rstrip(".?!"),
        spanish[:start] + spanish[start].lower() + spanish[start + 1 :],
    )


def corrected(english, spanish):
    """With the contractions of Spanish: al, del, conmigo."""
    for pattern, form in _CONTRACTIONS:
        spanish = re.sub(pattern, form, spanish)
    return english, spanish


def _capitalized(spanish):
    start = re.match("[¿¡]?", spanish).end()
    return spanish[:start] + spanish[start].upper() + spanish[start + 1 :]
