import collections
import functools
import hashlib
import itertools
import operator
import os
import random
import re
import subprocess
import sys

import pytest

from zoo.data.phrasebook import english, phrasebook_pairs, spanish
from zoo.data.phrasebook.everyday import fixed_phrases
from zoo.data.phrasebook.grammar import grammar
from zoo.data.phrasebook.phrases import noun_phrase
from zoo.data.phrasebook.spaces import Product, Union, shares
from zoo.data.phrasebook.words import ADJECTIVES, NOUNS, VERBS, Noun, Verb
from zoo.errors import UserError


@pytest.fixture(scope="module")
def pairs():
    return phrasebook_pairs()


# Written by hand, not by the grammar: one or more of every construction.
WITNESSES = """
hello world | hola mundo
Hello, world! | ¡Hola, mundo!
hello Maria | hola María
Good morning, Maria! | ¡Buenos días, María!
Thank you, sir. | Gracias, señor.
How are you, my friend? | ¿Cómo estás, amigo mío?
I ate bread. | Comí pan.
She eats the cake every day. | Ella come el pastel todos los días.
Yesterday we drank wine. | Ayer bebimos vino.
He didn't open the door. | Él no abrió la puerta.
Will you close the window? | ¿Cerrarás la ventana?
I looked for my key. | Busqué mi llave.
I arrived at the school yesterday. | Llegué a la escuela ayer.
I played football. | Jugué al fútbol.
I played the piano last night. | Toqué el piano anoche.
I started to write a letter. | Empecé a escribir una carta.
They asked for water. | Ellos pidieron agua.
She slept in the garden. | Ella durmió en el jardín.
I went to the market. | Fui al mercado.
They came to the park. | Ellos vinieron al parque.
You will leave the hotel tomorrow. | Saldrás del hotel mañana.
I see the dog. | Veo el perro.
I see Maria. | Veo a María.
We visited the teacher. | Visitamos al profesor.
I love my mother. | Quiero a mi madre.
I want an apple. | Quiero una manzana.
I give the book to my mother. | Le doy el libro a mi madre.
She brought a flower to the girls. | Ella les trajo una flor a las niñas.
They send a letter to Ana. | Ellos le envían una carta a Ana.
I speak Spanish and English. | Hablo español e inglés.
She sees me. | Ella me ve.
We didn't help them. | No los ayudamos.
You can't sleep in the garden. | No puedes dormir en el jardín.
We are going to eat bread. | Vamos a comer pan.
I am eating bread. | Estoy comiendo pan.
She is sleeping in the house. | Ella está durmiendo en la casa.
Open the door, please. | Abre la puerta, por favor.
Make the bread. | Haz el pan.
Come to the park. | Ven al parque.
What did she eat? | ¿Qué comió ella?
Where does Pedro sleep? | ¿Dónde duerme Pedro?
I can't eat bread because I am sick. | No puedo comer pan porque estoy enfermo.
I ate the bread, but she drank the water. | Comí el pan, pero ella bebió el agua.
The house is big. | La casa es grande.
The water is cold. | El agua está fría.
I was tired. | Yo estaba cansado.
She was very happy. | Ella estaba muy feliz.
We are not Spanish. | No somos españoles.
Ana is taller than Juan. | Ana es más alta que Juan.
The book is as interesting as the letter. | El libro es tan interesante como la carta.
She is a doctor. | Ella es médica.
They are good teachers. | Ellos son buenos profesores.
The book is on the table. | El libro está sobre la mesa.
The cat was under the tree. | El gato estaba debajo del árbol.
Where are my keys? | ¿Dónde están mis llaves?
There is a book on the table. | Hay un libro sobre la mesa.
Were there many dogs in the park? | ¿Había muchos perros en el parque?
This is the teacher's book. | Este es el libro del profesor.
three dogs | tres perros
twenty-one horses | veintiún caballos
twenty-one cows | veintiuna vacas
I have thirty-one keys. | Tengo treinta y una llaves.
the red house | la casa roja
the blue pencils | los lápices azules
an eagle | un águila
the great city | la gran ciudad
a good friend | un buen amigo
the first train | el primer tren
her brown socks | sus calcetines marrones
I like dogs. | Me gustan los perros.
The teacher likes coffee. | Al profesor le gusta el café.
She doesn't like water. | A ella no le gusta el agua.
I am very hungry. | Tengo mucha hambre.
She is twenty-one years old. | Ella tiene veintiún años.
It is one o'clock. | Es la una.
It is a quarter to four. | Son las cuatro menos cuarto.
The train leaves at half past nine at night. | El tren sale a las nueve y media de la noche.
I need seven or eight dogs. | Necesito siete u ocho perros.
Olga and Isabel can help us. | Olga e Isabel pueden ayudarnos.
How much does the book cost? | ¿Cuánto cuesta el libro?
How much do the shoes cost? | ¿Cuánto cuestan los zapatos?
What color is the car? | ¿De qué color es el coche?
How many keys do you have? | ¿Cuántas llaves tienes?
It is cold in Madrid. | Hace frío en Madrid.
Where is the red house? | ¿Dónde está la casa roja?
Where were my brother's new shoes? | ¿Dónde estaban los zapatos nuevos de mi hermano?
My small dog is sleeping in the kitchen. | Mi perro pequeño está durmiendo en la cocina.
I don't want to eat fish with her brothers. | No quiero comer pescado con sus hermanos.
Does your sister want to eat bread? | ¿Tu hermana quiere comer pan?
I want to live in a small house. | Quiero vivir en una casa pequeña.
My friends are playing football in the park. | Mis amigos están jugando al fútbol en el parque.
My brother can't work because he is sick. | Mi hermano no puede trabajar porque está enfermo.
My old teacher will visit Maria tomorrow. | Mi profesor viejo visitará a María mañana.
She has to study English in the library. | Ella tiene que estudiar inglés en la biblioteca.
I gave my red book to the tall boy. | Le di mi libro rojo al niño alto.
My mother gave two white shirts to us. | Mi madre nos dio dos camisas blancas.
He sent a long letter to her. | Él le envió una carta larga a ella.
There are three black cats in the garden. | Hay tres gatos negros en el jardín.
How many red pens does Maria have? | ¿Cuántos bolígrafos rojos tiene María?
How many small birds are there in the tree? | ¿Cuántos pájaros pequeños hay en el árbol?
What is your brother doing? | ¿Qué está haciendo tu hermano?
What did your tall sister buy in the market? | ¿Qué compró tu hermana alta en el mercado?
Who did the doctor help? | ¿A quién ayudó el médico?
Who is sleeping in my bed? | ¿Quién está durmiendo en mi cama?
Where does your friend work? | ¿Dónde trabaja tu amigo?
What is in the box? | ¿Qué hay en la caja?
The black cat drank the milk. | El gato negro bebió la leche.
The book on the table is interesting. | El libro que está sobre la mesa es interesante.
Maria's new house is big. | La casa nueva de María es grande.
I like big dogs. | Me gustan los perros grandes.
Our neighbor doesn't like cold beer. | A nuestro vecino no le gusta la cerveza fría.
I bought these cheap shoes in Spain. | Compré estos zapatos baratos en España.
Two women are waiting for the bus. | Dos mujeres están esperando el autobús.
The glasses are under that white chair. | Los vasos están debajo de esa silla blanca.
Come to the beach with us. | Ven a la playa con nosotros.
Many students live in this old city. | Muchos estudiantes viven en esta ciudad vieja.
My sister has two brothers. | Mi hermana tiene dos hermanos.
What color is your new car? | ¿De qué color es tu coche nuevo?
"""


LINES = [tuple(line.split(" | ")) for line in WITNESSES.strip().splitlines()]


def translations(source):
    """Every Spanish sentence that the grammar has for an English one: it parses it."""
    words = re.findall("[a-z]+", source.lower())
    has = _mask("the", *words, *(word.removesuffix("s") for word in words))  # Maria's (the) house
    found = {target for text, target in _candidates(grammar(), ~has, {}) if text == source}
    return found | {target for text, target in fixed_phrases() if text == source}


def _candidates(part, missing, seen):
    """The items of a part of the grammar whose English has no missing word."""
    if id(part) in seen:
        return seen[id(part)]
    if isinstance(part, Union):
        found = [item for one in part.parts for item in _candidates(one, missing, seen)]
    elif isinstance(part, Product):
        found = []
        if _verbs_fit(part, missing):
            choices = [_candidates(one, missing, seen) for one in part.parts]
            found = itertools.starmap(part.build, itertools.product(*choices))
            found = [item for item in found if any(not m & missing for m in _masks(item))]
    else:
        if id(part) not in MASKS:
            MASKS[id(part)] = [(mask, item) for item in part for mask in _masks(item)]
        fitting = [item for mask, item in MASKS[id(part)] if not mask & missing]
        found = list(dict.fromkeys(fitting))
    seen[id(part)] = found
    return found


def _verbs_fit(product, missing):
    """Whether the verbs that a construction is about may be in the sentence."""
    if id(product) not in MASKS:
        bound = [arg for arg in getattr(product.build, "args", ()) if isinstance(arg, Verb)]
        MASKS[id(product)] = [_masks(verb) for verb in bound]
    return all(any(not m & missing for m in masks) for masks in MASKS[id(product)])


BITS = collections.defaultdict(lambda: 1 << len(BITS))  # one for each English word
MASKS = {}  # by the id of a part of the grammar, which stays as it is


def _mask(*words):
    return functools.reduce(operator.or_, {BITS[word] for word in words}, 0)


def _masks(item):
    """The words that an item needs, one mask for each form that its English may take."""
    if isinstance(item, Noun):
        return [_mask(item.english.lower()), _mask(item.english_plural.lower())]
    if isinstance(item, Verb):
        base = item.english
        forms = [base, item.past, english.third_person(base), english.gerund(base)]
        return [_mask(form.split(" ")[0]) for form in forms if form]
    if isinstance(item, tuple) and isinstance(item[0], str):
        frame = isinstance(item[1], bool)  # ("this", True) stands for "these"
        return [_mask(*([] if frame else re.findall("[a-z]+", item[0].lower())))]
    if isinstance(item, tuple):
        return [functools.reduce(operator.or_, m) for m in itertools.product(*map(_masks, item))]
    return [0]


@pytest.fixture(scope="module")
def many():
    """A draw so large that small constructions are in it as a whole."""
    return [pair for seed in range(3) for pair in grammar().draw(100_000, random.Random(seed))]


def test_the_witnesses():
    assert len(LINES) >= 110
    wrong = [
        (source, target, found)
        for source, target in LINES
        if (found := translations(source)) != {target}
    ]
    assert not wrong


def test_one_english_sentence_has_one_translation(many):
    assert len({source for source, _ in many}) == len(set(many))
    assert grammar().size > 10**9


def test_however_a_sentence_is_parsed_the_translation_is_the_same(pairs):
    for source, target in pairs[:40]:
        assert translations(source) == {target}, source


def test_sentences_are_short(many):
    lengths = sorted(source.count(" ") + 1 for source, _ in many)
    assert lengths[-1] <= 18
    assert lengths[len(lengths) // 2] <= 6


def test_nouns_are_the_subject_as_often_as_pronouns(many):
    """Among statements that begin with one."""
    first = [source.split(" ")[0] for source, _ in many if source.endswith(".")]
    pronouns = sum(word in ("I", "You", "He", "She", "We", "They") for word in first)
    assert 0.8 < pronouns / (len(first) - pronouns) < 1.25


def test_the_fixed_phrases_are_there(pairs):
    assert fixed_phrases()[0] == ("hello world", "hola mundo")
    assert set(fixed_phrases()) <= set(pairs)


def test_count(pairs):
    assert len(pairs) == len({source for source, _ in pairs}) == 60_000
    assert phrasebook_pairs(1) == [("hello world", "hola mundo")]
    assert len(phrasebook_pairs(5_000)) == 5_000


@pytest.mark.parametrize("count", [0, -1, 10**30])
def test_a_bad_count_is_refused(count):
    with pytest.raises(UserError, match=f"has [0-9,]+ different pairs.*{count}"):
        phrasebook_pairs(count)


def test_the_seed_alone_decides(pairs):
    assert phrasebook_pairs() == pairs
    other = phrasebook_pairs(seed=1)
    assert other != pairs and set(other) != set(pairs)


def test_the_hash_seed_does_not_matter_and_tensorflow_is_not_needed(pairs):
    code = (
        "import hashlib, sys; from zoo.data.phrasebook import phrasebook_pairs;"
        "assert 'tensorflow' not in sys.modules;"
        "print(hashlib.sha256(repr(phrasebook_pairs(3000)).encode()).hexdigest());"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert digests == {hashlib.sha256(repr(phrasebook_pairs(3000)).encode()).hexdigest() + "\n"}


@pytest.mark.parametrize("side", [0, 1], ids=["English", "Spanish"])
def test_every_word_form_occurs_often(pairs, side):
    """As the word tokenizer sees them: with its case, and with the space before it."""
    counts = collections.Counter(
        piece for pair in pairs for piece in re.findall(r" ?[\w']+|[^\w\s]", " " + pair[side])
    )
    assert {piece: count for piece, count in counts.items() if count < 15} == {}
    assert len(counts) > 500


def test_held_out_sentences_hold_no_unknown_words(pairs):
    def words(part):
        return {word for pair in part for text in pair for word in re.findall(r"[\w']+", text)}

    assert words(phrasebook_pairs(60_000, seed=7)) == words(pairs)


ARTICLES = {
    "el": ("m", False),
    "la": ("f", False),
    "los": ("m", True),
    "las": ("f", True),
    "un": ("m", False),
    "una": ("f", False),
    "unos": ("m", True),
    "unas": ("f", True),
    "al": ("m", False),
    "del": ("m", False),
    "este": ("m", False),
    "esta": ("f", False),
    "nuestros": ("m", True),
    "nuestras": ("f", True),
    "muchas": ("f", True),
}


def test_articles_agree_with_their_nouns(pairs):
    forms = {}
    for noun in itertools.chain.from_iterable(NOUNS.values()):
        if noun.style != "name":
            forms[noun.spanish] = (noun.gender, False)
            if noun.spanish_plural != noun.spanish:
                forms[noun.spanish_plural] = (noun.gender, True)
    seen = 0
    for _, target in pairs:
        words = re.findall(r"\w+", target.lower())
        for article, word in zip(words, words[1:]):
            if article not in ARTICLES or word not in forms or word == "paraguas":
                continue  # "los paraguas" looks like its singular
            expected = forms[word]
            if article in ("un", "una") and expected[1]:
                expected = (expected[0], False)  # the last word of a number: treinta y una casas
            if word in ("agua", "aula", "águila") and article != "esta":
                expected = ("m", False)
            assert ARTICLES[article] == expected, target
            seen += 1
    assert seen > 20_000


def test_adjectives_agree_with_their_nouns():
    """By endings alone: -o and -os with masculine nouns, -a and -as with feminine ones."""
    regular = [a for a in ADJECTIVES if a.spanish.endswith("o") and not a.before]
    nouns = NOUNS["things"] + NOUNS["places"]
    for adjective, noun, several in itertools.product(regular, nouns, (False, True)):
        last = noun_phrase(noun, "the", several, adjective).spanish.split(" ")[-1]
        assert last == adjective.spanish[:-1] + {"m": "o", "f": "a"}[noun.gender] + "s" * several


def test_verbs_agree_with_their_pronouns(pairs):
    """The third person plural ends in -n, the singular does not."""
    for _, target in pairs:
        for who, verb in re.findall(r"^(Ellos|Él|Ella) (\w+)", target):
            if verb not in ("no", "le", "les", "lo", "la", "los", "me", "te", "nos"):
                assert verb.endswith("n") == (who == "Ellos"), target


def test_names_and_contractions(pairs):
    names = "|".join(noun.english for noun in NOUNS["names"] + NOUNS["countries"])
    for source, target in pairs:
        assert not re.search(rf"\b(the|a|an|my) ({names})\b", source), source
        assert not re.search(r"\b(a|de) el ", target), target
        assert not re.search(r"\by h?[ií]|\bo h?[oó]", target.lower()), target
        assert not re.search(r"\ba [aeiou]", source.lower()), source
        assert "  " not in source + target


def test_punctuation(pairs):
    for source, target in pairs:
        assert source.endswith("?") == target.endswith("?") == target.startswith("¿")
        assert source.endswith("!") == target.endswith("!") == target.startswith("¡")
        assert source.endswith(".") == target.endswith(".")
        if target[-1] in ".?!":
            assert source[0].isupper() and target.lstrip("¿¡")[0].isupper()


# Written by hand, not by the rules under test.
@pytest.mark.parametrize(
    ("verb", "tense", "forms"),
    [
        ("hablar", "present", "hablo hablas habla hablamos hablan"),
        ("comer", "past", "comí comiste comió comimos comieron"),
        ("vivir", "present", "vivo vives vive vivimos viven"),
        ("vivir", "future", "viviré vivirás vivirá viviremos vivirán"),
        ("estar", "imperfect", "estaba estabas estaba estábamos estaban"),
        ("buscar", "past", "busqué buscaste buscó buscamos buscaron"),
        ("llegar", "past", "llegué llegaste llegó llegamos llegaron"),
        ("empezar", "past", "empecé empezaste empezó empezamos empezaron"),
        ("empezar", "present", "empiezo empiezas empieza empezamos empiezan"),
        ("encontrar", "present", "encuentro encuentras encuentra encontramos encuentran"),
        ("jugar", "present", "juego juegas juega jugamos juegan"),
        ("pedir", "present", "pido pides pide pedimos piden"),
        ("pedir", "past", "pedí pediste pidió pedimos pidieron"),
        ("dormir", "past", "dormí dormiste durmió dormimos durmieron"),
        ("querer", "present", "quiero quieres quiere queremos quieren"),
        ("enviar", "present", "envío envías envía enviamos envían"),
        ("enviar", "past", "envié enviaste envió enviamos enviaron"),
        ("volver", "past", "volví volviste volvió volvimos volvieron"),
        ("hacer", "future", "haré harás hará haremos harán"),
        ("salir", "future", "saldré saldrás saldrá saldremos saldrán"),
        ("tener", "future", "tendré tendrás tendrá tendremos tendrán"),
    ],
)
def test_conjugation(verb, tense, forms):
    assert spanish.conjugate(verb, tense) == forms.split()


def test_each_verb_has_five_forms_in_each_tense():
    for verb in VERBS:
        for tense in verb.tenses:
            assert len(set(spanish.conjugate(verb.spanish, tense))) == 5


@pytest.mark.parametrize(
    ("word", "plural"),
    [
        ("casa", "casas"),
        ("flor", "flores"),
        ("lápiz", "lápices"),
        ("calcetín", "calcetines"),
        ("autobús", "autobuses"),
        ("paraguas", "paraguas"),
        ("sofá", "sofás"),
        ("árbol", "árboles"),
        ("joven", "jóvenes"),
        ("inglés", "ingleses"),
        ("gris", "grises"),
        ("feliz", "felices"),
        ("fácil", "fáciles"),
    ],
)
def test_spanish_plural(word, plural):
    assert spanish.plural(word) == plural


@pytest.mark.parametrize(
    ("n", "gender", "expected"),
    [
        (1, "m", "un"),
        (11, "f", "once"),
        (21, "m", "veintiún"),
        (21, "f", "veintiuna"),
        (22, "m", "veintidós"),
        (31, "m", "treinta y un"),
        (100, "f", "cien"),
        (101, "f", "ciento una"),
        (231, "f", "doscientas treinta y una"),
        (500, "m", "quinientos"),
        (716, "f", "setecientas dieciséis"),
        (999, "m", "novecientos noventa y nueve"),
    ],
)
def test_spanish_number(n, gender, expected):
    assert spanish.number(n, gender) == expected


def test_english_forms():
    assert english.number(231) == "two hundred and thirty-one"
    assert [english.third_person(v) for v in ("go to", "study", "wash", "have", "look for")] == [
        "goes to",
        "studies",
        "washes",
        "has",
        "looks for",
    ]
    assert [english.gerund(v) for v in ("write", "see", "look for")] == [
        "writing",
        "seeing",
        "looking for",
    ]


def test_spaces_hold_each_item_once_and_draw_without_repeating():
    space = Union([Product(lambda a, b: (a, b), "abc", range(4)), ["x", "y"]])
    items = list(space)
    assert len(items) == len(set(items)) == space.size == 14
    for count in range(15):
        drawn = space.draw(count, random.Random(count))
        assert len(drawn) == len(set(drawn)) == count and set(drawn) <= set(items)
    with pytest.raises(IndexError):
        space[14]


def test_shares_go_by_weight_and_what_a_small_set_lacks_goes_to_the_others():
    assert shares([100, 100, 100], [1, 2, 1], 80, random.Random(0)) == [20, 40, 20]
    assert shares([5, 100, 100], [1, 1, 1], 65, random.Random(0)) == [5, 30, 30]
    assert shares([5, 0, 100], [1, 1, 1], 105, random.Random(0)) == [5, 0, 100]
    assert sum(shares([7, 8, 9], [1, 1, 1], 10, random.Random(0))) == 10
