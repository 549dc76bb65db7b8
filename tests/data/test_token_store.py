"""Folders that are made once: when they are used again, and what is left of those that were not
finished."""

import fcntl
import multiprocessing
import os
import signal
import time

import pytest

from zoo.data.token_store import cached_folder, file_key
from zoo.files import WriteError, locked

SETTINGS = {"data": ["a", 1], "length": 64}


def write(folder):
    (folder / "part").mkdir()
    (folder / "part" / "numbers").write_bytes(b"0123456789")


def never(folder):
    raise AssertionError("this is made already")


def test_it_is_made_once(tmp_path):
    folder, was_there = cached_folder(tmp_path / "cache", SETTINGS, write)
    assert not was_there and (folder / "part" / "numbers").read_bytes() == b"0123456789"
    for same in (SETTINGS, {"length": 64, "data": ("a", 1)}):
        assert cached_folder(tmp_path / "cache", same, never) == (folder, True)
    other, was_there = cached_folder(tmp_path / "cache", {**SETTINGS, "length": 65}, write)
    assert not was_there and other != folder
    assert cached_folder(tmp_path / "cache", SETTINGS, never)[1]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="file cannot be written to: "):
        cached_folder(tmp_path / "file", SETTINGS, write)


def in_process(function):
    process = multiprocessing.get_context("fork").Process(target=function)
    process.start()
    return process


def test_what_a_killed_process_has_left_is_replaced(tmp_path):
    def slowly(folder):
        write(folder)
        time.sleep(60)

    process = in_process(lambda: cached_folder(tmp_path, SETTINGS, slowly))
    while not [*tmp_path.glob("partial.*/part/numbers")]:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    folder, was_there = cached_folder(tmp_path, SETTINGS, write)
    assert not was_there
    assert {path.name for path in tmp_path.iterdir()} == {folder.name, f"{folder.name}.lock"}


def test_two_processes_at_once_make_it_once(tmp_path):
    def slowly(folder):
        write(folder)
        with open(tmp_path / "made", "a") as file:
            file.write("x")
        time.sleep(0.3)

    processes = [in_process(lambda: cached_folder(tmp_path / "c", SETTINGS, slowly)) for _ in "abc"]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert (tmp_path / "made").read_text() == "x"


def test_a_process_says_what_it_waits_for(tmp_path, monkeypatch, capsys):
    held = multiprocessing.Event()
    may_end = multiprocessing.Event()

    def hold():
        with locked(tmp_path / "c"):
            held.set()
            may_end.wait(60)

    def try_to_lock(file, operation, flock=fcntl.flock):
        try:
            flock(file, operation)
        except BlockingIOError:
            may_end.set()
            raise

    process = in_process(hold)
    assert held.wait(60)
    monkeypatch.setattr(fcntl, "flock", try_to_lock)
    with locked(tmp_path / "c"):
        assert may_end.is_set()
    printed = capsys.readouterr().out
    assert printed == f"Waiting for another process, which is writing {tmp_path / 'c'}.\n"
    process.join()
    assert process.exitcode == 0


def test_a_process_that_cannot_say_what_it_waits_for_does_not_go_on(tmp_path, monkeypatch):
    def closed(*_, **options):
        raise BrokenPipeError

    with locked(tmp_path / "c"):
        monkeypatch.setattr("builtins.print", closed)
        with pytest.raises(BrokenPipeError), locked(tmp_path / "c"):
            pytest.fail("another process has the lock")


def test_a_file_that_has_changed(tmp_path):
    file, other = tmp_path / "a.txt", tmp_path / "b.txt"
    assert len(file_key(file)) == 1
    for path in (file, other):
        path.write_text("one")
        os.utime(path, ns=(0, 10**18))
    first = file_key(file)
    assert first == file_key(str(file)) != file_key(other)
    os.utime(file, ns=(0, 10**18 + 1000))
    assert file_key(file) != first
    file.write_text("more")
    os.utime(file, ns=(0, 10**18))
    assert file_key(file) != first
