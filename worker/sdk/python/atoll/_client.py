"""The conversation with the exchange over all connections of an island."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import Any, Callable, Mapping

from ._connection import Connection
from ._exchange import Exchange, Patience, RunIsComplete
from ._messages import Message
from ._news import News
from ._session import Session, no_parameters
from ._steps import OpenTrain, Total
from ._trainer import Trainer
from .errors import ConnectionLost, Error

_LEAVE_S_MAX = 60.0


class Client:
    """Connects, answers, and connects again: the leader's.

    A ConnectionLost never leaves `next` and `recover`; one that another method
    raises is for `recover`.
    """

    def __init__(self, run_id: str, exchange: Exchange, trainer: Trainer,
                 news: News, joined: Connection | None = None,
                 run_uid: str = ""):
        """`joined`: a connection that has the place in the run `run_uid`."""
        self.patience = Patience()
        self._news = news
        self.session: Session | None = None
        self._run_id = run_id
        self._run_uid = run_uid
        self._joined = joined
        self._exchange = exchange
        self._trainer = trainer
        self._pid = os.getpid()

    def next(self) -> OpenTrain | Mapping[str, Any]:
        """Answers requests until one to train, or the end: its message."""
        self._news.begin()
        result = self._next()
        self._news.end()
        self._trainer.announce(result)
        return result

    def _next(self) -> OpenTrain | Mapping[str, Any]:
        while True:
            try:
                if self.session is None:
                    self._connect()
                assert self.session is not None
                result = self.session.serve()
                self.patience.succeeded()
                return result
            except RunIsComplete as error:
                raise no_parameters(self._run_id) from error
            except ConnectionLost as error:
                self._lose(error)

    def recover(self, error: ConnectionLost) -> OpenTrain | Mapping[str, Any]:
        """As `next`, after the loss of the connection."""
        self._lose(error)
        return self.next()

    def _connect(self) -> None:
        digest = self._trainer.frozen_digest()
        connection, seq, self._joined = self._joined, 2, None
        if connection is None:
            connection, seq = self._exchange.connect(
                self.patience.is_waiting, self._news), 1
        try:
            self.session = Session(connection, self._trainer, self._news,
                                   digest, seq)
        except BaseException as error:
            connection.close()
            if isinstance(error, ConnectionLost) and not self._run_uid:
                self._exchange.check()
            raise
        hello = self.session.hello
        if hello["run_id"] != self._run_id or self._run_uid not in (
                "", hello["run_uid"]):
            raise Error("the exchange is of another run: %s, %s" %
                        (hello["run_id"], hello["run_uid"]),
                        reason="OTHER_RUN", code="FAILED_PRECONDITION")
        self._run_uid = hello["run_uid"]
        self._trainer.begin(hello["run_id"], hello["run_uid"],
                            hello["island_id"], hello["weight_unit"],
                            hello["planned_step_count"], hello["strict"])

    def _lose(self, error: ConnectionLost) -> None:
        if os.getpid() != self._pid:
            raise Error("a forked process does not train: the island is its "
                        "parent's, process %d" % self._pid, reason="FORKED",
                        code="FAILED_PRECONDITION", hint="Step in the process "
                        "that made the island, or make it after the fork.")
        self._drop()
        if not self.patience.is_waiting:
            self._news.tell("lost", "connects again: %s" % error.message,
                            logging.WARNING)
        self.patience.failed(error)
        self._news.look()

    def _drop(self) -> None:
        if self.session is not None:
            self.session.close()
            self.session = None

    def poll(self) -> Callable[[int], Any] | None:
        """select.poll's method: empty while there is nothing for `look`.

        None: there may always be. Valid until the connection is lost.
        """
        if self._trainer.ranks.size > 1 or self.session is None:
            return None
        return self.session.poll

    def look(self) -> Message | None:
        """The message that came while it trains: interrupt, end, or None.

        With several ranks always None: they learn of it after the train.
        Error: another rank has failed.
        """
        if self._trainer.ranks.size > 1:
            self._trainer.ranks.check()
            return None
        assert self.session is not None
        return self.session.look()

    def is_lost(self, train: OpenTrain) -> bool:
        """More steps are in vain. With several ranks the total tells."""
        return self._trainer.ranks.size == 1 and self._trainer.is_lost(train)

    def progress(self, train: OpenTrain) -> None:
        assert self.session is not None
        body = train.progress()
        if self._trainer.ranks.size == 1:
            self.session.progress(train, body)
            return
        body.pop("token_count", None)  # They are this rank's only.
        with contextlib.suppress(ConnectionLost):
            self.session.progress(train, body)

    def total(self, train: OpenTrain) -> Total:
        """The sums over the steps of all ranks."""
        return self._trainer.total(train)

    def finish(self, train: OpenTrain, total: Total) -> None:
        assert self.session is not None
        self.session.finish(train, self._answer(train, total))

    def _answer(self, train: OpenTrain, total: Total) -> dict[str, Any]:
        body = total.answer()
        if train.paused_s:
            body["paused_seconds"] = train.paused_s
        digest = self._trainer.index_digest()
        if digest:
            body["index_digest"] = digest
        return body

    def leave(self, train: OpenTrain) -> None:
        """Hands in `train`, and answers requests until the end, a minute."""
        if self.session is None:
            raise ConnectionLost("not connected")
        body = self._answer(train, self.total(train))
        deadline = time.monotonic() + _LEAVE_S_MAX
        result: OpenTrain | Mapping[str, Any] = train
        try:
            while isinstance(result, OpenTrain):
                self.session.finish(result, {**body, "leave": True})
                result = self.session.serve(deadline)
                body = {"step_count": 0, "token_count": 0}
        except ConnectionLost as error:
            self._trainer.announce({"complete": False,
                                    "message": error.message})
            raise
        self._trainer.announce(result)

    def fail(self, error: Error) -> None:
        """Tells the exchange, and the other ranks, why the trainer ends."""
        error = self._trainer.ranks.fail(error)
        if self.session is not None:
            self.session.fail(error)
            self.session = None
        self._trainer.ranks.told()
        self._trainer.ranks.close()

    def close(self, at_once: bool = False) -> None:
        """Closes the connection; the exchange, if it is a child, ends."""
        self._drop()
        if self._joined is not None:
            self._joined.close()
        self._exchange.end(at_once)
        self._trainer.close()


class Follower:
    """Does the work of Client on the ranks that do not lead."""

    def __init__(self, trainer: Trainer):
        self._trainer = trainer

    def next(self) -> OpenTrain | Mapping[str, Any]:
        return self._trainer.follow()

    def recover(self, error: ConnectionLost) -> OpenTrain | Mapping[str, Any]:
        raise error  # Only the leader has a connection to lose.

    def poll(self) -> None:
        return None

    def look(self) -> Message | None:
        self._trainer.ranks.check()
        return None

    def is_lost(self, train: OpenTrain) -> bool:
        return False

    def progress(self, train: OpenTrain) -> None:
        pass

    def total(self, train: OpenTrain) -> Total:
        return self._trainer.total(train)

    def finish(self, train: OpenTrain, total: Total) -> None:
        pass

    def leave(self, train: OpenTrain) -> None:
        self.total(train)
        if isinstance(self.next(), OpenTrain):
            raise Error("this rank has left the loop, and rank 0 trains on",
                        reason="UNEQUAL_STEPS", code="FAILED_PRECONDITION",
                        hint="Leave the loop on all ranks after the same "
                        "step.")

    def fail(self, error: Error) -> None:
        self._trainer.ranks.fail(error)
        self._trainer.ranks.close()

    def close(self, at_once: bool = False) -> None:
        self._trainer.close()
