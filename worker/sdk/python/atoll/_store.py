"""The states on disk.

    WORK_DIR/lock             held by the trainer while it lives
    WORK_DIR/states/run.json  {"run_id", "run_uid", "island_id"}: whose it is,
                              and "rank": "3 of 8" if there are several
    WORK_DIR/states/_initial  the state in which the trainer was first started
    WORK_DIR/states/SAVE_ID   a saved state

A file is written as NAME.RANDOM.tmp, synced and renamed, and then the folder
is synced: a file has all of its bytes, or does not exist. `_initial` exists
before run.json does. An id of a save cannot have an underscore. Once the run
is complete all but `_initial` are removed: nothing loads one then.

Only such names, and states that this module wrote, are removed: another file in
the folder is a person's.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import re
import secrets
from typing import Any, Callable, Mapping

from . import _forks, _safetensors, _tree
from .errors import Error

_SAVE_ID = re.compile(r"[a-z0-9-]{1,63}\Z")
_TEMPORARY = re.compile(r"(_initial|run\.json|[a-z0-9-]{1,63})"
                        r"\.[0-9a-f]{32}\.tmp\Z")
_INITIAL = "_initial"
_RUN = "run.json"
_BUFFER_BYTES = 1 << 20
_PIECE_BYTES = 8 << 20


def check_save_id(save_id: str) -> None:
    if not _SAVE_ID.match(save_id):
        raise Error("%.80r is not a save id" % save_id,
                    reason="UNREADABLE_MESSAGE", code="INVALID_ARGUMENT")


class Store:
    """The states below a work_dir. One process has it at a time."""

    def __init__(self, work_dir: str, initial: Any, rank: str = ""):
        """Takes the folder; `initial` is the state now, for a first start.

        `work_dir` is absolute: the trainer may change its own. `rank` names
        the rank and their number, if there are several.

        Error WORK_DIR_IN_USE: another process has it.
        """
        self._work_dir = work_dir
        self._rank = rank
        self._folder = os.path.join(work_dir, "states")
        # Kept until the first save or load. A copy, because training continues.
        self._initial: Any = _tree.flatten(initial)
        os.makedirs(self._folder, exist_ok=True)
        self._lock = open(os.path.join(work_dir, "lock"), "ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise Error("another process uses the work_dir %s" % work_dir,
                        reason="WORK_DIR_IN_USE", code="FAILED_PRECONDITION",
                        hint="Give each island its own work_dir.") from None
        _forks.close_in_children(self)
        names = os.listdir(self._folder)
        for name in names:
            if _TEMPORARY.match(name):
                os.unlink(self._path(name))
        # Ids of the saved states, the oldest first.
        self._saved = sorted((n for n in names if _SAVE_ID.match(n) and
                              _is_state(self._path(n))),
                             key=lambda n: os.stat(self._path(n)).st_mtime_ns)

    def begin(self, run_id: str, run_uid: str, island_id: str) -> str:
        """Binds the folder to a run; on the first start saves `initial`.

        Returns the empty text; or, if the states are of another number of
        ranks, the rank that has saved them, such as "3 of 8". Then `renew` or
        `close` follows.

        Error OTHER_RUN: the folder belongs to another run or island.
        """
        mine = {"run_id": run_id, "run_uid": run_uid, "island_id": island_id}
        if self._rank:
            mine["rank"] = self._rank
        self._mine = mine
        try:
            with open(self._path(_RUN), encoding="utf-8") as file:
                found = json.load(file)
        except FileNotFoundError:
            self._write_first()
            return ""
        except ValueError as error:
            raise Error("%s is damaged: %s" % (self._path(_RUN), error),
                        reason="DAMAGED_FILE", code="DATA_LOSS") from error
        rank = found.get("rank", "") if isinstance(found, dict) else ""
        if self._rank and rank and {**found, "rank": self._rank} == mine != (
                found):
            return str(rank)
        if found != mine:
            raise Error("%s holds the states of %s; this is %s" %
                        (self._work_dir, found, mine),
                        reason="OTHER_RUN", code="FAILED_PRECONDITION",
                        hint="Give each run and island a work_dir of its own.")
        return ""

    def renew(self) -> None:
        """Begins anew with the initial state of this process.

        It follows `begin` at once.
        """
        self._keep([])
        self._write_first()

    def _write_first(self) -> None:
        self._write(_INITIAL, lambda file: _write_tree(file, *self._initial))
        self._write(_RUN, lambda file: file.write(
            json.dumps(self._mine).encode("utf-8")))
        _sync_folder(self._work_dir)

    def save(self, save_id: str, flat: tuple[Any, dict[str, Any]]) -> None:
        """Makes a state durable, of _tree.flatten. Another thread may call."""
        check_save_id(save_id)
        self._initial = None
        self._write(save_id, lambda file: _write_tree(file, *flat))
        self._saved = [n for n in self._saved if n != save_id] + [save_id]

    def has(self, save_id: str) -> bool:
        """There is such a state; "" names the initial one."""
        return not save_id or save_id in self._saved

    def saved(self) -> list[str]:
        """The ids of the durable states, the oldest first."""
        return list(self._saved)

    def forget_before(self, save_id: str) -> None:
        """Deletes the states that are older than `save_id`."""
        names = self.saved()
        if save_id in names:
            self._keep(names[names.index(save_id):])

    def forget_all(self) -> None:
        """Deletes every saved state: the run is complete."""
        self._keep([])

    def load(self, save_id: str, shards: Mapping[str, Any] = {}) -> Any:
        """A state that was saved; "" names the initial one.

        `shards` are those of _tree.unflatten.

        Later states are deleted: the exchange has no record of them, and they
        must not push out the one that it knows.

        Error NO_SUCH_STATE: there is no such state here.
        """
        if save_id:
            check_save_id(save_id)
        try:
            with open(self._path(save_id or _INITIAL), "rb") as file:
                arrays, metadata = _safetensors.read(file)
                tree = json.loads(metadata["tree"])
        except FileNotFoundError:
            raise Error("%s has no state %s" % (self._folder, save_id),
                        reason="NO_SUCH_STATE", code="NOT_FOUND",
                        hint="Give the work_dir of this island; or delete it, "
                        "and the island starts anew.") from None
        except (KeyError, ValueError) as error:
            raise Error("%s is damaged: %s" %
                        (self._path(save_id or _INITIAL), error),
                        reason="DAMAGED_FILE", code="DATA_LOSS") from error
        state = _tree.unflatten(tree, arrays, shards)
        self._initial = None
        self._keep([save_id] if save_id else [])
        return state

    def close(self) -> None:
        self._lock.close()

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _keep(self, names: list[str]) -> None:
        for name in self._saved:
            if name not in names:
                os.unlink(self._path(name))
        self._saved = names

    def _write(self, name: str, write: Callable[[Any], Any]) -> None:
        path = self._path(name)
        temporary = "%s.%s.tmp" % (path, secrets.token_hex(16))
        try:
            with io.BufferedWriter(_EarlyFile(temporary, "xb"),
                                   _BUFFER_BYTES) as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path)
            _sync_folder(self._folder)
        except OSError as error:
            raise Error("cannot write %s: %s" % (path, error.strerror),
                        reason="CANNOT_SAVE", code="RESOURCE_EXHAUSTED" if
                        error.errno in (errno.ENOSPC, errno.EDQUOT) else
                        "UNAVAILABLE", hint="Nothing is lost: make the folder "
                        "writable and start the trainer again.") from error


class _EarlyFile(io.FileIO):
    """The disk begins with the first bytes while later ones are copied."""

    def write(self, data: Any) -> int:
        begin = self.tell()
        count = super().write(memoryview(data)[:_PIECE_BYTES])
        # The kernel begins to write these pages, and does not wait.
        with contextlib.suppress(OSError):
            os.posix_fadvise(self.fileno(), begin, count,
                             os.POSIX_FADV_DONTNEED)
        return count


def _is_state(path: str) -> bool:
    """True for a file of _write_tree, whose arrays may be damaged."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            return "tree" in _safetensors.read_metadata(file)
    except (OSError, Error):
        return False


def _write_tree(file: Any, tree: Any, arrays: dict[str, Any]) -> None:
    _safetensors.write(file, arrays, {"tree": json.dumps(tree)})


def _sync_folder(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
