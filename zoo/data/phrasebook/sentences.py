"""The sentences of the phrasebook: a subject and a predicate, stated, negated or asked."""

import re
from collections import namedtuple

from zoo.data.phrasebook import words
from zoo.data.phrasebook.phrases import Phrase, Phrases, fitting_adjectives, join
from zoo.data.phrasebook.words import BEINGS, ESTAR, MASS, PHRASES, PRONOUNS, SER, THINGS, VERBS

_BE = {tense: forms.split() for tense, forms in words.WORDS["be"].items()}
_GOING = next(a.spanish for a in words.AUXILIARIES if a.link == "a infinitive")
_OBJECTS = {pronoun.person: pronoun for pronoun in PRONOUNS}
_YES_OR_NO, _WHAT, _WHOM = ("", ""), ("what", "qué"), ("who", "a quién")
_WHO, _IT = Phrase("who", "quién"), Phrase("it", "")
_USUAL = [verb for verb in VERBS if verb.infinitive in "tener hacer comer ver amar ir dar".split()]
_HAVE, _MAKE = (next(v for v in VERBS if v.infinitive == name) for name in ("tener", "hacer"))
_ACTIVE = [v for v in VERBS if len(v.english) == 4 and not v.infinitive.endswith("se")]
_COMMON = (*BEINGS[:3], "animal", *THINGS, *MASS)  # kinds of nouns that have a determiner


# English words after the subject of a statement ("eats"), before that of a question ("does") and
# after it ("eat"); Spanish pronouns and verb; the rest in both languages; the tense of added times.
Predicate = namedtuple("Predicate", "finite operator base clitic verb rest tense")


def clause(subject, predicate, negative=False, asked=None):
    """A statement, or the words of the question for `asked`: "where", yes or no."""
    finite, operator, base, clitic, verb, rest, _ = predicate
    no, none = ("not", "no") if negative else ("", "")
    verb = " ".join(filter(None, (none, clitic, verb)))
    if asked is None:
        finite = f"{operator} {no} {base}".strip() if negative else finite
        return join(subject.both, (finite, verb), rest)
    first, second = (verb, subject.spanish) if asked[0] else (subject.spanish, verb)
    return join(asked, (operator, first), (subject.english, second), (base, ""), rest)


def question(both):
    return f"{both[0]}?", f"¿{both[1]}?"


class Sentences(Phrases):
    """Draws sentences, each a pair (English, Spanish), by a `random.Random`."""

    def draw(self):
        """A sentence: (kind, English, Spanish); a capital letter or full stop may be missing."""
        kind = self.weighted(words.WORDS["sentences"])
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
        spanish = spanish[:start] + spanish[start].upper() + spanish[start + 1 :]
        return kind, english, spanish

    def sentence(self, subject, predicate, negative=None, asked=None):
        """A statement, negation or question, drawn if not given, at times with a time."""
        if negative is None and asked is None:
            negative = self.chance(0.2)
            asked = _YES_OR_NO if not negative and self.chance(0.25) else None
        both = clause(subject, predicate, negative, asked)
        if self.chance(0.25):
            time = self.time(predicate.tense, "any")
            if asked is None and self.chance(0.25):
                comma = self.pick(["", "", ","])
                both = join((time[0] + comma, time[1]), both)
            else:
                both = join(both, time)
        return both if asked is None else question(both)

    def action(self):
        """The dog sleeps on the sofa. What did you eat yesterday?"""
        verb, subject = self.pick(VERBS + _USUAL), self.subject()
        if self.chance(0.75):
            adverb = self.pick(words.pairs("adverbs", "verb")) if self.chance(0.06) else None
            predicate = self.doing(verb, subject.person, adverb=adverb)
            return self.sentence(subject, predicate, not adverb and self.chance(0.25))
        if self.chance(0.1):
            return question(clause(_WHO, self.doing(verb, 2)))
        questions = [_YES_OR_NO] * 4 + words.pairs("adverbs", "question")
        if verb.kinds and not verb.only:
            questions += [_WHAT] * 2 + [_WHOM] * 2 * ("person" in verb.kinds)
        asked = self.pick(questions)
        predicate = self.doing(verb, subject.person, objects=asked not in (_WHAT, _WHOM))
        return self.sentence(subject, predicate, asked=asked)

    def doing(self, verb, person, objects=True, adverb=None):
        """A predicate of a verb, with objects and a place."""
        auxiliaries = words.AUXILIARIES[:2] if adverb else words.AUXILIARIES
        active = len(verb.english) == 4
        auxiliary = self.by_weight([a for a in auxiliaries if active or a.before != "gerund"])
        tense, operator = auxiliary.tense, auxiliary.operator[person]
        if auxiliary.before == "finite":
            finite, base = verb.english[2 if tense == "past" else person == 2], verb.english[0]
            spanish = verb.tenses[tense][person]
        else:
            form = verb.english[3 if auxiliary.before == "gerund" else 0]
            form = re.sub("(base|gerund)$", form, auxiliary.before)
            finite = f"{(auxiliary.finite or auxiliary.operator)[person]} {form}"
            base = f"{auxiliary.bare} {form}".strip()
            link = auxiliary.link.replace("gerund", verb.gerund)
            link = link.replace("infinitive", verb.infinitive.removesuffix("se"))
            spanish = f"{auxiliary.spanish[person]} {link}"
        same = tense == "past" and finite == base  # I read it: today or yesterday?
        clitic, rest = self.objects(verb, person) if objects else ("", ("", ""))
        if verb.infinitive.endswith("se"):
            clitic = _OBJECTS[person].reflexive
        if adverb:
            finite, clitic = f"{adverb[0]} {finite}", f"{adverb[1]} {clitic}".strip()
        if "place" not in verb.kinds and self.chance(0.3):
            rest = join(rest, self.place())
        if same:
            rest, tense = join(rest, self.time("past")), "any"
        return Predicate(finite, operator, base, clitic, spanish, rest, tense)

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
        both = join(thing, (f"to {receiver.english}", f"a {receiver.spanish}"))
        if self.chance(0.3):
            both = f"{receiver.english} {thing[0]}", both[1]
        return _OBJECTS[receiver.person].indirect, both

    def other_pronoun(self, person):
        """One that is not the subject: I see you, he sees him."""
        return self.pick([p for p in PRONOUNS if p.person != person or person in (2, 4)])

    def direct_object(self, verb):
        kinds = verb.kinds
        if not verb.only and self.chance(0.35):
            kinds = ("unknown",) if self.chance(0.3) else (*THINGS, *MASS, "animal")
        use = {"tener": "had", "necesitar": "had", "amar": "loved"}.get(verb.infinitive, "object")
        draw = self.pair if self.chance(0.05) else self.noun_phrase
        thing = draw(kinds, "subject" if verb.preposition else use)
        return join(("", verb.preposition), thing.both)

    def description(self):
        """The house is big. Are you tired? Where is the cat? It was cold yesterday."""
        subject = self.subject(things=0.6)
        if self.chance(0.05):
            return self.sentence(_IT, self.linked(_MAKE, 2, self.state("weather")))
        if self.chance(0.08):
            asked = self.pick([("where", "dónde"), ("how", "cómo")])
            return self.sentence(subject, self.linked(ESTAR, subject.person), asked=asked)
        return self.sentence(subject, self.complement(subject))

    def linked(self, verb, person, *rest):
        """A predicate of English "be": of ser, estar, and of tener and hacer in their place."""
        tense = self.weighted({"present": 6, "past": 3, "future": 1})
        operator, base, spanish = _BE[tense][person], "", verb.tenses.get(tense)
        if tense == "future":
            base, spanish = "be", [f"{going} a {verb.infinitive}" for going in _GOING]
        finite = f"{operator} {base}".strip()
        return Predicate(finite, operator, base, "", spanish[person], join(*rest, ("", "")), tense)

    def complement(self, subject):
        """What a subject is, how it is, or where."""
        several, person = subject.person > 2, subject.person
        kinds = {"adjective": 4, "place": 4}
        if subject.kind in (*BEINGS, "pronoun"):
            kinds |= {"state": 1, "noun": 3, "city": 0.5}
        kind = self.weighted(kinds)
        if kind == "place":
            return self.linked(ESTAR, person, self.place())
        if kind == "city":
            return self.linked(SER, person, ("from", "de"), self.noun_phrase(("city",)).both)
        if kind == "state":
            return self.linked(_HAVE, person, self.state("being"))
        if kind == "noun":
            return self.linked(SER, person, self.companion(subject, several).both)
        adjective = self.pick(fitting_adjectives(subject.kind))
        very = ("very", "muy") if self.chance(0.15) else ("", "")
        both = adjective.english, adjective.agree(subject.gender, several)
        return self.linked(SER if adjective.verb == "ser" else ESTAR, person, very, both)

    def companion(self, subject, several):
        """Who a subject is: a doctor, Maria's friend, Kevin."""
        kinds = ("profession", "profession", "person", "relative", "animal")
        noun = self.noun(("name",) if not several and self.chance(0.2) else kinds)
        if noun.woman and subject.gender == "f":
            forms = noun.woman, words.spanish_plural(noun.woman)
            noun = noun._replace(spanish=forms, gender="f")
        return self.described(noun, "profession" if noun.kind == "profession" else "", several)

    def state(self, kind):
        """Hungry, which one has in Spanish; windy, which the weather makes."""
        english, spanish = self.pick(words.pairs("states", kind))
        return (f"very {english}", spanish) if self.chance(0.15) else (english, spanish.split()[1])

    def existence(self):
        """There are two dogs in the park."""
        thing = self.noun_phrase(_COMMON, "there")
        tense = self.pick(["present", "past"])
        verb = {"present": "hay", "past": "había"}[tense]
        operator = _BE[tense][thing.person]
        rest = join(thing.both, self.place()) if self.chance(0.8) else thing.both
        predicate = Predicate(operator, operator, "", "", verb, rest, tense)
        some = thing.english.startswith("some")
        return self.sentence(Phrase("there", ""), predicate, negative=False if some else None)

    def identification(self):
        """This is my house. Those are your keys."""
        thing = self.noun_phrase((*_COMMON, "name"))
        several = thing.person > 2
        this = self.pick(words.DEMONSTRATIVES[several])
        form = this.forms[2 * several + (thing.gender == "f")]
        subject = Phrase(this.english, form, thing.person)
        return self.sentence(subject, self.linked(SER, thing.person, thing.both))

    def liking(self):
        """I like coffee, which is in Spanish: coffee pleases me."""
        subject = self.subject(things=0)
        verb = "gusta"
        if self.chance(0.2):
            liked = self.pick(_ACTIVE)
            thing = (f"to {liked.english[0]}", liked.infinitive)
            rest = join(thing, self.objects(liked, subject.person, clitics=False)[1])
        else:
            thing = self.noun_phrase(_COMMON, "subject")
            rest, verb = thing.both, verb + "n" * (thing.person == 4)
        do, s = ("does", "s") if subject.person == 2 else ("do", "")
        clitic = _OBJECTS[subject.person].indirect
        predicate = Predicate(f"like{s}", do, "like", clitic, verb, rest, "present")
        to_whom = subject._replace(spanish=subject.spanish and f"a {subject.spanish}")
        return self.sentence(to_whom, predicate)

    def request(self):
        """Open the door, please."""
        verb = self.pick(_ACTIVE)
        both = join((verb.english[0], verb.imperative), self.objects(verb, 1, clitics=False)[1])
        if "place" not in verb.kinds and self.chance(0.3):
            both = join(both, self.place())
        return (f"{both[0]}, please", f"{both[1]}, por favor") if self.chance(0.3) else both

    def fragment(self):
        """the red house; dog"""
        noun = self.noun(_COMMON)
        several = noun.kind not in MASS and self.chance(0.3)
        bare = noun.english[several], noun.spanish[several]
        return bare if self.chance(0.5) else self.described(noun, several=several).both

    def phrase(self):
        """Good morning, Maria!"""
        name = self.noun(("name",))
        both = ("world", "mundo") if self.chance(0.1) else (name.english[0], name.spanish[0])
        phrase = self.pick(PHRASES)
        if phrase == PHRASES[0]:
            return join(("hello", "hola"), both)
        return tuple(f"{text[:-1]}, {name}{text[-1]}" for text, name in zip(phrase, both))


def fixed_phrases():
    """Those of the table, as they stand and as they are typed in haste; "hello world" first."""
    hasty = [(english.lower().rstrip(".?!"), spanish) for english, spanish in PHRASES]
    return list(dict.fromkeys([*PHRASES, *hasty]))
