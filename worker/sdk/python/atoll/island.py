"""The trainer's side of an island: a training loop joins a run."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Callable, Iterable, Iterator, Mapping

from . import _closing, _news, _torch
from ._client import Client, Follower
from ._exchange import Exchange, log_path
from ._indices import IndexWatch
from ._mesh_parameters import MeshParameters
from ._module import (LocalBuffers, Masters, ModuleParameters, Names,
                      SharedTensors)
from ._parameters import ArrayParameters, Parameters
from ._ranks import Alone, Ranks, to_error
from ._schedules import Schedules
from ._state import State
from ._steps import OpenTrain
from ._store import Store
from ._trainer import Trainer
from .errors import ConnectionLost, Error
from .join import Joined, work_folder

_log = logging.getLogger("atoll")
_LOOK_S = 0.05      # Between two looks at the socket while it trains.
_PROGRESS_S = 4.0  # Less than a silence that is told of.
_SAVES = ("auto", "always")
# The hint of an end, by its reason.
_HINTS = {
    "STALE_ISLAND_EPOCH": "Two programs are one island: give one of them "
                          "another island_id=... and work_dir=...",
    "ISLAND_REMOVED": "Ask the run's operator for `atoll island readmit`, or "
                      "give another island_id=...",
}
_ON_RESTORE = ("reset", "keep")


def _parameters_of(tensors: SharedTensors | None,
                   arrays: Mapping[str, Any] | None,
                   ranks: Alone | Ranks) -> Parameters:
    if isinstance(ranks, Ranks):
        if tensors is None:
            raise Error("an island of torch.distributed needs a model",
                        code="INVALID_ARGUMENT", hint="Give model.")
        return MeshParameters(tensors, ranks)
    return ArrayParameters(arrays) if tensors is None else (
        ModuleParameters(tensors))


def _set_epoch(loader: Any, epoch: int) -> None:
    batch_sampler = getattr(loader, "batch_sampler", None)
    for thing in (loader, getattr(loader, "sampler", None), batch_sampler,
                  getattr(batch_sampler, "sampler", None)):
        if callable(getattr(thing, "set_epoch", None)):
            thing.set_epoch(epoch)


class Island:
    """An island of a run, around a training loop of your own.

        with atoll.Island("HOST:7400", run="spring", model=model,
                          state={"optimizer": opt}) as island:
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

    If the run was complete before, the model has the final parameters, and
    `ended` is true. The first `step` undoes a step that was trained on them,
    and returns False.

    Any process may die at any time. A program that starts again goes back to a
    save. So `state` must hold everything that decides the next step and is not
    a parameter: the optimizer, and the position in the data. torch's DataLoader
    has no state; torchdata's StatefulDataLoader has. A program whose exchange
    is lost keeps its state, and continues from where it is.

    Learning rates follow the run's clock, which no death takes back: give the
    schedulers to `scheduler`, and call their `step` after each step of the
    optimizer and before that of the island.

    If the program has started torch.distributed, the island is all of its
    ranks, and every rank does the same: it makes the Island, trains, and calls
    `step` once a step. Parameters may be plain, of DistributedDataParallel,
    DTensors of fully_shard, of tensor parallelism or of both, or a pipeline's
    stage: the ranks together have the run's tensors. Rank 0 leads: it alone
    talks to the exchange. Between two rounds no rank waits for another here.

    At SIGTERM, if the program does not handle it, the island hands in its steps
    at the end of one, leaves, and raises SystemExit. It leaves also at the end
    of a program that does not close it, and for another Island with its work_dir
    in this process: a notebook's cell may run again. An island of several ranks
    does none of this.

    Not thread-safe: one thread calls everything.
    """

    def __init__(self, address: str | None = None, *, run: str | None = None,
                 joined: Joined | None = None, model: Any = None,
                 arrays: Mapping[str, Any] | None = None,
                 state: Mapping[str, Any] | None = None,
                 island_id: str | None = None, work_dir: str | None = None,
                 mesh: Any = None, scheduler: Any = None, save: str = "auto",
                 evaluate: Callable[[], Any] | None = None,
                 buffers: str = "local",
                 names: Names = None,
                 parameters: Masters = None,
                 data_fingerprint: str = "", check_frozen: bool = True,
                 report_indices: bool = True,
                 on_event: _news.OnEvent | None = None,
                 wait_s_max: float = 86400.0, on_restore: str = "reset"):
        """Captures the state; opens no connection yet.

        Args:
          address: HOST:PORT of the coordinator.
          run: The run's id.
          joined: Instead of `address`, `run`, `island_id`, `work_dir`,
            `on_event` and `wait_s_max`: what atoll.join has returned.
          model: A torch module whose parameters are trained.
          arrays: Or {name: writable float32 array}. Without both, train on
            `island.arrays`.
          state: {name: object with state_dict and load_state_dict, or a
            numpy.random.Generator or torch.Generator, or a dictionary of plain
            values, which a restore fills anew}. Global generators are always a
            part of it.
          island_id: The island's name, kept over restarts. Default: the name
            in the certificate, or the host's.
          work_dir: Folder for states, the exchange's files and its log; the
            same after a restart. Default: atoll-work/RUN, or
            atoll-work/RUN-ISLAND_ID. A rank's states are in its rank-N.
          mesh: The data-parallel DeviceMesh, such as world_mesh["dp"]: its
            ranks are replicas, which train on tokens of their own. Default:
            all ranks are.
          scheduler: An LRScheduler of torch, or a list, at the first step. It
            steps once for each `step` of the island. Before a round, and at
            the run's planned end, it is moved to the run's clock, if the island
            has missed steps or has started again. It is no part of `state`.
          save: "auto": strict runs at each request, others in the background:
            after each round, or every ten minutes if the write takes 5 % of a
            round. "always": at each request.
          evaluate: As the method `evaluate`; from the first request on.
          buffers: "average": persistent buffers of floating-point numbers are
            tensors of the run, and each becomes the mean of the islands'
            values. "local": each island has its own.
          names: The run's name of each of the model's names that differs. A
            run's names are of A-Z a-z 0-9 _ . and -; other characters become
            _uCODE_.
          parameters: {the model's name: tensor} of the same shape, or a function
            that returns it: the tensors that the optimizer steps, if they are
            not the model's own, such as masters in f32. They are what islands
            average; a write reaches the model's too.
          data_fingerprint: The data's fingerprint, if Atoll's own engine reads
            it in other islands of the run: `Data.fingerprint()`.
          check_frozen: The digest of the model's frozen parameters must be that
            of the run's other islands. It is computed once, at about 1 GB/s.
            False: it is not compared, as for a base that islands quantize by
            different libraries.
          report_indices: The coordinator gets a SHA-256 of the first 256 sample
            numbers that rank 0's loader chooses, never data: those of a
            ShardSampler, or of a DataLoader in `state` or in `batches`. It
            warns of islands with the same numbers. False: it gets nothing, as
            for private data.
          on_event: Gets each line of the logger "atoll" as {"event": "joined",
            "placed", "waiting", "committed", "not_finite", "lost", "refused",
            "skipped", "warned", "restored" (with `commit` and `run_epoch`) or
            "ended", "run", "message", and its numbers};
            on rank 0.
          wait_s_max: The longest wait for a word of the exchange, in seconds;
            then WAITED_TOO_LONG. A line each 10 s tells why it waits. The
            default is a day: while the run is paused or lacks islands, the
            exchange says as little as one that hangs.
          on_restore: An operator may take the run back to an earlier state.
            The model then has its parameters, and schedulers follow the run's
            clock. "reset": the optimizers begin anew; in a strict run all of
            `state` does. "keep": `state` stays as it is.

        Error: an argument is wrong, or another process uses `work_dir`.
        """
        if model is not None and arrays is not None:
            raise Error("give model or arrays, not both",
                        code="INVALID_ARGUMENT")
        if save not in _SAVES:
            raise Error("save is %r; give one of %s" % (save, _SAVES),
                        code="INVALID_ARGUMENT")
        if on_restore not in _ON_RESTORE:
            raise Error("on_restore is %r; give one of %s" %
                        (on_restore, _ON_RESTORE), code="INVALID_ARGUMENT")
        if joined is not None:
            if any(given is not None for given in (
                    address, run, island_id, work_dir, on_event)):
                raise Error("joined has the address, the run, the island_id, "
                            "the work_dir and on_event",
                            code="INVALID_ARGUMENT",
                            hint="Give them to atoll.join only.")
            run, folder = joined.run, joined.folder
        elif address is None or run is None:
            raise Error("give address and run, or joined",
                        code="INVALID_ARGUMENT")
        else:
            folder = work_folder(run, island_id, work_dir)
        self.run_id = run
        self._joined = joined
        self.metrics: dict[str, float] = {}
        _closing.close_before(folder, but=joined)
        objects = dict(state or {})
        ranks = Ranks(mesh) if _torch.has_ranks() else Alone()
        tensors = None
        if model is not None:
            tensors = SharedTensors(
                model, buffers, names, parameters,
                [thing for thing in objects.values()
                 if hasattr(thing, "param_groups")])
            objects["(buffers)"] = LocalBuffers(model, buffers)
        self._parameters = _parameters_of(tensors, arrays, ranks)
        self._evaluate = evaluate
        self._schedules = Schedules(scheduler, objects.values())
        indices = self._indices = IndexWatch(
            report_indices and ranks.rank == 0)
        for thing in objects.values():
            indices.watch(thing)  # Before its state has an iterator.
        captured = self._state = State(objects)
        store = Store(os.path.join(folder, ranks.folder), captured.capture(),
                      ranks.name)
        trainer = Trainer(ranks, self._parameters, captured, store,
                          save == "always", lambda: self._evaluate,
                          data_fingerprint, check_frozen,
                          lambda: indices.report(
                              joined.index_digest if joined else ""))
        trainer.keeps_at_restore = on_restore == "keep"
        self._trainer = trainer
        self._client: Client | Follower
        if joined is not None:
            self._news = joined.news
            connection = joined.take()
            client = Client(run, joined.exchange, trainer, self._news,
                            connection, joined.run_uid)
        else:
            self._news = _news.News(run, on_event, wait_s_max,
                                    log_path(folder))
            client = Client(run, Exchange(str(address), run, island_id,
                                          folder), trainer, self._news)
        self._client = client if ranks.rank == 0 else Follower(trainer)
        self._train: OpenTrain | None = None
        self._newest: Mapping[str, Any] = {}
        self._ended = self._ended_at_start = False
        self._look_at = self._progress_at = 0.0
        self._poll: Callable[[int], Any] | None = None
        self._round_begin = self._round_waited_s = 0.0
        self._losses: list[tuple[float, int]] = []  # With their steps.
        self._is_waiting = False   # For the exchange: nothing is half done.
        self._exit_code = 0        # Not 0: SIGTERM has come.
        self._has_handler = False
        if ranks.size == 1:
            _closing.add(folder, self)

    # --- The run -------------------------------------------------------------

    @property
    def arrays(self) -> Mapping[str, Any]:
        """{name: float32 array} of the parameters, if there is no `model`.

        Without `arrays` they exist from the block's first line on. Change them
        in place.
        """
        return getattr(self._parameters, "arrays")

    @property
    def ended(self) -> bool:
        """The run is complete, or the island has left it: nothing to train."""
        return self._ended

    @property
    def round(self) -> int:
        """The round that is trained: the version it began from."""
        return self._newest.get("version", 0)

    @property
    def clock(self) -> int:
        """Inner steps of the run before the next step, for schedules."""
        return self._newest.get("step", 0) + self.done_step_count

    @property
    def done_step_count(self) -> int:
        """Steps that are done since the one at `data_position`."""
        return self._train.done if self._train else 0

    @property
    def lr_scale(self) -> float:
        """Factor for the learning rate: 1, or less in a warm-up."""
        return self._newest.get("lr_scale", 1.0)

    @property
    def data_shard(self) -> int:
        """Which of the run's data shards to read.

        Error FAILED_PRECONDITION: it is not known before the block; atoll.join
        gives it earlier.
        """
        if self._newest or self._ended:
            return self._newest.get("data_shard", 0)
        if self._joined is None:
            raise Error("the data shard is known from the block's first line "
                        "on", code="FAILED_PRECONDITION",
                        hint="atoll.join gives it before there is a loader.")
        return self._joined.shard

    @property
    def data_position(self) -> int:
        """First sample of the newest request's first step."""
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
        if self._train is None and not self._ended_at_start:  # As attach does.
            self.start()
        return self

    def start(self) -> None:
        """Connects, and waits until the first step may be trained.

        Error: the run or the exchange does not permit it, with the reason.
        """
        _news.show()
        if (self._trainer.ranks.size == 1 and
                threading.current_thread() is threading.main_thread() and
                signal.getsignal(signal.SIGTERM) == signal.SIG_DFL):
            signal.signal(signal.SIGTERM, self._on_sigterm)
            self._has_handler = True
        try:
            self._take(self._next())
            if self._ended:
                self._ended_at_start = True
        except BaseException as error:
            self._fail(error)
            raise

    def _next(self, lost: ConnectionLost | None = None
              ) -> OpenTrain | Mapping[str, Any]:
        """Waits for the exchange: for the next train, or the end."""
        self._is_waiting = True
        try:
            if self._exit_code:
                raise SystemExit(self._exit_code)
            return self._client.recover(lost) if lost else self._client.next()
        finally:
            self._is_waiting = False

    def _on_sigterm(self, number: int, _: FrameType | None) -> None:
        self._drop_handler()  # A second one kills.
        self._exit_code = 128 + number
        self._look_at = 0.0
        self._progress_at = 0.0
        if self._is_waiting:
            raise SystemExit(self._exit_code)

    def _drop_handler(self) -> None:
        if self._has_handler:
            self._has_handler = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def step(self, loss: Any = None, tokens: Any = None,
             metrics: Mapping[str, Any] | None = None, *,
             samples: Any = None) -> bool:
        """Counts a step that was just trained. Call it after each one.

        Args:
          loss: Mean loss of the step: a number or a tensor of one element. A
            tensor stays on its device until the round ends. None: another
            rank has it, such as that of a pipeline's last stage.
          tokens: Tokens of the step, a number or a tensor: its weight in a run
            with the weight_unit "tokens". Those of this rank's replica; the
            island has the sum over rank 0's `mesh`.
          metrics: {name: number}, at most 32. The exchange and
            `island.metrics` have their means since the newest request, with
            the weights of the steps.
          samples: The same for "samples". In a run with "steps", which
            `create_run` makes, each step weighs one, and needs neither.

        Losses and metrics are means over all ranks that give them.

        Returns False once the run is complete: leave the loop.

        Error: the run was cancelled, or the exchange cannot continue;
        NO_WEIGHT, WRONG_WEIGHT: the run counts tokens or samples, and the step
        has none, or no number of them.
        """
        train = self._train
        if train is None:
            if self._ended:
                if self._ended_at_start:
                    self._trainer.put_back()
                return False
            raise Error("step outside of the `with` block",
                        code="FAILED_PRECONDITION")
        if train.add(loss, tokens, metrics, samples):
            now = time.monotonic()
            if now < self._look_at:
                return True
            # The usual look finds nothing: no further call.
            if self._poll and now < self._progress_at and not self._poll(0):
                self._look_at = now + _LOOK_S
                return True
        return self._after_step(train)

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches, pass after pass, until the run ends.

            for x, y in island.batches(loader):

        Before each pass, samplers with a method set_epoch get its number, which
        is a part of the state. After a restore within the program, a loader
        with load_state_dict is read anew.

        Error NO_BATCHES: two passes gave nothing.
        """
        is_empty = False
        self._indices.watch(loader)
        while not self._ended:
            was_empty, is_empty = is_empty, True
            restores = self._state.restore_count
            _set_epoch(loader, self._state.epoch)
            for batch in loader:
                is_empty = False
                yield batch
                if self._ended or (
                        restores != self._state.restore_count and
                        hasattr(loader, "load_state_dict")):
                    break
            else:
                self._state.epoch += 1
                if is_empty and was_empty:
                    raise Error("the loader gives no batches",
                                reason="NO_BATCHES", code="INVALID_ARGUMENT",
                                hint="Give a loader that can be read again, "
                                "not a generator.")

    def tell_skipped(self) -> None:
        """Tells that mixed precision has skipped a step, which then does not
        count: do not call `step` for it."""
        if self._trainer.ranks.rank == 0:
            self._news.tell("skipped", "mixed precision has skipped a step: "
                            "its gradients are not finite")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A `with` block between two steps that is no part of the training.

            with island.paused():
                save_a_checkpoint()

        Its time does not count for the island's speed, and so for the steps
        that a round asks for. The round waits for the island as before.
        """
        train, begin = self._train, time.monotonic()
        try:
            yield
        finally:
            if train is not None:
                train.paused_s += time.monotonic() - begin

    def _after_step(self, train: OpenTrain) -> bool:
        """Does the work after a step: a look, progress, the answer."""
        try:
            now = time.monotonic()
            self._look_at = now + _LOOK_S
            if self._exit_code:
                self.close()
                raise SystemExit(self._exit_code)
            try:
                message = self._client.look()
                if message is not None and message.kind == "end":
                    self._take(message.body)
                elif (message is not None or
                      train.done >= train.request["step_count"] or
                      now >= self._progress_at and
                      self._client.is_lost(train)):
                    total = self._client.total(train)
                    self.metrics = total.metrics
                    if total.loss is not None:
                        self._take_loss(train, total.loss, total.step_count)
                    self._client.finish(train, total)
                    self._take(self._next())
                elif now >= self._progress_at:
                    self._progress_at = now + _PROGRESS_S
                    self._client.progress(train)
            except ConnectionLost as error:
                self._take(self._next(error))
        except BaseException as error:
            self._fail(error)
            raise
        return not self._ended

    def _take_loss(self, train: OpenTrain, loss: float, steps: int) -> None:
        if math.isfinite(loss):
            self._losses.append((loss, steps))
            return
        # The exchange refuses the steps.
        if self._trainer.ranks.rank == 0 and train.lost_at is not None:
            self._news.tell("not_finite", "no loss is finite from step %d on" %
                            train.lost_at, logging.WARNING, step=train.lost_at)

    def _take(self, result: OpenTrain | Mapping[str, Any]) -> None:
        """Takes a request to train, or the island's end."""
        if isinstance(result, OpenTrain):
            if self._trainer.went_back:
                self._trainer.went_back = False
                if self._newest:  # The lost rounds are not told as committed.
                    self._newest = result.request
                self._losses.clear()
            self._tell_round(result.request["version"])
            self._train = result
            self._newest = result.request
            self._schedules.move_to(self.clock, self._trainer.is_restored)
            self._trainer.is_restored = False
            self._poll = self._client.poll()
            now = time.monotonic()
            self._look_at = now + _LOOK_S
            self._progress_at = now + _PROGRESS_S
            return
        self._ended = True
        self._train = None
        if result["complete"]:
            if self._newest:  # Else a loop may step them before it looks.
                self._tell_round(result["version"])
                self._end_schedules()
            self._trainer.forget()
            if self._trainer.ranks.rank == 0:
                self._news.tell("ended", "the run is complete")
        if not result["complete"]:
            raise Error(result["message"] or "the island has ended",
                        reason=result["reason"] or "ISLAND_ENDED",
                        code=result["code"] or "CANCELLED",
                        hint=_HINTS.get(result["reason"], ""))

    def _end_schedules(self) -> None:
        """Moves them to the run's last step, which this island may lack."""
        planned, again = (self._trainer.planned_step_count,
                          self._trainer.is_restored)
        self._trainer.planned_step_count = 0  # Only once.
        if not planned:
            return
        try:
            self._schedules.move_to(planned, again)
        except Exception as error:  # The run's result is there nevertheless.
            _log.warning("the run is complete, but a scheduler cannot be moved "
                         "to its last step, %d: %s", planned, error)

    def _tell_round(self, version: int) -> None:
        """Tells of a join, or of the round that `version` ends."""
        if self._trainer.ranks.rank != 0 or (
                self._newest and version <= self.round):
            return
        now, waited_s = time.monotonic(), self._news.waited_s
        if not self._newest:
            self._news.tell("joined", "joined, at round %d" % version,
                            round=version)
        else:
            waited = waited_s - self._round_waited_s
            share = 1 - waited / max(now - self._round_begin, waited, 1e-9)
            steps = sum(count for _, count in self._losses)
            loss = (sum(loss * count for loss, count in self._losses) / steps
                    if steps else None)
            self._news.tell(
                "committed", "round %d is committed%s; %.0f %% of the time "
                "training, waited %.1f s" % (
                    version, "" if loss is None else ", loss %.4f" % loss,
                    100 * share, waited),
                round=version, loss=loss, training_share=share,
                waited_seconds=waited)
        self._round_begin, self._round_waited_s = now, waited_s
        self._losses.clear()

    # --- The end -------------------------------------------------------------

    def __exit__(self, kind: type[BaseException] | None,
                 error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self._fail(error)

    def close(self) -> None:
        """Leaves the run if it has not ended: hands in the finished steps."""
        train, self._train = self._train, None
        self._ended = True
        try:
            if self._ended_at_start:
                self._end_schedules()
            if train is not None:
                self._client.leave(train)
        except ConnectionLost:
            pass  # The exchange has ended first, or takes too long.
        except Error as error:
            self._client.fail(error)
            raise
        finally:
            self._end()

    def _end(self) -> None:
        self._drop_handler()
        # In a wait the exchange does not hear that the trainer has ended.
        self._client.close(at_once=bool(self._exit_code))

    def _fail(self, error: BaseException) -> None:
        """Ends after an exception, and tells the exchange about it."""
        if not self._ended:
            told = to_error(error)
            if self._trainer.ranks.rank == 0 and not self._exit_code:
                self._news.refused(told)
            self._client.fail(told)
        self._train = None
        self._ended = True
        self._end()
