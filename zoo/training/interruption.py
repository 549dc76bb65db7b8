"""Handles SIGTERM and SIGINT: the run saves its state after the current step and exits."""

import signal
import sys
import threading
import time

REPEATED = 0.3  # seconds
TERMINATED = 128 + signal.SIGTERM  # exit status 143, as shells report it


def how_to_resume(is_saved=False):
    """What to do after an interruption of a command with the flags `sys.argv`, for messages.

    `is_saved` says that there is a checkpoint; otherwise, there may be one.
    """
    if "--overwrite" not in sys.argv:
        return "Run the same command to resume."
    # With --overwrite, the command would delete the checkpoints.
    if is_saved:
        return "Run the same command without --overwrite to resume."
    return (
        "If training had begun, run the same command without --overwrite to resume; otherwise, run "
        "it again."
    )


class Interruption:
    """Records SIGTERM, which schedulers send, and the first SIGINT, which Ctrl-C sends.

    A second SIGINT is handled as before `watch`, unless it comes within `REPEATED` seconds:
    programs such as `timeout` repeat a signal that the whole process group has received. Python
    delivers signals to the main thread only; in other threads, `watch` does nothing.

    Attributes:
        signal: number of the first signal received, or None.
    """

    def __init__(self):
        self.signal = None
        self._before = {}
        self._ignored_until = None

    def watch(self):
        """Installs the signal handlers."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._record)

    def unwatch(self):
        """Restores the previous signal handlers."""
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)

    def exit(self):
        """Raises KeyboardInterrupt("saved") after SIGINT, and exits with status 143 otherwise.

        A worker that received no signal itself also exits with status 143.
        """
        self.unwatch()
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt("saved")
        sys.exit(TERMINATED)

    def _record(self, number, frame):
        if self.signal is None:
            self.signal = number
        if number != signal.SIGINT:
            return
        if self._ignored_until is None:  # the first one
            self._ignored_until = time.monotonic() + REPEATED
        elif time.monotonic() > self._ignored_until:
            signal.signal(number, self._before.pop(number))
            signal.raise_signal(number)


def exit_on_sigterm():
    """Makes SIGTERM exit with status 143.

    By default, SIGTERM kills Python without cleanup, and is ignored by process 1 of a container.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TERMINATED))
