"""Constructions of nouns: what things are like, where they are, how many there are.

Each function gives a `Union` of sets of (English, Spanish); its docstring shows some of them.
"""

import itertools
from functools import cache, partial

from zoo.data.phrasebook import clauses, english, spanish
from zoo.data.phrasebook.actions import MOODS, anyone, persons
from zoo.data.phrasebook.clauses import question, statement
from zoo.data.phrasebook.phrases import (
    DETERMINERS,
    PRONOUNS,
    Phrase,
    belongings,
    counted,
    couples,
    described,
    find,
    join,
    names,
    noun_phrase,
    noun_phrases,
    people,
    phrases_with,
)
from zoo.data.phrasebook.spaces import Product, Union
from zoo.data.phrasebook.words import (
    ADJECTIVES,
    CLASHES,
    JOBS,
    NOUNS,
    PLACEMENTS,
    ROOMS,
    VERBS,
    find_nouns,
)

TENSES = ("present", "past", "future")
_ABSOLUTE = ("broken", "open", "closed", "delicious", "Spanish", "English")  # never "very"
_COLOURS = CLASHES[0].split()
_HAVE = next(verb for verb in VERBS if verb.english == "have")
_GOOD = [adjective for adjective in ADJECTIVES if adjective.english in ("good", "bad", "great")]
_OWNED = "things clothes vehicles house dog cat horse"
_WHO = Phrase("who", "quién")


def _gradable(adjective):
    return adjective.english not in (*_ABSOLUTE, *_COLOURS)


def _tones(adjective):
    """Degree and mood of what is said of something."""
    tones = [("", "says"), ("very", "says"), ("", "denies"), ("", "asks")]
    return [tone for tone in tones if not tone[0] or _gradable(adjective)]


def _is_like(adjective, who, tense, tone):
    degree, mood = tone
    return clauses.is_like(who, adjective, tense, degree, mood)


def _tenses():
    return Union([["present"], ["past"], ["future"]], [3, 1.5, 1])


def qualities():
    """The house is big. These shoes are very expensive. Was my sister's red dress new?"""
    cells = []
    for adjective in described():
        if adjective.copula:
            for gender, several in itertools.product("mf", (False, True)):
                nouns = find(adjective.nouns, gender)
                owned = tuple(noun for noun in nouns if noun in find(_OWNED))
                who = Union(
                    [
                        noun_phrases(nouns, "definite", several, 2, adjective),
                        belongings(owned, several, adjective) if owned else [],
                    ],
                    [6, 1],
                )
                build = partial(_is_like, adjective)
                cells.append(Product(build, who, _tenses(), _tones(adjective)))
    return Union(cells)


def placed_qualities():
    """The book on the table is red. Was the small cup in the kitchen dirty?"""
    return Union(
        Product(_placed_is_like, things, where, [adjective], ("present", "past"), MOODS)
        for adjective in described()
        if adjective.copula
        for nouns, where in _placements()
        for things in [
            [
                noun_phrase(noun, "the", several)
                for noun in nouns
                if noun in find(adjective.nouns)
                and noun.style == "count"
                and noun.kind != "relatives"
                for several in (False, True)
            ]
        ]
        if things
    )


def _placed_is_like(thing, where, adjective, tense, mood):
    which = f"{thing.spanish} que {clauses.link(thing, 'estar', tense)} {where[1]}"
    who = thing._replace(english=f"{thing.english} {where[0]}", spanish=which)
    return clauses.is_like(who, adjective, tense, "", mood)


def states_of_people():
    """I am tired. She was very happy. My sister and my mother are not Spanish."""
    human = {c: [a for a in described(c) if "people" in a.nouns] for c in ("ser", "estar")}
    cells, weights = [], []
    for copula, tense, mood in itertools.product(human, TENSES, MOODS):
        degrees = [(a, d) for a in human[copula] for d in ("", "very")]
        degrees = [(a, d) for a, d in degrees if not d or (mood == "says" and _gradable(a))]
        subjects = persons(mood, others=0.5)
        for who, weight in subjects:
            if who is subjects[-2][0]:  # nouns and names are among the qualities
                who = PRONOUNS[2:4]
            elif who is subjects[-1][0]:
                who = Union([PRONOUNS[5:], couples()])
            cells.append(Product(partial(_is_so, tense, mood), who, degrees))
            weights.append(weight)
    return Union(cells, weights)


def _is_so(tense, mood, who, degree):
    return clauses.is_like(who, degree[0], tense, degree[1], mood)


def comparisons():
    """Ana is taller than Juan. My book is as interesting as the letter."""
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
            (first, second)
            for a, b in itertools.permutations(nouns, 2)
            if a.kind == b.kind
            for first in _definite(a)
            for second in _definite(b)
        ]
        cells.append(Product(partial(_compares, adjective), alike, degrees))
    return Union(cells)


def _definite(noun):
    """A few definite phrases of a noun."""
    if noun.style == "name":
        return [noun_phrase(noun)]
    if noun.kind in ("languages", "subjects"):
        return [noun_phrase(noun, "all")]
    words = {"relatives": ("my", "your"), "things": ("the", "this", "my"), "clothes": ("the", "my")}
    return [noun_phrase(noun, word) for word in words.get(noun.kind, ("the", "this"))]


def _compares(adjective, pair, degree):
    return clauses.compares(*pair, adjective, degree)


def jobs():
    """She is a doctor. My sisters are teachers. Was Pedro a good lawyer?"""
    family = list(noun_phrases("relatives", "definite", plain=1))
    groups = [
        [who for who in (*names(), *family) if (who.gender, who.plural) == (gender, several)]
        for gender, several in itertools.product("mf", (False, True))
    ]
    cells, weights = [], []
    for job, mood in itertools.product(JOBS, MOODS):
        spoken = [group for group, _ in persons(mood)[:-2]]
        for group in [*groups, *spoken, PRONOUNS[2:3], PRONOUNS[3:4], PRONOUNS[5:]]:
            cells.append(Product(_has_job, group, [job], [None, *_GOOD], _tenses(), [mood]))
            weights.append(2 if group in groups else 1)
    return Union(cells, weights)


def _has_job(who, job, adjective, tense, mood):
    word = job[2] if who.gender == "f" else job[1]
    name = f"{adjective.english} {job[0]}" if adjective else job[0]
    text = spanish.plural(word) if who.plural else word
    name = english.plural(name) if who.plural else f"{english.article(name)} {name}"
    if adjective:  # then one person takes an article
        one = "" if who.plural else {"m": "un", "f": "una"}[who.gender]
        form = spanish.shorten(adjective.spanish, who.gender, who.plural)
        text = join(one, form, text)
    return clauses.being(who, tense, (name, text), clauses.link(who, "ser", tense), mood)


@cache
def _placements():
    """(nouns, where they may be); nothing is next to itself."""
    found = []
    for kinds, words, places in PLACEMENTS:
        for place in find(places):
            nouns = tuple(noun for noun in find(kinds) if noun != place)
            found.append((nouns, _where(words, (place,))))
    return found


def _where(words, places):
    """Where something is, in both languages: "under my bed", "debajo de mi cama"."""
    return Product(partial(_at, *words), noun_phrases(places, "definite", False))


def _at(preposition, spanish_preposition, place):
    text = spanish.contract(spanish_preposition, place.spanish)
    return f"{preposition} {place.english}", text


def placements():
    """The book is on the table. Where is the red house? Who is in my kitchen?"""
    cells = [
        Product(_is_at, noun_phrases(nouns, "definite"), where, _tenses(), [mood])
        for nouns, where in _placements()
        for mood in MOODS
    ]
    anywhere = Union(
        _where(words, ROOMS)
        for words in (("in", "en"), ("near", "cerca de"), ("behind", "detrás de"))
    )
    spoken = [
        (Product(_is_at, who, anywhere, [tense], [mood]), weight)
        for tense in TENSES
        for mood in MOODS
        for who, weight in persons(mood, others=0.7)
    ]
    everything = "things clothes animals vehicles furniture places"
    things = [
        noun_phrases(everything, "definite", plain=1),
        people(None, "definite"),
        belongings(_OWNED),
        PRONOUNS[1:],
    ]
    where = [Product(_where_is, thing, _tenses()) for thing in things]
    inside = _where(("in", "en"), "box bottle glass house kitchen office car garden")
    what = [Product(_what_is, inside, TENSES[:2]), Product(_who_is, anywhere, TENSES)]
    return Union(
        [Union(cells), Union(*map(list, zip(*spoken))), Union(where, [5, 2, 1, 1]), Union(what)],
        [6, 4, 5, 1],
    )


def _is_at(who, where, tense, mood):
    return clauses.is_at(who, where, tense, mood)


def _where_is(who, tense):
    helper, _, be = english.be(who, tense).partition(" ")
    verb = clauses.link(who, "estar", tense)
    return question(join("where", helper, who.english, be), join("dónde", verb, who.spanish))


def _what_is(where, tense):
    verb = {"present": ("is", "hay"), "past": ("was", "había")}[tense]
    return question(f"what {verb[0]} {where[0]}", f"qué {verb[1]} {where[1]}")


def _who_is(where, tense):
    return question(*clauses.being_texts(_WHO, tense, where, clauses.link(_WHO, "estar", tense)))


def existence():
    """There is a red book on the table. Were there many dogs in the park?"""
    cells, how_many = [], []
    for nouns, where in _placements():
        nouns = tuple(noun for noun in nouns if noun.kind != "relatives")
        things = noun_phrases(nouns, "indefinite")
        cells.append(Product(_exists, things, where, _tenses(), (0, 1)))
        if nouns[0].style == "count":
            how_many.append(Product(_how_many_exist, _how_many_of(nouns), where, TENSES[:2]))
    things = noun_phrases("things animals people", "indefinite")
    bare = Product(_exists, things, [("", "")], _tenses(), (0, 1))
    return Union([Union(cells), bare, Union(how_many)], [5, 1, 1])


def _exists(thing, where, tense, asked):
    text = join({"present": "hay", "past": "había", "future": "habrá"}[tense], thing.spanish)
    helper, _, be = english.be(thing, tense).partition(" ")
    if asked:
        return question(join(helper, "there", be, thing.english, where[0]), join(text, where[1]))
    return statement(join("there", helper, be, thing.english, where[0]), join(text, where[1]))


def _how_many_of(nouns):
    """How many red pens, cuántos bolígrafos rojos: of all nouns and adjectives."""
    return Product(_asked_number, noun_phrases(nouns, "bare", True))


def _asked_number(phrase):
    word = spanish.agree("cuánto", phrase.gender, True)
    return f"how many {phrase.english}", f"{word} {phrase.spanish}"


def _how_many_exist(things, where, tense):
    verb = {"present": ("are", "hay"), "past": ("were", "había")}[tense]
    return question(f"{things[0]} {verb[0]} there {where[0]}", f"{things[1]} {verb[1]} {where[1]}")


def identities():
    """This is the teacher's book. Are these your new keys? That is not our house."""
    things = [
        noun_phrases(find(_OWNED, gender), "identity", several)
        for gender, several in itertools.product("mf", (False, True))
    ]
    theirs = [belongings(_OWNED, several) for several in (False, True)]
    family = [noun_phrases("relatives friend", "identity", several) for several in (False, True)]
    return Union(
        Product(_this_is, ("this", "that"), thing, [mood])
        for thing in (*things, *theirs, *family)
        for mood in MOODS
    )


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
    """three dogs; two hundred and one houses; I have twenty-one books; How many red pens ...?"""
    things = find("animals snacks things clothes furniture parts vehicles places people")
    things = [noun for noun in things if not spanish.begins_with_stressed_a(noun.spanish)]
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
    has = [Product(_has, anyone("says"), Product(counted, [n], owned)) for n in range(11, 101)]
    family = find_nouns("brother sister son daughter uncle aunt friend cat house")
    has.append(Product(_has, anyone("says"), Product(counted, range(1, 8), family)))
    how_many = Union(
        Product(_how_many, things, anyone("asks"), [verb], verb.tenses)
        for verb in VERBS
        if verb.english in ("have", "buy", "need", "eat", "find")
        for things in [_how_many_of(verb.objects.removeprefix("- "))]
    )
    groups = [Union(small), Union(middle), Union(large), Union(has, [1] * 90 + [15]), how_many]
    return Union(groups, [5, 3, 4, 4, 3])


def _fragment(phrase):
    return phrase.english, phrase.spanish


def _has(who, thing):
    return clauses.says(who, _HAVE, "present", clauses.complement(_HAVE, thing))


def _how_many(things, who, verb, tense):
    return clauses.asks_for(things, who, verb, tense, clauses.Rest("", ""))


def fragments():
    """the red house; an eagle; our good friends; Maria's old dog"""
    cells, weights = [], []
    for adjective in described():
        for gender, several in itertools.product("mf", (False, True)):
            alike = [
                phrase
                for noun in find(adjective.nouns, gender)
                if noun.style == "count" and noun.kind != "relatives"
                for phrase in phrases_with(noun, adjective, several)
            ]
            cells.append(Product(_fragment, alike))
            weights.append(4 if adjective.before else 1)  # their order is the exception
    things = [n for nouns in NOUNS.values() for n in nouns if n.style == "count"]
    things = [noun for noun in things if noun.kind != "relatives"]
    plain = [
        Product(_fragment, phrases_with(noun, None, several))
        for noun in things
        for several in (False, True)
    ]
    owned = Product(_fragment, belongings(_OWNED))
    return Union([Union(cells, weights), Union(plain), owned], [6, 6, 3])
