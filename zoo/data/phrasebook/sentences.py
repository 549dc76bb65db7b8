"""The grammar of the phrasebook: phrases and sentences, drawn in both languages at once.

All are pairs (English, Spanish). Persons are yo, tú, él, nosotros, ellos: 0 to 4.
"""

import re
from collections import namedtuple

from zoo.data.phrasebook import words
from zoo.data.phrasebook.words import ESTAR, NOUNS, PRONOUNS, SER, VERBS, Noun

PROPER = ("name", "city", "language", "art", "sport")  # without a determiner
MASS = ("dish", "drink")  # without a plural
HUMAN = ("person", "profession", "relative", "name")
BEINGS = (*HUMAN, "animal")
THINGS = ("food", "clothes", "thing", "furniture", "place", "vehicle", "unknown")
_COMMON = (*BEINGS[:3], "animal", *THINGS, *MASS)  # kinds of nouns that have a determiner

_INDEFINITE = ("", "many", "a", "another", "two", "three", "four", "five", "ten")
_ARTICLES = "el la los las".split()
_BE = {"present": "am are is are are".split(), "past": "was were was were were".split()}
_TENER = next(verb for verb in VERBS if verb.infinitive == "tener")
_NOTHING = _YES_OR_NO = ("", "")
_WHAT, _WHOM = ("what", "qué"), ("who", "a quién")

# A subject or an object.
Phrase = namedtuple("Phrase", "english spanish person gender kind", defaults=[2, "m", ""])
# English words after the subject of a statement ("eats"), before that of a question ("does") and
# after it ("eat"); Spanish pronoun and verb; the rest in both languages; the tense of added times.
Predicate = namedtuple("Predicate", "finite operator base clitic verb rest tense")


def join(*pairs):
    """Pairs or phrases, one after the other; empty texts are left out."""
    return tuple(" ".join(filter(None, texts)) for texts in zip(*(pair[:2] for pair in pairs)))


def clause(subject, predicate, negative=False, asked=None):
    """A statement, or the words of the question for `asked`: "where", yes or no."""
    finite, operator, base, clitic, verb, rest, _ = predicate
    no, none = ("not", "no") if negative else _NOTHING
    verb = " ".join(filter(None, (none, clitic, verb)))
    if asked is None:
        finite = f"{operator} {no} {base}".strip() if negative else finite
        return join(subject, (finite, verb), rest)
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
            english, spanish = f"{english}.", f"{spanish}."
        if not self.chance(0.1):
            english = english[0].upper() + english[1:]
        if self.chance(0.1):
            english = english.rstrip(".?!")
        start = spanish[0] in "¿¡"
        return kind, english, spanish[:start] + spanish[start].upper() + spanish[start + 1 :]

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
        forms = (word, f"{word}s") if kind == "unknown" else (word.capitalize(),) * 2
        return Noun(kind, forms, forms, "f" if word.endswith("a") else "m")

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
            both = join(("", a), (noun.english[0], noun.spanish[0]))
            return Phrase(*both, 2, noun.gender, noun.kind)
        if several is None:
            several = noun.kind not in MASS and self.chance(0.3)
        form = 2 * several + (noun.gender == "f")
        before, forms = self.determiner(noun.kind, several, use)
        article, owner = forms[form], _NOTHING
        if use != "there" and self.chance(0.04):
            person = self.described(self.noun(("name", "relative")), several=False)
            before, article = f"{person.english}'s", _ARTICLES[form]
            owner = ("", f"de {person.spanish}")
        elif not before and use == "subject":
            article = _ARTICLES[form]
        adjective = _NOTHING
        if self.chance(0.22):
            _, *adjective = self.adjective(noun.kind, noun.gender, several)
        if before == "a":
            before = "an" if (adjective[0] or noun.english[0])[0] in "aeiou" else "a"
            if use == "complement" and noun.kind == "profession" and not adjective[0]:
                article = ""
        if use == "object" and noun.kind in HUMAN and before:
            article = f"a {article}"
        bare = noun.english[several], noun.spanish[several]
        described = join(adjective, bare)[0], join(bare, adjective, owner)[1]
        both = join((before, article), described)
        return Phrase(*both, 4 if several else 2, noun.gender, noun.kind)

    def determiner(self, kind, several, use):
        rows = [row for row in words.DETERMINERS if row[1][2 * several] is not None]
        if use == "there":
            rows = [row for row in rows if row[0] in _INDEFINITE]
        if kind in MASS:
            return self.pick([row for row in rows if row[0] not in ("a", "every", "another")])
        return self.pick([row for row in rows if row[0] or (several and kind != "unknown")])

    def adjective(self, kind, gender, several):
        """One that fits a kind of noun: its Spanish verb, English, Spanish for this gender."""
        human = kind in (*HUMAN, "pronoun")
        unfit = {"animal": "thing", "unknown": ""}.get(kind, "thing color" if human else "being")
        adjective = self.pick([a for a in words.ADJECTIVES if a.describes not in unfit])
        form = adjective.plural if several else adjective.spanish
        form = re.sub("o(s?)$", r"a\1", form) if gender == "f" else form
        return (SER if adjective.verb == "ser" else ESTAR), adjective.english, form

    def subject(self, things=0.05):
        """A pronoun, one or two beings, or with a given probability a thing."""
        if self.chance(0.42):
            person, english, _, spanish, *_, gender = self.pick(PRONOUNS)
            return Phrase(english, spanish, person, gender, "pronoun")
        if self.chance(0.05):
            left, right = (self.noun_phrase(BEINGS, "subject") for _ in range(2))
            gender = "f" if left.gender == right.gender == "f" else "m"
            return Phrase(*join(left, ("and", "y"), right), 4, gender, "person")
        things = self.chance(things)
        return self.noun_phrase(THINGS + MASS if things else (*BEINGS, "unknown"), "subject")

    def place(self):
        kind = self.pick(("here", "city", "in", "in", "in", "near", "near", "with"))
        if kind == "here":
            return self.pick(words.PLACES)
        if kind == "city":
            return join(("in", "en"), self.noun_phrase(("city",)))
        kinds = ("place", "furniture", "vehicle", "thing", "unknown")
        kinds += {"in": ("place",), "with": BEINGS + MASS, "near": BEINGS}[kind]
        return join(self.pick(words.PREPOSITIONS[kind]), self.noun_phrase(kinds))

    def sentence(self, subject, predicate, asked=None):
        """A statement, negation or question, drawn if not asked, at times with a time."""
        negative = asked is None and self.chance(0.2)
        if asked is None and not negative and self.chance(0.25):
            asked = _YES_OR_NO
        both = clause(subject, predicate, negative, asked)
        if self.chance(0.25):
            time = self.pick(words.TIMES[predicate.tense] + words.TIMES["any"])
            both = join(time, both) if asked is None and self.chance(0.25) else join(both, time)
        return both if asked is None else (f"{both[0]}?", f"¿{both[1]}?")

    def action(self):
        """The dog sleeps on the sofa. What did you eat yesterday?"""
        verb, subject, asked = self.pick(VERBS), self.subject(), None
        if self.chance(0.25):
            questions = [_YES_OR_NO] * 4 + words.QUESTIONS
            if verb.kinds and "!" not in verb.flags:
                questions = questions + [_WHAT] * 2 + [_WHOM] * 2 * ("person" in verb.kinds)
            asked = self.pick(questions)
        predicate = self.doing(verb, subject.person, objects=asked not in (_WHAT, _WHOM))
        return self.sentence(subject, predicate, asked)

    def doing(self, verb, person, objects=True):
        """A predicate of a verb, with objects and a place."""
        active = len(verb.english) == 4  # not a state, which has no gerund
        auxiliary = self.pick([a for a in words.AUXILIARIES if active or "gerund" not in a.form])
        tense, (base, third, past, *gerund) = auxiliary.tense, verb.english
        clitic, rest = self.objects(verb, person) if objects else ("", _NOTHING)
        if auxiliary.spanish:
            form = auxiliary.form.format(base=base, gerund=gerund and gerund[0])
            finite = f"{(auxiliary.finite or auxiliary.operator)[person]} {form}"
            base = f"{auxiliary.bare} {form}".strip()
            link = auxiliary.link.format(infinitive=verb.infinitive, gerund=verb.gerund)
            spanish = f"{auxiliary.spanish[person]} {link}"
        else:
            finite = past if tense == "past" else third if person == 2 else base
            spanish = verb.tenses[tense][person]
        return Predicate(finite, auxiliary.operator[person], base, clitic, spanish, rest, tense)

    def objects(self, verb, person=None):
        """The Spanish pronoun before a verb of a person, and what follows it: objects, a place."""
        clitic, rest, kinds = "", _NOTHING, verb.kinds
        if kinds and not ("-" in verb.flags and self.chance(0.4)):
            if "!" not in verb.flags and self.chance(0.35):
                kinds = ("unknown",) if self.chance(0.3) else (*THINGS, *MASS, "animal")
            a, use = ("a", "subject") if "a" in verb.flags else ("", "object")
            rest = join(("", a), self.noun_phrase(kinds, use))
            if person is not None and "!" not in verb.flags and self.chance(0.3):
                # one that is not the subject: I see you, he sees him
                other = self.pick([p for p in PRONOUNS if p.person != person or person in (2, 4)])
                if "to" in verb.flags:
                    clitic, rest = other.indirect, join((other.object, ""), rest)
                elif "person" in kinds:
                    clitic, rest = other.direct, (other.object, "")
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
        kind, several = self.pick(kinds), subject.person > 2
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
        verb, *form = self.adjective(subject.kind, subject.gender, several)
        return verb, join(("very", "muy") if self.chance(0.15) else _NOTHING, form)

    def existence(self):
        """There are two dogs in the park."""
        thing, tense = self.noun_phrase(_COMMON, "there"), self.pick(("present", "past"))
        verb, be = {"present": "hay", "past": "había"}[tense], _BE[tense][thing.person]
        rest = join(thing, self.place()) if self.chance(0.8) else thing[:2]
        return self.sentence(Phrase("there", ""), Predicate(be, be, "", "", verb, rest, tense))

    def identification(self):
        """This is my house. Those are your keys."""
        thing = self.noun_phrase((*_COMMON, "name"))
        these = ("these", "those") if thing.person > 2 else ("this", "that")
        english, forms = self.pick([row for row in words.DETERMINERS if row[0] in these])
        subject = Phrase(english, forms[2 * (thing.person > 2) + (thing.gender == "f")])
        return self.sentence(subject, self.be(thing.person, SER, thing[:2]))

    def liking(self):
        """I like coffee, which is in Spanish: coffee pleases me."""
        subject, thing = self.subject(things=0), self.noun_phrase(_COMMON, "subject")
        do, s = ("does", "s") if subject.person == 2 else ("do", "")
        verb = "gustan" if thing.person == 4 else "gusta"
        clitic = next(p.indirect for p in PRONOUNS if p.person == subject.person)
        predicate = Predicate(f"like{s}", do, "like", clitic, verb, thing, "present")
        spanish = subject.spanish and f"a {subject.spanish}"
        return self.sentence(subject._replace(spanish=spanish), predicate)

    def request(self):
        """Open the door, please."""
        verb = self.pick([verb for verb in VERBS if len(verb.english) == 4])
        both = join((verb.english[0], verb.imperative), self.objects(verb)[1])
        return (f"{both[0]}, please", f"{both[1]}, por favor") if self.chance(0.3) else both

    def fragment(self):
        """the red house; dog"""
        phrase, noun = self.noun_phrase(_COMMON), self.noun(_COMMON)
        return phrase[:2] if self.chance(0.5) else (noun.english[0], noun.spanish[0])

    def phrase(self):
        """Good morning, Maria!"""
        name = self.noun(("name",))
        both = ("world", "mundo") if self.chance(0.1) else (name.english[0], name.spanish[0])
        phrase = self.pick(words.PHRASES)
        if phrase == words.PHRASES[0]:
            return join(("hello", "hola"), both)
        return tuple(f"{text[:-1]}, {name}{text[-1]}" for text, name in zip(phrase, both))
