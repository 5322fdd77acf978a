"""The work that an island's ranks do together for the exchange's requests."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Any, Callable, Mapping

from . import _frozen, _torch
from ._parameters import Parameters
from ._ranks import Alone, Ranks
from ._regions import Regions
from ._saver import Saver
from ._state import KeptRandom, State
from ._steps import OpenTrain, Sums, Total, total_of
from ._store import Store
from .errors import Error

# Saves of a run that is not strict: after each round if they take less than
# this part of it, or else this often.
_SAVE_SHARE_MAX = 0.05
_ELASTIC_SAVE_S = 600.0
_log = logging.getLogger("atoll")


class Trainer:
    """Carries out requests; it lives longer than a connection.

    Only the leader's Client calls the methods, but for `follow` and `total`.
    Each of them broadcasts what to do, does it on every rank, and returns once
    it is done on all.
    """

    def __init__(self, ranks: Alone | Ranks, parameters: Parameters,
                 state: State, store: Store, saves_always: bool,
                 evaluator: Callable[[], Callable[[], Any] | None],
                 data_fingerprint: str = "", checks_frozen: bool = True,
                 index_digest: Callable[[], str] = lambda: ""):
        """`evaluator`: () -> function or None, which does not evaluate.
        `data_fingerprint`: of the data that the trainer reads.
        `index_digest`: () -> digest of the first samples, or ""."""
        self.ranks = ranks
        self.data_fingerprint = data_fingerprint
        self.weight_unit = ""  # As this rank must count; "": it need not.
        self.index_digest = index_digest
        self._frozen_digest: str | None = None if checks_frozen else ""
        self._parameters = parameters
        self._state = state
        self._store = store
        self._saver = Saver(store)
        self._saves_always = saves_always
        self._evaluator = evaluator
        self._regions: Regions | None = None
        self._saved_at: float | None = None
        self._asked_at: float | None = None  # For the newest save.
        self._write_s: float | None = None   # Its time, on the slowest rank.
        self._answered = ""  # The newest answer to a `save` or a `load`.
        # The steps since the newest `write` or `load`, on this rank.
        self._trains: list[OpenTrain] = []
        self._has_state = False  # It has been asked to load or to train.
        self._base = ""          # `_answered` before `_trains`.
        self._is_saved = True    # The state is that of `_answered`.
        # The optimizers have been restored: their rates are those of a save.
        self.is_restored = False
        self.run_epoch = 0             # The newest load's; 0: not told.
        self.keeps_at_restore = False  # go_back leaves the state as it is.
        self.went_back = False         # The run's rounds count anew.
        self.planned_step_count = 0    # On the run's clock; 0: not told.

    # --- On the leader -------------------------------------------------------

    def begin(self, run_id: str, run_uid: str, island_id: str,
              weight_unit: str, planned_step_count: int,
              strict: bool = True) -> None:
        """Error OTHER_RANKS: a strict run's states are of other ranks."""
        others = [rank for rank in self._ask(
            "begin", weight_unit, planned_step_count, run_id, run_uid,
            island_id) if rank]
        if not others:
            return
        if strict:
            raise Error("the states are of rank %s; this is %s" %
                        (others[0], self.ranks.name), reason="OTHER_RANKS",
                        code="FAILED_PRECONDITION",
                        hint="Start as many ranks as before. Or delete the "
                        "work_dir: the island then joins anew, and the run "
                        "has other bits.")
        _log.warning("the states are of rank %s, and this is %s: optimizer and "
                     "loader begin anew, with the run's parameters",
                     others[0], self.ranks.name)
        self._ask("renew")

    def frozen_digest(self) -> str:
        """The digest of what is not in the run; empty: of nothing.

        It is computed once. Error UNSUPPORTED_TENSOR, UNEQUAL_RANKS.
        """
        if self._frozen_digest is None:
            self._frozen_digest = _frozen.combine(self._ask("frozen"))
        return self._frozen_digest

    def hello(self) -> dict[str, Any]:
        """Fields of the hello about kept steps; empty at the start."""
        if not self._has_state:
            return {}
        standings = []
        if self._is_saved:
            standings.append({"save_id": self._answered, "step_count": 0})
        if self._trains:
            request = self._trains[0].request
            standings.append({
                "save_id": self._base,
                "step_count": sum(train.done for train in self._trains),
                **{name: request[name] for name in (
                    "step", "version", "lr_scale", "data_shard",
                    "data_position")}})
        return {"has_state": True, "standings": standings,
                **({"run_epoch": self.run_epoch} if self.run_epoch else {})}

    def open_train(self, seq: int, request: Mapping[str, Any]
                   ) -> tuple[OpenTrain, Total | None]:
        """The train, and if its steps are all kept ones, their total."""
        if not request["kept_step_count"]:
            return self._opened(
                OpenTrain(seq, request, self.weight_unit)), None
        results = self._ask("keep", request)
        train = self._trains[0]
        train.seq = seq
        if train.done < request["step_count"]:
            return train, None
        return train, total_of(results, self.ranks.replicas)

    def take_regions(self, regions: Regions) -> None:
        """Binds the regions of a connection, and closes their descriptors."""
        try:
            self.ranks.broadcast(("regions", (regions.describe(),)))
            self.ranks.together(lambda: self._bind(regions))
        finally:
            regions.close()  # The followers have opened them.

    def read(self, fragments: list[int]) -> None:
        self._ask("read", fragments)

    def write(self, fragments: list[int]) -> None:
        self._ask("write", fragments)

    def save(self, save_id: str, strict: bool) -> str:
        """Saves if it is due. Returns the newest save that all ranks have.

        A run that is not strict saves in the background: each time if that is
        a small part of a round, and else every ten minutes.
        """
        waits, now = strict or self._saves_always, time.monotonic()
        is_due = (waits or self._saved_at is None or
                  now - self._saved_at >= _ELASTIC_SAVE_S or
                  self._is_cheap(now))
        self._asked_at = now
        if is_due:
            self._saved_at = now
        results = self._ask("save", save_id, is_due, waits, self._answered)
        (mine, _), *others = results
        self._answered = next((name for name in reversed(mine) if all(
            name in names for names, _ in others)), "")
        self._is_saved = self._answered == save_id
        seconds = [write_s for _, write_s in results]
        self._write_s = None if None in seconds else max(seconds)
        return self._answered

    def _is_cheap(self, now: float) -> bool:
        return (self._write_s is not None and self._asked_at is not None and
                self._write_s < _SAVE_SHARE_MAX * (now - self._asked_at))

    def load(self, save_id: str, strict: bool = True, keep: bool = False,
             is_again: bool = False) -> None:
        """Goes back to a save; `keep`: it is only the one to answer with.

        A run that is not strict begins with the first state if a rank lacks the
        save: another number of ranks has made it.

        `is_again`: a new exchange asks, and the loop has gone on meanwhile.

        Error NO_SUCH_STATE: a rank of a strict run lacks it. CANNOT_REWIND: an
        object in `state` keeps its position while the loop continues.
        """
        if keep:
            if self._is_saved and save_id == self._answered:
                self._trains = []  # The exchange has what they made.
            else:
                self._answered = self._base = save_id
                self._is_saved = False
            return
        state = save_id
        if not strict and not all(self._ask("has", save_id)):
            _log.warning("this island has no state %s: optimizer and loader "
                         "begin anew, with the run's parameters", save_id)
            state = ""
        self._ask("load", state, strict and is_again and not (
            self._is_saved and state == self._answered))
        self._answered, self._saved_at = state, None
        self._has_state = self._is_saved = True

    def go_back(self, strict: bool) -> None:
        """The run was restored: the steps since its cut are lost.

        Resets what `state` has, in a run that is not strict only the
        optimizers: the data continues. `keeps_at_restore`: nothing.
        """
        self._ask("go_back", self.keeps_at_restore, strict)
        self._answered = self._base = ""
        self._saved_at, self._has_state = None, True
        self._is_saved = strict and not self.keeps_at_restore
        self.went_back = True

    def evaluate(self) -> Total | None:
        results = self._ask("evaluate")
        if None in results:
            return None
        return total_of(results, self.ranks.replicas)

    def announce(self, result: OpenTrain | Mapping[str, Any]) -> None:
        """Tells the followers what `Client.next` returns."""
        if isinstance(result, OpenTrain):
            self._has_state = True
            self.ranks.broadcast(("train", (result.request,)))
        else:
            self.ranks.broadcast(("end", (result,)))

    def _ask(self, kind: str, *arguments: Any) -> list[Any]:
        self.ranks.broadcast((kind, arguments))
        return self._do(kind, arguments)

    # --- On every rank -------------------------------------------------------

    def follow(self) -> OpenTrain | Mapping[str, Any]:
        """Does what the leader asks until a train, or the end: its message."""
        while True:
            kind, arguments = self.ranks.broadcast()
            if kind == "train":
                request, = arguments
                if request["kept_step_count"]:
                    return self._trains[0]
                return self._opened(OpenTrain(0, request, self.weight_unit))
            if kind == "end":
                return arguments[0]
            self._do(kind, arguments)

    def _opened(self, train: OpenTrain) -> OpenTrain:
        if self._is_saved or not self._trains:
            self._trains, self._base = [], self._answered
        self._is_saved = False
        self._trains.append(train)
        return train

    def total(self, train: OpenTrain) -> Total:
        """The sums over the steps of all ranks."""
        return total_of(self.ranks.together(
            lambda: train.sums(self._parameters.are_finite)),
                        self.ranks.replicas)

    def is_lost(self, train: OpenTrain) -> bool:
        return train.is_lost(self._parameters.are_finite)

    def put_back(self) -> None:
        """Writes the newest parameters of the regions again."""
        if self._regions is None:
            raise Error("a step after the island is closed: its exchange's "
                        "parameters, which undo the step, are no longer here",
                        code="FAILED_PRECONDITION",
                        hint="Train no step when island.ended is true; "
                        "atoll.fetch loads the parameters.")
        fragments = list(range(self._regions.fragment_count))
        self.ranks.together(lambda: self._on_write(fragments))

    def forget(self) -> None:
        """Deletes this rank's states: the run is complete."""
        self._saver.wait()
        with contextlib.suppress(OSError):  # They only take room.
            self._store.forget_all()

    def close(self) -> None:
        self._saver.wait()  # The folder is another process's after that.
        self._store.close()
        regions, self._regions = self._regions, None
        if regions is not None:
            regions.release()

    def _do(self, kind: str, arguments: Any) -> list[Any]:
        return self.ranks.together(
            lambda: getattr(self, "_on_" + kind)(*arguments))

    def _on_begin(self, weight_unit: str, planned_step_count: int,
                  *run: str) -> str:
        self.planned_step_count = planned_step_count
        # The tokens and samples of other ranks than replicas do not count.
        self.weight_unit = (
            weight_unit if weight_unit == "steps" or
            self.ranks.rank in self.ranks.replicas else "")
        return self._store.begin(*run)

    def _on_renew(self) -> None:
        self._store.renew()

    def _on_keep(self, request: Mapping[str, Any]) -> Sums:
        train = OpenTrain(0, request, self.weight_unit)
        for before in self._trains:
            train.absorb(before)
        if train.done != request["kept_step_count"]:
            raise Error("the exchange counts %d kept steps, and here are %d" %
                        (request["kept_step_count"], train.done),
                        reason="UNREADABLE_MESSAGE", code="INVALID_ARGUMENT")
        self._trains = [train]
        return train.sums(self._parameters.are_finite)

    def _on_frozen(self) -> Mapping[str, str]:
        return self._parameters.frozen()

    def _on_regions(self, described: dict[str, Any]) -> None:
        regions = Regions.of(described)
        try:
            self._bind(regions)
        finally:
            regions.close()

    def _bind(self, regions: Regions) -> None:
        self._parameters.bind(regions)
        self._regions = regions

    def _on_read(self, fragments: list[int]) -> None:
        self._parameters.read(fragments)

    def _on_write(self, fragments: list[int]) -> None:
        self._trains = []
        self._parameters.write(fragments)

    def _on_save(self, save_id: str, is_due: bool, waits: bool,
                 recorded: str) -> tuple[list[str], float | None]:
        """Returns the ids of the durable states, the oldest first, and the
        seconds of the newest save, None if it has not ended."""
        self._saver.raise_error()
        # The exchange's record names `recorded` at least.
        self._store.forget_before(recorded)
        if is_due:
            self._saver.save(save_id, self._state.capture(), waits)
        return self._store.saved(), self._saver.write_s

    def _on_has(self, save_id: str) -> bool:
        self._saver.wait()
        return self._store.has(save_id)

    def _on_load(self, save_id: str, is_live: bool) -> None:
        self._saver.wait()
        fixed = self._state.fixed_position()
        if is_live and fixed is not None:
            raise Error("the run goes back to the save %r, and state[%r] cannot "
                        "while the loop reads from it" % (save_id, fixed),
                        reason="CANNOT_REWIND", code="UNAVAILABLE",
                        hint="Start the program again: it continues there.")
        self._trains = []
        self.is_restored = True
        self._state.restore(self._store.load(
            save_id, self._parameters.shards()))

    def _on_go_back(self, keeps: bool, strict: bool) -> None:
        self._saver.wait()
        self._trains = []
        if not keeps:
            self.is_restored = True  # Schedulers go to the run's clock.
            self._state.restore(self._store.load(
                "", self._parameters.shards()), only_optimizers=not strict)

    def _on_evaluate(self) -> Sums | None:
        evaluate = self._evaluator()
        if evaluate is None:
            return None
        torch = _torch.loaded()
        with torch.no_grad() if torch else contextlib.nullcontext():
            with KeptRandom():
                result = evaluate()
        loss, tokens = result if isinstance(result, tuple) else (result, 1)
        return Sums(0, int(tokens), float(loss), {})
