"""Constructions of verbs: what people do, did, will do, want to do and are doing.

Each function gives a `Union` of sets of (English, Spanish); its docstring shows some of them.
"""

import itertools
from functools import cache, partial

from zoo.data.phrasebook import clauses, spanish
from zoo.data.phrasebook.clauses import NOTHING, Rest, complement
from zoo.data.phrasebook.phrases import (
    PRONOUNS,
    common_phrases,
    described,
    join,
    noun_phrase,
    people,
)
from zoo.data.phrasebook.spaces import Product, Union
from zoo.data.phrasebook.words import MODALS, NOUNS, TIMES, VERBS, find_nouns

SPEAKER, YOU, HE, SHE, WE, THEY = PRONOUNS
MOODS = ("says", "denies", "asks")
# Nobody is asked what he himself does.
SPOKEN = [(who, mood) for who in PRONOUNS for mood in MOODS if (who, mood) != (SPEAKER, "asks")]

# Verbs that have no progressive of plain meaning: arriving, leaving.
_MOMENTS = ("go to", "come to", "return to", "arrive at", "leave", "lose", "find", "break")
# English and Spanish of a person as an object, and whose object it may be.
_OBJECT_PRONOUNS = [
    ("me", "me", (YOU, HE, SHE, THEY)),
    ("you", "te", (SPEAKER, HE, SHE, WE, THEY)),
    ("him", "lo", (SPEAKER, YOU, SHE, WE, THEY)),
    ("her", "la", (SPEAKER, YOU, HE, WE, THEY)),
    ("us", "nos", (YOU, HE, SHE, THEY)),
    ("them", "los", (SPEAKER, YOU, HE, SHE, WE)),
]
_TO_BE = [  # why somebody does something
    ("tired", "estar", "cansado"),
    ("sick", "estar", "enfermo"),
    ("busy", "estar", "ocupado"),
    ("hungry", "tener", "hambre"),
    ("thirsty", "tener", "sed"),
    ("in a hurry", "tener", "prisa"),
]


@cache
def rests(verb):
    """Everything that may follow a verb."""
    nouns = find_nouns(verb.objects)
    if verb.receiver:
        objects = [noun_phrase(noun, word) for noun in nouns for word in ("a", "the")]
        return [complement(verb, thing, who) for thing in objects for who in _receivers()]
    found = [complement(verb, phrase) for phrase in common_phrases(nouns)]
    if verb.english in ("speak", "study"):
        languages = common_phrases(NOUNS["languages"])
        found += [
            Rest(f"{a.english} and {b.english}", f"{a.spanish} {spanish.and_(b.spanish)}")
            for a, b in itertools.permutations(languages, 2)
        ]
    if verb.english == "play":
        company = common_phrases(NOUNS["relatives"])[::4]
        found += [
            Rest(f"{rest.english} with {who.english}", f"{rest.spanish} con {who.spanish}")
            for rest in found
            for who in company
        ]
    return found


def _receivers():
    family = [noun_phrase(noun, "my") for noun in NOUNS["relatives"][:5]]
    pupils = [noun_phrase(noun, "the", True) for noun in find_nouns("boy girl teacher student")]
    trades = [noun_phrase(noun, "the") for noun in find_nouns("doctor teacher")]
    return [*family, *pupils, *trades, *(noun_phrase(noun) for noun in find_nouns("Ana Juan"))]


def _times(verb, tense):
    if tense != "present":
        return TIMES[tense]
    return TIMES["habit"] if verb.habit else []


def spread(items, count):
    """Up to `count` of the items, evenly spaced."""
    return items[:: -(-len(items) // count)]


def _single(verb):
    """What may follow a verb that is denied; of two things, Spanish would deny by *ni*."""
    return [rest for rest in rests(verb) if " and " not in rest.english]


def _deeds(count=7, verbs=VERBS):
    """For each verb that says what one means to do, up to `count` of (verb, what follows)."""
    return [
        [(verb, rest) for rest in spread(_single(verb), 2 * count if verb.receiver else count)]
        for verb in verbs
        if "past" in verb.tenses and verb.english not in ("understand", "lose", "break")
    ]


def _flat(lists):
    return list(itertools.chain.from_iterable(lists))


def verbs():
    """I ate bread. Yesterday she ate bread. He doesn't eat bread. Will you eat bread?"""
    cells, weights = [], []
    for verb in VERBS:
        for tense, who in itertools.product(verb.tenses, PRONOUNS):
            after, times = rests(verb), _times(verb, tense)
            says, when, denies, asks = (
                partial(build, who, verb, tense)
                for build in (clauses.says, clauses.says_when, clauses.denies, clauses.asks)
            )
            dated = spread(after, 80)
            moods = [
                Union([Product(says, after, [NOTHING]), Product(says, dated, times)]),
                Union([Product(denies, _single(verb)), Product(when, dated, times)]),
            ]
            if who is not SPEAKER:
                moods.append(Product(asks, after))
            cells.append(Union(moods))
            # Without its pronoun a verb comes first, after ¿ and within: three kinds of token.
            if who.spanish or verb.receiver:
                weights.append(3 if who.spanish else 4)
            else:
                weights.append(4 * len(moods))
    return Union(cells, weights)


def with_noun_subjects():
    """My mother ate bread. Maria and Pedro eat bread."""
    single, pairs = people()
    family = [noun_phrase(noun, "my", True) for noun in NOUNS["relatives"][2:]]  # not two mothers
    several = [who for who in single if who.plural] + family + pairs[::13]
    alone = [who for who in single if not who.plural][::4]
    return Union(
        Product(partial(_noun_says, verb, tense), group, rests(verb)[::7])
        for verb in VERBS
        for tense in verb.tenses
        for group in (alone, several)
    )


def _noun_says(verb, tense, who, rest):
    return clauses.says(who, verb, tense, rest, NOTHING)


def with_described_objects():
    """She bought a red dress. We need the new cars."""
    chosen = "buy sell need want have wear".split()
    cells = []
    for verb in (verb for verb in VERBS if verb.english in chosen):
        suited = set(find_nouns(verb.objects))
        for adjective, nouns in described().items():
            objects = _described_objects(adjective, [noun for noun in nouns if noun in suited])
            if objects:
                after = [complement(verb, phrase) for phrase in objects]
                build = partial(_describes, verb)
                cells.append(Product(build, PRONOUNS, verb.tenses, after))
    return Union(cells)


def _describes(verb, who, tense, rest):
    return clauses.says(who, verb, tense, rest, NOTHING)


def _described_objects(adjective, nouns):
    frames = [("the", False), ("the", True)]
    if adjective.english not in ("first", "last"):  # of these there is one
        frames += [("a", False), ("some", True)]
    return [
        noun_phrase(noun, word, several, adjective)
        for noun in nouns
        for word, several in frames
        if noun.style == "count" or (word, several) == ("the", False)
    ]


def object_pronouns():
    """She sees me. We didn't help them. Will you call him?"""
    cells = []
    for verb in (verb for verb in VERBS if "people" in verb.objects):
        for name, clitic, subjects in _OBJECT_PRONOUNS:
            rest = [Rest(name, "", clitic)]
            for tense, build in itertools.product(
                verb.tenses, (_now, clauses.denies, clauses.asks)
            ):
                who = [s for s in subjects if s is not SPEAKER or build is not clauses.asks]
                cells.append(Product(build, who, [verb], [tense], rest))
    return Union(cells)


def _now(who, verb, tense, rest):
    return clauses.says(who, verb, tense, rest, NOTHING)


def modals():
    """She can't sleep in the house. Do you want to eat bread? I started to work in Madrid."""
    deeds = _flat(_deeds())
    builds = {
        "says": clauses.modal_says,
        "denies": clauses.modal_denies,
        "asks": clauses.modal_asks,
    }
    cells, weights = [], []
    for modal in MODALS:
        for tense, (who, mood) in itertools.product(modal.tenses, SPOKEN):
            build = partial(_modal, builds[mood], who, modal, tense)
            cells.append(Product(build, deeds))
            weights.append(1 if who.spanish else 2)
    return Union(cells, weights)


def _modal(build, who, modal, tense, deed):
    return build(who, modal, tense, *deed)


def plans():
    """We are going to visit Madrid. Is he going to call the doctor?"""
    return Union(Product(partial(_plan, who, mood), _flat(_deeds(12))) for who, mood in SPOKEN)


def _plan(who, mood, deed):
    return clauses.going_to(who, *deed, mood)


def happenings():
    """I am looking for my keys. She is not sleeping."""
    lasting = [verb for verb in VERBS if verb.english not in _MOMENTS]
    return Union(Product(_happens, SPOKEN, deeds) for deeds in _deeds(20, lasting))


def _happens(spoken, deed):
    who, mood = spoken
    return clauses.progressive(who, *deed, mood)


def commands():
    """Open the door, please. Come to the park."""
    chosen = (
        "buy,open,close,wash,make,help,visit,call,wait for,study,write,"
        "ask for,play,go to,come to,return to,look for"
    ).split(",")
    cells = []
    for verb in VERBS:
        if verb.english in chosen:
            cells.append(Product(partial(_command, verb), rests(verb), ("", "please")))
    return Union(cells)


def _command(verb, rest, polite):
    tail = (", please", ", por favor") if polite else NOTHING
    return clauses.statement(
        join(verb.english, rest.english) + tail[0],
        join(spanish.imperative(verb.spanish), rest.spanish) + tail[1],
    )


def question_words():
    """What did you eat? Where does she work? Why do they study English? Who broke the cup?"""
    asked = [who for who in PRONOUNS if who is not SPEAKER] + _names()[::2]
    named = {verb.english: verb for verb in VERBS}
    cells = []
    for word in (
        "eat",
        "drink",
        "buy",
        "sell",
        "need",
        "want",
        "write",
        "look for",
        "find",
        "wear",
    ):
        verb = named[word]
        build = partial(_asks_for, ("what", "qué"), verb, Rest("", ""))
        cells.append(Product(build, asked, _dated(verb)))
    wheres = {"buy": None, "eat": None, "study": None, "play": None, "sleep in": "dormir"}
    for word, only in wheres.items():
        verb = named[word]
        if only:
            verb, after = verb._replace(english="sleep", past="slept"), [Rest("", "")]
        else:
            after = rests(verb)[:12]
        for rest in after:
            for words in (("where", "dónde"), ("when", "cuándo")):
                cells.append(Product(partial(_asks_for, words, verb, rest), asked, _dated(verb)))
    for deeds in _deeds(4):
        for verb, rest in deeds:
            why = partial(_asks_for, ("why", "por qué"), verb, rest)
            cells.append(Product(why, asked, _dated(verb)))
            cells.append(Product(partial(_asks_who, verb, rest), verb.tenses))
    return Union(cells)


def _names():
    return [noun_phrase(noun) for noun in NOUNS["names"]]


def _dated(verb):
    return [(tense, NOTHING) for tense in verb.tenses]


def _asks_for(words, verb, rest, who, dated):
    return clauses.asks_for(words, who, verb, dated[0], rest)


def _asks_who(verb, rest, tense):
    english_text, spanish_text = clauses.plain_parts(
        HE._replace(english="who", spanish="quién"), verb, tense, rest
    )
    return clauses.question(english_text, spanish_text)


def joined():
    """I can't work because I am sick. She drank coffee and I ate bread."""
    named = {verb.english: verb for verb in VERBS}
    because = [
        Product(partial(_because, modal, denied), PRONOUNS, _flat(_deeds(3)), _TO_BE)
        for modal, denied in ((MODALS[1], True), (MODALS[0], False), (MODALS[0], True))
    ]
    deeds = [
        (verb, rest)
        for verb in map(
            named.get, ("eat", "drink", "buy", "write", "open", "wash", "study", "call")
        )
        for rest in rests(verb)[1:20:8]
    ]
    different = [(a, b) for a in deeds for b in deeds if a[0] is not b[0]]
    others = [(a, b) for a in PRONOUNS for b in PRONOUNS if a is not b]
    both = [
        Product(partial(_both, words, tense), others, different)
        for words in ("and", "but")
        for tense in ("present", "past")
    ]
    return Union([Union(because), Union(both)])


def _because(modal, denied, who, deed, cause):
    first = clauses.modal_texts(who, modal, "present", *deed, denied=denied)
    name, verb, state = cause
    if verb == "estar":
        state = spanish.agree(state, who.gender, who.plural)
    english_text, spanish_text = clauses.being_texts(
        who._replace(spanish=""),  # named already
        "present",
        (name, state),
        clauses.conjugated(who, verb, "present"),
    )
    return clauses.statement(
        f"{first[0]} because {english_text}", f"{first[1]} porque {spanish_text}"
    )


def _both(word, tense, subjects, deeds):
    first, second = deeds
    a = clauses.plain_parts(subjects[0], first[0], tense, first[1])
    b = clauses.plain_parts(subjects[1], second[0], tense, second[1])
    if word == "but":
        return clauses.statement(f"{a[0]}, but {b[0]}", f"{a[1]}, pero {b[1]}")
    return clauses.statement(f"{a[0]} and {b[0]}", f"{a[1]} {spanish.and_(b[1])}")
