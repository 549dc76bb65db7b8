"""Made-up words, the same in both languages: "Zorblat" is a name, "blorp" a noun."""

import re

from zoo.data.phrasebook.words import NOUNS, PHRASES, VERBS, WORDS, Noun

_PARTS = [WORDS["invented"][part].split() for part in ("onsets", "vowels", "codas")]
_PARTS[2] += 34 * ["-"]
_LETTERS, _ACCENTS = "abcdefghijklmnopqrstuvwxyz", "áéíóúñüöäçøåšžł"
_KNOWN = {*re.findall(r"\w+", f"{WORDS} {NOUNS} {VERBS} {PHRASES}".lower())}


def invented_word(generator):
    """A word in lower case that is in no table."""
    while True:
        parts = _PARTS * generator.choice((1, 2, 2, 2, 3, 3))
        word = "".join(generator.choice(part) for part in parts).replace("-", "")
        if generator.random() < 0.1:  # any letter beside any other
            place = generator.randrange(len(word))
            letters = _ACCENTS if generator.random() < 0.2 else _LETTERS
            word = word[:place] + generator.choice(letters) + word[place + 1 :]
        if 3 <= len(word) <= 11 and word not in _KNOWN:
            return word


def invented_name(generator, kind):
    """A name, at times with a family name; what ends in -a is feminine."""
    first, second = (invented_word(generator).capitalize() for _ in range(2))
    name = f"{first} {second}" if kind == "name" and generator.random() < 0.1 else first
    return Noun(kind, (name, name), (name, name), "f" if first.endswith("a") else "m")


def invented_noun(generator):
    """A noun; what ends in -a is feminine, -s makes the plural."""
    while (word := invented_word(generator)).endswith("s"):
        pass
    forms = (word, word + "s")
    return Noun("unknown", forms, forms, "f" if word.endswith("a") else "m")
