"""One connection's conversation: the exchange asks, the trainer answers."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Any, Mapping

from . import _messages
from ._connection import Connection
from ._messages import Message
from ._news import LOOK_S, News
from ._regions import Regions
from ._steps import WEIGHT_UNITS, OpenTrain, Total
from ._trainer import Trainer
from .errors import ConnectionLost, Error

_HELLO_S_MAX = 900.0  # The exchange may wait for the run to exist.


def no_parameters(run_id: str) -> Error:
    return Error(
        "run %s is complete, and its exchange has ended without giving its "
        "parameters" % run_id, reason="NO_PARAMETERS",
        code="FAILED_PRECONDITION", hint="`atoll run export %s --output DIR` "
        "reads them from the servers, and atoll.fetch(%r, model) loads them." %
        (run_id, run_id))


def _receive(connection: Connection, news: News,
             deadline: float | None) -> Message | None:
    """The next message; None: none came before the deadline."""
    while True:
        wait = LOOK_S if deadline is None else min(
            LOOK_S, deadline - time.monotonic())
        if wait <= 0:
            return None
        message = connection.receive(wait)
        if message is not None:
            news.heard()
            return message
        news.look()


def _raise_if_error(message: Message) -> None:
    if message.kind == "error":
        body = message.body
        raise Error(body["message"] or "the exchange cannot continue",
                    reason=body["reason"], code=body["code"] or "UNKNOWN",
                    hint=body["hint"])


def _check_version(message: Message, kind: str, seq: int) -> None:
    """Error: `message` is not the answer to a first message."""
    _raise_if_error(message)
    if message.kind != kind or message.seq != seq:
        raise _messages.unreadable("a %s instead of the %s" %
                                   (message.kind, kind))
    if message.body["version"] != _messages.VERSION:
        raise Error("the exchange speaks version %d of the protocol; this "
                    "package speaks %d" % (message.body["version"],
                                           _messages.VERSION),
                    reason="OTHER_VERSION", code="UNIMPLEMENTED",
                    hint="Use the same release of atoll and of this package.")


def ask_place(connection: Connection, news: News) -> Mapping[str, Any]:
    """Asks for the island's place in the run, before the hello.

    The exchange joins the run first. ConnectionLost, or Error: it cannot.
    """
    connection.send(1, "join", {"version": _messages.VERSION})
    message = _receive(connection, news, None)
    assert message is not None
    _check_version(message, "join", 1)
    return message.body


class Session:
    """A connection after the hello.

    Attributes:
      hello: The exchange's answer to the hello.
      poll: As Connection.poll.
      regions: The regions, complete when the first `train` is open.
    """

    def __init__(self, connection: Connection, trainer: Trainer, news: News,
                 frozen_digest: str, seq: int):
        """Says hello, as message `seq`. ConnectionLost, or Error."""
        kept = trainer.hello()
        self._is_again = bool(kept)
        self._connection = connection
        self.poll = connection.poll
        self._trainer = trainer
        self._news = news
        self._open_seq = 0  # The unanswered request's; 0: none.
        self._has_parameters = False  # Undefined before a `write`.
        hello: dict[str, Any] = {"version": _messages.VERSION,
                                 "weight_unit": "any", **kept}
        if trainer.data_fingerprint:
            hello["data_fingerprint"] = trainer.data_fingerprint
        if frozen_digest:
            hello["frozen_digest"] = frozen_digest
        connection.send(seq, "hello", hello)
        message = self._receive(time.monotonic() + _HELLO_S_MAX)
        if message is None:
            raise ConnectionLost("the exchange does not answer the hello")
        _check_version(message, "hello", seq)
        if message.body["weight_unit"] is None:
            message.body["weight_unit"] = "tokens"  # An older exchange.
        if message.body["weight_unit"] not in WEIGHT_UNITS:
            raise Error("the run weighs by %r, which this package does not "
                        "count" % message.body["weight_unit"],
                        reason="OTHER_WEIGHT_UNIT", code="UNIMPLEMENTED",
                        hint="Upgrade this package.")
        self.hello = message.body
        self.regions = Regions(self.hello["fragment_count"])

    def serve(self, deadline: float | None = None
              ) -> OpenTrain | dict[str, Any]:
        """Answers requests until one to train, or the end, which it returns.

        `deadline`: time.monotonic() at which it raises ConnectionLost.
        """
        while True:
            message = self._receive(deadline)
            if message is None:
                raise ConnectionLost("the exchange has not ended in time")
            _raise_if_error(message)
            if message.kind == "interrupt":
                continue  # For a `train` that was answered before it came.
            if message.kind == "end":
                if message.body["complete"] and not self._has_parameters:
                    raise no_parameters(self.hello["run_id"])
                return message.body
            if message.seq == 0:
                raise self._refuse("%s without a seq" % message.kind)
            self._open_seq = message.seq
            if message.kind == "train":
                train, total = self._open_train(message)
                if total is None:
                    return train
                self.finish(train, total.answer())
                continue
            self._answer(message)

    def _receive(self, deadline: float | None) -> Message | None:
        message = _receive(self._connection, self._news, deadline)
        if message is not None:
            self._tell(message)
        return message

    def look(self) -> Message | None:
        """The message that came while it trains: interrupt, end, or None."""
        message = self._connection.receive(0)
        if message is not None:
            self._tell(message)
            _raise_if_error(message)
            if message.kind not in ("interrupt", "end"):
                raise self._refuse("%s while a train is open" % message.kind)
        return message

    def finish(self, train: OpenTrain, body: dict[str, Any]) -> None:
        """Answers the open train."""
        self._connection.send(train.seq, "train", body)
        self._open_seq = 0

    def progress(self, train: OpenTrain, body: dict[str, Any]) -> None:
        self._connection.send(train.seq, "progress", body, wait=False)

    def fail(self, error: Error) -> None:
        """Tells the exchange why the trainer cannot continue; then closes."""
        with contextlib.suppress(Error):
            self._connection.send(self._open_seq, "error", {
                "code": error.code, "reason": error.reason,
                "message": error.message, "hint": error.hint}, wait=False)
        self.close()

    def close(self) -> None:
        self._connection.close()

    def _tell(self, message: Message) -> None:
        for notice in message.body.get("notices", ()):
            self._news.tell("warned", notice, logging.WARNING)

    @staticmethod
    def _refuse(why: str) -> Error:
        return _messages.unreadable(why)

    def _open_train(self, message: Message) -> tuple[OpenTrain, Total | None]:
        if not self.regions.complete:
            raise self._refuse("a train before the last layout")
        if message.body["step_count"] < 1:
            raise self._refuse("a train of %d steps" %
                               message.body["step_count"])
        # Kept steps began from the run's parameters.
        self._has_parameters = True
        return self._trainer.open_train(message.seq, message.body)

    def _answer(self, message: Message) -> None:
        handler = getattr(self, "_on_" + message.kind, None)
        if message.kind == "layout":
            self.regions.add(message.body, self._connection.take_file())
            if self.regions.complete:
                self._trainer.take_regions(self.regions)
            answer = {}
        elif handler is None:
            raise self._refuse("a %s from the exchange" % message.kind)
        else:
            if not self.regions.complete:
                raise self._refuse("a %s before the last layout" % message.kind)
            answer = handler(message.body)
        self._connection.send(message.seq, message.kind, answer)
        self._open_seq = 0

    def _on_read(self, body: dict[str, Any]) -> dict[str, Any]:
        self._check_fragments(body)
        self._trainer.read(body["fragments"])
        return {}

    def _on_write(self, body: dict[str, Any]) -> dict[str, Any]:
        self._check_fragments(body)
        self._trainer.write(body["fragments"])
        self._has_parameters = True
        return {}

    def _check_fragments(self, body: dict[str, Any]) -> None:
        for fragment in body["fragments"]:
            self.regions.views(fragment)

    def _on_save(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"save_id": self._trainer.save(body["save_id"],
                                              self.hello["strict"])}

    def _on_load(self, body: dict[str, Any]) -> dict[str, Any]:
        commit = body["restored_commit_seq"]
        if commit:
            self._trainer.go_back(self.hello["strict"])
            self._news.tell(
                "restored", "the run was restored to an earlier state, as "
                "run_epoch %d: the model gets its parameters, and the "
                "optimizer is %s" % (
                    body["run_epoch"], "left as it is" if
                    self._trainer.keeps_at_restore else "reset"),
                logging.WARNING, commit=commit, run_epoch=body["run_epoch"])
        else:
            self._trainer.load(body["save_id"], self.hello["strict"],
                               body["keep"], self._is_again)
        self._trainer.run_epoch = body["run_epoch"]
        self._is_again = False
        return {"save_id": body["save_id"]}

    def _on_evaluate(self, body: dict[str, Any]) -> dict[str, Any]:
        total = self._trainer.evaluate()
        if total is None:
            return {"token_count": 0}
        return {"loss": total.loss, "token_count": total.token_count}
