"""Ends all workers if one fails: it tells the others why."""

import contextlib
import os
import re
import sys
import time

import tensorflow as tf

from zoo import compat
from zoo.errors import UserError
from zoo.training.distribution.workers import num_workers, worker_index
from zoo.training.interruption import how_to_resume

_SECONDS_TO_TELL = 1.0
_SECONDS_TO_END = 3.0
# Messages of errors that come from another worker. Their types are also those of errors of this
# worker, such as a file system that is not available.
_FROM_ANOTHER = re.compile(
    r"Collective ops is aborted by: |remote target /job:|Error reported from /job:|RPC: /tensorflow"
)
_TOLD = re.compile(
    r"(worker \d+ failed: .*?)(?:\nThe error could be from a previous operation|\Z)", re.DOTALL
)


@contextlib.contextmanager
def tell_failure():
    """Context for the program of a worker that tells an error to the other workers.

    They then exit from `exit_if_a_worker_is_lost`. Contexts may be nested.
    """
    try:
        yield
    except Exception as error:
        if not getattr(error, "was_told", False):
            error.was_told = True
            _tell(error)
        raise


def _tell(error):
    if compat.num_coordinated_workers() < 2:
        return
    text = str(error)
    if not isinstance(error, UserError):
        text = f"{type(error).__name__}: {_reason(text)}"
    index = worker_index(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    with contextlib.suppress(Exception):  # the workers have not all started, or some are lost
        compat.abort_other_workers(f"worker {index} failed: {text}")
        time.sleep(_SECONDS_TO_TELL)  # the service may run in this process


def _reason(text):
    """The message of an error without the stack traces and the node name that TensorFlow adds."""
    parts = [part.strip() for part in text.split("\n\n")]
    parts = [part for part in parts if part and not part.startswith("[[{{node")]
    reason = parts[-1] if parts else text
    if "Traceback (most recent call last)" in reason:  # of Python code in a data set
        reason = reason.partition("\n")[0]
    return re.sub(r"^Detected at node.*\n<stack traces unavailable>\n", "", reason)


@contextlib.contextmanager
def exit_if_a_worker_is_lost(strategy):
    """Context for collective operations: exits with status 1 if another worker fails or is lost.

    It prints the error of a worker that has failed within `tell_failure`. Errors of this worker are
    raised as usual.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if num_workers(strategy) == 1 or not _FROM_ANOTHER.search(str(error)):
            raise
        told = _TOLD.search(str(error))
        print(
            f"error: {told[1] if told else _lost(str(error))}\n"
            f"Start all workers again; their number may change. {how_to_resume()}",
            file=sys.stderr,
            flush=True,
        )
        sys.stdout.flush()
        if told:
            # Launchers may kill all workers when one exits: the failed one must print its error.
            time.sleep(_SECONDS_TO_END)
        # `sys.exit` would wait for the lost worker.
        os._exit(1)


def _lost(text):
    reason = re.search(r"aborted by: (.+)", text) or re.match(r"(.*)", text)
    return f"a worker is lost, so training cannot continue ({reason[1].rstrip('.:')})."
