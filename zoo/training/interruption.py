"""Signals that ask a run to end: it does so after the step at hand, once its state is saved."""

import signal
import sys
import threading

TERMINATED = 128 + signal.SIGTERM  # exit status 143, as shells report it


class Interruption:
    """Notes SIGTERM, which schedulers send, and the first SIGINT, which Ctrl-C sends.

    A second SIGINT does what it did before. Signals reach the main thread only; in another one
    nothing is noted.

    Attributes:
        signal: number of the signal that came first; None if none came.
    """

    def __init__(self):
        self.signal = None
        self._before = {}

    def watch(self):
        """Begins to note signals."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)

    def unwatch(self):
        """Leaves signals to what dealt with them before."""
        while self._before:
            signal.signal(*self._before.popitem())

    def leave(self):
        """Ends the program as after SIGINT if that came, else, also in a worker that was not
        told itself, as after SIGTERM."""
        self.unwatch()
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(TERMINATED)

    def _note(self, number, frame):
        self.signal = self.signal or number
        if number == signal.SIGINT and number in self._before:
            signal.signal(number, self._before.pop(number))


def exit_on_sigterm(before=lambda: None):
    """Has SIGTERM call a function and end the program with status 143.

    Python would end without a word, and as the first process of a container not at all.
    """

    def terminate(number, frame):
        before()
        sys.exit(TERMINATED)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminate)
