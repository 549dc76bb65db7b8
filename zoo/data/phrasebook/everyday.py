"""Constructions of everyday talk: tastes, needs, ages, the clock, prices, weather, greetings.

Each function gives a `Union` of sets of (English, Spanish); its docstring shows some of them.
"""

import itertools
from functools import partial

from zoo.data.phrasebook import clauses, english, spanish
from zoo.data.phrasebook.actions import MOODS, anyone, complements, persons
from zoo.data.phrasebook.clauses import Rest, question, statement
from zoo.data.phrasebook.phrases import (
    Phrase,
    belongings,
    join,
    names,
    noun_phrase,
    noun_phrases,
)
from zoo.data.phrasebook.spaces import Product, Union
from zoo.data.phrasebook.words import (
    COST,
    FAMILIAR,
    GREETINGS,
    NEEDS,
    OTHERS,
    PHRASES,
    QUESTIONS,
    VERBS,
    WEATHER,
    WORLD,
    find_nouns,
)

_PLEASANT = "eat,drink,write,play,study,speak,wear,visit,buy,work,sleep,go to"
_VERB = {verb.english: verb for verb in VERBS}


def likings():
    """I like big dogs. My mother doesn't like this city. Does he like to drink wine?"""
    kinds = "animals snacks vehicles places clothes"
    general = noun_phrases(f"{kinds} foods drinks subjects languages sports", "generic")
    verbs = [_VERB[name] for name in _PLEASANT.split(",")]
    pleasures = Union(
        [
            Product(_this_one, general),
            Product(_this_one, noun_phrases(f"{kinds} things", "definite")),
            Union(Product(partial(_doing, verb), complements(verb)) for verb in verbs),
        ],
        [2, 1, 1],
    )
    return _of_anyone(_likes, pleasures, 3)


def _this_one(phrase):
    return phrase.english, phrase.spanish, phrase.plural


def _doing(verb, rest):
    return join("to", verb.english, rest.english), join(verb.spanish, rest.spanish), False


def _likes(mood, who, pleasure):
    return clauses.likes(who, pleasure, mood)


def _of_anyone(clause, what, others=1):
    """Cells by mood and person; `clause` takes mood, subject and what is said."""
    cells = [
        (Product(partial(clause, mood), who, what), weight)
        for mood in MOODS
        for who, weight in persons(mood, "definite", others)
    ]
    return Union(*map(list, zip(*cells)))


def needs():
    """I am hungry. My father is very thirsty. Are you afraid?"""
    states = list(itertools.product(NEEDS, ("", "very")))
    return _of_anyone(_needs, states)


def _needs(mood, who, degree):
    (name, noun, gender), degree = degree
    if degree and name == "in a hurry":
        name = "in a big hurry"
    elif degree:
        name = f"very {name}"
    much = spanish.agree("mucho", gender, False) if degree else ""
    verb = clauses.conjugated(who, "tener", "present")
    return clauses.being(who, "present", (name, join(much, noun)), verb, mood)


def ages():
    """I am twenty-one years old. Maria is nine years old. Is he thirty years old?"""
    return _of_anyone(_age, range(2, 101))


def _age(mood, who, years):
    texts = f"{english.number(years)} years old", f"{spanish.number(years, 'm')} años"
    verb = clauses.conjugated(who, "tener", "present")
    return clauses.being(who, "present", texts, verb, mood)


# Before and after the hour in English, after the hour in Spanish.
_MINUTES = [
    ("", " o'clock", ""),
    ("five past ", "", " y cinco"),
    ("ten past ", "", " y diez"),
    ("a quarter past ", "", " y cuarto"),
    ("twenty past ", "", " y veinte"),
    ("half past ", "", " y media"),
    ("twenty to ", "", " menos veinte"),
    ("a quarter to ", "", " menos cuarto"),
    ("ten to ", "", " menos diez"),
    ("five to ", "", " menos cinco"),
]
_PARTS_OF_DAY = [
    (" in the morning", " de la mañana", range(1, 12)),
    (" in the afternoon", " de la tarde", range(1, 8)),
    (" at night", " de la noche", range(9, 12)),
]
_EVENTS = [
    (noun, verb)
    for noun in ("train", "bus", "plane", "boat")
    for verb in (("arrives", "llega"), ("leaves", "sale"))
]


def clock():
    """It is half past three. It is a quarter to one. The train leaves at ten o'clock."""
    times = [(hour, minutes, ("", "")) for hour in range(1, 13) for minutes in _MINUTES]
    times += [
        (hour, minutes, part[:2])
        for part in _PARTS_OF_DAY
        for hour in part[2]
        for minutes in _MINUTES
    ]
    by_hour = [[time for time in times if time[0] == hour] for hour in range(1, 13)]
    return Union(
        [
            Union([Product(_it_is, group) for group in by_hour]),
            Union([Product(_happens_at, _EVENTS, group) for group in by_hour]),
        ]
    )


def _hour(time):
    hour, (before, after, minutes), part = time
    name = spanish.number(hour, "f")
    text = f"{'la' if hour == 1 else 'las'} {name}{minutes}{part[1]}"
    return f"{before}{english.number(hour)}{after}{part[0]}", text


def _it_is(time):
    english_text, spanish_text = _hour(time)
    return statement(f"it is {english_text}", f"{'es' if time[0] == 1 else 'son'} {spanish_text}")


def _happens_at(event, time):
    name, verb = event
    what = noun_phrase(find_nouns(name)[0], "the")
    texts = _hour(time)
    return statement(
        f"{what.english} {verb[0]} at {texts[0]}", f"{what.spanish} {verb[1]} a {texts[1]}"
    )


def choices():
    """I need seven or eight books. Is the book long or interesting? Olga or Oscar can help me."""
    things = [
        noun
        for noun in find_nouns("animals snacks things clothes")
        if not spanish.begins_with_stressed_a(noun.spanish)
    ]
    numbers = [
        Product(_either_number, anyone("says"), [(n, n + 1)], things[::2]) for n in range(2, 13)
    ]
    pairs = list(itertools.permutations(names(), 2))
    foods = [noun_phrase(noun) for noun in find_nouns("foods drinks")]
    wishes = [(a, b) for kind in (foods[:7], foods[7:]) for a, b in itertools.permutations(kind, 2)]
    either = Product(_either_name, pairs, ("or", "and"), (0, 1))
    return Union([Union(numbers), either, Product(_either_food, anyone("asks"), wishes)])


def _either_number(who, pair, noun):
    low, high = (spanish.number(n, noun.gender) for n in pair)
    name = f"{english.number(pair[0])} or {english.number(pair[1])} {noun.english_plural}"
    rest = Rest(name, f"{low} {spanish.or_(high)} {noun.spanish_plural}")
    return clauses.says(who, _VERB["need"], "present", rest)


def _either_name(pair, word, asked):
    """Someone of the two is to help; with "and" both."""
    first, second = pair
    linked = spanish.or_(second.spanish) if word == "or" else spanish.and_(second.spanish)
    who = f"{first.english} {word} {second.english}"
    can = "puede" if word == "or" else "pueden"
    if asked:
        return question(f"can {who} help us", f"{first.spanish} {linked} {can} ayudarnos")
    return statement(f"{who} can help us", f"{first.spanish} {linked} {can} ayudarnos")


def _either_food(who, pair):
    first, second = pair
    rest = Rest(
        f"{first.english} or {second.english}", f"{first.spanish} {spanish.or_(second.spanish)}"
    )
    return clauses.asks(who, _VERB["want"], "present", rest)


def prices_and_colours():
    """How much do these shoes cost? What color is the car?"""
    goods = "clothes things vehicles snacks"
    coloured = "clothes vehicles furniture parts umbrella flower house box"
    shown = Union([noun_phrases(coloured, "definite"), belongings(coloured)], [5, 1])
    return Union([Product(_price, noun_phrases(goods, "definite")), Product(_colour, shown)])


def _price(thing):
    words = ("how much", "cuánto")
    return clauses.asks_for(words, thing, COST, "present", Rest("", ""))


def _colour(thing):
    return question(
        f"what color {english.be(thing, 'present')} {thing.english}",
        f"de qué color {clauses.link(thing, 'ser', 'present')} {thing.spanish}",
    )


def weather():
    """It is cold in Madrid. It is raining in the city."""
    places = noun_phrases("city park street garden beach town countries", "place", False)
    return Product(_weather, WEATHER, Union([[Phrase("", "")], places], [1, 4]), (0, 1))


def _weather(state, place, asked):
    where = (f"in {place.english}", f"en {place.spanish}") if place.english else ("", "")
    spanish_text = join(state[1], where[1])
    if asked:
        verb, what = state[0].split(" ", 1)
        return question(join(verb, "it", what, where[0]), spanish_text)
    return statement(join("it", state[0], where[0]), spanish_text)


def addressed():
    """Good morning, Maria! hello Maria; Thank you, sir. How are you, my friend?"""
    everybody = FAMILIAR + OTHERS
    return Union(
        [
            Product(_speaks_to, GREETINGS, everybody),
            Product(_speaks_to, GREETINGS[1:], [WORLD]),
            Product(_plainly, GREETINGS, everybody),
            Product(_plainly, GREETINGS[1:], [WORLD]),
            Product(_speaks_to, PHRASES, everybody),
            Product(_speaks_to, QUESTIONS, FAMILIAR),
        ],
        [10, 1, 10, 1, 10, 10],
    )


def _speaks_to(phrase, name):
    return tuple(text.format(f", {who}") for text, who in zip(phrase, name))


def _plainly(phrase, name):
    """Lower case without punctuation, as people type: "hello Maria", "hola María"."""
    english_text, spanish_text = (
        text.strip("¡!").format(f" {who}") for text, who in zip(phrase, name)
    )
    return english_text[0].lower() + english_text[1:], spanish_text[0].lower() + spanish_text[1:]


def fixed_phrases():
    """Greetings and phrases as they are, spoken to nobody; the first is "hello world"."""
    bare = [tuple(text.format("") for text in pair) for pair in GREETINGS + PHRASES + QUESTIONS]
    return [_plainly(GREETINGS[0], WORLD), _speaks_to(GREETINGS[0], WORLD), *bare]
