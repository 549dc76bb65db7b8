"""Texts are split into sentences, in Python and in graphs, and joined without loss."""

import numpy as np
import pytest
import tensorflow as tf

from zoo.data.phrasebook import phrasebook_pairs
from zoo.deploy import layout_graph
from zoo.text.layout import join_sentences, split_long, split_sentences, without_numbers

CASES = [  # texts, with a bar between sentences and what is between them
    "Mr. Smith met Dr. Jones.| |They left at 3.5 km/h.| |No. 5 is alive.| |No.| |I am not.",
    "J.-K. Rowling, e.g., wrote it, i.e. all.| |The U.S. Army left at 5 p.m.| |It rained.",
    "Wait... what?| |Wait...| |What?!| |Yahoo! is at https://a.b/c?d=1.2!e.| |See www.f.g.",
    '"Stop!" he said.| |"Why?"| |(Because.)| |\'So.\'| |He went (far.) and fell.| |End.',
    "Das ist z. B. gut.| |Am 3. Oktober kam Hr. Nr. 5.| |Ludwig XIV. war da.",
    "¿Qué tal, Sr. López?| |¡Bien!| |¡Hola! —dijo él.| |—Sí.",
    "« Ça va ? » dit-il.| |Bonjour !| |« Oui. »| |Mme. Curie arrive.",
    "他说。||我是小明！||真的吗？||“好。”他走了……然后呢？||3.5米。||你好!||好",
    "「はい。」と言った。||これは３．５です。||次。",
    "हाँ।| |नहीं।||ठीक।",
    "كيف حالك؟| |أنا بخير.| |شكرا۔| |نعم",
    "Բարև։| |Ինչպես ես։",
    "ខ្ញុំ។| |អ្នក៕",
    "გამარჯობა.| |როგორ ხარ?",
    "Привет.| |Как дела, г. Иванов?| |Ok.",
    "1. First.| |2. Second.|\r\n\r\n\t|a) Third|\n- - -\n* * *\n|cell|\t|cell|\u2028|Last",
    "\ufeff  |Hi.|\u00a0|There.|\u3000\u200b\u200f|You.|\n😀 …\n",
    "So it is.[1][23]| |**Bold.**| |_So._| |Here.²| |Smith et al. (2020), Fig. 5.| |EE. UU. est.",
    "Son aprox. 5.| |Am 5. Jh. war er auf S. (3).| |Il dott. Bianchi.| |Uds. son Pres. Lima.",
    "Τι κάνεις\u037e| |Καλά· «τι;» είπε.| |Γιατί\u037e",
    "# |Title|\n\n- |an item|\n* [x] |done.|\n> |~~So.~~| |But.",
    "don't.| |I won't.| |So say the dogs'.| |He took vitamin C daily.",
]


def fields_of(case):
    fields = case.split("|")
    return fields if case[0] in " \ufeff#" else ["", *fields]


@pytest.mark.parametrize("case", CASES)
def test_where_sentences_end(case):
    expected = fields_of(case)
    assert split_sentences(case.replace("|", "")) == expected + [""] * (len(expected) % 2 == 0)


def random_texts(count):
    """Sentences, spaces, abbreviations and single characters in any order."""
    random = np.random.default_rng(0)
    words = [field for case in CASES for field in case.split("|")]
    words += [
        *"aAbZ.!?…。！？\"'”’»«“() \n\t\r\u00a0\u200b\u3000,，「」你は5।؟-—:;e\u0301É#\u202e\0．"
    ]
    words += ["Mr.", "No. ", "p.m. ", "1. ", ". ", ". a", "? B", "3. Oktober", "😀", *"\uffffα|<>*"]
    texts = ["".join(random.choice(words, size)) for size in random.integers(0, 12, count)]
    codes = random.integers(0, 0xD800, (count // 4, 20))
    return ["", " \n", *texts, *("".join(map(chr, row)) for row in codes)]


def test_nothing_is_lost_and_graphs_do_the_same():
    texts = random_texts(2000)
    expected, found = [split_sentences(text) for text in texts], [[""] for _ in texts]
    graph = tf.function(lambda texts: tuple(layout_graph.split_sentences(texts)), autograph=False)
    fields, owners, places = (tensor.numpy() for tensor in graph(tf.constant(texts)))
    for index, (field, owner) in enumerate(zip(fields, owners)):
        if index in places:
            found[owner] += [field.decode(), ""]
        else:
            found[owner][-1] += field.decode()
    assert found == expected
    for text, fields in zip(texts, expected):
        assert "".join(fields) == text and len(fields) % 2 == 1
        for sentence in fields[1::2]:
            assert sentence.strip() == sentence and not {*"\n\r\t"} & {*sentence}
            assert split_sentences(sentence) == ["", sentence, ""]


def test_sentences_of_a_corpus_are_found():
    sides = (side for pair in phrasebook_pairs(500) for side in pair)
    sentences = [side for side in sides if side[-1] in ".?!" and not side[0].islower()]
    assert len(sentences) > 500 and split_sentences(" ".join(sentences))[1::2] == sentences


@pytest.mark.parametrize(
    "text, longest, expected",
    [
        ("One. Two! Three?", 9, ["One.", " ", "Two!", " ", "Three?"]),
        ("one two three  four", 9, ["one two", " ", "three", "  ", "four"]),
        ("onetwothreefour", 8, ["onetwot", "", "hreefour"]),
        ("one; two,\nthree", 8, ["one;", " ", "two,", "\n", "three"]),
        ("一二三。四五六。七八，九十", 4, ["一二三。", "", "四五六。", "", "七八，", "", "九十"]),
        ("short", 5, ["short"]),
        ("😀", 0, ["😀"]),
    ],
)
def test_long_sentences_are_split(text, longest, expected):
    assert split_long(["", text, " "], lambda part: len(part) <= longest) == ["", *expected, " "]


def test_translations_in_the_place_of_sentences():
    """A space follows sentences of scripts that have spaces; the graph does the same."""
    texts = ["你好。我是小明！\n---\n再见。好。", "One. Two!", "", "---", "\t好。好。 "]
    cases = {
        ("Hello.", "I am!", "Bye.", "OK."): "Hello. I am!\n---\nBye. OK.",
        ("你好。", "我！", "见。", "好"): "你好。我！\n---\n见。好",
        ("“Hello.”", "", "a…", "b"): "“Hello.” \n---\na… b",
        ("你好!", "“我。”", "……", "b"): "你好!“我。”\n---\n…… b",
        ("Hello", "I (am)", "Лиса", "네"): "Hello I (am)\n---\nЛиса 네",
        ("iPhone", "「我」", "3", "B"): "iPhone「我」\n---\n3 B",
    }
    for words, expected in cases.items():
        assert join_sentences(split_sentences(texts[0]), words) == expected
        translations = [[*words], ["Un.", "Dos!"], [], [], ["Yes.", "No."]]
        parts = map(split_sentences, texts)
        whole = [join_sentences(fields, found) for fields, found in zip(parts, translations)]
        layout = layout_graph.split_sentences(tf.constant(texts))
        flat = tf.constant([[text] for found in translations for text in found])
        counts = tf.constant([*map(len, translations)])
        nothing = tf.zeros(flat.shape), tf.fill(flat.shape[:1], "")
        found, *_ = layout_graph.join_parts(layout, counts, flat, *nothing)
        assert [text.decode() for text in found[:, 0].numpy()] == whole
    assert whole[1:] == ["Un. Dos!", "", "---", "\tYes. No. "]
    assert join_sentences(["", "onetwot", "", "hree", ""], ["one.", "two"]) == "one.two"


def test_spaces_between_sentences_follow_the_target():
    """None in Chinese and Japanese; the graph does the same, and keeps numbers."""
    text = "One. Two!  Three? Four.\nFive. 6! Seven. Eight."
    for words, expected in {
        (
            "一。",
            "二！",
            "三？",
            "四。",
            "五。",
            "七……",
            "八。",
        ): "一。二！三？四。\n五。 6! 七……八。",
        ("はい。", "「二」", "カ", "四", "五", "七。", "A."): "はい。「二」カ四\n五 6! 七。A.",
        (
            "네.",
            "둘!",
            "셋?",
            "넷.",
            "다섯.",
            "일곱.",
            "여덟.",
        ): "네. 둘!  셋? 넷.\n다섯. 6! 일곱. 여덟.",
        ("ครับ", "ค่ะ", "สาม", "สี่", "ห้า", "เจ็ด", "แปด"): "ครับ ค่ะ  สาม สี่\nห้า 6! เจ็ด แปด",
        ("A1.", "B", "c)", "D.", "E", "F。", "G"): "A1. B  c) D.\nE 6! F。G",
    }.items():
        assert join_sentences(without_numbers(split_sentences(text)), words) == expected
        layout = layout_graph.split_sentences(tf.constant([text, "1."])).without_numbers()
        flat = tf.constant([[word] for word in words])
        counts = tf.constant([len(words), 0])
        nothing = tf.zeros(flat.shape), tf.fill(flat.shape[:1], "")
        found, *_ = layout_graph.join_parts(layout, counts, flat, *nothing)
        assert [text.decode() for text in found[:, 0].numpy()] == [expected, "1."]


@pytest.mark.parametrize(
    "unit", [" ", ". ", '."', "« .", "a\n", "Mr. ", "a. " + " " * 500, "'a", " |"]
)
def test_long_texts_take_time_in_proportion(unit):
    """For 100,000 characters of any kind: quadratic time would be hours."""
    text = unit * (100_000 // len(unit))
    assert "".join(split_sentences(text)) == text
