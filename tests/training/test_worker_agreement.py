"""What workers compare before they train together, and what they do with each other's errors."""

import contextlib
import sys
import types

import pytest
import tensorflow as tf

from zoo.errors import UserError
from zoo.training.distribution import agreement, failures

PAIR = types.SimpleNamespace(cluster_resolver=None)


@pytest.mark.parametrize("name, value", [(None, None), ("seed", 2), ("data", "9 texts")])
def test_workers_that_start_differently_are_noticed(name, value, monkeypatch):
    """By all workers, which find the same."""
    values = {"seed": 1, "size": (8, 8), "data": "8 texts", "rate": 0.1}
    sent = []
    monkeypatch.setattr(agreement, "num_workers", lambda strategy: 2)
    monkeypatch.setattr(
        agreement, "sum_over_workers", lambda _, own: sent.append(own.numpy()) or 2 * own.numpy()
    )
    other = {**values, "rate": 0.1 + 1e-12, **({name: value} if name else {})}  # rounded otherwise
    for worker in (values, other):
        agreement.check_same(PAIR, worker)
    monkeypatch.setattr(agreement, "sum_over_workers", lambda *_: sum(sent))
    expected = pytest.raises(UserError, match=f"The workers differ in {name}; .* same command")
    with expected if name else contextlib.nullcontext():
        agreement.check_same(PAIR, values)


# --- errors of other workers ---------------------------------------------------------------------

ABORTED = "Collective ops is aborted by: {}\nThe error could be from a previous operation. Restart"
LOST = "recvmsg:Connection reset by peer\nAdditional GRPC error information from remote target"


@pytest.mark.parametrize(
    "reason, said",
    [
        (LOST, "a worker is lost, so training cannot continue (recvmsg:Connection reset by peer)."),
        (
            "Error reported from /job:worker/task:1: worker 1 failed: It is so:\n  a: 1, now 2",
            "worker 1 failed: It is so:\n  a: 1, now 2",
        ),
        ("worker 0 failed: KeyError: 'x'", "worker 0 failed: KeyError: 'x'"),
    ],
)
def test_errors_of_other_workers_are_named(reason, said, monkeypatch, capfd):
    monkeypatch.setattr(failures.os, "_exit", sys.exit)
    monkeypatch.setattr(failures, "_SECONDS_TO_END", 0)
    monkeypatch.setattr(failures, "num_workers", lambda strategy: 2)
    exits = failures.exit_if_a_worker_is_lost(PAIR)
    with pytest.raises(SystemExit, match="1"), exits:
        raise tf.errors.UnavailableError(None, None, ABORTED.format(reason))
    assert capfd.readouterr().err.startswith(f"error: {said}\nStart all workers again;")


def bad_data(number):
    raise OSError("7.jpg is bad")


@tf.function
def first_of(batches):
    return next(iter(batches))


@pytest.mark.parametrize("read", [first_of, lambda batches: next(iter(batches))])
@pytest.mark.parametrize(
    "function, reason",
    [
        (lambda number: tf.numpy_function(bad_data, [number], tf.int64), "OSError: 7.jpg is bad"),
        (lambda number: tf.io.read_file("/none"), "/none; No such file or directory"),
    ],
)
def test_the_reason_of_an_error_of_tensorflow_is_told(read, function, reason):
    with pytest.raises(tf.errors.OpError) as error:
        read(tf.data.Dataset.range(3).map(function))
    told = failures._reason(str(error.value))
    assert reason in told and "Traceback" not in told and "stack traces" not in told


@pytest.mark.parametrize(
    "error", [tf.errors.UnavailableError(None, None, "no such bucket"), KeyError("a bug")]
)
def test_own_errors_are_raised(error, monkeypatch):
    """A single worker tells nobody."""
    monkeypatch.setattr(failures, "num_workers", lambda strategy: 2)
    exits = failures.exit_if_a_worker_is_lost(PAIR)
    with pytest.raises(type(error)), exits, failures.tell_failure():
        raise error
