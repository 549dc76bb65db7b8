"""The run directory: what it holds, and who may write to it."""

import json
import shlex
import sys

import pytest

from zoo.errors import UserError
from zoo.training.interruption import how_to_resume
from zoo.training.run import Run
from zoo.training.run_folder import RunFolder, checksum_of_lines, fingerprint
from zoo.training.settings import RunSettings


def test_a_run_killed_while_its_folder_was_made_can_begin(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "partial.config.json").write_text('{"conf')
    RunFolder(tmp_path / "run", {})
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"] == {}


def test_a_run_where_the_system_has_no_locks(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    for _ in range(2):
        RunFolder(tmp_path / "run", {}, overwrite=True).close()


def test_another_process_that_a_system_calls_denied_permission(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def denied(file, operation):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(fcntl, "flock", denied)
    with pytest.raises(UserError, match="Another process is training in"):
        RunFolder(tmp_path / "run", {})


def test_the_stored_command_can_be_pasted(tmp_path, monkeypatch):
    arguments = ["recipes/vit_cifar10.py", "--data-dir", "my images"]
    monkeypatch.setattr(sys, "argv", arguments)
    RunFolder(tmp_path, {}).close()
    stored = json.loads((tmp_path / "config.json").read_text())["environment"]["command"]
    assert shlex.split(stored)[1:] == arguments


@pytest.mark.parametrize("lines", [[], ["a\n"], ["a\n", "\n", 'é "b"']])
def test_the_checksum_of_lines_is_their_fingerprint(tmp_path, lines):
    (tmp_path / "text").write_text("".join(lines))
    assert checksum_of_lines(tmp_path / "text") == fingerprint(*lines)


def test_a_run_that_is_deleted_in_part_can_be_deleted(tmp_path, monkeypatch):
    RunFolder(tmp_path / "run", {}).close()
    (tmp_path / "run" / "a").write_text("a")
    (tmp_path / "run" / "tensorboard").mkdir()

    def full(path):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", full)
        with pytest.raises(UserError, match="cannot be written to") as error:
            RunFolder(tmp_path / "run", {}, overwrite=True)
    assert error.tb  # as in a notebook: what the traceback refers to does not keep the lock
    RunFolder(tmp_path / "run", {}, overwrite=True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.json"]


def test_the_same_command_would_delete_a_run_that_it_overwrote(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["a.py", "--epochs", "3"])
    for is_saved in (True, False):
        assert how_to_resume(is_saved) == "Run the same command to resume."
    monkeypatch.setattr(sys, "argv", ["a.py", "--overwrite"])
    assert how_to_resume() == (
        "If training had begun, run the same command without --overwrite to resume; otherwise, run "
        "it again."
    )
    assert how_to_resume(is_saved=True) == "Run the same command without --overwrite to resume."


def test_a_run_that_cannot_be_resumed_is_refused_before_data_are_read(tmp_path):
    settings = RunSettings(seed=3, out=str(tmp_path / "run"), precision="float32")
    RunFolder(tmp_path / "run", {**settings.stored(), "of the data": 1}).close()
    run = Run(settings)
    with pytest.raises(UserError, match="other settings:\n  of the data: 1, now 2\n"):
        run.check_same_settings({"of the data": 2})
    with pytest.raises(UserError, match="other settings:\n  seed: 3, now 4\nUse these"):
        Run(settings, seed=4)
    Run(settings, seed=4, overwrite=True).check_same_settings({"of the data": 2})


def test_a_run_folder_guards_what_it_holds(tmp_path):
    run = RunFolder(tmp_path / "run", {"epochs": 3, "size": (8, 8)})
    assert not run.is_finished
    with pytest.raises(UserError, match="Another process is training in"):
        RunFolder(tmp_path / "run", {"epochs": 3, "size": (8, 8)}, resume=True)
    run.close()
    RunFolder(tmp_path / "run", {"epochs": 3, "size": (8, 8)}).close()
    with pytest.raises(UserError, match="epochs: 3, now 4"):
        RunFolder(tmp_path / "run", {"epochs": 4, "size": (8, 8)})
    run.write_json("metrics.json", {})
    with pytest.raises(UserError, match="contains a finished run.*--overwrite"):
        RunFolder(tmp_path / "run", {"epochs": 3, "size": (8, 8)})
    RunFolder(tmp_path / "run", {"epochs": 3, "size": (8, 8)}, resume=True).close()
    (tmp_path / "run" / "old").write_text("old")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "link").symlink_to(tmp_path / "elsewhere")
    RunFolder(tmp_path / "run", {"epochs": 4}, overwrite=True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.json"]
    assert (tmp_path / "elsewhere").is_dir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(UserError, match="contains no run"):
            RunFolder(tmp_path / "other", {}, **options)
    assert (tmp_path / "other" / "thesis.txt").read_text() == "precious"
    with pytest.raises(UserError, match="is a file"):
        RunFolder(tmp_path / "other" / "thesis.txt", {})


@pytest.mark.parametrize("content", ['{"model_type": "vit"}', "[1]", '{"config": {}}', '{"conf'])
def test_a_config_that_is_not_of_a_run(content, tmp_path):
    """Folders of published weights have a config.json, too."""
    (tmp_path / "config.json").write_text(content)
    (tmp_path / "model.safetensors").write_text("precious")
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(UserError, match="contains no run"):
            RunFolder(tmp_path, {}, **options)
    assert (tmp_path / "model.safetensors").read_text() == "precious"
