#!/usr/bin/python3
"""A trainer whose steps take a given time: what is left is the exchange.

usage: exchange_trainer.py OUT STEP_SECONDS RUN SOCKET WORK_DIR

Has two arrays as large as the model in its state, as AdamW has. At the run's
end it writes JSON to OUT: microseconds of each call of `step` that did not
synchronize, milliseconds of each that did, and the bytes of its states. With 0
as STEP_SECONDS the loop does nothing else, and OUT has the microseconds a call
of each thousand of them, with the loop's own.
"""

import json
import os
import sys
import time

import numpy

_TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
sys.path.insert(0, os.path.join(_TREE, "worker/sdk/python"))
import atoll  # pylint: disable=wrong-import-position
from atoll import _store  # pylint: disable=wrong-import-position

_CALLS = 1000


class Moments:
    """The state of an optimizer."""

    def __init__(self):
        self.values = {}

    def like(self, arrays):
        for name, array in arrays.items():
            for moment in ("first", "second"):
                self.values["%s.%s" % (name, moment)] = numpy.ones_like(array)

    def state_dict(self):
        return self.values

    def load_state_dict(self, state):
        self.values = dict(state)


def count_saved_bytes(counts):
    save = _store.Store.save

    def counting_save(self, save_id, flat):
        save(self, save_id, flat)
        counts.append(sum(memoryview(array.data).nbytes
                          for array in flat[1].values()))

    _store.Store.save = counting_save


def call(island):
    """Calls `step` and nothing else until the run ends."""
    loop_us, going = [], True
    while going:
        begin = time.perf_counter()
        for _ in range(_CALLS):
            going = island.step(loss=1.0, tokens=1)
        loop_us.append(1e6 / _CALLS * (time.perf_counter() - begin))
    return {"loop_us": loop_us}


def train(island, step_seconds):
    """Trains until the run ends, and measures each call of `step`."""
    idle_us, sync_ms = [], []
    going = True
    while going:
        end = time.perf_counter() + step_seconds
        for array in island.arrays.values():
            array[0] *= numpy.float32(0.999)
        while time.perf_counter() < end:
            pass
        request = island._train  # pylint: disable=protected-access
        begin = time.perf_counter()
        going = island.step(loss=1.0, tokens=1)
        seconds = time.perf_counter() - begin
        # A new request to train came: something was due.
        # pylint: disable-next=protected-access
        if going and island._train is not request:
            sync_ms.append(1e3 * seconds)
        elif going:
            idle_us.append(1e6 * seconds)
    return {"idle_us": idle_us, "sync_ms": sync_ms}


def main():
    out, step_seconds, run, socket, work_dir = sys.argv[1:]
    saved = []
    count_saved_bytes(saved)
    os.environ["ATOLL_SOCKET"] = socket
    moments = Moments()
    with atoll.Island("", run=run, work_dir=work_dir,
                      state={"optimizer": moments}) as island:
        moments.like(island.arrays)
        measured = (train(island, float(step_seconds)) if float(step_seconds)
                    else call(island))
    with open(out, "w", encoding="utf-8") as file:
        json.dump({**measured, "saved_bytes": sum(saved)}, file)


if __name__ == "__main__":
    main()
