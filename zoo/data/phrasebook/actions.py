"""Constructions of verbs: what people do, did, will do, want to do and are doing.

What follows a verb is one set for all moods and tenses, `deeds`: an object, then perhaps with whom,
where and when. Each construction gives a `Union` of sets of (English, Spanish); its docstring shows
some of them.
"""

import itertools
from functools import cache, partial

from zoo.data.phrasebook import clauses, spanish
from zoo.data.phrasebook.clauses import Rest, complement
from zoo.data.phrasebook.phrases import PRONOUNS, Phrase, find, join, noun_phrases, people
from zoo.data.phrasebook.spaces import Product, Union
from zoo.data.phrasebook.words import ANIMAL_VERBS, MODALS, SURROUNDINGS, TIMES, VERBS

SPEAKER, YOU, HE, SHE, WE, THEY = PRONOUNS
MOODS = ("says", "denies", "asks")

# Verbs that have no progressive of plain meaning: arriving, seeing.
_MOMENTS = "go to,come to,return to,arrive at,leave,lose,find,break,see,live in".split(",")
# English and Spanish of a person as an object, and whose object it may be.
_OBJECT_PRONOUNS = [
    ("me", "me", (YOU, HE, SHE, THEY)),
    ("you", "te", (SPEAKER, HE, SHE, WE, THEY)),
    ("him", "lo", (SPEAKER, YOU, SHE, WE, THEY)),
    ("her", "la", (SPEAKER, YOU, HE, WE, THEY)),
    ("us", "nos", (YOU, HE, SHE, THEY)),
    ("them", "los", (SPEAKER, YOU, HE, SHE, WE)),
]
# The same persons after "to" and "with": clitic, and text after the preposition.
_TO_PRONOUNS = {"me": ("me", ""), "you": ("te", ""), "us": ("nos", "")} | {
    "him": ("le", "a él"),
    "her": ("le", "a ella"),
    "them": ("les", "a ellos"),
}
_WITH_PRONOUNS = [Phrase("him", "él"), Phrase("her", "ella"), Phrase("them", "ellos")]
_WITH_US = [("with me", "conmigo"), ("with us", "con nosotros")]
_TO_BE = [  # why somebody does something
    ("tired", "estar", "cansado"),
    ("sick", "estar", "enfermo"),
    ("busy", "estar", "ocupado"),
    ("hungry", "tener", "hambre"),
    ("thirsty", "tener", "sed"),
    ("in a hurry", "tener", "prisa"),
]


@cache
def persons(mood, role="subject", others=1):
    """Subjects by person: (set, weight); a noun is the subject as often as a pronoun.

    The pronouns that Spanish drops leave the verb first, after ¿ and within: each is needed often
    enough. Nobody is asked what he himself does.

    Args:
        mood: one of `MOODS`.
        role: of a noun phrase that is no question's subject.
        others: weight of the third persons.
    """
    role = "definite" if mood == "asks" else role
    singular = Union([[HE, SHE], people(False, role)], [1, 4])
    plural = Union([[THEY], people(True, role)], [1, 4])
    spoken = [[YOU], [WE]] if mood == "asks" else [[SPEAKER], [YOU], [WE]]
    third = {"says": (2.0, 1.2), "denies": (0.8, 0.6), "asks": (0.8, 0.6)}[mood]
    return [*((w, 1) for w in spoken), (singular, others * third[0]), (plural, others * third[1])]


@cache
def anyone(mood):
    """All subjects of `persons` as one set."""
    spaces, weights = zip(*persons(mood))
    return Union(spaces, [w / 3 for w in weights[:-2]] + list(weights[-2:]))


@cache
def complements(verb):
    """The object of a verb, or a place with its preposition; "-" among `objects` is nothing."""
    kinds = verb.objects.split()
    nothing = [Rest("", "")] if "-" in kinds else []
    nouns = find(" ".join(kind for kind in kinds if kind != "-"))
    if not nouns:
        return nothing
    role = "place" if verb.preposition and verb.english != "play" else "object"
    objects = noun_phrases(nouns, role)
    if verb.receiver:
        return Product(clauses.gift, objects, people())
    parts = [nothing, Product(partial(complement, verb), objects)]
    if verb.english == "speak":
        pairs = itertools.permutations(find("languages"), 2)
        parts.append([Rest(*_two(a, b)) for a, b in pairs])
    return Union(parts, [1, 6, 2][: len(parts)])


def _two(first, second):
    names = f"{first.english} and {second.english}"
    return names, f"{first.spanish} {spanish.and_(second.spanish)}"


def _surroundings(verb):
    """Whether one does it with somebody, and the nouns of the places."""
    for verbs, together, places in SURROUNDINGS:
        if verb.english in verbs.split(","):
            return together, places
    return False, ""


def _with(who):
    return f"with {who.english}", f"con {who.spanish}"


def _inside(place):
    return f"in {place.english}", f"en {place.spanish}"


def _joined(*texts):
    return tuple(join(*side) for side in zip(*texts))


@cache
def deeds(verb, when="", without=""):
    """What may follow a verb: the cake, the cake with Ana, the cake in the park tomorrow.

    Args:
        when: key of `TIMES`, or "".
        without: "object", "place" or "" for what a question asks for.
    """
    objects = [Rest("", "")] if without == "object" else complements(verb)
    together, places = _surroundings(verb)
    nowhere = not places or without == "place"
    company = Product(_with, Union([_WITH_PRONOUNS, people()], [1, 5])) if together else []
    short_company = Product(_with, noun_phrases("names relatives", "definite", plain=None))
    short_company = short_company if together else []
    place = [] if nowhere else Product(_inside, noun_phrases(places, "place"))
    short_place = [] if nowhere else Product(_inside, noun_phrases(places, "place", plain=None))
    times = TIMES[when] if when else []
    alone = objects == [Rest("", "")]
    extras = Union(
        [
            [("", "")],
            company,
            place,
            times,
            Product(_joined, short_company, short_place),
            Product(_joined, short_company, times),
            Product(_joined, short_place, times),
        ],
        [4 if alone else 12, 3, 5 if alone else 3, 2, 0.7, 0.7, 0.7],
    )
    return Product(_extend, objects, extras)


def _extend(rest, extra):
    return Rest(join(rest.english, extra[0]), join(rest.spanish, extra[1]), rest.clitic)


def _when(verb, tense):
    return tense if tense != "present" else "habit" if verb.habit else ""


def _clauses(clause, after, others=1):
    """The cells of a clause: by mood and person. `clause` takes mood, subject, what follows."""
    found = [
        (Product(partial(clause, mood), who, after), weight)
        for mood in MOODS
        for who, weight in persons(mood, others=others)
    ]
    return Union(*map(list, zip(*found)))


def _simple(verb, tense, mood, who, rest):
    build = {"says": clauses.says, "denies": clauses.denies, "asks": clauses.asks}[mood]
    return build(who, verb, tense, rest)


def _modal(modal, tense, mood, who, deed):
    return clauses.with_modal(who, modal, tense, *deed, mood)


def _plan(mood, who, deed):
    return clauses.going_to(who, *deed, mood)


def _happens(verb, mood, who, rest):
    return clauses.progressive(who, verb, rest, mood)


def _meant():
    """Verbs of what one means to do."""
    never = "understand lose break need want have know love".split()
    return [verb for verb in VERBS if verb.english not in never]


def verbs():
    """I ate bread. My sister doesn't drink cold water. Will you eat with us in the park?"""
    return Union(
        _clauses(partial(_simple, verb, tense), deeds(verb, _when(verb, tense)), 0.75)
        for verb in VERBS
        for tense in verb.tenses
    )


def dated():
    """Yesterday I ate bread. Tomorrow my brothers will visit the museum."""
    return Union(
        Product(partial(clauses.says_when, time), anyone("says"), [verb], [tense], deeds(verb, ""))
        for verb in VERBS
        for tense in verb.tenses
        if _when(verb, tense)
        for time in TIMES[_when(verb, tense)]
    )


def modals():
    """She can't sleep in the house. Does your brother want to eat fish with Ana?"""
    return Union(
        _clauses(partial(_modal, modal, tense), _intentions(when))
        for modal in MODALS
        for tense in modal.tenses
        for when in ["" if modal.english == "start to" else "future"]
    )


@cache
def _intentions(when):
    """(verb, what follows it)"""
    return Union(Product(partial(_deed, verb), deeds(verb, when)) for verb in _meant())


def _deed(verb, rest):
    return verb, rest


def plans():
    """We are going to visit Madrid. Is my sister going to call the doctor tomorrow?"""
    return _clauses(_plan, _intentions("future"), 2)


def happenings():
    """I am looking for my keys. My small dog is not sleeping in the kitchen."""
    lasting = [verb for verb in VERBS if "past" in verb.tenses and verb.english not in _MOMENTS]
    return Union(_clauses(partial(_happens, verb), deeds(verb, "now"), 2) for verb in lasting)


def animals():
    """My dog ate the meat. The black cat wants to sleep. Are the horses drinking water?"""
    cells = []
    for verb in ANIMAL_VERBS:
        meant = Product(partial(_deed, verb), deeds(verb, "future"))
        ways = [(partial(_simple, verb, t), deeds(verb, _when(verb, t))) for t in verb.tenses]
        ways += [(partial(_modal, modal, "present"), meant) for modal in MODALS[:2]]
        ways.append((_plan, meant))
        if verb.english not in _MOMENTS:
            ways.append((partial(_happens, verb), deeds(verb, "now")))
        for mood in MOODS:
            who = noun_phrases("animals", "definite" if mood == "asks" else "subject")
            cells += [Product(partial(clause, mood), who, after) for clause, after in ways]
    return Union(cells)


def object_pronouns():
    """She sees me. We didn't help them. Will you call him? He gave the book to me."""
    cells = []
    for verb in (verb for verb in VERBS if "people" in verb.objects or verb.receiver):
        for name, clitic, subjects in _OBJECT_PRONOUNS:
            after = [Rest(name, "", clitic)]
            if verb.receiver:
                after = Product(partial(_gives, name), noun_phrases(verb.objects, "object"))
            for tense, mood in itertools.product(verb.tenses, MOODS):
                who = [s for s in subjects if s is not SPEAKER or mood != "asks"]
                who = Union([who, people(None, "definite")], [3, 1])
                cells.append(Product(partial(_simple, verb, tense, mood), who, after))
    return Union(cells)


def _gives(name, thing):
    clitic, text = _TO_PRONOUNS[name]
    return Rest(f"{thing.english} to {name}", join(thing.spanish, text), clitic)


def commands():
    """Open the door, please. Come to the park with me."""
    chosen = (
        "buy,open,close,wash,make,help,visit,call,wait for,study,write,eat,drink,"
        "ask for,play,go to,come to,return to,look for"
    ).split(",")
    cells = []
    for verb in (verb for verb in VERBS if verb.english in chosen):
        after = deeds(verb)
        if _surroundings(verb)[0]:
            after = Union([after, Product(_extend, complements(verb), _WITH_US)], [4, 1])
        cells.append(Product(partial(_command, verb), after, ("", "please")))
    return Union(cells)


def _command(verb, rest, polite):
    tail = (", please", ", por favor") if polite else ("", "")
    return clauses.statement(
        join(verb.english, rest.english) + tail[0],
        join(spanish.imperative(verb.spanish), rest.spanish) + tail[1],
    )


def question_words():
    """What did your sister eat? Where does she work? Who is sleeping in my bed?"""
    whats = "eat,drink,buy,sell,need,want,write,look for,find,wear".split(",")
    cells, weights = [], []
    for verb in VERBS:
        # Word in both languages, what it asks for, weight.
        asked = [(("why", "por qué"), "", 1)] if verb in _meant() else []
        if verb in _meant() and verb.english != "live in":
            asked.append((("when", "cuándo"), "", 0.7))
        if _surroundings(verb)[1]:
            asked.append((("where", "dónde"), "place", 2))
        if verb.english in whats:
            asked.append((("what", "qué"), "object", 4))
        elif "people" in verb.objects:
            asked.append((("who", "a quién"), "object", 2))
        for words, without, weight in asked:
            for tense in verb.tenses:
                after = deeds(verb, "", without)
                cells.append(Product(partial(_asks_for, words, verb, tense), anyone("asks"), after))
                weights.append(weight)
        who = HE._replace(english="who", spanish="quién")
        for tense in verb.tenses:
            after = deeds(verb, _when(verb, tense))
            cells.append(Product(partial(_asks_who, who, verb, tense), after))
            weights.append(0.7)
        if verb in _meant() and verb.english not in _MOMENTS:
            cells.append(Product(partial(_who_is_doing, who, verb), deeds(verb, "now")))
            weights.append(0.7)
    doing = Product(_is_doing, Union([[HE, SHE, WE, THEY], people(None, "definite")]))
    return Union([Union(cells, weights), doing], [20, 1])


def _asks_for(words, verb, tense, who, rest):
    return clauses.asks_for(words, who, verb, tense, rest)


def _asks_who(who, verb, tense, rest):
    return clauses.question(*clauses.plain_parts(who, verb, tense, rest))


def _who_is_doing(who, verb, rest):
    texts = clauses.progressive(who, verb, rest, "says")
    return clauses.question(*(text.rstrip(".").replace("Q", "q") for text in texts))


def _is_doing(who):
    helper = clauses.english.be(who, "present")
    estar = clauses.conjugated(who, "estar", "present")
    return clauses.question(
        f"what {helper} {who.english} doing", join("qué", estar, "haciendo", who.spanish)
    )


def joined():
    """My brother can't work because he is sick. She drank coffee and I ate bread."""
    because = [
        Product(partial(_because, modal, denied, verb), anyone("says"), complements(verb), _TO_BE)
        for modal, denied in ((MODALS[1], True), (MODALS[0], False), (MODALS[0], True))
        for verb in _meant()
        if not verb.receiver
    ]
    named = {verb.english: verb for verb in VERBS}
    chosen = [named[name] for name in "eat drink buy write open wash study call".split()]
    both = [
        Product(partial(_both, word, tense, *verbs), who, complements(verbs[0]), other, after)
        for word in ("and", "but")
        for tense in ("present", "past")
        for verbs in itertools.permutations(chosen, 2)
        for after in [complements(verbs[1])]
        for who, other in (
            (PRONOUNS, people(False, "definite")),
            (people(False, "definite"), PRONOUNS),
            ([SPEAKER, YOU, HE], [SHE, WE, THEY]),
        )
    ]
    return Union([Union(because), Union(both)])


def _because(modal, denied, verb, who, rest, cause):
    first = clauses.modal_texts(who, modal, "present", verb, rest, denied=denied)
    name, copula, state = cause
    if copula == "estar":
        state = spanish.agree(state, who.gender, who.plural)
    again = who._replace(spanish="")  # named already
    if who.person == 4:
        again = again._replace(english="they")
    elif who.person == 2:
        again = again._replace(english="she" if who.gender == "f" else "he")
    english_text, spanish_text = clauses.being_texts(
        again, "present", (name, state), clauses.conjugated(who, copula, "present")
    )
    return clauses.statement(
        f"{first[0]} because {english_text}", f"{first[1]} porque {spanish_text}"
    )


def _both(word, tense, verb, other_verb, who, rest, other, other_rest):
    a = clauses.plain_parts(who, verb, tense, rest)
    b = clauses.plain_parts(other, other_verb, tense, other_rest)
    if word == "but":
        return clauses.statement(f"{a[0]}, but {b[0]}", f"{a[1]}, pero {b[1]}")
    return clauses.statement(f"{a[0]} and {b[0]}", f"{a[1]} {spanish.and_(b[1])}")
