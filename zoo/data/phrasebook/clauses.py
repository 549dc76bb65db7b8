"""Clauses in both languages: verb, negation, question, and what follows the verb.

A function here takes its parts in English and Spanish together and gives one pair of sentences.
"""

from typing import NamedTuple

from zoo.data.phrasebook import english, spanish
from zoo.data.phrasebook.phrases import join
from zoo.data.phrasebook.spanish import contract


class Rest(NamedTuple):
    """What follows a verb.

    Fields:
        english, spanish: the text after the verb.
        clitic: a Spanish pronoun that goes before the verb, such as "le".
    """

    english: str
    spanish: str
    clitic: str = ""


def sentence(text, mark="."):
    """The text with a capital at its beginning and `mark` at its end."""
    return text[0].upper() + text[1:] + mark


def question(english_text, spanish_text):
    """A pair of questions: ? and ¿ ... ?"""
    return sentence(english_text, "?"), "¿" + sentence(spanish_text, "?")


def statement(english_text, spanish_text):
    """A pair of statements."""
    return sentence(english_text), sentence(spanish_text)


def conjugated(subject, verb, tense):
    """The Spanish verb in the person of the subject."""
    return spanish.conjugate(verb, tense)[subject.person]


def plain_parts(subject, verb, tense, rest):
    """The two texts of an affirmative clause, for a larger sentence."""
    return (
        join(subject.english, english.verb_form(verb, subject, tense), rest.english),
        join(subject.spanish, rest.clitic, conjugated(subject, verb.spanish, tense), rest.spanish),
    )


def says(subject, verb, tense, rest):
    """I ate bread."""
    return statement(*plain_parts(subject, verb, tense, rest))


def says_when(time, subject, verb, tense, rest):
    """Yesterday I ate bread."""
    texts = plain_parts(subject, verb, tense, rest)
    return statement(*(join(*both) for both in zip(time, texts)))


def denies(subject, verb, tense, rest):
    """I didn't eat bread."""
    helper = english.denied(english.auxiliary(subject, tense))
    return statement(
        join(subject.english, helper, verb.english, rest.english),
        join(
            subject.spanish,
            "no",
            rest.clitic,
            conjugated(subject, verb.spanish, tense),
            rest.spanish,
        ),
    )


def asks(subject, verb, tense, rest):
    """Did you eat bread?"""
    texts = plain_parts(subject, verb, tense, rest)
    helper = english.auxiliary(subject, tense)
    return question(join(helper, subject.english, verb.english, rest.english), texts[1])


def asks_for(word, subject, verb, tense, rest):
    """What did you eat? Where do you buy bread? The Spanish subject follows its verb.

    Args:
        word: the question word in both languages.
    """
    helper = english.auxiliary(subject, tense)
    return question(
        join(word[0], helper, subject.english, verb.english, rest.english),
        join(
            word[1],
            rest.clitic,
            conjugated(subject, verb.spanish, tense),
            subject.spanish,
            rest.spanish,
        ),
    )


def modal_texts(subject, modal, tense, verb, rest, denied=False):
    """The texts of "she can't eat bread": a modal of `words.MODALS` and an infinitive."""
    if not denied:
        helper = english.verb_form(modal, subject, tense)
    elif modal.english in ("can", "must"):
        helper = english.denied(modal.english)
    else:
        helper = f"{english.denied(english.auxiliary(subject, tense))} {modal.english}"
    return (
        join(subject.english, helper, verb.english, rest.english),
        join(
            subject.spanish,
            "no" if denied else "",
            conjugated(subject, modal.spanish, tense),
            modal.preposition,
            verb.spanish + rest.clitic,
            rest.spanish,
        ),
    )


def with_modal(subject, modal, tense, verb, rest, mood):
    """She can eat bread. She can't eat bread. Can she eat bread?"""
    if mood != "asks":
        return statement(*modal_texts(subject, modal, tense, verb, rest, mood == "denies"))
    spanish_text = modal_texts(subject, modal, tense, verb, rest)[1]
    if modal.english in ("can", "must"):
        texts = (modal.english, subject.english, verb.english, rest.english)
    else:
        helper = english.auxiliary(subject, tense)
        texts = (helper, subject.english, modal.english, verb.english, rest.english)
    return question(join(*texts), spanish_text)


def going_to(subject, verb, rest, mood):
    """She is going to eat bread. `mood` is "says", "denies" or "asks"."""
    spanish_verb = f"{conjugated(subject, 'ir', 'present')} a {verb.spanish}{rest.clitic}"
    return being(
        subject,
        "present",
        (join("going to", verb.english, rest.english), rest.spanish),
        spanish_verb,
        mood,
    )


def progressive(subject, verb, rest, mood):
    """She is eating bread."""
    spanish_verb = join(
        rest.clitic, conjugated(subject, "estar", "present"), spanish.gerund(verb.spanish)
    )
    ending = (join(english.gerund(verb.english), rest.english), rest.spanish)
    return being(subject, "present", ending, spanish_verb, mood)


def being(subject, tense, ending, spanish_verb, mood):
    """A clause of "to be" and an ending in both languages.

    Args:
        subject: a `Phrase`.
        tense: of "to be".
        ending: what follows in both languages, such as ("tired", "cansado").
        spanish_verb: conjugated.
        mood: "says", "denies" or "asks".
    """
    if mood == "says":
        return statement(*being_texts(subject, tense, ending, spanish_verb))
    helper, _, be = english.be(subject, tense).partition(" ")
    who = _overt(subject, tense)
    if mood == "asks":
        return question(
            join(helper, subject.english, be, ending[0]), join(who, spanish_verb, ending[1])
        )
    helper = "won't" if helper == "will" else f"{helper} not"
    return statement(
        join(subject.english, helper, be, ending[0]), join(who, "no", spanish_verb, ending[1])
    )


def being_texts(subject, tense, ending, spanish_verb):
    """The texts of an affirmative clause of "to be", for a larger sentence."""
    return (
        join(subject.english, english.be(subject, tense), ending[0]),
        join(_overt(subject, tense), spanish_verb, ending[1]),
    )


def _overt(subject, tense):
    # "Era" and "estaba" are those of *yo* and *él* alike: here the pronoun is needed.
    return "yo" if tense == "past" and subject.person == 0 else subject.spanish


def link(subject, copula, tense):
    """The form of *ser* or *estar*, in the imperfect for the past."""
    return conjugated(subject, copula, "imperfect" if tense == "past" else tense)


def is_like(subject, adjective, tense, degree, mood):
    """The house is (very) big. `degree` is "" or "very"."""
    form = spanish.agree(adjective.spanish, subject.gender, subject.plural)
    return being(
        subject,
        tense,
        (join(degree, adjective.english), join("muy" if degree else "", form)),
        link(subject, adjective.copula, tense),
        mood,
    )


def is_at(subject, place, tense, mood):
    """The book is on the table: place is where with *estar*."""
    return being(subject, tense, place, link(subject, "estar", tense), mood)


def compares(subject, other, adjective, degree):
    """Ana is taller than Juan. `degree` is "more", "less" or "as"."""
    form = spanish.agree(adjective.spanish, subject.gender, subject.plural)
    english_text, spanish_text = {
        "more": (f"{english.comparative(adjective.english)} than", f"más {form} que"),
        "less": (f"less {adjective.english} than", f"menos {form} que"),
        "as": (f"as {adjective.english} as", f"tan {form} como"),
    }[degree]
    return being(
        subject,
        "present",
        (f"{english_text} {other.english}", f"{spanish_text} {other.spanish}"),
        conjugated(subject, adjective.copula, "present"),
        "says",
    )


def likes(person, pleasure, mood):
    """My mother likes coffee: in Spanish, coffee pleases my mother.

    Args:
        person: the `Phrase` that likes; a pronoun or a singular or plural phrase.
        pleasure: (English, Spanish, whether the Spanish verb is plural).
        mood: "says", "denies" or "asks".
    """
    clitic = ("me", "te", "le", "nos", "les")[person.person]
    emphasis = contract("a", person.spanish) if person.spanish else ""
    text = join(
        emphasis,
        "no" if mood == "denies" else "",
        clitic,
        "gustan" if pleasure[2] else "gusta",
        pleasure[1],
    )
    helper = english.auxiliary(person, "present")
    if mood == "asks":
        return question(join(helper, person.english, "like", pleasure[0]), text)
    verb = (
        english.denied(helper) + " like"
        if mood == "denies"
        else "likes"
        if person.third
        else "like"
    )
    return statement(join(person.english, verb, pleasure[0]), text)


def complement(verb, phrase):
    """What follows `verb`, with the Spanish preposition or the personal *a*."""
    text = phrase.spanish
    if verb.preposition:
        text = contract(verb.preposition, text)
    elif phrase.human and verb.spanish != "tener":
        text = contract("a", text)
    return Rest(phrase.english, text)


def gift(thing, receiver):
    """What follows a verb of giving: the book to my mother."""
    return Rest(
        f"{thing.english} to {receiver.english}",
        f"{thing.spanish} {contract('a', receiver.spanish)}",
        "les" if receiver.plural else "le",
    )
