"""Joins a run before there is a model or a loader."""

from __future__ import annotations

import os
from typing import Any, Mapping

from . import _closing, _news, _torch
from ._connection import Connection
from ._exchange import Exchange, Patience, RunIsComplete, log_path
from ._ranks import Alone, Ranks
from ._session import ask_place, no_parameters
from .errors import ConnectionLost, Error


def work_folder(run: str, island_id: str | None, work_dir: str | None) -> str:
    """The absolute work_dir of an island."""
    return os.path.abspath(work_dir or os.path.join(
        "atoll-work", "-".join([run] + ([island_id] if island_id else []))))


class Joined:
    """An island's place in a run; the same after a restart.

    Attributes:
      run: The run's id.
      index: The island's number in the run; -1: the run is complete.
      shard: The data shard that the island reads.
      shard_count: Data shards of the run, data.data_shard_count.
    """

    def __init__(self, address: str, run: str, island_id: str | None,
                 folder: str, on_event: _news.OnEvent | None,
                 wait_s_max: float):
        self.run = run
        self.index = self.shard = 0
        self.shard_count = 1
        self.folder = folder
        self.run_uid = ""
        self.index_digest = ""  # A sampler's: TrainerTrain.index_digest.
        self.news = _news.News(run, on_event, wait_s_max, log_path(folder))
        self.exchange = Exchange(address, run, island_id, folder)
        self._connection: Connection | None = None
        self._is_taken = False

    def _ask(self) -> Mapping[str, Any]:
        """Connects, and asks for the place: its message."""
        patience = Patience()
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            raise Error("cannot make the work_dir %s: %s" %
                        (self.folder, error.strerror), reason="CANNOT_SAVE",
                        code="FAILED_PRECONDITION",
                        hint="Give a work_dir that can be written.") from error
        while True:
            try:
                connection = self.exchange.connect(patience.is_waiting,
                                                   self.news)
                try:
                    place = ask_place(connection, self.news)
                except BaseException:
                    connection.close()
                    raise
                self._connection = connection
                return place
            except RunIsComplete as error:
                raise no_parameters(self.run) from error
            except ConnectionLost as error:
                self.exchange.check()
                patience.failed(error)
                self.news.look()

    def _fill(self, ranks: Alone | Ranks) -> None:
        place = ranks.together(
            lambda: self._ask() if ranks.rank == 0 else None)[0]
        self.index = place["slot"]
        self.shard = place["data_shard"]
        self.shard_count = max(1, place["data_shard_count"])
        self.run_uid = place["run_uid"]
        if ranks.rank == 0 and self.index >= 0:
            self.news.tell("placed", "island %s has the data shard %d of %d" %
                           (place["island_id"], self.shard, self.shard_count),
                           index=self.index, shard=self.shard,
                           shard_count=self.shard_count)

    def take(self) -> Connection | None:
        """The connection, on rank 0, for the island that has this place.

        Error FAILED_PRECONDITION: another island has it, or it is closed.
        """
        if self._is_taken:
            raise Error("this place is closed, or has an island",
                        code="FAILED_PRECONDITION",
                        hint="Call atoll.join again.")
        self._is_taken = True
        connection, self._connection = self._connection, None
        return connection

    def close(self) -> None:
        """Gives up the place, unless an island has it."""
        if not self._is_taken:
            connection = self.take()
            if connection is not None:
                connection.close()
            self.exchange.end(at_once=True)


def join(address: str, *, run: str, island_id: str | None = None,
         work_dir: str | None = None, on_event: _news.OnEvent | None = None,
         wait_s_max: float = 86400.0) -> Joined:
    """Joins a run, and waits for the island's place in it.

        joined = atoll.join("HOST:7400", run="spring")
        sampler = atoll.ShardSampler(dataset, joined)
        ...
        with atoll.Island(joined=joined, model=model, ...) as island:

    The place lasts until the island is made, or the program ends. If the
    program has started torch.distributed, every rank calls it, and all have the
    same place.

    Args: as of Island.

    Error: as of Island.start.
    """
    folder = work_folder(run, island_id, work_dir)
    _closing.close_before(folder)
    _news.show()
    joined = Joined(address, run, island_id, folder, on_event, wait_s_max)
    ranks = Ranks(None) if _torch.has_ranks() else Alone()
    try:
        joined._fill(ranks)  # pylint: disable=protected-access
    except BaseException as error:
        if ranks.rank == 0 and isinstance(error, Error):
            joined.news.refused(error)
        joined.close()
        raise
    finally:
        ranks.close()
    if ranks.size == 1:
        _closing.add(folder, joined)
    return joined
