"""English word forms: plurals, verb forms, articles and number words."""

import re

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
_TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()
_COMPARATIVES = {
    "big": "bigger",
    "old": "older",
    "new": "newer",
    "ugly": "uglier",
    "cheap": "cheaper",
    "small": "smaller",
    "tall": "taller",
    "young": "younger",
    "strong": "stronger",
    "rich": "richer",
    "easy": "easier",
    "long": "longer",
}


def plural(word):
    """The regular plural: dog, dogs; box, boxes; city, cities."""
    if re.search("(s|x|ch|sh)$", word):
        return word + "es"
    if re.search("[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + "s"


def third_person(verb):
    """What he or she does; the first word bends: look for, looks for."""
    first, *rest = verb.split(" ")
    if first == "have":
        first = "has"
    elif first in ("go", "do"):
        first += "es"
    else:
        first = plural(first)
    return " ".join([first, *rest])


def gerund(verb):
    """The form in -ing: write, writing; look for, looking for."""
    first, *rest = verb.split(" ")
    first = re.sub("([^e])e$", r"\1", first) + "ing"
    return " ".join([first, *rest])


def article(word):
    """ "a" or "an", by the sound that the next word begins with."""
    return "an" if word[0] in "aeiouAEIOU" else "a"


def comparative(adjective):
    """big, bigger; expensive, more expensive."""
    return _COMPARATIVES.get(adjective) or f"more {adjective}"


def number(n):
    """The number words of 0 to 999, such as "two hundred and thirty-one"."""
    if n < 20:
        return _ONES[n]
    if n < 100:
        return _TENS[n // 10] + (f"-{_ONES[n % 10]}" if n % 10 else "")
    rest = f" and {number(n % 100)}" if n % 100 else ""
    return f"{_ONES[n // 100]} hundred{rest}"


def be(subject, tense):
    """The form of "to be" for a subject: "I" or one with fields `person` and `plural`."""
    if tense == "future":
        return "will be"
    several = subject.plural or subject.english == "you"
    if tense == "past":
        return "were" if several else "was"
    return "am" if subject.english == "I" else "are" if several else "is"


def auxiliary(subject, tense):
    """What questions and negations are made with: do, does, did or will."""
    if tense == "present":
        return "does" if subject.third else "do"
    return {"past": "did", "future": "will"}[tense]


def denied(helper):
    """The helping verb with "not": don't, doesn't, didn't, won't, can't, must not, is not."""
    short = {"do": "don't", "does": "doesn't", "did": "didn't", "will": "won't", "can": "can't"}
    return short.get(helper) or f"{helper} not"


def verb_form(verb, subject, tense):
    """The affirmative verb: eats, ate, will eat."""
    if tense == "past":
        return verb.past
    if tense == "future":
        return f"will {verb.english}"
    if verb.english in ("can", "must"):
        return verb.english
    return third_person(verb.english) if subject.third else verb.english
