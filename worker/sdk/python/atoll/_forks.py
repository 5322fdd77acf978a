"""Closes what a forked child must not hold.

A data loader forks processes that may outlive the trainer for a moment. If
they held its socket and its lock, its death would not be seen.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class _Closable(Protocol):

    def close(self) -> None:
        ...


_closable: "weakref.WeakSet[_Closable]" = weakref.WeakSet()


def _close_all() -> None:
    for thing in list(_closable):
        thing.close()


os.register_at_fork(after_in_child=_close_all)


def close_in_children(thing: _Closable) -> None:
    """A child of fork() calls thing.close() first, as long as it exists."""
    _closable.add(thing)
