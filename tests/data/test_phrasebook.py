import collections
import hashlib
import os
import random
import re
import subprocess
import sys

import pytest

from zoo.data.phrasebook import phrasebook_pairs, words
from zoo.data.phrasebook.sentences import Sentences

# Written by hand, not by the grammar: one or more of every construction.
WITNESSES = """
The cat sleeps on the sofa. | El gato duerme en el sofá.
The dog is in the park. | El perro está en el parque.
I see the dog. | Veo el perro.
I am tired today. | Estoy cansado hoy.
She is tired. | Ella está cansada.
We went to the beach yesterday. | Fuimos a la playa ayer.
They don't eat meat. | Ellos no comen carne.
Do you speak Spanish? | ¿Hablas español?
Maria is writing a letter. | María está escribiendo una carta.
I like the black cat. | Me gusta el gato negro.
The teacher opened the window. | El profesor abrió la ventana.
She has a small dog. | Ella tiene un perro pequeño.
This is my house. | Esta es mi casa.
These are my keys. | Estas son mis llaves.
The soup is hot. | La sopa está caliente.
The baby is crying. | El bebé está llorando.
What are you eating? | ¿Qué estás comiendo?
Where do you live? | ¿Dónde vives?
Open the door, please. | Abre la puerta, por favor.
Did you see my umbrella? | ¿Viste mi paraguas?
She is a teacher. | Ella es profesora.
Peter lost his phone yesterday. | Peter perdió su teléfono ayer.
We are in the restaurant. | Estamos en el restaurante.
I love my wife. | Amo a mi esposa.
The water is cold. | El agua está fría.
The door is closed. | La puerta está cerrada.
My car is very old. | Mi coche es muy viejo.
I'm waiting for the bus. | Estoy esperando el autobús.
She plays the piano every day. | Ella toca el piano todos los días.
We play football in the afternoon. | Jugamos al fútbol por la tarde.
I do not want to go to the school. | No quiero ir a la escuela.
the red house | la casa roja
Your letter is interesting. | Tu carta es interesante.
She is from Mexico. | Ella es de México.
He wants to sleep. | Él quiere dormir.
I see him. | Lo veo.
They know my aunt. | Ellos conocen a mi tía.
The cow is in the garden. | La vaca está en el jardín.
He gave me the key. | Él me dio la llave.
He waits for us. | Él nos espera.
Who do you love? | ¿A quién amas?
Cows eat fruit. | Las vacas comen fruta.
Was there milk? | ¿Había leche?
I like fruit. | Me gusta la fruta.
Every student needs a pen. | Cada estudiante necesita un bolígrafo.
our brown bear | nuestro oso marrón
Pedro and Ana are tired. | Pedro y Ana están cansados.
I am cold. | Tengo frío.
you eat bread. | Comes pan.
He is a good friend. | Él es un amigo bueno.
Tomorrow I will work. | Mañana voy a trabajar.
Why does he sleep? | ¿Por qué duerme él?
Eat bread, please. | Come pan, por favor.
Where is she? | ¿Dónde está ella?
There are cats. | Hay gatos.
"""
LINES = [tuple(line.split(" | ")) for line in WITNESSES.strip().splitlines()]


@pytest.fixture(scope="module")
def pairs():
    return phrasebook_pairs()


class Guided(random.Random):
    """Prefers words that occur in one sentence, so that the grammar soon makes it."""

    def __init__(self, sentence):
        super().__init__(0)
        self.words = {*re.findall(r"\w+", sentence.lower())}
        self.known = {}

    def choice(self, options):
        return super().choice([option for option in options if self.fits(option)] or options)

    def fits(self, option):
        if id(option) not in self.known:
            self.known[id(option)] = self.has(option), option
        return self.known[id(option)][0]

    def has(self, option):
        """Whether the English words of a word, or one of its forms, occur in the sentence."""
        if isinstance(option, str):  # a kind of nouns, among others
            return any(map(self.fits, words.NOUNS.get(option, [option != "unknown"])))
        if not isinstance(option, tuple):
            return True
        if isinstance(option, words.Auxiliary):
            return option.operator[3] in ("do", "did", "are", "were", *self.words)
        english = getattr(option, "english", option[0])
        if isinstance(option[1], tuple) and not isinstance(option, words.Noun):
            english = option[1][0]  # a Spanish pronoun and what follows it
        forms = english if isinstance(option, (words.Noun, words.Verb)) else [english]
        forms = option[1:3] if isinstance(option, words.Pronoun) else forms
        return any({*re.findall(r"\w+", form.lower())} <= self.words for form in forms)


@pytest.mark.parametrize(
    "source, target",
    [
        pytest.param(*pair, id=pair[0], marks=[pytest.mark.slow] if index % 3 else [])
        for index, pair in enumerate(LINES)
    ],
)
def test_what_the_grammar_makes_of_a_witness(source, target):
    sentences = Sentences(Guided(source))
    drawn = (sentences.draw() for _ in range(20_000))
    assert next((spanish for _, english, spanish in drawn if english == source), None) == target


def test_one_english_sentence_has_one_translation():
    """In what is drawn, before one of each is kept."""
    sentences = Sentences(random.Random(1))
    drawn = {sentences.draw()[1:] for _ in range(20_000)}
    assert len(drawn) == len({english for english, _ in drawn})


def test_count(pairs):
    assert len(pairs) == len({source for source, _ in pairs}) == 60_000
    assert phrasebook_pairs(1) == [("hello world", "hola mundo")]
    assert {*words.PHRASES} <= {*phrasebook_pairs(200)}


def test_the_seed_alone_decides_and_tensorflow_is_not_needed(pairs):
    assert phrasebook_pairs(3000) != phrasebook_pairs(3000, seed=1)
    code = (
        "import hashlib, sys; from zoo.data.phrasebook import phrasebook_pairs;"
        "assert 'tensorflow' not in sys.modules;"
        "print(hashlib.sha256(repr(phrasebook_pairs(3000)).encode()).hexdigest());"
    )
    digest = hashlib.sha256(repr(phrasebook_pairs(3000)).encode()).hexdigest()
    environment = {**os.environ, "PYTHONHASHSEED": "1"}  # this process has another
    output = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert output == digest + "\n"
    # the sentences whose results docs/results quotes
    digest = hashlib.sha256(repr(pairs).encode()).hexdigest()
    assert digest.startswith("80d2311a087115ed"), "measure the recipe again"


def test_every_listed_word_is_used_often(pairs):
    nouns = [noun for kind in words.NOUNS.values() for noun in kind]
    forms = [(noun.english[0], noun.spanish[0]) for noun in nouns]
    forms += [(adjective.english, adjective.spanish) for adjective in words.ADJECTIVES]
    forms += [(verb.english[0], verb.tenses["present"][2]) for verb in words.VERBS]
    for side in (0, 1):
        text = " ".join(pair[side].lower() for pair in pairs)
        counts = collections.Counter(re.findall(r"\w+", text))
        words_used = [word for form in forms for word in form[side].lower().split()]
        assert {word for word in words_used if counts[word] < 15} == set()


def test_articles_agree_with_their_nouns(pairs):
    articles = {"el": "m0", "un": "m0", "una": "f0", "al": "m0", "del": "m0"}
    articles |= {"esta": "f0", "esos": "m1", "nuestras": "f1", "muchos": "m1"}
    nouns = {}
    for noun in (noun for kind in words.NOUNS.values() for noun in kind):
        women = (noun.woman, words.spanish_plural(noun.woman)) if noun.woman else ()
        for gender, forms in ((noun.gender, noun.spanish), ("f", women)):
            for several, form in enumerate(forms):
                nouns.setdefault(form, set()).add(f"{gender}{several}")
    nouns["agua"].add("m0")  # el agua, esta agua
    seen = 0
    for _, target in pairs:
        forms = re.findall(r"\w+", target.lower())
        for article, noun in zip(forms, forms[1:]):
            if article in articles and noun in nouns:
                assert articles[article] in nouns[noun], target
                seen += 1
    assert seen > 10_000


def test_contractions_and_punctuation(pairs):
    wrong = re.compile(r"\b(a|de) el |\bla agua|\by h?[ií][^aeo]|con (mí|ti)\b|  ")
    for source, target in pairs:
        assert not wrong.search(target), target
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]|  ", source.lower()), source
        assert not source.endswith("?") or target[-1] == "?"
        assert (target[0] == "¿") == (target[-1] == "?")
        assert (target[0] == "¡") == (target[-1] == "!")
        assert target[-1] not in ".?!" or target.lstrip("¿¡")[0].isupper(), target


def test_made_up_words_are_copied_and_seldom_repeated():
    sentences = Sentences(random.Random(0))
    names, nouns = ([sentences.made_up(kind) for _ in range(2000)] for kind in ("name", "unknown"))
    for noun in names + nouns:
        assert noun.english == noun.spanish
        assert noun.gender == ("f" if noun.english[0].endswith("a") else "m")
    assert all(one[-1] != "s" and several == one + "s" for one, several in (n[1] for n in nouns))
    made_up = {noun.english[0] for noun in names + nouns}
    assert not made_up & words.KNOWN and len(made_up) > 3500
