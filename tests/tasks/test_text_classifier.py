"""A text classifier: texts that are too long, errors, and the command line."""

import io

import pytest

from tests.deploy.small_models import small_text_classifier
from zoo.__main__ import main
from zoo.errors import TaskError


@pytest.fixture(scope="module")
def classifier():
    return small_text_classifier()


def test_a_text_that_is_too_long(classifier):
    long = "The cat sat on the mat. " * 30
    with pytest.raises(TaskError, match=r"Text 1 is too long: \d+ tokens, and the model takes 40"):
        classifier(["a", long])
    [tokens] = classifier.encode([long], too_long="truncate")
    whole = classifier.tokenizer.encode([long])[0]
    assert tokens == [1, *whole[:38], 2]
    [answer] = classifier([long], too_long="truncate")
    assert [answer] == classifier([long + "More."], too_long="truncate")
    fitting = classifier.tokenizer.decode([whole[:38]])
    assert classifier.encode(fitting) == [tokens], "the longest text that fits"
    assert classifier(fitting) == [answer]


def test_the_command_classifies_arguments_files_and_standard_input(
    classifier, tmp_path, capsys, monkeypatch
):
    folder = tmp_path / "run"
    classifier.save(folder)

    def lines(*arguments):
        assert main(["classify", str(folder), *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    answers = classifier(["a dog", "The cat sat."], top_k=2)
    expected = [
        f"{text}\t" + "\t".join(f"{name} {share:.1%}" for name, share in answer)
        for text, answer in zip(["a dog", "The cat sat."], answers)
    ]
    assert lines("a dog", "The cat sat.", "--top-k", "2") == expected
    (tmp_path / "texts.txt").write_text("a dog\nThe cat sat.\n")
    assert lines("--file", str(tmp_path / "texts.txt"), "--top-k", "2") == expected
    piped = b"\xef\xbb\xbfa dog\r\nThe cat sat.\r\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(piped)))
    assert lines("--top-k", "2") == expected
    assert len(lines("The cat sat on the mat. " * 30)) == 1
    assert main(["classify", str(folder), "a " * 100, "--too-long", "error"]) == 2
    assert "Text 0 is too long" in capsys.readouterr().err
    assert main(["translate", str(folder), "a dog"]) == 2
    assert "use `python -m zoo classify`" in capsys.readouterr().err
