"""The trainer's side of an island: a training loop joins a run."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Any, Callable, Mapping

from ._exchange import Exchange, Patience, RunIsComplete
from ._module import LocalBuffers, ModuleParameters
from ._parameters import ArrayParameters, Parameters, RegionParameters
from ._regions import Regions
from ._session import Session, Trainer
from ._state import State
from ._steps import OpenTrain
from ._store import Store
from .errors import ConnectionLost, Error

_LOOK_S = 0.05      # Between two looks at the socket while steps go on.
_PROGRESS_S = 1.0
_LEAVE_S_MAX = 60.0
_SAVES = ("auto", "always")


class Island:
    """An island of a run, around a training loop of your own.

        with atoll.Island("HOST:7400", run="spring", model=model,
                          state={"optimizer": opt, "loader": loader}) as island:
            for x, y in loader:
                loss = loss_fn(model(x), y)
                loss.backward()
                opt.step()
                opt.zero_grad()
                if not island.step(loss=loss, tokens=y.numel()):
                    break

    From the first line of the block the model has the servers' parameters; its
    own first values are dropped. `step` counts a step. When a round is due, it
    exchanges parameters with the other islands, and returns.

    Any process may die at any time. After a new connection, parameters and
    state go back to those of a save, between two steps, and the loop goes on
    from there. So `state` must hold everything that decides the next step
    and is not a parameter: the optimizer, schedules, and the position in the
    data. A loader must read its position anew for each batch.

    Not thread-safe: one thread calls everything.
    """

    def __init__(self, address: str, *, run: str, model: Any = None,
                 arrays: Mapping[str, Any] | None = None,
                 state: Mapping[str, Any] | None = None,
                 island_id: str | None = None, work_dir: str | None = None,
                 mesh: Any = None, save: str = "auto",
                 evaluate: Callable[[], Any] | None = None,
                 buffers: str = "local",
                 names: Callable[[str], str] | Mapping[str, str] | None = None):
        """Captures the state; dials nobody yet.

        Args:
          address: HOST:PORT of the coordinator.
          run: The run's id.
          model: A torch module whose parameters are trained.
          arrays: Or {name: writable float32 array}. Without both, train on
            `island.arrays`.
          state: {name: object with state_dict and load_state_dict, or a
            numpy.random.Generator or torch.Generator}. Global generators are
            always a part of it.
          island_id: The island's name, kept over restarts. Default: the name
            in the certificate, or the host's.
          work_dir: Folder for states, the exchange's files and its log; the
            same after a restart. Default: atoll-work/RUN, or
            atoll-work/RUN-ISLAND_ID.
          save: "auto": strict runs at each request, others every ten minutes.
            "always": at each request.
          evaluate: As the method `evaluate`; from the first request on.
          buffers: "average": buffers of floating-point numbers are averaged as
            parameters are. "local": each island has its own.
          names: The run's name of each of the model's names that differs.

        Error: an argument is wrong, or another process uses `work_dir`.
        """
        if mesh is not None:
            raise Error("mesh is not supported yet", code="UNIMPLEMENTED",
                        hint="Run one process an island.")
        if model is not None and arrays is not None:
            raise Error("give model or arrays, not both",
                        code="INVALID_ARGUMENT")
        if save not in _SAVES:
            raise Error("save is %r; give one of %s" % (save, _SAVES),
                        code="INVALID_ARGUMENT")
        self.run_id = run
        self.metrics: dict[str, float] = {}
        folder = os.path.abspath(work_dir or os.path.join(
            "atoll-work", "-".join([run] + ([island_id] if island_id else []))))
        objects = dict(state or {})
        self._parameters: Parameters
        if model is not None:
            self._parameters = ModuleParameters(model, buffers, names)
            objects["(buffers)"] = LocalBuffers(model, buffers)
        elif arrays is not None:
            self._parameters = ArrayParameters(arrays)
        else:
            self._parameters = RegionParameters()
        self._exchange = Exchange(address, run, island_id, folder)
        self._evaluate = evaluate
        captured = State(objects)
        self._store = Store(folder, captured.capture())
        self._trainer = Trainer(self._parameters, captured, self._store,
                                save == "always", lambda: self._evaluate)
        self._patience = Patience()
        self._session: Session | None = None
        self._regions: Regions | None = None
        self._run_uid = ""
        self._train: OpenTrain | None = None
        self._newest: Mapping[str, Any] = {}
        self._ended = False
        self._look_at = self._progress_at = 0.0

    # --- The run -------------------------------------------------------------

    @property
    def arrays(self) -> Mapping[str, Any]:
        """{name: float32 array} of the parameters, if there is no `model`.

        Without `arrays` these are views of shared memory, valid from the
        block's first line on. Change them in place.
        """
        return getattr(self._parameters, "arrays")

    @property
    def round(self) -> int:
        """The round that is trained: the version it began from."""
        return self._newest.get("version", 0)

    @property
    def clock(self) -> int:
        """Inner steps of the run before the next step, for schedules."""
        done = self._train.done if self._train else 0
        return self._newest.get("step", 0) + done

    @property
    def lr_scale(self) -> float:
        """Factor for the learning rate: 1, or less in a warm-up."""
        return self._newest.get("lr_scale", 1.0)

    @property
    def data_shard(self) -> int:
        """Which of the run's data shards to read."""
        return self._newest.get("data_shard", 0)

    @property
    def data_position(self) -> int:
        """First sample of the first step of the open round's steps."""
        return self._newest.get("data_position", 0)

    def evaluate(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Sets what evaluates the run's parameters. Also a decorator.

        Inside of the block it may come too late for the first evaluation.

        Args:
          function: () -> (loss, token_count), the mean over the tokens, or
            () -> loss. While it runs, the model has the outer parameters. It
            must not change the state; generators are put back.
        """
        self._evaluate = function
        return function

    # --- The loop ------------------------------------------------------------

    def __enter__(self) -> "Island":
        self.start()
        return self

    def start(self) -> None:
        """Connects, and waits until the first step may be trained.

        Error: the run or the exchange does not permit it, with the reason.
        """
        try:
            self._serve()
        except BaseException as error:
            self._fail(error)
            raise

    def step(self, loss: Any = None, tokens: int = 0,
             metrics: Mapping[str, Any] | None = None) -> bool:
        """Counts a step that was just trained. Call it after each one.

        Args:
          loss: Mean loss of the step: a number or a tensor of one element. A
            tensor stays on its device until the round ends.
          tokens: Tokens, or samples, of the step: its weight.
          metrics: {name: number}. `island.metrics` has their means over the
            newest round, weighted by tokens.

        Returns False once the run is complete: leave the loop.

        Error: the run was cancelled, or the exchange cannot go on.
        """
        train = self._train
        if train is None:
            if self._ended:
                return False
            raise Error("step outside of the `with` block",
                        code="FAILED_PRECONDITION")
        if (train.add(loss, tokens, metrics) and
                time.monotonic() < self._look_at):
            return True
        return self._after_step(train)

    def _after_step(self, train: OpenTrain) -> bool:
        """What is due after a step: a look, progress, the answer."""
        try:
            assert self._session is not None
            now = time.monotonic()
            self._look_at = now + _LOOK_S
            message = self._session.look()
            if message is not None and message.kind == "end":
                self._take_end(message.body)
            elif message is not None or train.done >= train.request[
                    "step_count"]:
                self.metrics = train.metrics()
                self._session.finish(train)
                self._serve()
            elif now >= self._progress_at:
                self._progress_at = now + _PROGRESS_S
                self._session.progress(train)
        except ConnectionLost as error:
            self._recover(error)
        except BaseException as error:
            self._fail(error)
            raise
        return not self._ended

    def _recover(self, error: ConnectionLost) -> None:
        try:
            self._lose(error)
            self._serve()
        except BaseException as failure:
            self._fail(failure)
            raise

    def _serve(self) -> None:
        """Answers requests until a train is open, or the run has ended."""
        self._train = None
        while True:
            try:
                if self._session is None:
                    self._connect()
                assert self._session is not None
                result = self._session.serve(self._take_regions)
                self._patience.succeeded()
                if isinstance(result, dict):
                    self._take_end(result)
                else:
                    self._take_train(result)
                return
            except RunIsComplete:
                self._ended = True
                return
            except ConnectionLost as error:
                self._lose(error)

    def _take_train(self, train: OpenTrain) -> None:
        self._train = train
        self._newest = train.request
        now = time.monotonic()
        self._look_at = now + _LOOK_S
        self._progress_at = now + _PROGRESS_S

    def _connect(self) -> None:
        connection = self._exchange.connect(self._patience.is_waiting)
        try:
            self._session = Session(connection, self._trainer)
        except BaseException:
            connection.close()
            raise
        hello = self._session.hello
        if hello["run_id"] != self.run_id or self._run_uid not in (
                "", hello["run_uid"]):
            raise Error("the exchange is of another run: %s, %s" %
                        (hello["run_id"], hello["run_uid"]),
                        reason="OTHER_RUN", code="FAILED_PRECONDITION")
        self._run_uid = hello["run_uid"]
        self._store.begin(hello["run_id"], hello["run_uid"],
                          hello["island_id"])

    def _take_regions(self, regions: Regions) -> Regions:
        """Binds the first regions; later ones take the place of the first."""
        try:
            if self._regions is None:
                self._parameters.bind(regions)
                self._regions = regions
            else:
                self._regions.become(regions)
        finally:
            regions.close()
        return self._regions

    def _lose(self, error: ConnectionLost) -> None:
        """After a loss: what was open is forgotten; waits a moment."""
        self._train = None
        if self._session is not None:
            self._session.close()
            self._session = None
        self._patience.failed(error)

    def _take_end(self, end: Mapping[str, Any]) -> None:
        self._ended = True
        self._train = None
        if not end["complete"]:
            raise Error(end["message"] or "the island has ended",
                        reason="ISLAND_ENDED", code="CANCELLED")

    # --- The end -------------------------------------------------------------

    def __exit__(self, kind: type[BaseException] | None,
                 error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self._fail(error)

    def close(self) -> None:
        """Leaves the run, if it goes on: hands in the steps that are done."""
        try:
            if self._train is not None:
                self._leave(self._train)
        except ConnectionLost:
            pass  # The exchange has ended first, or takes too long.
        finally:
            self._release()

    def _leave(self, train: OpenTrain) -> None:
        deadline = time.monotonic() + _LEAVE_S_MAX
        self._train = None
        assert self._session is not None
        result: OpenTrain | Mapping[str, Any] = train
        while isinstance(result, OpenTrain):
            self._session.finish(result, leave=True)
            result = self._session.serve(self._take_regions, deadline)

    def _fail(self, error: BaseException) -> None:
        """Ends after an exception, and tells the exchange about it."""
        if self._session is not None and not self._ended:
            if not isinstance(error, Error):
                code = ("UNKNOWN" if isinstance(error, Exception) else
                        "CANCELLED")
                error = Error("the training loop ended with %s: %s" %
                              (type(error).__name__, error),
                              reason="TRAINER_FAILED", code=code)
            self._session.fail(error)
        self._release()

    def _release(self) -> None:
        self._ended = True
        self._train = None
        if self._session is not None:
            self._session.close()
            self._session = None
        self._exchange.end()
        self._store.close()
