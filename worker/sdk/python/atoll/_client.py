"""The conversation with the exchange over all connections of an island."""

from __future__ import annotations

import time
from typing import Any, Mapping

from ._exchange import Exchange, Patience, RunIsComplete
from ._messages import Message
from ._regions import Regions
from ._session import Session, Trainer
from ._steps import OpenTrain
from .errors import ConnectionLost, Error

_LEAVE_S_MAX = 60.0


class Client:
    """Connects, answers, and connects again.

    A ConnectionLost never leaves `next` and `recover`; one that another method
    raises is for `recover`.
    """

    def __init__(self, run_id: str, exchange: Exchange, trainer: Trainer):
        self.patience = Patience()
        self.session: Session | None = None
        self._run_id = run_id
        self._run_uid = ""
        self._exchange = exchange
        self._trainer = trainer
        self._regions: Regions | None = None

    def next(self) -> OpenTrain | Mapping[str, Any]:
        """Answers requests until one to train, or the end: its message."""
        while True:
            try:
                if self.session is None:
                    self._connect()
                assert self.session is not None
                result = self.session.serve(self._take_regions)
                self.patience.succeeded()
                return result
            except RunIsComplete:
                return {"complete": True, "message": "the run is complete"}
            except ConnectionLost as error:
                self._lose(error)

    def recover(self, error: ConnectionLost) -> OpenTrain | Mapping[str, Any]:
        """As `next`, after the loss of the connection."""
        self._lose(error)
        return self.next()

    def _connect(self) -> None:
        connection = self._exchange.connect(self.patience.is_waiting)
        try:
            self.session = Session(connection, self._trainer)
        except BaseException:
            connection.close()
            raise
        hello = self.session.hello
        if hello["run_id"] != self._run_id or self._run_uid not in (
                "", hello["run_uid"]):
            raise Error("the exchange is of another run: %s, %s" %
                        (hello["run_id"], hello["run_uid"]),
                        reason="OTHER_RUN", code="FAILED_PRECONDITION")
        self._run_uid = hello["run_uid"]
        self._trainer.store.begin(hello["run_id"], hello["run_uid"],
                                  hello["island_id"])

    def _take_regions(self, regions: Regions) -> Regions:
        """Binds the first regions; later ones take the place of the first."""
        try:
            if self._regions is None:
                self._trainer.parameters.bind(regions)
                self._regions = regions
            else:
                self._regions.become(regions)
        finally:
            regions.close()
        return self._regions

    def _lose(self, error: ConnectionLost) -> None:
        self._drop()
        self.patience.failed(error)

    def _drop(self) -> None:
        if self.session is not None:
            self.session.close()
            self.session = None

    def look(self) -> Message | None:
        """What came while a train is open: an interrupt, the end, or None."""
        assert self.session is not None
        return self.session.look()

    def progress(self, train: OpenTrain) -> None:
        assert self.session is not None
        self.session.progress(train)

    def finish(self, train: OpenTrain) -> None:
        assert self.session is not None
        self.session.finish(train)

    def leave(self, train: OpenTrain) -> None:
        """Hands in `train`, and answers requests until the end, a minute."""
        assert self.session is not None
        deadline = time.monotonic() + _LEAVE_S_MAX
        result: OpenTrain | Mapping[str, Any] = train
        while isinstance(result, OpenTrain):
            self.session.finish(result, leave=True)
            result = self.session.serve(self._take_regions, deadline)

    def fail(self, error: Error) -> None:
        """Tells the exchange why the trainer ends."""
        if self.session is not None:
            self.session.fail(error)
            self.session = None

    def close(self) -> None:
        """Closes the connection; the exchange, if it is a child, ends."""
        self._drop()
        self._exchange.end()
        self._trainer.store.close()
