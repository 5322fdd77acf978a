"""The work that an island's ranks do together for the exchange's requests."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, Mapping

from . import _shards, _torch
from ._parameters import Parameters
from ._ranks import Alone, Ranks
from ._regions import Regions
from ._saver import Saver
from ._state import KeptRandom, State
from ._steps import OpenTrain, Sums, Total, total_of
from ._store import Store

_ELASTIC_SAVE_S = 600.0


class Trainer:
    """Carries out requests; it lives longer than a connection.

    Only the leader's Client calls the methods, but for `follow` and `total`.
    Each of them broadcasts what to do, does it on every rank, and returns once
    it is done on all.
    """

    def __init__(self, ranks: Alone | Ranks, parameters: Parameters,
                 state: State, store: Store, saves_always: bool,
                 evaluator: Callable[[], Callable[[], Any] | None],
                 data_fingerprint: str = ""):
        """`evaluator`: () -> function or None, which does not evaluate.
        `data_fingerprint`: of the data that the trainer reads."""
        self.ranks = ranks
        self.data_fingerprint = data_fingerprint
        self.weight_unit = ""  # As this rank must count; "": it need not.
        self._parameters = parameters
        self._state = state
        self._store = store
        self._saver = Saver(store)
        self._saves_always = saves_always
        self._evaluator = evaluator
        self._fragments: list[int] = []  # The regions', once bound.
        self._saved_at: float | None = None
        self._answered = ""  # The newest answer to a `save` or a `load`.

    # --- On the leader -------------------------------------------------------

    def begin(self, run_id: str, run_uid: str, island_id: str,
              weight_unit: str) -> None:
        self._ask("begin", weight_unit, run_id, run_uid, island_id)

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

        A run that is not strict saves every ten minutes, in the background.
        """
        waits, now = strict or self._saves_always, time.monotonic()
        is_due = (waits or self._saved_at is None or
                  now - self._saved_at >= _ELASTIC_SAVE_S)
        if is_due:
            self._saved_at = now
        mine, *others = self._ask("save", save_id, is_due, waits,
                                  self._answered)
        self._answered = next((name for name in reversed(mine) if all(
            name in names for names in others)), "")
        return self._answered

    def load(self, save_id: str) -> None:
        self._ask("load", save_id)
        self._answered, self._saved_at = save_id, None

    def evaluate(self) -> Total | None:
        results = self._ask("evaluate")
        if None in results:
            return None
        return total_of(results, self.ranks.replicas)

    def announce(self, result: OpenTrain | Mapping[str, Any]) -> None:
        """Tells the followers what `Client.next` returns."""
        if isinstance(result, OpenTrain):
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
                return OpenTrain(0, *arguments, self.weight_unit)
            if kind == "end":
                return arguments[0]
            self._do(kind, arguments)

    def total(self, train: OpenTrain) -> Total:
        """The sums over the steps of all ranks."""
        return total_of(self.ranks.together(
            lambda: train.sums(self._parameters.are_finite)),
                        self.ranks.replicas)

    def is_lost(self, train: OpenTrain) -> bool:
        return train.is_lost(self._parameters.are_finite)

    def put_back(self) -> None:
        """Writes the newest parameters of the regions again."""
        self.ranks.together(lambda: self._on_write(self._fragments))

    def close(self) -> None:
        self._store.close()

    def _do(self, kind: str, arguments: Any) -> list[Any]:
        return self.ranks.together(
            lambda: getattr(self, "_on_" + kind)(*arguments))

    def _on_begin(self, weight_unit: str, *run: str) -> None:
        # The tokens and samples of other ranks than replicas do not count.
        self.weight_unit = (
            weight_unit if weight_unit == "steps" or
            self.ranks.rank in self.ranks.replicas else "")
        self._store.begin(*run)

    def _on_regions(self, described: dict[str, Any]) -> None:
        regions = Regions.of(described)
        try:
            self._bind(regions)
        finally:
            regions.close()

    def _bind(self, regions: Regions) -> None:
        self._parameters.bind(regions)
        self._fragments = list(range(regions.fragment_count))

    def _on_read(self, fragments: list[int]) -> None:
        self._parameters.read(fragments)

    def _on_write(self, fragments: list[int]) -> None:
        self._parameters.write(fragments)

    def _on_save(self, save_id: str, is_due: bool, waits: bool,
                 recorded: str) -> list[str]:
        """Returns the ids of the durable states, the oldest first."""
        self._saver.raise_error()
        # The exchange's record names `recorded` at least.
        self._store.forget_before(recorded)
        if is_due:
            self._saver.save(save_id, self._state.capture(), waits)
        return self._store.saved()

    def _on_load(self, save_id: str) -> None:
        self._saver.wait()
        self._state.restore(self._store.load(
            save_id, self._parameters.shards()))

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
