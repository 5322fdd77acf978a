"""The ranks of an island: the processes of one torch.distributed world.

Rank 0 leads: it alone talks to the exchange. It broadcasts a request that
concerns all of them, and every rank carries it out. While a `train` is open
there is no message between ranks, but for an error.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import pickle
import uuid
from typing import Any, Callable

import numpy as np

from . import _torch
from .errors import Error

# An exchange of parameters may take hours, and has no bound.
_WAIT = datetime.timedelta(days=365)
# Until the leader has told the exchange why this rank ends.
_TOLD = datetime.timedelta(seconds=10)


class Alone:
    """The only rank of an island.

    Attributes, as of Ranks:
      rank: This process, from 0. Rank 0 leads.
      size: The number of ranks.
      replicas: The ranks of the leader's data-parallel group.
      name: This rank and their number; empty here.
      folder: The folder of this rank's states, below the work_dir.
    """

    rank, size, replicas = 0, 1, (0,)
    name = folder = ""

    def broadcast(self, value: Any = None) -> Any:
        """The leader's value, on all ranks."""
        return value

    def together(self, work: Callable[[], Any]) -> list[Any]:
        """Does `work` on each rank. Returns all results, by rank.

        Error: on one rank it failed; every rank raises.
        """
        return [work()]

    def check(self) -> None:
        """Error: another rank has failed."""

    def fail(self, error: Error) -> Error:
        """Tells the other ranks; returns the first error of all of them."""
        return error

    def told(self) -> None:
        """The leader has told the exchange about the error."""

    def close(self) -> None:
        """After a failure: the others wait no longer for this rank."""


class Ranks:
    """The ranks of torch.distributed's world. Made by all of them at once.

    Requests use a gloo group of their own, whose waits have no bound. Errors
    go through the world's store, which needs no other rank to take part.

    The group is not of new_group(), which meets in the store under a name that
    is the same after a restart by torchrun: a rank may find the address that
    another rank had before.
    """

    def __init__(self, mesh: Any):
        """`mesh`: the data-parallel DeviceMesh; None: all are replicas.

        Error: `mesh` is without rank 0.
        """
        torch = self._torch = _torch.loaded()
        self.rank: int = torch.distributed.get_rank()
        self.size: int = torch.distributed.get_world_size()
        self.name = "%d of %d" % (self.rank, self.size)
        self.folder = "rank-%d" % self.rank
        mine = (list(range(self.size)) if mesh is None else
                mesh.mesh.flatten().tolist())
        agreed = [uuid.uuid4().hex, mine]
        torch.distributed.broadcast_object_list(agreed, src=0)
        token, self.replicas = agreed
        if 0 not in self.replicas:
            raise Error("mesh has the ranks %s on rank 0, without rank 0" %
                        self.replicas, code="INVALID_ARGUMENT",
                        hint='Give the data-parallel mesh: world_mesh["dp"].')
        self._store = torch.distributed.PrefixStore(
            "atoll-" + token,
            torch.distributed.distributed_c10d._get_default_store())
        self._group = torch.distributed.ProcessGroupGloo(
            self._store, self.rank, self.size, timeout=_WAIT)

    def broadcast(self, value: Any = None) -> Any:
        data = self._to_tensor(value if self.rank == 0 else None)
        size = self._to_size(len(data))
        try:
            self._group.broadcast(size, 0).wait()
            if self.rank != 0:
                data = data.new_empty(int(size))
            self._group.broadcast(data, 0).wait()
        except RuntimeError as error:
            raise self._cause(error) from error
        return pickle.loads(data.numpy().tobytes())

    def _gather(self, value: Any) -> list[Any]:
        """The values of all ranks. RuntimeError: one has ended."""
        data = self._to_tensor(value)
        sizes = [self._to_size(0) for _ in range(self.size)]
        self._group.allgather(sizes, self._to_size(len(data))).wait()
        longest = max(map(int, sizes))
        all_data = [data.new_empty(longest) for _ in sizes]
        padded = data.new_zeros(longest)
        padded[:len(data)] = data
        self._group.allgather(all_data, padded).wait()
        return [pickle.loads(of[:int(size)].numpy().tobytes())
                for of, size in zip(all_data, sizes)]

    def _to_tensor(self, value: Any) -> Any:
        return self._torch.from_numpy(
            np.frombuffer(bytearray(pickle.dumps(value)), np.uint8))

    def _to_size(self, value: int) -> Any:
        return self._torch.tensor([value], device="cpu")

    def together(self, work: Callable[[], Any]) -> list[Any]:
        mine: Exception | None = None
        outcome: tuple[Any, Any] = (None, None)
        try:
            outcome = (work(), None)
        except Exception as error:  # pylint: disable=broad-except
            mine, outcome = error, (None, _to_fields(to_error(error)))
        try:
            outcomes = self._gather(outcome)
        except RuntimeError as error:
            raise mine or self._cause(error) from error
        if mine is not None:
            raise mine
        for rank, (_, fields) in enumerate(outcomes):
            if fields is not None:
                raise _of_rank(rank, fields)
        return [value for value, _ in outcomes]

    def check(self) -> None:
        try:
            first = self._first_error()
        except RuntimeError as error:  # The store's process has ended.
            raise self._cause(error) from error
        if first is not None:
            raise first

    def _first_error(self) -> Error | None:
        """The error of another rank, or None."""
        if not self._store.check(["error"]):
            return None
        rank, fields = json.loads(self._store.get("error"))
        return None if rank == self.rank else _of_rank(rank, fields)

    def _cause(self, error: RuntimeError) -> Error:
        """Why torch.distributed has failed: another rank's error or death."""
        with contextlib.suppress(RuntimeError):
            first = self._first_error()
            if first is not None:
                return first
        return _lost(error)

    def fail(self, error: Error) -> Error:
        with contextlib.suppress(RuntimeError):
            rank, fields = json.loads(self._store.compare_set(
                "error", "", json.dumps([self.rank, _to_fields(error)])))
            if rank != self.rank:
                error = _of_rank(rank, fields)
            if self.rank != 0:
                self._store.wait(["told"], _TOLD)
        return error

    def told(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._store.set("told", "")

    def close(self) -> None:
        self._group = None


def to_error(error: BaseException) -> Error:
    """The error that ended the training loop, for the exchange."""
    if isinstance(error, Error):
        return error
    if isinstance(error, RuntimeError) and _torch.is_of_distributed(error):
        return _lost(error)
    return Error("the training loop ended with %s: %s" %
                 (type(error).__name__, error), reason="TRAINER_FAILED",
                 code="UNKNOWN" if isinstance(error, Exception) else
                 "CANCELLED")


def _lost(error: RuntimeError) -> Error:
    return Error("another rank of the island has ended: %.300s" % error,
                 reason="RANK_LOST", code="UNAVAILABLE",
                 hint="Start all ranks again.")


def _to_fields(error: Error) -> list[str]:
    return [error.message, error.reason, error.hint, error.code]


def _of_rank(rank: int, fields: list[str]) -> Error:
    message, *others = fields
    return Error("rank %d: %s" % (rank, message), *others)
