"""Sequence-level distillation: the pairs are those that the teacher translates."""

import dataclasses
import json
import pathlib
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

import zoo
from tests.conftest import ROOT
from tests.deploy.small_models import LINES, small_classifier, small_translator
from tests.test_recipes import recipe
from zoo.data.text_rows import TextDataset
from zoo.errors import DataError, TaskError, UserError
from zoo.files import atomic
from zoo.text.answers import ScoredText
from zoo.training import report_distillation, sentence_pairs, teacher_translations
from zoo.training.report_distillation import compared_with_teacher
from zoo.training.report_translation_scores import translation_scores
from zoo.training.run import Run
from zoo.training.run_folder import RunFolder, task_fingerprint
from zoo.training.sentence_pairs import identity_of_teachers, load_pairs, with_teachers
from zoo.training.teacher_translations import Teacher, load_teachers, translations

translate = recipe("translate")
SOURCES = ["The cat.", "The dog sat.", "The mat, and the dog.", "12.", "¿Dónde está?"]
TEXT = TextDataset(
    train=[(source, "x") for source in (*SOURCES[:3], SOURCES[0])],
    valid=[("Held out", "y")],
    test=[],
    notes=("a note",),
    seed=0,
)


@pytest.fixture(scope="module")
def teacher():
    translator = small_translator(lines=[*LINES, *SOURCES])
    translator.max_length = 6
    return translator


def best(teacher, sources):
    return [(answer.text, answer.score) for [answer] in teacher.n_best(sources)]


def test_translations_are_stored_and_go_on_where_they_ended(teacher, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher_translations, "_BLOCK", 2)
    path = tmp_path / "new" / "teacher.jsonl"
    expected = translations(teacher, SOURCES, path, "small")
    for (text, score), (other, other_score) in zip(expected, best(teacher, SOURCES)):
        assert text == other and score == pytest.approx(other_score, abs=1e-4)
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.strip()]
    stored = [(text, *found) for text, found in zip(SOURCES, expected)]
    assert [tuple(json.loads(line)) for line in lines] == stored
    path.write_text("".join(lines[:2]) + lines[2][:7])  # cut off in the third
    monkeypatch.setattr(teacher, "n_best", fail_on(SOURCES[:2], teacher.n_best))
    again = translations(teacher, [*SOURCES[::-1], SOURCES[0]], path, "small")
    assert again == [*expected[::-1], expected[0]]
    found = [line for line in path.read_text().splitlines(keepends=True) if line.strip()]
    assert sorted(found) == sorted([*lines, f"{lines[2][:7]}\n"])


NO_TRANSLATIONS = [
    '["c", "d',
    "null",
    '["c", "d"]',
    "\x00",
    "5",
    '["c", null, 0.5]',
    '["c", 5, 0.5]',
    '["c", "d", NaN]',
    '["c", "d", "x"]',
    f'["c", "d", {10**400}]',
    "[" * 100_000,
]


@pytest.mark.parametrize("line", NO_TRANSLATIONS, ids=range(len(NO_TRANSLATIONS)))
def test_a_damaged_line_is_translated_again(line, teacher, tmp_path):
    path = tmp_path / "stored"
    path.write_text(f'["a", "b", 0.5]\n{line}\n["e", "f", 0.5]\n{line}')
    first, second, third = translations(teacher, ["a", "c", "e"], path, "small")
    assert first == ("b", 0.5) and third == ("f", 0.5)
    [(text, _)] = best(teacher, ["c"])
    assert second[0] == text
    assert translations(None, ["a", "c", "e"], path, "small") == [first, second, third]


def fail_on(texts, function):
    def checked(given, **options):
        assert not set(texts) & set(given), "they were translated before"
        return function(given, **options)

    return checked


@pytest.fixture
def pairs_of(teacher, tmp_path):
    """The training pairs of TEXT with flags, where `teacher` is the model of all paths."""

    def found(text=TEXT, **flags):
        config = translate.Config(**{"tsv": "x", **flags})
        return with_teachers(text, config, teachers_of(config, teacher), tmp_path)

    return found


def teachers_of(config, model):
    teachers = [Teacher(path, model, "all", is_reverse=False) for path in config.teacher]
    reverse = [Teacher(path, model, "all", is_reverse=True) for path in config.reverse_teacher]
    return teachers + reverse


def translated(teacher, texts):
    return [(text, found) for text, (found, _) in zip(texts, best(teacher, texts)) if found]


def test_targets_are_those_of_the_teachers(teacher, pairs_of):
    """Each pair once, also if several teachers agree."""
    expected = translated(teacher, SOURCES[:3])
    found = pairs_of(teacher=("a",))
    assert found.train == expected and found.valid == TEXT.valid
    assert pairs_of(teacher=("a", "b")).train == expected
    both = pairs_of(teacher=("a",), keep_references=True)
    assert both.train == [*expected, *TEXT.train[:3]]


def test_back_translation(teacher, pairs_of, tmp_path):
    """Sources are translations of targets, which are kept; they are no held-out sources."""
    (tmp_path / "more").write_text("Y\nThe cat.\n")  # the first is held out
    expected = [(source, target) for target, source in translated(teacher, ["x", "The cat."])]
    found = pairs_of(reverse_teacher=("a",), monolingual_target=str(tmp_path / "more"))
    assert found.train == [*expected, *TEXT.train[:3]] and expected
    forward = translated(teacher, SOURCES[:3])
    both = pairs_of(teacher=("a",), reverse_teacher=("b",))
    assert both.train == [*forward, *expected[:-1]]
    text = TEXT._replace(valid=[(expected[0][0].upper(), "z")])
    without = pairs_of(text, reverse_teacher=("a",))
    assert without.train == TEXT.train[:3]
    reason = "translations with the source or the target of a held-out pair"
    assert without.notes[-1] == f"Not used, {reason}: 1."
    text = TEXT._replace(valid=[("z", expected[0][1].upper())])
    assert pairs_of(text, reverse_teacher=("a",)).train == TEXT.train[:3]


def test_teachers_that_may_have_seen_held_out_pairs(teacher, monkeypatch):
    def notes(**flags):
        config = translate.Config(**{"tsv": "x", **flags})
        return sentence_pairs._split_notes(config, teachers_of(config, teacher))

    settings = {"seed": 1, "dataset": None, "tsv": "folder/x", "valid_source": None}
    monkeypatch.setattr(teacher, "settings", settings)
    both = {"teacher": ("a",), "reverse_teacher": ("b",)}
    first, second = notes(**both)
    assert first.startswith("--teacher a may") and first.endswith("its run had another --seed.")
    assert second.startswith("--reverse-teacher b may")
    [note] = notes(seed=1, **both)
    assert note.startswith("--reverse-teacher b may")
    [note] = notes(teacher=("a",), tsv="y")
    assert note.endswith("another --seed and --tsv.")
    [note] = notes(teacher=("a",), tsv=None, dataset="phrasebook", seed=1)
    assert note.endswith("another --dataset and --tsv.")


def test_the_fingerprint_of_a_model_is_that_of_its_translations(teacher, tmp_path):
    """It does not depend on files; each part that translations depend on changes it."""
    teacher.save(tmp_path / "run")
    loaded = zoo.load(tmp_path / "run")
    found = [task_fingerprint(teacher)]
    assert task_fingerprint(loaded) == found[0]
    assert task_fingerprint(zoo.load(tmp_path / "run", dtype="mixed_bfloat16")) == found[0]
    loaded.beam_size += 1
    found.append(task_fingerprint(loaded))
    loaded.target_tokenizer = small_translator(lines=LINES).target_tokenizer
    found.append(task_fingerprint(loaded))
    weight = loaded.model.weights[-1]
    weight.assign(weight + 1e-6)
    found.append(task_fingerprint(loaded))
    assert len({*found}) == 4


def test_languages_of_a_reverse_teacher_are_reversed(teacher, monkeypatch):
    asked = []
    monkeypatch.setattr(
        teacher_translations, "load_translator", lambda *each: asked.append(each) or teacher
    )
    both = {"teacher": ("a",), "reverse_teacher": ("b",)}
    first, second = load_teachers(translate.Config(tsv="x", src_lang="en", tgt_lang="de", **both))
    assert first == Teacher("a", teacher, task_fingerprint(teacher), False)
    assert second == first._replace(path="b", is_reverse=True)
    assert asked == [
        ("--teacher", "a", ("en", "de")),
        ("--reverse-teacher", "b", ("de", "en")),
    ]


def test_further_sources_without_held_out_ones(teacher, pairs_of, tmp_path):
    more = tmp_path / "more.txt"
    more.write_text("held  OUT\n\n12.\nThe cat.\n¿Dónde está?\n")
    found = pairs_of(teacher=("a",), monolingual=str(more))
    assert found.train == translated(teacher, SOURCES)
    assert found.notes[1] == f"Not used, lines of {more} that are empty or held out: 2."


def test_a_cache_in_the_run_directory_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = SimpleNamespace(path=pathlib.Path("run"), is_chief=True)
    for cache_dir in ("run", tmp_path / "run" / "cache"):
        run.settings = translate.Config(tsv="x", cache_dir=str(cache_dir))
        with pytest.raises(UserError, match="--cache-dir .* is in the run directory run"):
            load_pairs(run, 10)


def test_teachers_that_translate_nothing(teacher, pairs_of, monkeypatch):
    monkeypatch.setattr(
        teacher,
        "n_best",
        lambda texts, **_: [[SimpleNamespace(text="", score=-1.0)] for _ in texts],
    )
    with pytest.raises(UserError, match="The teachers leave no training pairs. a note"):
        pairs_of(teacher=("a",))


def test_an_empty_file_of_more_text_is_refused(pairs_of, tmp_path):
    (tmp_path / "empty").write_text("")
    with pytest.raises(DataError, match="empty is empty. Pass a file with one sentence per line"):
        pairs_of(teacher=("a",), monolingual=str(tmp_path / "empty"))


@pytest.mark.parametrize("offset, prefix", [(5.0, ()), (0.0, (4,))])  # a language code counts
def test_the_worst_are_left_out(teacher, pairs_of, monkeypatch, offset, prefix):
    """They have the lowest log-probability per token; the score alone would choose a long one."""
    monkeypatch.setattr(teacher, "length_offset", offset)
    monkeypatch.setattr(teacher, "special_tokens", teacher.special_tokens._replace(prefix=prefix))
    translations = ["The cat.", "The cat, the dog and the mat. And the cat.", "The dog sat."]
    per_token = [-1.0, -0.8, -0.9]
    lengths = [len(ids) + 1 for ids in teacher.target_tokenizer.encode(translations)]
    scores = [
        mean * length / ((offset + length + len(prefix)) / (offset + 1)) ** teacher.length_penalty
        for mean, length in zip(per_token, lengths)
    ]
    assert np.argmin(scores) == 1
    measured = teacher_translations._log_probs_per_token(teacher, [*zip(translations, scores)])
    np.testing.assert_allclose(measured, per_token, rtol=1e-5)  # float32
    answers = dict(zip(SOURCES, map(ScoredText, translations, scores)))
    monkeypatch.setattr(teacher, "n_best", lambda texts, **_: [[answers[text]] for text in texts])
    found = pairs_of(teacher=("a",), drop_worst=0.4)
    assert found.train == [*zip(SOURCES[1:], translations[1:])]
    assert found.notes[-1].endswith("among the worst: 1.") and found.notes[0] == "a note"


@pytest.mark.ci
def test_log_probabilities_per_token_are_those_of_the_model():
    """Within float32, for translations whose tokens are those of their text."""
    translator = zoo.load(ROOT / "docs" / "results" / "translate_spa")
    texts = ["I would like a cup of coffee.", "She has gone to the library to read a book."]
    [ella] = translator.target_tokenizer.encode(["Ella"])
    for prefix in ((), tuple(ella)):
        translator.special_tokens = translator.special_tokens._replace(prefix=prefix)
        found = [(answer.text, answer.score) for [answer] in translator.n_best(texts)]
        translations = [text for text, _ in found]
        lengths = [len(ids) + 1 for ids in translator.target_tokenizer.encode(translations)]
        expected = np.divide(translator.score(texts, translations), lengths)
        measured = teacher_translations._log_probs_per_token(translator, found)
        np.testing.assert_allclose(measured, expected, rtol=1e-5)


@pytest.mark.ci
def test_the_recipe(teacher, tmp_path, capsys):
    """The targets of training are those of the teacher; the test references stay."""
    folder = tmp_path / "teacher"
    teacher.save(folder)
    lines = [("The cat sat on the mat.", "x"), ("The dog sat.", "y")] * 200
    pairs = tmp_path / "pairs.tsv"
    numbered = [f"{source} {n}\t{target} {n}\n" for n, (source, target) in enumerate(lines)]
    pairs.write_text("".join(numbered))
    config = dataclasses.replace(
        translate.PHRASEBOOK,
        dataset=None,
        tsv=str(pairs),
        vocab_size=300,
        teacher=(str(folder),),
        out=str(tmp_path / "run"),
        max_length=40,
    )
    data, (_, tokenizer) = load_pairs(Run(config, name="student"), config.max_length)
    [stored] = (tmp_path / ".cache" / "translate" / "teacher").glob("*.jsonl")
    rows = [json.loads(line) for line in stored.read_text().split("\n") if line]
    translated = {" ".join(translation.split()) for _, translation, _ in rows}
    places = np.arange(1, 2 * len(data.train), 2)  # of the targets, which begin with a control id
    targets = data.train.sequences.padded(places, (len(places), 40), -1)
    texts = tokenizer.decode([[one for one in row[1:] if one != -1] for row in targets])
    assert texts and {*texts} <= translated
    assert all(target[0] in "xy" for _, target in data.test)
    more = tmp_path / "more.txt"
    with_more = dataclasses.replace(config, monolingual=str(more))
    for number, line in enumerate(("The mat.", "The mat and the dog."), start=1):
        more.write_text(f"{line}\n")  # the same path with another size
        load_pairs(Run(with_more, name="student"), config.max_length)
        lines = [line for line in stored.read_text().split("\n") if line]
        assert len(lines) == len(rows) + number  # only this is new
    again, _ = load_pairs(Run(config, name="student"), config.max_length)
    assert len(again.train) == len(data.train)
    assert "tokenized by an earlier run" in capsys.readouterr().out
    copy = tmp_path / "copy"  # the same model, of a run that held out other pairs
    same = zoo.load(folder)
    same.settings = {"seed": 5, "tsv": str(pairs)}
    same.save(copy)
    with_copy = dataclasses.replace(config, teacher=(str(copy),))
    of_copy, _ = load_pairs(Run(with_copy, name="student"), config.max_length)
    assert "tokenized by an earlier run" in capsys.readouterr().out
    [note] = set(of_copy.notes) - set(again.notes)
    assert note.startswith(f"--teacher {copy} may have been trained on data that are held out here")
    other = zoo.load(folder)
    other.beam_size += 1
    other.save(folder)  # another model, so the translations are made again
    load_pairs(Run(config, name="student"), config.max_length)
    assert len([*stored.parent.glob("*.jsonl")]) == 2


@pytest.mark.ci
def test_no_warning_where_validation_and_test_pairs_are_given(teacher, tmp_path, monkeypatch):
    """No pairs are drawn, so it does not matter that the run of the teacher had another seed."""
    monkeypatch.setattr(teacher, "settings", {"seed": 5})
    teacher.save(tmp_path / "teacher")
    files = {}
    for name, count in (("", 200), ("valid_", 3), ("test_", 4)):
        for side, word in (("source", "The cat sat"), ("target", "x")):
            path = tmp_path / f"{name}{side}"
            path.write_text("".join(f"{word} {name}{n}.\n" for n in range(count)))
            files[name + side] = str(path)
    config = dataclasses.replace(
        translate.PHRASEBOOK,
        dataset=None,
        vocab_size=300,
        teacher=(str(tmp_path / "teacher"),),
        keep_references=True,
        out=str(tmp_path / "run"),
        **files,
    )
    data, _ = load_pairs(Run(config, name="student"), config.max_length)
    assert data.seed is None
    assert not any("may have been trained" in note for note in data.notes)


def test_a_teacher_that_was_deleted_or_replaced_is_not_compared(teacher, tmp_path, capsys):
    config = translate.Config(tsv="x", teacher=(str(tmp_path / "run"),))
    assert translate.first_teacher(config, ["0"]) is None
    assert "is not compared with its teacher. --teacher: There is no" in capsys.readouterr().out
    teacher.save(tmp_path / "run")
    assert translate.first_teacher(config, [task_fingerprint(teacher)]) is not None
    assert capsys.readouterr().out == ""
    assert translate.first_teacher(config, ["0"]) is None
    assert f"--teacher {tmp_path / 'run'} has changed." in capsys.readouterr().out


def test_stored_translations_are_read_without_a_lock(teacher, tmp_path, monkeypatch):
    """As from a folder that cannot be written to."""
    expected = translations(teacher, SOURCES, tmp_path / "stored", "small")
    monkeypatch.setattr(teacher_translations, "locked", None)
    assert translations(None, SOURCES, tmp_path / "stored", "small") == expected


def test_a_run_with_another_teacher_is_refused_before_it_translates(teacher, tmp_path, monkeypatch):
    teacher.save(tmp_path / "teacher")
    config = dataclasses.replace(
        translate.PHRASEBOOK,
        teacher=(str(tmp_path / "teacher"),),
        out=str(tmp_path / "run"),
    )
    RunFolder(config.out, {**config.stored(), "models of teachers": ["0"]}).close()
    monkeypatch.setattr(sentence_pairs, "read_pairs", None)
    with pytest.raises(UserError, match="models of teachers: .'0'., now .'"):
        load_pairs(Run(config, name="student"), config.max_length)
    with pytest.raises(UserError, match="models of teachers: .'0'., now None"):
        load_pairs(Run(config, name="student", teacher=()), config.max_length)


def test_other_text_or_another_direction_is_refused_before_it_is_translated(
    teacher, tmp_path, monkeypatch
):
    teacher.save(tmp_path / "teacher")
    (tmp_path / "more.txt").write_text("Good morning.\n")
    config = dataclasses.replace(
        translate.PHRASEBOOK,
        teacher=(str(tmp_path / "teacher"),),
        out=str(tmp_path / "run"),
    )
    identity = identity_of_teachers(config, load_teachers(config))
    RunFolder(config.out, {**config.stored(), **identity}).close()
    monkeypatch.setattr(sentence_pairs, "read_pairs", None)
    text = {"monolingual": str(tmp_path / "more.txt")}
    with pytest.raises(UserError, match="checksum of monolingual text: None, now '"):
        load_pairs(Run(config, name="student", **text), config.max_length)
    reverse = {"teacher": (), "reverse_teacher": config.teacher}
    with pytest.raises(UserError, match="models of teachers: .*, now .'.*, reverse'.") as error:
        load_pairs(Run(config, name="student", **reverse), config.max_length)
    assert "monolingual" not in str(error.value)


def test_files_of_translations_that_cannot_be_used_are_named(teacher, pairs_of, tmp_path):
    """Not the folder of the pairs, which is written meanwhile."""
    (tmp_path / "all.jsonl").mkdir()
    with pytest.raises(UserError, match="all.jsonl: Is a directory"), atomic(tmp_path / "pairs"):
        translations(teacher, SOURCES, tmp_path / "all.jsonl", "small")


def test_a_path_whose_folder_cannot_be_made_is_named_as_a_whole(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "a" / "b"
    with pytest.raises(UserError, match="file/a/b cannot be written: "), atomic(path):
        pass


def test_a_teacher_without_results_is_named(teacher, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise TaskError("There is no result")

    monkeypatch.setattr(type(teacher), "n_best", fail)
    with pytest.raises(TaskError, match="small: There is no result"):
        translations(teacher, SOURCES, tmp_path / "stored", "small")


@pytest.mark.slow
def test_the_report_of_the_recipe(teacher, tmp_path, capsys):
    teacher.save(tmp_path / "teacher")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"The cat sat {n}.\tx {n}\n" for n in range(400)) + "\tx\n")
    config = dataclasses.replace(
        translate.PHRASEBOOK,
        dataset=None,
        tsv=str(pairs),
        teacher=(str(tmp_path / "teacher"),),
        out=str(tmp_path / "run"),
        max_length=40,
        vocab_size=300,
        embed_dim=16,
        num_heads=2,
        num_layers=1,
        ff_dim=16,
        epochs=1,
    )
    translate.main(config)
    printed = capsys.readouterr().out
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert printed.count(f"{metrics['notes'][0]}\n") == 1  # the empty source
    compared = metrics["distillation"]
    assert [*compared] == ["teacher", "student", "student in int8"]
    assert all(f"\n{name} " in printed for name in compared)
    translate.main(dataclasses.replace(config, resume=True))  # with the same teacher


@pytest.mark.ci
def test_the_student_is_compared_with_its_teacher(teacher, tmp_path):
    """With references that are its translations, the teacher has 100 BLEU."""
    small_translator(lines=LINES).save(tmp_path / "student")
    student = zoo.load(tmp_path / "student")
    references = teacher(SOURCES, sentences=False)
    data = TEXT._replace(test=[*zip(SOURCES, references)])
    expected = translation_scores(student(SOURCES, sentences=False), references)
    compared = compared_with_teacher(tmp_path / "student", teacher, student, expected, data)
    assert compared["teacher"]["chrf"] == pytest.approx(100.0)
    assert compared["student"]["chrf"] == pytest.approx(expected["chrf"])
    in_int8 = zoo.load(tmp_path / "student", dtype="int8")
    expected = translation_scores(in_int8(SOURCES, sentences=False), references)
    assert compared["student in int8"]["chrf"] == pytest.approx(expected["chrf"])
    sizes = [one["megabytes"] for one in compared.values()]
    assert sizes[0] == pytest.approx(teacher.model.count_params() * 4e-6)  # float32
    assert sizes[1] == pytest.approx(student.model.count_params() * 4e-6) and sizes[1] > sizes[2]
    assert all(one["tokens_per_second_batch_32"] > 0 for one in compared.values())


@pytest.mark.parametrize("count, batch_size", [(5, 1), (63, 1), (100, 3), (2000, 32)])
def test_the_sentences_whose_time_is_taken_are_from_all_parts(teacher, count, batch_size):
    calls = []

    def translate(texts, **_):
        calls.append(texts)
        return texts

    sources = [f"{number}" for number in range(count)]
    translator = mock.Mock(side_effect=translate)
    assert report_distillation._speed(translator, sources, batch_size, teacher.target_tokenizer) > 0
    assert max(map(len, calls)) == batch_size and len(calls) <= 2 * 32
    numbers = [int(text) for texts in calls[: len(calls) // 2] for text in texts]
    assert numbers[0] == 0 and numbers[-1] == count - 1
    assert max(np.diff(numbers)) <= np.ceil(count / min(count, 32 * batch_size))


def test_refused(tmp_path):
    small_classifier().save(tmp_path / "vit")
    with pytest.raises(
        UserError, match="--teacher must be a translator. .*vit is: ImageClassifier"
    ):
        teacher_translations.load_translator("--teacher", tmp_path / "vit")
    with pytest.raises(UserError, match="--teacher: There is no file"):
        teacher_translations.load_translator("--teacher", tmp_path / "none")
    for folder in ("vit", "none"):
        out = str(tmp_path / "run")
        config = dataclasses.replace(
            translate.PHRASEBOOK, teacher=(str(tmp_path / folder),), out=out
        )
        with pytest.raises(UserError, match="--teacher"):
            load_pairs(Run(config, name="student"), config.max_length)
    config = dataclasses.replace(translate.PHRASEBOOK, drop_worst=0.05)
    with pytest.raises(UserError, match="--drop-worst has no effect without --teacher or"):
        config.check_flags({"drop_worst"})
