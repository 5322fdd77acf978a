"""Writes states, at once or in the background."""

from __future__ import annotations

import threading
import time
from typing import Any

from . import _tree
from ._store import Store


class Saver:
    """Writes a state between two steps, or copies it for a thread to write."""

    def __init__(self, store: Store):
        self._store = store
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._write_s: float | None = None

    @property
    def write_s(self) -> float | None:
        """Seconds of the newest save; None: it has not ended."""
        return self._write_s

    def save(self, save_id: str, state: Any, waits: bool) -> None:
        """Returns once the state is copied; with `waits`, once it is durable.

        Waits for the save before it. Error: as `raise_error`.
        """
        self.wait()
        self.raise_error()
        begin, self._write_s = time.monotonic(), None
        # No step changes the state during a wait.
        flat = _tree.flatten(state, copies=not waits)
        if waits:
            self._store.save(save_id, flat)
            self._write_s = time.monotonic() - begin
            return
        self._thread = threading.Thread(target=self._write, daemon=True,
                                        args=(save_id, flat, begin),
                                        name="atoll-save")
        self._thread.start()

    def _write(self, save_id: str, flat: Any, begin: float) -> None:
        try:
            self._store.save(save_id, flat)
            self._write_s = time.monotonic() - begin
        except Exception as error:  # pylint: disable=broad-except
            self._error = error

    def raise_error(self) -> None:
        """Raises what a save in the background has failed with."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self) -> None:
        """Waits until nothing is written in the background."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
