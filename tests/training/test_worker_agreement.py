"""What workers compare before they train together, and what they do with each other's errors."""

import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from zoo.errors import UserError
from zoo.training.distribution import agreement, failures

PAIR = types.SimpleNamespace(cluster_resolver=None)


@pytest.fixture
def compare(monkeypatch):
    """Function that starts two workers, each with (step, weights, first batch)."""

    def both(first, second):
        numbers = [list(agreement.digests(*start).values()) for start in (first, second)]
        monkeypatch.setattr(agreement, "num_workers", lambda strategy: 2)
        monkeypatch.setattr(
            agreement, "sum_over_workers", lambda strategy, own: np.sum(numbers, 0, np.float64)
        )
        for start in (first, second):  # all workers find the same
            agreement.check_same_start(PAIR, *start)

    return both


def start(step=3, steps_per_epoch=7, rows=8, order=slice(None)):
    weights = [np.float32(np.random.default_rng(0).normal(size=(4, 2))), np.zeros(2, np.float32)]
    tokens = {"source": np.arange(rows * 5).reshape(rows, 5), "pixels": np.ones((rows, 3))}
    labels, shares = np.arange(rows) % 3, np.full(rows, 1 / rows, np.float32)
    batch = tf.nest.map_structure(lambda array: tf.constant(array[order]), (tokens, labels, shares))
    return step, steps_per_epoch, weights, batch


def test_the_same_start_passes(compare):
    """Also with pixels that are rounded differently."""
    *state, (inputs, labels, shares) = start()
    compare((*state, (start()[-1], start()[-1])), (*state, (start()[-1], start()[-1])))
    for pixels in (inputs["pixels"], inputs["pixels"] + 1e-6):
        compare(start(), (*state, ({**inputs, "pixels": pixels}, labels, shares)))
    images = np.zeros((8, 4, 4, 3), np.uint8)
    compare((*state, (images, labels, shares)), (*state, (images + 1, labels, shares)))


def changed(number, value):
    """A start with one element of the weights or of a part of the batch replaced."""
    *steps, weights, (inputs, labels, shares) = start()
    parts = [weights[0], inputs["source"].numpy(), labels.numpy(), shares.numpy()]
    parts[number].flat[5] = value
    return *steps, [parts[0], weights[1]], ({**inputs, "source": parts[1]}, *parts[2:])


@pytest.mark.parametrize(
    "other, what",
    [
        (start(step=4), "the number of steps done"),
        (start(steps_per_epoch=8), "the number of steps of an epoch"),
        (changed(0, np.nextafter(start()[2][0].flat[5], np.float32(9))), "the model's weights"),
        (changed(1, 0), "the first batch"),
        (changed(2, 0), "the first batch"),
        (changed(3, 0.126), "the first batch"),
        (start(order=slice(None, None, -1)), "the first batch"),
        (start(rows=9), "the first batch"),
    ],
)
def test_another_start_is_noticed(compare, other, what):
    with pytest.raises(UserError, match=f"The workers differ in .*{what}.*the same --seed"):
        compare(start(), other)


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
    exits = failures.exit_if_a_worker_is_lost(PAIR, lambda: "epoch_1")
    with pytest.raises(SystemExit, match="1"), exits:
        raise tf.errors.UnavailableError(None, None, ABORTED.format(reason))
    advice = "The last checkpoint is epoch_1. Start all workers again with --resume"
    assert capfd.readouterr().err.startswith(f"error: {said}\n{advice}")


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
