"""Islands, and places without one, that close at the end of this process."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any

# By work_dir. Islands of several ranks are not here: a rank that leaves alone
# would wait for the others.
_open: "weakref.WeakValueDictionary[str, Any]" = weakref.WeakValueDictionary()


@atexit.register
def _close_all() -> None:
    """Hands in the steps of islands that the program has not closed."""
    for island in list(_open.values()):
        island.close()


os.register_at_fork(after_in_child=_open.clear)  # It has no connection.


def add(folder: str, island: Any) -> None:
    """`island.close()` is called at the program's end."""
    _open[folder] = island


def close_before(folder: str, but: Any = None) -> None:
    """Closes what has this work_dir, such as that of a cell's earlier run."""
    before = _open.get(folder)
    if before is not None and before is not but:
        before.close()
