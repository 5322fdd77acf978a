"""Tells what an island does: to the logger "atoll", and to `on_event`."""

from __future__ import annotations

import logging
import os
import re
import time
from typing import Any, Callable, Mapping

from .errors import Error

OnEvent = Callable[[Mapping[str, Any]], None]

LOOK_S = 1.0          # Between two looks of a wait.
_TELL_S = 10.0        # Between two lines of a wait.
_LOG_BYTES = 8192     # The end of the exchange's log.
_LOG_LINE = re.compile(r"[IWE]\d{4} [\d:.]+ \S+\] (.*)")
_logger = logging.getLogger("atoll")


def show() -> None:
    """Without logging of the program's own, lines of INFO go to stderr."""
    if not _logger.hasHandlers():
        _logger.addHandler(logging.StreamHandler())
        _logger.setLevel(logging.INFO)


class News:
    """The events of one island, and its waits for the exchange.

    Attributes:
      waited_s: Seconds of all waits.
    """

    def __init__(self, run_id: str, on_event: OnEvent | None,
                 wait_s_max: float, log_path: str,
                 clock: Callable[[], float] = time.monotonic):
        self._run_id = run_id
        self._on_event = on_event
        self._wait_s_max = wait_s_max
        self._log_path = log_path
        self._clock = clock
        self.waited_s = 0.0
        self.begin()

    def tell(self, event: str, message: str, level: int = logging.INFO,
             **fields: Any) -> None:
        _logger.log(level, "run %s: %s", self._run_id, message)
        if self._on_event is not None:
            self._on_event({"event": event, "run": self._run_id,
                            "message": message, **fields})

    def refused(self, error: Error) -> None:
        self.tell("refused", str(error), logging.ERROR, reason=error.reason)

    def begin(self) -> None:
        """A wait begins."""
        self._begin = self._told = self._heard = self._clock()
        self._log_begin = self._log_size()

    def end(self) -> None:
        self.waited_s += self._clock() - self._begin

    def heard(self) -> None:
        """The exchange has said something: it is not the end of the wait."""
        self._heard = self._clock()

    def look(self) -> None:
        """To call every LOOK_S of a wait. Error WAITED_TOO_LONG."""
        now = self._clock()
        if now - self._heard > self._wait_s_max:
            raise Error("the exchange has said nothing for %.0f s: %s" %
                        (now - self._heard, self._why()),
                        reason="WAITED_TOO_LONG", code="DEADLINE_EXCEEDED",
                        hint="`atoll run show %s` tells what the run waits "
                        "for. A program that starts again continues, with a "
                        "new exchange. wait_s_max is the longest wait." %
                        self._run_id)
        if now - self._told < _TELL_S:
            return
        self._told = now
        why = self._why()
        self.tell("waiting", "waits, %.0f s so far: %s" %
                  (now - self._begin, why), seconds=now - self._begin, why=why)

    def _log_size(self) -> int:
        try:
            return os.path.getsize(self._log_path)
        except OSError:
            return 0

    def _why(self) -> str:
        """The newest line that the exchange has logged in this wait."""
        try:
            with open(self._log_path, "rb") as log:
                size = log.seek(0, 2)
                # A shorter one is new.
                begin = self._log_begin if self._log_begin <= size else 0
                log.seek(max(begin, size - _LOG_BYTES))
                lines = log.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return "for the exchange"
        for line in reversed(lines):
            found = _LOG_LINE.match(line)
            if found:
                return found[1]
        return "for the exchange, which has logged nothing since"
