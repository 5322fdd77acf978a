"""Bounded waits for a visible state, never for time to pass."""

import os
import threading
import time

# Bound on a hang, also on a loaded machine. No passing test waits this long.
PATIENCE_S = float(os.environ.get("ATOLL_TEST_PATIENCE_S", "180"))

# Poll interval for a state without notification.
_POLL_S = 0.02


class TimedOut(AssertionError):
    """The state was not reached in time."""


def until(what, predicate, timeout=PATIENCE_S):
    """Returns the first true value of `predicate()`.

    `what` describes the state for people. Raises TimedOut with the last value
    seen.
    """
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimedOut("not within %.0f s: %s (last seen: %r)" %
                           (timeout, what, value))
        pause.wait(_POLL_S)
