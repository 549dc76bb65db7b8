"""Spanish word forms: plurals, agreement, conjugation, number words and contractions.

The rules are described in: Real Academia Española, *Nueva gramática de la lengua española* (2009),
chapters 3 (number), 4 (verbs), 13 (adjectives), 14 (articles), 21 (numerals).
"""

import functools
import re

# The order of the forms of a verb; vosotros is left out.
PERSONS = ("yo", "tú", "él", "nosotros", "ellos")

_PLAIN = str.maketrans("áéíóú", "aeiou")

# An accent that the plural gains.
_PLURALS = {"joven": "jóvenes"}
_FEMININES = {"español": "española", "trabajador": "trabajadora"}
_SHORT = {"bueno": "buen", "malo": "mal", "primero": "primer"}

_ENDINGS = {
    ("present", "ar"): "o as a amos an",
    ("present", "er"): "o es e emos en",
    ("present", "ir"): "o es e imos en",
    ("past", "ar"): "é aste ó amos aron",
    ("past", "er"): "í iste ió imos ieron",
    ("past", "ir"): "í iste ió imos ieron",
    ("future", ""): "é ás á emos án",
    ("imperfect", "ar"): "aba abas aba ábamos aban",
}
# The last vowel of the stem changes where it is stressed.
_STEM_CHANGES = {
    "encontrar": ("o", "ue"),
    "volver": ("o", "ue"),
    "dormir": ("o", "ue"),
    "poder": ("o", "ue"),
    "costar": ("o", "ue"),
    "jugar": ("u", "ue"),
    "cerrar": ("e", "ie"),
    "perder": ("e", "ie"),
    "entender": ("e", "ie"),
    "empezar": ("e", "ie"),
    "querer": ("e", "ie"),
    "pedir": ("e", "i"),
    "enviar": ("i", "í"),
}
# The consonant keeps its sound before e.
_SPELLING = {"car": "qu", "gar": "gu", "zar": "c"}
_FUTURE_STEMS = {
    "tener": "tendr",
    "hacer": "har",
    "salir": "saldr",
    "venir": "vendr",
}
_IRREGULAR = {
    ("ser", "present"): "soy eres es somos son",
    ("estar", "present"): "estoy estás está estamos están",
    ("ir", "present"): "voy vas va vamos van",
    ("dar", "present"): "doy das da damos dan",
    ("ver", "present"): "veo ves ve vemos ven",
    ("tener", "present"): "tengo tienes tiene tenemos tienen",
    ("venir", "present"): "vengo vienes viene venimos vienen",
    ("hacer", "present"): "hago haces hace hacemos hacen",
    ("salir", "present"): "salgo sales sale salimos salen",
    ("traer", "present"): "traigo traes trae traemos traen",
    ("conocer", "present"): "conozco conoces conoce conocemos conocen",
    ("ir", "past"): "fui fuiste fue fuimos fueron",
    ("dar", "past"): "di diste dio dimos dieron",
    ("ver", "past"): "vi viste vio vimos vieron",
    ("venir", "past"): "vine viniste vino vinimos vinieron",
    ("hacer", "past"): "hice hiciste hizo hicimos hicieron",
    ("traer", "past"): "traje trajiste trajo trajimos trajeron",
    ("ser", "imperfect"): "era eras era éramos eran",
}
_IMPERATIVES = {"hacer": "haz", "venir": "ven", "ir": "ve"}
_GERUNDS = {"traer": "trayendo", "dormir": "durmiendo", "pedir": "pidiendo"}

_ONES = (
    "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince "
    "dieciséis diecisiete dieciocho diecinueve veinte veintiuno veintidós veintitrés "
    "veinticuatro veinticinco veintiséis veintisiete veintiocho veintinueve"
).split()
_TENS = "- - - treinta cuarenta cincuenta sesenta setenta ochenta noventa".split()
_HUNDREDS = (
    "- ciento doscientos trescientos cuatrocientos quinientos seiscientos setecientos ochocientos "
    "novecientos"
).split()


def plural(word):
    """The plural of a noun or adjective: casas, flores, lápices, calcetines, paraguas."""
    if word in _PLURALS:
        return _PLURALS[word]
    if word[-1] in "aeioáéó":
        return word + "s"
    if word[-1] == "z":
        return word[:-1] + "ces"
    stressed = word[-2] in "áéíóú"
    if word[-1] == "s" and not stressed and len(re.findall("[aeiouáéíóú]+", word)) > 1:
        return word
    # With one syllable more the stress needs no accent: ratón, ratones.
    if stressed and word[-1] in "ns":
        word = word[:-2] + word[-2].translate(_PLAIN) + word[-1]
    return word + "es"


def agree(adjective, gender, several):
    """The form of an adjective, given masculine singular, for a gender "m" or "f" and number."""
    form = adjective
    if gender == "f":
        if adjective.endswith("o"):
            form = adjective[:-1] + "a"
        elif adjective == "inglés":
            form = "inglesa"
        else:
            form = _FEMININES.get(adjective, adjective)
    return plural(form) if several else form


def shorten(adjective, gender, several):
    """The form of an adjective before its noun: un buen amigo, una gran ciudad."""
    if adjective == "grande" and not several:
        return "gran"
    if gender == "m" and not several:
        return _SHORT.get(adjective, adjective)
    return agree(adjective, gender, several)


def begins_with_stressed_a(word):
    """Whether a feminine noun takes *el* and *un*: el agua, el águila, el aula."""
    return word in ("agua", "águila", "aula")


@functools.cache
def conjugate(verb, tense):
    """The five forms of an infinitive, in the order of `PERSONS`.

    Args:
        verb: infinitive, such as "comer".
        tense: "present", "past" (preterite), "imperfect" (of ser and estar) or "future".
    """
    if (verb, tense) in _IRREGULAR:
        return _IRREGULAR[verb, tense].split()
    stem, group = verb[:-2], verb[-2:]
    if tense == "future":
        stem, group = _FUTURE_STEMS.get(verb, verb), ""
    stems = [stem] * len(PERSONS)
    if tense == "present" and verb in _STEM_CHANGES:
        changed = _change(stem, *_STEM_CHANGES[verb])
        stems = [stem if person == "nosotros" else changed for person in PERSONS]
    if tense == "past" and group == "ir" and verb in _STEM_CHANGES:
        weak = _change(stem, _STEM_CHANGES[verb][0], "u" if verb == "dormir" else "i")
        stems = [weak if person in ("él", "ellos") else stem for person in PERSONS]
    if tense == "past" and verb[-3:] in _SPELLING:
        stems[0] = stem[:-1] + _SPELLING[verb[-3:]]
    return [s + ending for s, ending in zip(stems, _ENDINGS[tense, group].split())]


def _change(stem, old, new):
    before, _, after = stem.rpartition(old)
    return before + new + after


def gerund(verb):
    """comiendo, hablando, durmiendo."""
    ending = "ando" if verb.endswith("ar") else "iendo"
    return _GERUNDS.get(verb) or verb[:-2] + ending


def imperative(verb):
    """The command to *tú*: abre, cierra, haz."""
    return _IMPERATIVES.get(verb) or conjugate(verb, "present")[2]


def number(n, gender):
    """The number words of 1 to 999 before a noun of gender "m" or "f": veintiún, doscientas."""
    if n == 100:
        return "cien"
    if n > 100:
        hundreds = _HUNDREDS[n // 100]
        if gender == "f" and n >= 200:
            hundreds = hundreds[:-2] + "as"
        return f"{hundreds} {number(n % 100, gender)}" if n % 100 else hundreds
    if n % 10 == 1 and n != 11:
        one = "un" if gender == "m" else "una"
        if n == 21:
            return "veintiún" if gender == "m" else "veintiuna"
        return f"{_TENS[n // 10]} y {one}" if n > 21 else one
    if n < 30:
        return _ONES[n]
    return _TENS[n // 10] + (f" y {_ONES[n % 10]}" if n % 10 else "")


def contract(preposition, phrase):
    """A preposition before a phrase: a + el = al, de + el = del."""
    if preposition.split(" ")[-1] in ("a", "de") and phrase.startswith("el "):
        return f"{preposition}l {phrase[3:]}"
    return f"{preposition} {phrase}"


def and_(phrase):
    """*y* and a phrase; *e* before the sound of i: padre e hijo."""
    sound = re.match("h?[ií](?![aeo])", phrase.lower())
    return f"{'e' if sound else 'y'} {phrase}"


def or_(phrase):
    """*o* and a phrase; *u* before the sound of o: siete u ocho."""
    return f"{'u' if re.match('h?[oó]', phrase.lower()) else 'o'} {phrase}"
