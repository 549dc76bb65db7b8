"""Constructions of nouns: what things are like, where they are, how many there are.

Each function gives a `Union` of sets of (English, Spanish); its docstring shows some of them.
"""

import itertools
from functools import partial

from zoo.data.phrasebook import clauses, english, spanish
from zoo.data.phrasebook.actions import MOODS, SPOKEN
from zoo.data.phrasebook.clauses import question, statement
from zoo.data.phrasebook.phrases import (
    DETERMINERS,
    PRONOUNS,
    Phrase,
    counted,
    described,
    fits,
    noun_phrase,
    people,
    possessed,
)
from zoo.data.phrasebook.spaces import Product, Union
from zoo.data.phrasebook.words import ADJECTIVES, JOBS, NOUNS, PLACEMENTS, VERBS, find_nouns

TENSES = ("present", "past", "future")
_TONES = [("says", ""), ("says", "very"), ("denies", ""), ("asks", "")]
_ABSOLUTE = ("broken", "open", "closed", "delicious", "Spanish", "English")  # never "very"
_COLOURS = ("red", "blue", "green", "white", "black", "yellow", "gray", "brown")
_FRAMES = [
    (word, several)
    for word, (singular, plural, _) in DETERMINERS.items()
    for several, text in ((False, singular), (True, plural))
    if text
]
_DEFINITE = [frame for frame in _FRAMES if frame[0] not in ("a", "some", "many")]
_PRESENT_HAVE = next(verb for verb in VERBS if verb.english == "have")
_GOOD = [adjective for adjective in ADJECTIVES if adjective.english in ("good", "bad", "great")]


def _definite(noun):
    """The definite phrases of a noun, with those determiners that suit it."""
    if noun.style == "name":
        return [noun_phrase(noun)]
    if noun.style == "mass":
        return [noun_phrase(noun, word) for word in ("the", "this", "my", "your", "our")]
    if noun.kind == "relatives":
        words = ("my", "your", "his", "her", "our", "their")
        several = (False,) if noun.english in ("mother", "father") else (False, True)
        return [noun_phrase(noun, word, plural) for plural in several for word in words]
    return [noun_phrase(noun, *frame) for frame in _DEFINITE if fits(noun, frame[0])]


def _tones(adjective):
    return [tone for tone in _TONES if not tone[1] or _gradable(adjective)]


def _gradable(adjective):
    return adjective.english not in _ABSOLUTE + _COLOURS


def _is_like(adjective, who, tense, tone):
    mood, degree = tone
    return clauses.is_like(who, adjective, tense, degree, mood)


def qualities():
    """The house is big. These shoes are very expensive. Was your mother tired?"""
    cells = []
    for adjective, nouns in described().items():
        if adjective.copula:
            subjects = [phrase for noun in nouns for phrase in _definite(noun)]
            for gender, several in itertools.product("mf", (False, True)):
                alike = [w for w in subjects if (w.gender, w.plural) == (gender, several)]
                build = partial(_is_like, adjective)
                cells.append(Product(build, alike, TENSES, _tones(adjective)))
    return Union(cells)


def states_of_people():
    """I am tired. She was very happy. Maria and Pedro are not Spanish."""
    pairs = people()[1][::17]
    cells, weights = [], []
    for copula in ("ser", "estar"):
        human = [a for a in described(copula) if "people" in a.nouns]
        for tense, (who, mood) in itertools.product(TENSES, SPOKEN):
            degrees = [(a, mood, d) for a in human for d in _degrees(a, mood)]
            cells.append(Product(partial(_is_so, who, tense), degrees))
            weights.append(1)
        degrees = [(a, mood, d) for a in human for mood in MOODS for d in _degrees(a, mood)]
        cells += [Product(partial(_is_so, who, "present"), degrees) for who in pairs]
        weights += [1] * len(pairs)
    return Union(cells, weights)


def _degrees(adjective, mood):
    return ("", "very") if mood == "says" and _gradable(adjective) else ("",)


def _is_so(who, tense, degree):
    adjective, mood, word = degree
    return clauses.is_like(who, adjective, tense, word, mood)


def comparisons():
    """Ana is taller than Juan. The book is as interesting as the letter."""
    cells = []
    for adjective, nouns in described("ser").items():
        if not _gradable(adjective):
            continue
        degrees = ["more", "as"]
        if english.comparative(adjective.english).startswith("more "):
            degrees.append("less")
        # An older person is *mayor*: age is compared of things alone.
        nouns = [noun for noun in nouns if not (adjective.english == "old" and noun.human)]
        alike = [
            (_named(a), _named(b))
            for a, b in itertools.permutations(nouns, 2)
            if a.kind == b.kind and a.kind != "relatives"
        ]
        cells.append(Product(partial(_compares, adjective), alike, degrees))
    return Union(cells)


def _named(noun):
    return noun_phrase(noun, "" if noun.style == "name" else "the")


def _compares(adjective, pair, degree):
    return clauses.compares(*pair, adjective, degree)


def jobs():
    """She is a doctor. They are teachers. Was Pedro a good lawyer?"""
    names = [noun_phrase(noun) for noun in NOUNS["names"]]
    women = [pair for pair in people()[1] if pair.gender == "f"][::9]
    men = [pair for pair in people()[1] if pair.gender == "m"][::19]
    groups = (names, men, women)
    kinds = [None, *_GOOD]
    theirs = [
        Product(_has_job, group, [job], kinds, TENSES, MOODS) for job in JOBS for group in groups
    ]
    own = [
        Product(_has_job, [who], JOBS, kinds, [tense], [mood])
        for tense in TENSES
        for who, mood in SPOKEN
    ]
    return Union([Union(theirs), Union(own)], [3, 2])


def _has_job(who, job, adjective, tense, mood):
    word = job[2] if who.gender == "f" else job[1]
    name = f"{adjective.english} {job[0]}" if adjective else job[0]
    text = spanish.plural(word) if who.plural else word
    name = english.plural(name) if who.plural else f"{english.article(name)} {name}"
    if adjective:  # then one person takes an article
        one = "" if who.plural else {"m": "un", "f": "una"}[who.gender]
        form = spanish.shorten(adjective.spanish, who.gender, who.plural)
        text = clauses.join(one, form, text)
    return clauses.being(who, tense, (name, text), clauses.link(who, "ser", tense), mood)


def placements():
    """The book is on the table. Where are my keys? The hotel was near the beach."""
    cells = []
    for names, words, places in PLACEMENTS:
        nouns = find_nouns(names)
        frames = [("the", False), ("our", True), ("our", False), ("this", False)]
        subjects = [noun_phrase(noun, *f) for noun in nouns for f in frames if fits(noun, f[0])]
        for place in find_nouns(places):
            where = _where(words, place)
            others = [who for who in subjects if place.english not in who.english.split(" ")]
            cells.append(Product(partial(_is_at, where), others, TENSES, MOODS))
    people_at = [
        _where(words, place)
        for words in (("in", "en"), ("near", "cerca de"), ("behind", "detrás de"))
        for place in NOUNS["places"]
    ]
    cells = [Union(cells)]
    cells.append(
        Union(
            [
                Product(_is_at, people_at, [who], [tense], [mood])
                for tense in TENSES
                for who, mood in SPOKEN
            ]
        )
    )
    things = [
        phrase
        for kind in ("things", "clothes", "animals", "places", "people")
        for noun in NOUNS[kind]
        for phrase in _definite(noun)
    ]
    cells.append(Product(_where_is, things, TENSES))
    return Union(cells, [4, 4, 1])


def _where(words, place):
    preposition, spanish_preposition = words
    phrase = noun_phrase(place, "the")
    text = spanish.contract(spanish_preposition, phrase.spanish)
    return f"{preposition} {phrase.english}", text


def _is_at(where, who, tense, mood):
    return clauses.is_at(who, where, tense, mood)


def _where_is(who, tense):
    helper, _, be = english.be(who, tense).partition(" ")
    verb = clauses.link(who, "estar", tense)
    return question(clauses.join("where", helper, who.english, be), f"dónde {verb} {who.spanish}")


def existence():
    """There is a book on the table. Were there many dogs in the park?"""
    cells = []
    for names, words, places in PLACEMENTS:
        for place in find_nouns(places):
            nouns = [noun for noun in find_nouns(names) if noun != place]
            things = [
                phrase
                for noun in nouns
                for phrase in (
                    noun_phrase(noun, "a"),
                    noun_phrase(noun, "some", True),
                    noun_phrase(noun, "many", True),
                    *(counted(n, noun) for n in (2, 3, 5)),
                )
            ]
            cells.append(Product(partial(_exists, _where(words, place)), things, TENSES, (0, 1)))
    return Union(cells)


def _exists(where, thing, tense, asked):
    verb = {"present": "hay", "past": "había", "future": "habrá"}[tense]
    text = f"{verb} {thing.spanish} {where[1]}"
    helper, _, be = english.be(thing, tense).partition(" ")
    if asked:
        return question(clauses.join(helper, "there", be, thing.english, where[0]), text)
    return statement(clauses.join("there", helper, be, thing.english, where[0]), text)


def possessions():
    """Maria's house is big. This is the teacher's book. Are these your keys?"""
    owners = [noun_phrase(noun) for noun in NOUNS["names"][::2]]
    owners += [noun_phrase(noun, "my") for noun in NOUNS["relatives"][::2]]
    owners += [noun_phrase(noun, "the") for noun in NOUNS["people"][::2]]
    owned = find_nouns("things clothes vehicles house dog cat horse")
    like = [
        (adjective, noun)
        for adjective, nouns in described().items()
        for noun in nouns
        if noun in owned and adjective.copula
    ]
    hers = [Product(_owned_is_like, [owner], like) for owner in owners]
    this = [
        Product(_this_is, ("this", "that"), Product(possessed, [owner], owned), MOODS)
        for owner in owners
    ]
    frames = [frame for frame in _DEFINITE if frame[0] not in ("this", "that", "the")]
    things = [noun_phrase(noun, *frame) for noun in owned for frame in frames]
    ours = [
        Product(_this_is, [word], [t for t in things if t[2:4] == (gender, several)], [mood])
        for word in ("this", "that")
        for gender, several in itertools.product("mf", (False, True))
        for mood in MOODS
    ]
    return Union([Union(hers), Union(this), Union(ours)], [2, 2, 3])


def _owned_is_like(owner, quality):
    adjective, noun = quality
    return clauses.is_like(possessed(owner, noun), adjective, "present", "", "says")


def _this_is(word, thing, mood):
    singular, plural, forms = DETERMINERS[word]
    pronoun = Phrase(
        plural if thing.plural else singular,
        forms[2 * thing.plural + (thing.gender == "f")],
        thing.gender,
        thing.plural,
        thing.person,
    )
    verb = clauses.link(pronoun, "ser", "present")
    return clauses.being(pronoun, "present", (thing.english, thing.spanish), verb, mood)


def counts():
    """three dogs; two hundred and one houses; I have twenty-one books."""
    things = [
        noun
        for noun in find_nouns(
            "animals snacks things clothes furniture parts vehicles places people"
        )
        if not spanish.begins_with_stressed_a(noun.spanish)
    ]
    by_gender = [[noun for noun in things if noun.gender == gender] for gender in "mf"]
    small = [
        Product(_fragment, Product(counted, [n], nouns))
        for n in range(1, 31)
        for nouns in by_gender
    ]
    small += [Product(_fragment, Product(counted, range(2, 11), find_nouns("eagle classroom")))]
    middle = [Product(_fragment, Product(counted, [n], things)) for n in range(31, 101)]
    large = [
        Product(_fragment, Product(counted, range(100 * n + (n == 1), 100 * n + 100), nouns[::4]))
        for n in range(1, 10)
        for nouns in by_gender
    ]
    owned = find_nouns("book pen key letter photo shirt dog cow apple egg")
    has = [Product(_has, PRONOUNS, Product(counted, [n], owned)) for n in range(2, 101)]
    how_many = Product(_how_many, PRONOUNS[1:], things, _PRESENT_HAVE.tenses)
    return Union([Union(small), Union(middle), Union(large), Union(has), how_many], [5, 3, 4, 4, 1])


def _fragment(phrase):
    return phrase.english, phrase.spanish


def _has(who, thing):
    rest = clauses.complement(_PRESENT_HAVE, thing)
    return clauses.says(who, _PRESENT_HAVE, "present", rest, clauses.NOTHING)


def _how_many(who, noun, tense):
    several = noun_phrase(noun, "", True)
    words = (
        f"how many {several.english}",
        f"{spanish.agree('cuánto', noun.gender, True)} {several.spanish}",
    )
    return clauses.asks_for(words, who, _PRESENT_HAVE, tense, clauses.Rest("", ""))


def fragments():
    """the red house; an eagle; our good friends; that old church"""
    cells, weights = [], []
    for adjective, nouns in described().items():
        frames = [f for f in _DEFINITE if f[0] not in ("this", "that")]
        if adjective.english not in ("first", "last"):
            frames = _FRAMES
        nouns = [noun for noun in nouns if noun.style == "count" and noun.kind != "relatives"]
        if nouns:
            for gender, several in itertools.product("mf", (False, True)):
                alike = [
                    (frame, noun)
                    for frame in frames
                    for noun in nouns
                    if frame[1] == several and noun.gender == gender and fits(noun, frame[0])
                ]
                cells.append(Product(_noun_fragment, [adjective], alike))
                weights.append(4 if adjective.before else 1)  # their order is the exception
    things = [noun for nouns in NOUNS.values() for noun in nouns]
    plain = [
        Product(
            _noun_fragment,
            [None],
            [(f, noun) for f in _FRAMES if f[1] == several and fits(noun, f[0])],
        )
        for noun in things
        for several in (False, True)
        if noun.style == "count" and noun.kind != "relatives"
    ]
    return Union([Union(cells, weights), Union(plain)], [1, 1])


def _noun_fragment(adjective, framed):
    frame, noun = framed
    return _fragment(noun_phrase(noun, *frame, adjective))
