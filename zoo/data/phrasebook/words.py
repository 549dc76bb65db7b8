"""The words of the phrasebook: tables of nouns, adjectives, verbs and fixed phrases.

Every word has one meaning here, so that an English sentence has one translation. The Spanish is
that of Spain, with "you" as *tú*. Verbs whose present and past look alike (put, read, cut) are
left out.
"""

from typing import NamedTuple

from zoo.data.phrasebook import english, spanish


class Noun(NamedTuple):
    """A noun in both languages.

    Fields:
        english, english_plural, spanish, spanish_plural: its forms.
        gender: "m" or "f".
        kind: its semantic class, a key of `NOUNS`.
        style: "count", "mass" (bread, no plural) or "name" (Maria, no article).
    """

    english: str
    english_plural: str
    spanish: str
    spanish_plural: str
    gender: str
    kind: str
    style: str

    @property
    def human(self):
        """Whether it takes the personal *a* as an object."""
        return self.kind in ("people", "relatives", "names")


class Adjective(NamedTuple):
    """An adjective in both languages.

    Fields:
        english, spanish: its forms, the Spanish one masculine singular.
        copula: the verb that links it to a subject: "ser" (what it is) or "estar" (how it is).
        nouns: kinds of nouns, and single nouns, that it describes.
        before: whether it stands before the noun in Spanish.
    """

    english: str
    spanish: str
    copula: str
    nouns: str
    before: bool = False


class Verb(NamedTuple):
    """A verb in both languages.

    Fields:
        english, past: base and past form; more words follow the first unchanged (look for).
        spanish: infinitive.
        objects: kinds of nouns, and single nouns, that may follow.
        preposition: Spanish preposition before the object.
        tenses: those that the verb is used in. A state has no preterite of plain meaning.
        habit: whether one does it every day, so that the present may say so.
        receiver: whether somebody receives the object (I give the book *to Ana*).
    """

    english: str
    past: str
    spanish: str
    objects: str
    preposition: str = ""
    tenses: tuple = ("present", "past", "future")
    habit: bool = True
    receiver: bool = False


# "English Spanish gender", the irregular English plural after a slash.
_COUNT = {
    "people": "man/men hombre m, woman/women mujer f, boy niño m, girl niña f, "
    "teacher profesor m, doctor médico m, student estudiante m, friend amigo m, "
    "neighbor vecino m, lawyer abogado m",
    "relatives": "mother madre f, father padre m, brother hermano m, sister hermana f, son hijo m, "
    "daughter hija f, grandmother abuela f, grandfather abuelo m, uncle tío m, aunt tía f",
    "animals": "dog perro m, cat gato m, horse caballo m, bird pájaro m, cow vaca f, "
    "mouse/mice ratón m, eagle águila f, bear oso m, lion león m, rabbit conejo m",
    "snacks": "apple manzana f, orange naranja f, egg huevo m, potato/potatoes patata f, "
    "tomato/tomatoes tomate m, cake pastel m, cookie galleta f, lemon limón m",
    "clothes": "shirt camisa f, dress vestido m, hat sombrero m, coat abrigo m, shoe zapato m, "
    "skirt falda f, jacket chaqueta f, sock calcetín m",
    "things": "book libro m, pen bolígrafo m, pencil lápiz m, letter carta f, poem poema m, "
    "newspaper periódico m, box caja f, key llave f, phone teléfono m, cup taza f, "
    "glass vaso m, plate plato m, bottle botella f, photo foto f, "
    "flower flor f, map mapa m, umbrella paraguas m, clock reloj m, computer ordenador m, "
    "song canción f",
    "furniture": "table mesa f, chair silla f, bed cama f, sofa sofá m",
    "parts": "door puerta f, window ventana f, wall pared f",
    "places": "house casa f, school escuela f, park parque m, market mercado m, "
    "station estación f, city ciudad f, kitchen cocina f, garden jardín m, beach playa f, "
    "river río m, church iglesia f, hospital hospital m, restaurant restaurante m, "
    "library biblioteca f, street calle f, hotel hotel m, "
    "office oficina f, museum museo m, town pueblo m, classroom aula f, "
    "bridge puente m, tree árbol m",
    "vehicles": "car coche m, bus autobús m, train tren m, bicycle bicicleta f, boat barco m, "
    "plane avión m",
}
_MASS = {
    "foods": "bread pan m, rice arroz m, meat carne f, cheese queso m, soup sopa f, fruit fruta f, "
    "chicken pollo m, fish pescado m",
    "drinks": "water agua f, coffee café m, milk leche f, tea té m, wine vino m, juice zumo m, "
    "beer cerveza f",
    "subjects": "music música f, history historia f, art arte m",
    "languages": "Spanish español m, English inglés m, French francés m, Italian italiano m, "
    "German alemán m",
    "instruments": "guitar guitarra f, piano piano m, violin violín m",
    "sports": "football fútbol m, tennis tenis m, basketball baloncesto m",
}
_NAMES = {
    "names": "Maria María f, Ana Ana f, Isabel Isabel f, Olga Olga f, Carmen Carmen f, "
    "Elena Elena f, Lucia Lucía f, Juan Juan m, Pedro Pedro m, Ignacio Ignacio m, "
    "Oscar Óscar m, Carlos Carlos m, Luis Luis m, Pablo Pablo m, Marta Marta f",
    "countries": "Madrid Madrid m, Spain España f, Mexico México m, France Francia f, "
    "Italy Italia f",
}


def _nouns(text, kind, style):
    for entry in text.split(", "):
        forms, word, gender = entry.split()
        singular, _, plural = forms.partition("/")
        yield Noun(
            english=singular,
            english_plural=plural or english.plural(singular),
            spanish=word,
            spanish_plural=spanish.plural(word),
            gender=gender,
            kind=kind,
            style=style,
        )


NOUNS = {
    kind: list(_nouns(text, kind, style))
    for style, table in (("count", _COUNT), ("mass", _MASS), ("name", _NAMES))
    for kind, text in table.items()
}
_BY_NAME = {noun.english: noun for nouns in NOUNS.values() for noun in nouns}


def find_nouns(names):
    """The nouns of a text of kinds and English singulars, such as "animals door window"."""
    return [
        noun
        for name in names.split()
        for noun in (NOUNS[name] if name in NOUNS else (_BY_NAME[name],))
    ]


_HUMAN = "people relatives names"
_COLOURED = "clothes vehicles furniture parts box book pen pencil umbrella flower house"
_THINGS = "clothes things furniture vehicles parts"
_THOUGHTS = "book letter song poem newspaper"

ADJECTIVES = [
    Adjective("red", "rojo", "ser", _COLOURED),
    Adjective("blue", "azul", "ser", _COLOURED),
    Adjective("green", "verde", "ser", _COLOURED),
    Adjective("white", "blanco", "ser", _COLOURED + " animals"),
    Adjective("black", "negro", "ser", _COLOURED + " animals"),
    Adjective("yellow", "amarillo", "ser", _COLOURED),
    Adjective("gray", "gris", "ser", _COLOURED + " animals"),
    Adjective("brown", "marrón", "ser", _COLOURED + " animals"),
    Adjective("big", "grande", "ser", _THINGS + " animals places snacks"),
    Adjective("small", "pequeño", "ser", _THINGS + " animals places snacks"),
    Adjective(
        "new", "nuevo", "ser", _THINGS + " house school station hospital hotel bridge church"
    ),
    Adjective("old", "viejo", "ser", _THINGS + " animals places people"),
    Adjective("beautiful", "hermoso", "ser", "animals places clothes flower song photo woman girl"),
    Adjective("ugly", "feo", "ser", "animals clothes furniture house city street hotel car"),
    Adjective("expensive", "caro", "ser", _THINGS + " foods drinks hotel restaurant house"),
    Adjective("cheap", "barato", "ser", _THINGS + " foods drinks hotel restaurant house"),
    Adjective(
        "clean", "limpio", "estar", "clothes cup glass plate bottle table house kitchen beach"
    ),
    Adjective(
        "dirty", "sucio", "estar", "clothes cup glass plate bottle table house kitchen beach"
    ),
    Adjective(
        "broken", "roto", "estar", "cup glass plate bottle clock chair window phone umbrella"
    ),
    Adjective(
        "open", "abierto", "estar", "door window box bottle library museum office hotel restaurant"
    ),
    Adjective(
        "closed",
        "cerrado",
        "estar",
        "door window box bottle library museum office hotel restaurant",
    ),
    Adjective("hot", "caliente", "estar", "rice meat soup chicken fish water coffee milk tea"),
    Adjective("cold", "frío", "estar", "rice meat soup chicken fish drinks"),
    Adjective("delicious", "delicioso", "estar", "foods snacks coffee wine juice tea"),
    Adjective("tall", "alto", "ser", _HUMAN + " tree"),
    Adjective("young", "joven", "ser", _HUMAN),
    Adjective("strong", "fuerte", "ser", _HUMAN + " horse bear lion"),
    Adjective("intelligent", "inteligente", "ser", _HUMAN + " dog cat horse"),
    Adjective("famous", "famoso", "ser", _HUMAN + " museum restaurant bridge song"),
    Adjective("hardworking", "trabajador", "ser", _HUMAN),
    Adjective("rich", "rico", "ser", _HUMAN),
    Adjective("Spanish", "español", "ser", "people names wine cheese"),
    Adjective("English", "inglés", "ser", "people names cheese beer"),
    Adjective("tired", "cansado", "estar", _HUMAN + " dog horse"),
    Adjective("happy", "feliz", "estar", _HUMAN + " dog"),
    Adjective("sad", "triste", "estar", _HUMAN),
    Adjective("sick", "enfermo", "estar", _HUMAN + " dog cat cow"),
    Adjective("busy", "ocupado", "estar", _HUMAN),
    Adjective("worried", "preocupado", "estar", _HUMAN),
    Adjective("nervous", "nervioso", "estar", _HUMAN),
    Adjective("interesting", "interesante", "ser", _THOUGHTS + " photo museum city"),
    Adjective("important", "importante", "ser", _THOUGHTS + " photo city station key"),
    Adjective("easy", "fácil", "ser", "book song languages"),
    Adjective("difficult", "difícil", "ser", "book song languages"),
    Adjective("long", "largo", "ser", _THOUGHTS + " street river bridge dress skirt coat"),
    Adjective("good", "bueno", "", "people book song restaurant hotel wine dog car", True),
    Adjective("bad", "malo", "", "people book song restaurant hotel wine dog car", True),
    Adjective("great", "grande", "", "teacher doctor friend city book song restaurant", True),
    Adjective("last", "último", "", "train bus plane letter book cookie apple house street", True),
    Adjective("first", "primero", "", "train bus plane letter book song house street", True),
]

# No noun has two adjectives of one group.
CLASHES = [
    "red blue green white black yellow gray brown",
    "big small tall long",
    "new old young",
    "beautiful ugly",
    "expensive cheap rich good",
    "clean dirty new broken",
    "open closed broken",
    "hot cold",
    "easy difficult",
    "strong tired sick happy sad busy worried nervous",
    "good bad great delicious beautiful hardworking",
    "Spanish English",
    "first last",
]
# What is not called mine; "my woman" would be a wife.
OWNERLESS = (
    "man woman boy girl bear lion eagle mouse tree park market station beach river hospital "
    "restaurant library museum bridge"
).split()

_STATE = ("present", "future")
_PEOPLE = "people relatives names"
_AT_HAND = "things clothes"
_BUILDINGS = "house school station church hospital restaurant library hotel museum market"
ROOMS = _BUILDINGS + " park city kitchen garden beach street office town classroom"
_GIFTS = "book pen letter photo map flower shirt"

VERBS = [
    Verb("eat", "ate", "comer", "- foods snacks"),
    Verb("drink", "drank", "beber", "drinks"),
    Verb("buy", "bought", "comprar", "foods snacks clothes things vehicles", habit=False),
    Verb("sell", "sold", "vender", "clothes things vehicles house", habit=False),
    Verb("see", "saw", "ver", "animals vehicles places " + _PEOPLE),
    Verb("look for", "looked for", "buscar", _AT_HAND + " " + _PEOPLE, habit=False),
    Verb("find", "found", "encontrar", _AT_HAND + " animals", habit=False),
    Verb(
        "need", "needed", "necesitar", _AT_HAND + " furniture vehicles", tenses=_STATE, habit=False
    ),
    Verb(
        "want", "wanted", "querer", "foods drinks snacks clothes", tenses=("present",), habit=False
    ),
    Verb("have", "had", "tener", _AT_HAND + " vehicles", tenses=_STATE, habit=False),
    Verb("know", "knew", "conocer", _PEOPLE + " places", tenses=("present",), habit=False),
    Verb("love", "loved", "querer", "relatives names", tenses=("present",), habit=False),
    Verb("write", "wrote", "escribir", "letter book song poem"),
    Verb("open", "opened", "abrir", "door window box bottle book letter"),
    Verb("close", "closed", "cerrar", "door window box bottle book"),
    Verb("wash", "washed", "lavar", "clothes cup plate glass bottle car"),
    Verb("make", "made", "hacer", "bread soup coffee tea cake cookie"),
    Verb("wear", "wore", "llevar", "clothes"),
    Verb("lose", "lost", "perder", "clothes pen pencil key phone umbrella photo map", habit=False),
    Verb("break", "broke", "romper", "cup glass plate bottle chair window clock", habit=False),
    Verb("help", "helped", "ayudar", _PEOPLE),
    Verb("visit", "visited", "visitar", _PEOPLE + " museum city church town"),
    Verb("call", "called", "llamar", _PEOPLE),
    Verb("wait for", "waited for", "esperar", _PEOPLE + " bus train plane letter"),
    Verb("understand", "understood", "entender", _PEOPLE + " languages song book", habit=False),
    Verb("study", "studied", "estudiar", "- subjects languages"),
    Verb("speak", "spoke", "hablar", "languages"),
    Verb("ask for", "asked for", "pedir", "foods drinks snacks"),
    Verb("play", "played", "tocar", "instruments"),
    Verb("play", "played", "jugar", "- sports", "a"),
    Verb("go to", "went to", "ir", "places countries", "a"),
    Verb("come to", "came to", "venir", "places countries", "a"),
    Verb("return to", "returned to", "volver", "places countries", "a"),
    Verb("arrive at", "arrived at", "llegar", "school park market station church hotel", "a"),
    Verb("leave", "left", "salir", "house school park market hotel office city", "de"),
    Verb("work", "worked", "trabajar", "-"),
    Verb("sleep", "slept", "dormir", "-"),
    Verb("live in", "lived in", "vivir", "house city town hotel countries", "en", _STATE, False),
    Verb("give", "gave", "dar", _GIFTS, receiver=True, habit=False),
    Verb("send", "sent", "enviar", _GIFTS, receiver=True, habit=False),
    Verb("bring", "brought", "traer", _GIFTS, receiver=True, habit=False),
]

# What an animal does, and to what.
ANIMAL_VERBS = [
    Verb("eat", "ate", "comer", "- bread meat cheese chicken fish apple cookie"),
    Verb("drink", "drank", "beber", "water milk"),
    Verb("sleep", "slept", "dormir", "-"),
    Verb("play", "played", "jugar", "-"),
    Verb("see", "saw", "ver", "animals people relatives"),
    Verb("wait for", "waited for", "esperar", _PEOPLE),
    Verb("find", "found", "encontrar", "key shoe sock hat bread meat"),
    Verb("break", "broke", "romper", "cup glass plate bottle window clock"),
]

# Verbs, whether one does it with somebody, and where.
SURROUNDINGS = [
    ("eat,drink", True, "house kitchen garden park restaurant hotel"),
    ("buy", True, "market city town street hotel countries"),
    ("sell", False, "market city town street countries"),
    ("see", True, "park city street market garden museum beach countries"),
    ("look for,find,lose", False, "house kitchen office car garden school park"),
    ("write", True, "house library office garden classroom kitchen"),
    ("wash,make", True, "house kitchen"),
    ("wear", False, "house office school city"),
    ("break", False, "house kitchen"),
    ("wait for", True, "station park street house school hotel"),
    ("study", True, "house library school classroom garden countries"),
    ("speak", True, "house school office classroom countries"),
    ("play", True, "house garden park street beach school"),
    ("work", True, _BUILDINGS + " city kitchen garden countries"),
    ("sleep", False, "bed house garden hotel car train boat kitchen"),
    ("go to,come to,return to,arrive at,live in,visit", True, ""),
]

# Verbs before an infinitive; the preposition stands for what links the two in Spanish.
MODALS = [
    Verb("want to", "", "querer", "", "", ("present",)),
    Verb("can", "", "poder", "", "", ("present",)),
    Verb("must", "", "deber", "", "", ("present",)),
    Verb("need to", "", "necesitar", "", "", _STATE),
    Verb("have to", "", "tener", "", "que", _STATE),
    Verb("start to", "started to", "empezar", "", "a"),
]
COST = Verb("cost", "", "costar", "")

# Each tense has its own times, so that none contradicts the verb.
TIMES = {
    "habit": [("every day", "todos los días"), ("on Sundays", "los domingos")],
    "past": [("yesterday", "ayer"), ("last night", "anoche"), ("last week", "la semana pasada")],
    "now": [("now", "ahora"), ("today", "hoy")],
    "future": [
        ("tomorrow", "mañana"),
        ("next week", "la semana que viene"),
        ("on Monday", "el lunes"),
        ("on Friday", "el viernes"),
    ],
}

# English after "to be"; Spanish after "tener", and its gender.
NEEDS = [
    ("hungry", "hambre", "f"),
    ("thirsty", "sed", "f"),
    ("cold", "frío", "m"),
    ("hot", "calor", "m"),
    ("sleepy", "sueño", "m"),
    ("afraid", "miedo", "m"),
    ("in a hurry", "prisa", "f"),
]

# English, Spanish masculine and feminine; alone it has no article after "ser".
JOBS = [
    ("teacher", "profesor", "profesora"),
    ("doctor", "médico", "médica"),
    ("student", "estudiante", "estudiante"),
    ("lawyer", "abogado", "abogada"),
    ("nurse", "enfermero", "enfermera"),
    ("waiter", "camarero", "camarera"),
    ("engineer", "ingeniero", "ingeniera"),
    ("writer", "escritor", "escritora"),
    ("singer", "cantante", "cantante"),
    ("artist", "artista", "artista"),
]

WEATHER = [
    ("is cold", "hace frío"),
    ("is hot", "hace calor"),
    ("is sunny", "hace sol"),
    ("is windy", "hace viento"),
    ("is raining", "está lloviendo"),
    ("is snowing", "está nevando"),
]

# "{}" is who is spoken to, or nothing.
GREETINGS = [
    ("Hello{}!", "¡Hola{}!"),
    ("Good morning{}!", "¡Buenos días{}!"),
    ("Good afternoon{}!", "¡Buenas tardes{}!"),
    ("Good night{}!", "¡Buenas noches{}!"),
    ("Goodbye{}!", "¡Adiós{}!"),
    ("Good luck{}!", "¡Buena suerte{}!"),
    ("Congratulations{}!", "¡Felicidades{}!"),
    ("Happy birthday{}!", "¡Feliz cumpleaños{}!"),
    ("Merry Christmas{}!", "¡Feliz Navidad{}!"),
    ("See you later{}!", "¡Hasta luego{}!"),
    ("See you tomorrow{}!", "¡Hasta mañana{}!"),
    ("See you soon{}!", "¡Hasta pronto{}!"),
]
PHRASES = [
    ("Thank you{}.", "Gracias{}."),
    ("Thank you very much{}.", "Muchas gracias{}."),
    ("You are welcome{}.", "De nada{}."),
    ("Nice to meet you{}.", "Mucho gusto{}."),
    ("I am sorry{}.", "Lo siento{}."),
    ("Excuse me{}.", "Perdón{}."),
    ("Of course{}.", "Por supuesto{}."),
    ("I don't know{}.", "No lo sé{}."),
    ("I don't understand{}.", "No entiendo{}."),
    ("Yes, please{}.", "Sí, por favor{}."),
    ("No, thank you{}.", "No, gracias{}."),
    ("What time is it{}?", "¿Qué hora es{}?"),
    ("What is this{}?", "¿Qué es esto{}?"),
]
# Said to one person whom one calls *tú*.
QUESTIONS = [
    ("Wait a moment, please{}.", "Espera un momento, por favor{}."),
    ("How are you{}?", "¿Cómo estás{}?"),
    ("What is your name{}?", "¿Cómo te llamas{}?"),
    ("Where are you from{}?", "¿De dónde eres{}?"),
    ("Where do you live{}?", "¿Dónde vives{}?"),
    ("How old are you{}?", "¿Cuántos años tienes{}?"),
    ("What are you doing{}?", "¿Qué estás haciendo{}?"),
]
FAMILIAR = [(noun.english, noun.spanish) for noun in NOUNS["names"]] + [
    ("my friend", "amigo mío"),
    ("mom", "mamá"),
    ("dad", "papá"),
    ("grandma", "abuela"),
    ("grandpa", "abuelo"),
]
OTHERS = [
    ("sir", "señor"),
    ("madam", "señora"),
    ("doctor", "doctor"),
    ("teacher", "profesor"),
    ("boys", "chicos"),
    ("girls", "chicas"),
    ("everybody", "todos"),
]
WORLD = ("world", "mundo")  # spoken to in greetings alone

# Which nouns are where: (what, preposition in both languages, where).
_SMALL = "book pen pencil letter newspaper key phone cup glass plate bottle photo map umbrella hat"
PLACEMENTS = [
    ("water milk juice wine", ("in", "en"), "bottle glass kitchen"),
    (_SMALL, ("on", "sobre"), "furniture"),
    (_SMALL, ("in", "en"), "box kitchen house office classroom car"),
    (_SMALL, ("under", "debajo de"), "furniture newspaper"),
    (_SMALL, ("next to", "al lado de"), "phone computer bottle box clock"),
    ("animals", ("in", "en"), "garden house park street river"),
    ("animals", ("under", "debajo de"), "tree table car bridge"),
    ("animals", ("behind", "detrás de"), "house tree door church"),
    ("people vehicles", ("in front of", "delante de"), _BUILDINGS),
    ("people vehicles", ("behind", "detrás de"), _BUILDINGS),
    ("people relatives", ("in", "en"), ROOMS),
    ("bird", ("in", "en"), "tree"),
    ("people", ("next to", "al lado de"), "people window door"),
    (_BUILDINGS, ("near", "cerca de"), "park river beach bridge street"),
    (_BUILDINGS, ("far from", "lejos de"), "park river beach bridge town"),
    (_BUILDINGS, ("next to", "al lado de"), _BUILDINGS),
]
