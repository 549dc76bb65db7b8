"""Local clusters: what workers get to know, what is passed on, and how all of them end."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from zoo import launch as launching
from zoo.errors import UserError

ROOT = pathlib.Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def command(workers, *worker):
    return [sys.executable, "-m", "zoo", "launch", "--workers", str(workers), "--", *worker]


def run(workers, code, *arguments):
    """Runs Python code in some workers."""
    line = command(workers, sys.executable, "-c", code, *arguments)
    return subprocess.run(line, capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT)


def test_each_worker_gets_to_know_the_others():
    code = "import os, sys; print(os.environ['TF_CONFIG']); print(sys.argv[1:], file=sys.stderr)"
    done = run(3, code, "--flag", "a b")
    assert done.returncode == 0
    lines = sorted(done.stdout.splitlines())
    assert len(lines) == 6, "standard error is passed on as well"
    clusters = []
    for index in range(3):
        of_worker = [line[4:] for line in lines if line.startswith(f"[{index}] ")]
        assert "['--flag', 'a b']" in of_worker
        config = json.loads(next(line for line in of_worker if line.startswith("{")))
        assert config["task"] == {"type": "worker", "index": index}
        clusters.append(config["cluster"]["worker"])
    assert clusters[0] == clusters[1] == clusters[2] and len(set(clusters[0])) == 3


def test_output_that_nobody_reads(tmp_path):
    """As of `| head`: the workers go on."""
    code = f"[print('x' * 100) for _ in range(5000)]; open(r'{tmp_path / 'done'}', 'w')"
    process = subprocess.Popen(
        command(1, sys.executable, "-c", code),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=ENVIRONMENT,
    )
    with process:
        process.stdout.readline()
        process.stdout.close()
        process.wait(timeout=60)
    assert (tmp_path / "done").exists()


INDEX = """
import json, os, signal, sys, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
"""
FAIL = f"""{INDEX}
if index == 1:
    os.kill(os.getpid(), signal.SIGKILL) if sys.argv[1] == "kill" else sys.exit(3)
time.sleep(600)
"""


@pytest.mark.parametrize("how, status", [("exit", 3), ("kill", 128 + signal.SIGKILL)])
def test_when_one_dies_all_end(monkeypatch, how, status):
    monkeypatch.setattr(launching, "GRACE", 0.5)
    start = time.monotonic()
    assert launching.launch([sys.executable, "-c", FAIL, how], 3) == status
    assert time.monotonic() - start < 15


def test_a_worker_that_ends_well_does_not_end_the_others():
    done = run(2, INDEX + "time.sleep(1 - index); print('done')")
    assert done.returncode == 0 and sorted(done.stdout.split("\n")[:2]) == ["[0] done", "[1] done"]


def test_the_status_is_that_of_the_worker_that_failed():
    """Others, which it has told, exit with status 1 before it does."""
    code = INDEX + "time.sleep(index / 2); sys.exit(1 + index)"
    assert launching.launch([sys.executable, "-c", code], 2) == 2
    assert launching.launch([sys.executable, "-c", "import sys; sys.exit(1)"], 2) == 1


WAIT = """
import signal, sys, time
def leave(number, frame):
    print("got", number)
    sys.exit(143 if number == signal.SIGTERM else 130)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, leave)
print("ready")
time.sleep(600)
"""


# A shell ends at once, and would leave the training run behind.
IN_A_SHELL = ["bash", "-c", f"{sys.executable} -c '{WAIT}'; true"]
PYTHON = [sys.executable, "-c", WAIT]


@pytest.mark.parametrize(
    "worker, number",
    [(PYTHON, signal.SIGINT), (PYTHON, signal.SIGTERM), (IN_A_SHELL, signal.SIGTERM)],
)
def test_signals_are_passed_on_to_the_workers_and_to_what_they_have_started(worker, number):
    line = command(2, *worker)
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=ENVIRONMENT)
    assert sorted(process.stdout.readline() for _ in range(2)) == ["[0] ready\n", "[1] ready\n"]
    process.send_signal(number)
    output = process.communicate(timeout=30)[0].splitlines()
    assert {f"[{i}] got {int(number)}" for i in range(2)} <= set(output)
    assert process.returncode == 128 + number


def test_what_a_script_has_started_is_killed_if_it_ignores_signals(tmp_path):
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open({!r}, 'w')"
    path = str(tmp_path / "ready")
    script = f'{sys.executable} -c "{code.format(path)}; time.sleep(600)"; true'
    line = ["bash", "-c", script]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True)
    while not (tmp_path / "ready").exists():
        time.sleep(0.1)
    launching._terminate([process], patience=1.0)
    assert process.stdout.read() == b"", "nothing holds the pipe any more"


def test_what_cannot_be_started_is_refused():
    for line, workers in ([], 2), (["true"], 0), (["no-such-program"], 2):
        with pytest.raises(UserError, match=f"and a program.* Received: {workers} workers"):
            launching.launch(line, workers)


def test_gpus_are_shared_out(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,3,5,7")
    shares = [worker["CUDA_VISIBLE_DEVICES"] for worker in launching._environments(2)]
    assert shares == ["0,1", "3,5"]
    with pytest.raises(UserError, match="6 workers need 6 GPUs; there are 5"):
        next(launching._environments(6))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert next(launching._environments(1))["CUDA_VISIBLE_DEVICES"] == ""
