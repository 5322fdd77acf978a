"""Bounded waits on a state that can be seen; never a wait for time to pass."""

import os
import threading
import time

# Everything that must happen "soon" happens within this on a loaded machine.
# It is a bound on a hang, not an expectation: nothing waits it out.
PATIENCE_S = float(os.environ.get("ATOLL_TEST_PATIENCE_S", "60"))

# How often a state is looked at that nobody announces.
_POLL_S = 0.02


class TimedOut(AssertionError):
    """The state did not come about."""


def until(what, predicate, timeout=PATIENCE_S):
    """Returns the first true value of `predicate()`.

    `what` says, for people, what is awaited. Raises TimedOut with the last
    value seen.
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
