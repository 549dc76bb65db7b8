"""A translator as people use it: texts in any number and of any length, its folder, its errors."""

import io
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from tests.deploy.small_models import small_translator
from zoo import decoding
from zoo.__main__ import main
from zoo.commands.translate import FEW_TEXTS
from zoo.errors import TaskError, UserError
from zoo.tasks import task
from zoo.tasks.padded_batches import pad_and_batch
from zoo.tasks.shortlist import Shortlist
from zoo.tasks.translator import Translator
from zoo.text import EOS_ID, PAD_ID
from zoo.text.answers import ScoredText
from zoo.text.encoding import encode_parts, unknown_signs
from zoo.text.special_tokens import SPECIAL_TOKENS

WORDS = "the a red big house dog cat sees eats in on bread table garden and".split()


def texts(count, longest=14, seed=0):
    """Texts of up to `longest` words, which are tokens; most tests share the functions for 16."""
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(1, longest + 1))) for _ in range(count)]


@pytest.fixture(scope="module")
def translator():
    """It writes some of the words; most translations end, some soon."""
    sizes = {"embed_dim": 32, "ff_dim": 32, "num_layers": 1, "max_length": 32, "logits_bias": True}
    translator = small_translator(kind="word", lines=texts(600), beam_size=2, **sizes)
    pieces = translator.target_tokenizer.pieces(range(translator.model.target_vocab_size))
    unlikely = [piece.startswith("<") and piece != "</s>" for piece in pieces]  # bytes
    translator.model.output_bias.assign(np.where(unlikely, -99.0, 0.0))
    return translator


def test_answers_are_in_the_callers_order(translator):
    given = texts(50)
    together = translator(given)
    assert len(together) == 50 and len(set(together)) > 20
    for index in (0, 1, 49):
        assert translator([given[index]]) == [together[index]]
    assert translator(given[::-1])[::-1] == together


def test_an_empty_text_gives_an_empty_text(translator):
    assert translator([]) == []
    assert translator(["", "  \n"]) == ["", "  \n"]
    assert translator(["", "  \n"], sentences=False) == [""] * 2
    [first, empty, second] = translator(["the dog", "", "a cat"])
    assert empty == "" and [first, second] == translator(["the dog", "a cat"])


def test_what_has_no_letter_is_kept(translator, monkeypatch):
    numbers = [
        "859660709412",
        "12:30:59,120 --> 12:31:00",
        "2024-02-29",
        "-€ 1,234.50",
        "👩‍👩‍👧 ½ …",
    ]
    numbers += ["1. 2.\n3!", "٣"]
    for sentences in (True, False):
        assert translator(numbers, sentences=sentences) == numbers
        assert translator.n_best(numbers, 2) == [[(text, 0.0)] for text in numbers]
    [dog, cat] = translator(["the dog.", "a cat."])
    assert translator(["the dog. 12. 3\n4\ta cat."]) == [f"{dog} 12. 3\n4\t{cat}"]
    assert translator(["9 " * 99, "9" * 99]) == ["9 " * 99, "9" * 99]  # too long for the model
    monkeypatch.setattr(translator, "keep_numbers", False)
    assert [len(best) for best in translator.n_best(["12", "3.5"], 2)] == [2, 2]


def test_signs_that_are_no_tokens_keep_their_places(translator, monkeypatch):
    unknown = translator.source_tokenizer.unknown

    class WithoutBytes:
        """As of published translators, a tokenizer that does not spell signs in bytes."""

        language_prefixes = False
        prefix = ()
        longest_token = 64

        def encode(self, texts):
            rows = translator_tokenizer.encode([text.replace("★", "") for text in texts])
            return [[unknown] * text.count("★") + row for text, row in zip(texts, rows)]

    translator_tokenizer = translator.source_tokenizer
    tokenizer = WithoutBytes()
    tokenizer.unknown = unknown
    assert unknown_signs(tokenizer, "a ★ + b★") == {"★"}
    given = ["★ the dog ★\ufe0f★ a cat", "the dog"]
    layouts, rows = encode_parts(tokenizer, given, 30, EOS_ID, "error", True, True, True)
    assert layouts == [
        ["★ ", "the dog", " ★\ufe0f★ ", "a cat", ""],
        ["", "the dog", ""],
    ]
    assert rows[0] == rows[2] and len(rows) == 3
    # Signs are kept alone: numbers are translated without `keep_numbers`.
    [layout], _ = encode_parts(tokenizer, ["★ 25"], 30, EOS_ID, "error", True, False, True)
    assert layout == ["★ ", "25", ""]
    # So are the characters without a letter between and after them.
    for keep_numbers in (False, True):
        given = ["the dog ★!", "the dog ★ (★)."]
        layouts, _ = encode_parts(tokenizer, given, 30, EOS_ID, "error", True, keep_numbers, True)
        assert layouts == [["", "the dog", " ★!"], ["", "the dog", " ★ (★)."]]
    # Many characters that are few tokens fit, where parts are tokenized to tell.
    wide = ["the dog" + " " * 10_000 + "a cat"]
    assert len(encode_parts(tokenizer, wide, 30, EOS_ID, "split", True)[1]) == 1


def test_sampling_depends_on_the_seed_and_not_on_the_neighbors(translator):
    given = texts(8)
    draws = translator.sample(given, n=2, seed=1)
    assert draws == translator.sample(given, n=2, seed=1)
    assert draws != translator.sample(given, n=2, seed=2)
    fewer, best = translator.sample(given[:2], n=2, seed=1), translator(given, beam_size=1)
    assert [[d.text for d in ds] for ds in fewer] == [[d.text for d in ds] for ds in draws[:2]]
    narrow = translator.sample(given, n=2, top_p=1e-6)
    assert [[draw.text for draw in of_text] for of_text in narrow] == [[text] * 2 for text in best]
    coldest = translator.sample(given, n=2, temperature=0.001)
    # two tokens may be about as likely
    assert sum(draw.text == text for [draw, _], text in zip(coldest, best)) >= 7


def num_functions(translator):
    """How often a function was traced."""
    return translator._cached_function.cache_info().misses


def direct(translator, text, length, beam_size=1):
    """The best translation, by a search that is neither compiled nor padded."""
    [ids], special = translator.source_tokenizer.encode([text]), translator.special_tokens
    model = translator.model
    cache = model.start(np.array([[*ids, special.end]], "int32"), length, beam_size)
    if beam_size == 1:
        found = decoding.greedy_search(model.step, cache, 1, special, length, 0.6)
    else:
        found = decoding.beam_search(model.step, cache, 1, special, length, beam_size, 0.6)
    tokens = keras.ops.convert_to_numpy(found.tokens)[0, 0].tolist()
    for token in special.prefix:
        assert tokens.pop(0) == token
    [translation] = translator.target_tokenizer.decode([tokens])
    return translation, float(found.scores[0, 0])


def assert_is_direct(translator, text, length=8, beam_size=1):
    """Compares with `direct`; returns the best `ScoredText`."""
    [[best]] = translator.n_best([text], max_length=length, beam_size=beam_size)
    expected, score = direct(translator, text, length, beam_size)
    assert best.text == expected
    assert best.score == pytest.approx(score, abs=1e-4)
    return best


def nothing_found(count):
    return decoding.Hypotheses(np.full((count, 1, 1), EOS_ID), *np.zeros((2, count, 1)))


@pytest.fixture
def made(monkeypatch):
    """Whether XLA is to compile each function that is made; none is traced, and finds nothing."""
    made = []

    def record(graph, specs, jit_compile, attributes, **constants):
        made.append(jit_compile)
        return lambda source, *_: nothing_found(len(source))

    monkeypatch.setattr(task, "_compiled", record)
    monkeypatch.setattr(task, "JIT_COMPILE", True)
    return made


def test_xla_can_be_turned_off(translator, made):
    """At any time, and also for a model that is assigned later."""
    same = Translator(translator.model, *(translator.source_tokenizer,) * 2)
    for value in (True, False, True):
        same.jit_compile = value
        same(["the dog"], beam_size=1)
    assert made == [True, False]  # both are kept
    same.jit_compile = False
    same.model = translator.model
    same(["the dog"], beam_size=1)
    assert made == [True, False, False] and not same.jit_compile


def test_the_command_line_compiles_if_there_are_many_texts(folder, made):
    for count, expected in ((FEW_TEXTS, False), (FEW_TEXTS + 1, True)):
        made.clear()
        assert main(["translate", str(folder), *["the dog"] * count]) == 0
        assert set(made) == {expected}


@pytest.mark.xla
def test_compiled_and_not(translator):
    """The same within rounding, far below the differences of the scores of these translations."""
    found = []
    for value in (True, False):
        same = Translator(translator.model, *(translator.source_tokenizer,) * 2)
        same.jit_compile = value
        found.append(same.n_best(texts(5), n=2))
    for compiled, plain in zip(*found):
        assert [one.text for one in compiled] == [one.text for one in plain]
        assert [one.score for one in compiled] == pytest.approx([one.score for one in plain], 1e-5)


@pytest.mark.ci
def test_lengths_that_callers_choose_are_not_compiled_for(translator):
    [text], before = texts(1, seed=3), num_functions(translator)
    lengths = (1, 2, 5, 16, 17, 32)
    found = [translator([text], max_length=length)[0] for length in lengths]
    drawn = [translator.sample([text, text], n=2, max_length=n)[0] for n in (17, 23)]
    assert num_functions(translator) - before <= 3  # two lengths of buffers, and one of the samples
    assert len(set(found)) > 3
    for length, one in zip(lengths, found):
        assert one == direct(translator, text, length, translator.beam_size)[0]
    model, special = translator.model, translator.special_tokens
    [source] = translator.source_tokenizer.encode([text])
    for length, draws in zip((17, 23), drawn):
        uniforms = np.random.default_rng([0, 0]).random((length, 2), np.float32).T[None]
        cache = model.start(np.array([[*source, EOS_ID]], "int32"), length, 2)
        [tokens], *_ = decoding.sample(model.step, cache, uniforms, special, length)
        expected = translator.target_tokenizer.decode(tokens)
        assert [draw.text for draw in draws] == expected


@pytest.mark.parametrize("devices, tokens, rows", [([], 4096, 32), (["GPU"], 32768, 256)])
def test_batches_hold_each_source_once_and_few_tokens(devices, tokens, rows, monkeypatch):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: devices)
    random = np.random.default_rng(0)
    lengths = [*random.integers(1, 2000, 500).tolist(), *random.integers(1, 16, 500).tolist()]
    many = pad_and_batch([[[7] * 60]] * 32, SPECIAL_TOKENS, 2048, 64, hypotheses=100)
    assert max(len(batch.indices) for batch in many) * 64 * 100 / 8 <= tokens
    batches = pad_and_batch([[[7] * n] for n in lengths], SPECIAL_TOKENS, 2048)
    assert max(len(batch.indices) for batch in batches) == rows
    for indices, known, [source] in batches:
        assert len(source) == 1 or source.size <= tokens
        assert known == [lengths[index] for index in indices]
        assert (source != PAD_ID).sum(axis=1)[: len(indices)].tolist() == known
    assert sorted(index for batch in batches for index in batch.indices) == list(range(1000))
    assert len(batches) < 500


def small_model(translator, seed=1, **settings):
    """A model with drawn weights that fits the translator's tokenizers."""
    keras.utils.set_random_seed(seed)
    sizes = {"embed_dim": 8, "num_heads": 2, "num_layers": 1, "ff_dim": 8, "max_length": 32}
    size = translator.target_tokenizer.vocab_size
    sizes |= {"source_vocab_size": size, "target_vocab_size": size, "norm": "pre"}
    model = zoo.transformer(**{**sizes, **settings})
    draw(model.weights, seed)
    return model


def draw(weights, seed):
    random = np.random.default_rng(seed)
    for weight in weights:
        weight.assign(random.normal(size=weight.shape))


def copy_with(translator, model, **settings):
    return Translator(
        model, translator.source_tokenizer, translator.target_tokenizer, beam_size=1, **settings
    )


def test_invalid_settings(translator):
    for value in (0, 1, "nevr", None):
        with pytest.raises(TaskError, match="early_stopping must be"):
            copy_with(translator, translator.model, early_stopping=value)
    with pytest.raises(TaskError, match="special_tokens.prefix must be a tuple of token ids"):
        copy_with(translator, translator.model, special_tokens=SPECIAL_TOKENS._replace(prefix=7))
    for name, token in (("end", 10**6), ("start", None), ("prefix", (2.0,)), ("pad", -1)):
        special = SPECIAL_TOKENS._replace(**{name: token})
        with pytest.raises(TaskError, match=f"special_tokens.{name} must be an integer from 0"):
            copy_with(translator, translator.model, special_tokens=special)


def test_another_model_must_fit(translator):
    wrong = small_model(translator, pad_id=5)
    message = "padding token is 5 .*Received special tokens with pad=0"
    with pytest.raises(TaskError, match=message):
        copy_with(translator, wrong)
    changing = copy_with(translator, translator.model)
    with pytest.raises(TaskError, match=message):
        changing.model = wrong
    size = translator.source_tokenizer.vocab_size
    with pytest.raises(TaskError, match=f"has {size + 1} source tokens"):
        changing.model = small_model(translator, source_vocab_size=size + 1)
    assert changing.model is translator.model
    changing.max_length = 30
    with pytest.raises(TaskError, match="max_length must be an integer from 1 to 16"):
        changing.model = small_model(translator, max_length=16)
    assert copy_with(translator, wrong, special_tokens=SPECIAL_TOKENS._replace(pad=5))


def test_a_forced_prefix(translator, tmp_path):
    """It is in every hypothesis, counts as certain and is not part of the text."""
    [text] = texts(1, seed=6)
    [[first]] = translator.target_tokenizer.encode(["garden"])
    special = SPECIAL_TOKENS._replace(prefix=(first,))
    forced = copy_with(translator, translator.model, special_tokens=special)
    assert_is_direct(forced, text, beam_size=2)
    [[greedy]] = forced.n_best([text], length_penalty=0.0)
    [[draw]] = forced.sample([text], top_p=1e-6)
    assert draw.text == greedy.text
    [score] = forced.score([text], [greedy.text])
    assert [draw.score, score] == pytest.approx([greedy.score] * 2, abs=1e-4)
    assert forced.alignment(text, "the cat").target == [" garden", " the", " cat", "</s>"]

    forced.save(tmp_path)
    assert Translator.load(tmp_path).special_tokens == special
    size = forced.model.target_vocab_size
    shortlist = Shortlist(np.array([], int), np.zeros(size + 1, int), size, shared=False)
    forced.model = small_model(translator, shared="none")
    with pytest.raises(TaskError, match="whose output layer is the target embedding"):
        forced.shortlist = shortlist
    forced.model = small_model(translator)
    [[expected]] = forced.sample([text], max_length=9)
    forced.shortlist = shortlist
    [[draw]] = forced.sample([text], max_length=9)
    assert draw.text == expected.text  # among candidates, padding has no probability


def test_learned_positions_are_not_exceeded(translator):
    learned = copy_with(translator, small_model(translator, positions="learned", max_length=6))
    with pytest.raises(TaskError, match="max_length must be an integer from 1 to 6"):
        learned(["a"], max_length=7)
    for call in (learned.score, lambda texts, others: learned.alignment(*texts, *others)):
        with pytest.raises(TaskError, match="Translation 0 is too long: 7 .* takes 6"):
            call(["a"], ["the cat sees the red dog"])
        with pytest.raises(TaskError, match="Text 0 is too long: 7 .* takes 6"):
            call(["the cat sees the red dog"], ["a"])


def test_a_text_that_is_too_long(translator):
    long = " ".join(texts(10, longest=12)) + ". " + "the dog eats bread. " * 20
    with pytest.raises(TaskError, match=r"A sentence is too long: \d+ tokens.*takes 32.*split"):
        translator(["the dog", long])
    [_, whole] = translator(["the dog", long], too_long="split")
    assert len(whole) > 20
    [[only]] = translator.n_best([long], n=2, too_long="split")
    assert only.text == whole  # the parts are the same
    with pytest.raises(TaskError, match=r"A text is too long: 43 tokens, and"):
        translator([" ".join(["the"] * 42)], sentences=False)


def test_the_layout_is_kept(translator):
    """Of each sentence the translation is the one that it has alone."""
    between = ["\ufeff \t", " ", "\r\n\r\n  ", "  ", "\n---\n", "", "\n\u200b"]
    parts = ["the dog!", "A cat?", "the red house.", "Dog", "eats bread。", "the cat"]
    text, alone = "".join(map("".join, zip(between, [*parts, ""]))), translator(parts)
    between[5] = " "  # words of its language are divided by spaces
    expected = "".join(map("".join, zip(between, [*alone, ""])))
    assert translator([text, "", "the dog"]) == [expected, "", translator(["the dog"])[0]]
    assert translator(parts) == translator(parts, sentences=False)
    assert translator(["😀 ---", "\r\n"]) == ["😀 ---", "\r\n"]
    [[one]], single = translator.n_best([text], n=2, sentences=True), translator.n_best(parts)
    assert one.text == expected
    np.testing.assert_allclose(one.score, sum(best.score for [best, *_] in single), rtol=1e-5)
    [several] = translator.n_best(["\tthe dog\n"], n=2, sentences=True)
    [plain] = translator.n_best(["the dog"], n=2)
    assert several == [(f"\t{text}\n", score) for text, score in plain]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda t: t("a text"), "list of str"),
        (lambda t: t(iter(["a"])), "list of str"),
        (lambda t: t(["a"], beam_size=2.0), "beam_size must be an integer .*beam_size=2.0"),
        (lambda t: t.n_best(["a"], 3, beam_size=2), "beam_size must be an integer from 3 to 1000"),
        (lambda t: t(["a"], max_length=33), "max_length must be an integer from 1 to 32"),
        (lambda t: t(["a"], length_penalty=float("nan")), "length_penalty must be a finite number"),
        (lambda t: t(["a"], too_long="cut"), 'too_long must be "error", "split" or'),
        (lambda t: t(["a"], sentences=1), "sentences must be True or False"),
        (lambda t: t.sample(["a"], temperature=np.inf), "temperature must be a finite number"),
        (lambda t: t.sample(["a"], seed=-1), "seed must be an integer of at least 0"),
        (lambda t: t.score("a", ["a"]), "list of str"),
    ],
)
def test_bad_input(translator, call, message):
    with pytest.raises(UserError, match=message):
        call(translator)


@pytest.fixture(scope="module")
def folder(translator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    translator.save(folder)
    return folder


def test_the_command_line(translator, folder, tmp_path, capsys, monkeypatch):
    given = ["the dog", "", "a cat sees bread"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(given).encode())))
    assert main(["translate", str(folder)]) == 0
    printed = capsys.readouterr()
    assert (printed.out.split("\n"), printed.err) == ([*translator(given), ""], "")
    picture = tmp_path / "attention.png"
    aligned, alignment = [], Translator.alignment
    monkeypatch.setattr(
        Translator, "alignment", lambda *given: [aligned.extend(given[1:]), alignment(*given)][1]
    )
    given = ["translate", str(folder), "the dog", "--beam-size", "1"]
    assert main([*given, "--attention", str(picture)]) == 0
    [greedy] = translator(["the dog"], beam_size=1)
    assert capsys.readouterr().out == greedy + "\n"
    assert picture.stat().st_size > 1000 and aligned == ["the dog", greedy]


def printed_lines(capsys, *arguments):
    assert main(["translate", *map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


def test_each_line_of_several_translations_has_the_number_of_its_text(
    translator, folder, tmp_path, capsys, monkeypatch
):
    """Also after blank texts, which have one."""
    (tmp_path / "texts").write_text("the dog\n\na cat\r\n")
    rows = [
        line.split("\t")
        for line in printed_lines(capsys, folder, "--file", tmp_path / "texts", "--n-best", 3)
    ]
    assert [row[0] for row in rows] == [*"1112333"] and rows[3] == ["2", "0.0000", ""]
    expected = translator.n_best(["the dog", "", "a cat"], 3)
    assert [row[2] for row in rows] == [text for best in expected for text, _ in best]
    texts = ["1.\n2.", "3\t4"]  # in lines of their own
    assert printed_lines(capsys, folder, *texts) == ["1.\\n2.", "3\\t4"]
    assert printed_lines(capsys, folder, texts[0]) == ["1.", "2."]
    # A model that was trained on targets with line breaks may generate them.
    answer = [ScoredText("one\ntwo\tthree", 0.0)]
    monkeypatch.setattr(Translator, "n_best", lambda self, batch, *_, **__: [answer for _ in batch])
    found = printed_lines(capsys, folder, "--file", tmp_path / "texts")
    assert {*found} == {"one\\ntwo\tthree"} and len(found) == 3


@pytest.mark.slow
def test_lines_are_answered_as_they_come_and_whatever_the_encoding(folder):
    """Standard input stays open; signs that ASCII does not have are escaped."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    with subprocess.Popen(
        [sys.executable, "-m", "zoo", "translate", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        bufsize=0,
    ) as process:
        for given, expected in (("12:30 →\n", b"12:30 \\u2192\n"), ("\n", b"\n")):
            process.stdin.write(given.encode())
            assert process.stdout.readline() == expected
        process.stdin.write(b"3")
        process.stdin.close()
        assert process.stdout.read() == b"3\n"
    assert process.returncode == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("classify {run} image.png", "cannot classify: use `python -m zoo translate`"),
        ("translate {run} --file {here}/latin1.txt", "not UTF-8"),
        ("translate {run} --file {here}/missing.txt", "missing.txt cannot be read: No such file"),
        ("translate {run} --file {here}", "cannot be read: Is a directory"),
        ("translate {here}/nowhere a --file {here}/latin1.txt", "Pass texts or --file, not both"),
        ("translate {here}/nowhere a", "no file or folder"),
        (
            "translate {run} a --tgt-lang es",
            "takes no options other than dtype and engine. Others are for Vision Transformers",
        ),
        ("translate {here}/nowhere a b --attention x.png", "--attention takes one text"),
        ("translate {run} a --beam-size -1", "beam_size must be an integer from 1 to 1000"),
    ],
)
def test_the_command_line_on_bad_input(folder, tmp_path, capsys, arguments, message):
    (tmp_path / "latin1.txt").write_bytes("ni\xf1o".encode("latin-1"))
    assert main(arguments.format(run=folder, here=tmp_path).split()) == 2
    assert message in capsys.readouterr().err


def test_scores_of_given_translations_are_those_of_the_search(translator):
    texts = ["hello world", "the dog is here", "a"]
    best = [translations[0] for translations in translator.n_best(texts, length_penalty=0.0)]
    scores = translator.score(texts, [translation.text for translation in best])
    # sums of float32 log-probabilities, step by step and all at once
    np.testing.assert_allclose(scores, [translation.score for translation in best], atol=1e-4)
    fewer = translator.score(texts[1:], [translation.text for translation in best[1:]])
    np.testing.assert_allclose(scores[1:], fewer, atol=1e-4)
    assert translator.score([], []) == []
    with pytest.raises(TaskError, match="1 texts and 2 translations"):
        translator.score(["a"], ["a", "b"])
