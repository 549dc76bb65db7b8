"""Made-up words, which are the same in both languages: "Zorblat" is a name, "blorp" is a noun."""

import re

from zoo.data.phrasebook.words import ROWS, Noun

_ONSETS = (
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k kl kr l m n p ph pl pr qu r rh s sc sh sk sl sm "
    "sn sp st str sw t th tr tw v w wh x y z - - - -"
).split()
_VOWELS = "a a a e e e i i o o o u u y ai ea ee ei ia ie io oa oo ou ue".split()
_CODAS = (
    "b ck d ff g k l ll m n n nd ng nn nt p r r rd rk rn rt s ss st t tt v w x z ch sh th lt mp "
    "- - - - - - - - - - - - - - -"
).split()
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ACCENTS = "áéíóúñüöäçëøåèšžłß"
_KNOWN = {
    word for rows in ROWS.values() for row in rows for word in re.findall(r"\w+", " ".join(row).lower())
}


def invented_word(generator):
    """A word in lower case that is in no table."""
    while True:
        syllables = generator.choice((1, 2, 2, 2, 3, 3, 4))
        parts = (_ONSETS, _VOWELS, _CODAS) * syllables
        word = "".join(generator.choice(part) for part in parts).replace("-", "")
        if generator.random() < 0.3:  # any letter beside any other
            place = generator.randrange(len(word))
            letters = _ACCENTS if generator.random() < 0.2 else _LETTERS
            word = word[:place] + generator.choice(letters) + word[place + 1 :]
        if 3 <= len(word) <= 12 and word not in _KNOWN:
            return word


def invented_name(generator, kind):
    """A name; what ends in -a is feminine."""
    word = invented_word(generator)
    name = word.capitalize()
    if kind == "name" and generator.random() < 0.1:
        name += " " + invented_word(generator).capitalize()
    return Noun(kind, (name, ""), (name, ""), "f" if word.endswith("a") else "m")


def invented_noun(generator):
    """A noun; what ends in -a is feminine, and -s makes the plural."""
    word = invented_word(generator)
    while word.endswith("s"):
        word = invented_word(generator)
    forms = (word, word + "s")
    return Noun("unknown", forms, forms, "f" if word.endswith("a") else "m")
