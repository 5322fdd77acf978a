"""A trainer that kills itself at a point.

Every part of the state decides its steps: a momentum, a position, and the
generators.
"""

import itertools
import os
import random
import signal
from unittest import mock

import numpy as np

import atoll
from atoll import _connection, _store

POINTS = (
    "step",           # A step is trained, and not counted.
    "posix_fadvise",  # A part of a state is written.
    "fsync",          # A state, or its folder, is written, and not synced.
    "rename",         # A state is synced, and does not have its name.
    "before save",    # The state is durable, and this is not answered.
    "after save", "before load", "after load", "before write", "after write",
    "before read", "after read", "before train", "after train",
    "before layout", "after layout", "before hello", "after hello",
)


def main(address, work_dir, point, number, iterates):
    """Dies when it reaches `point`, of POINTS, for the `number`-th time; 0:
    never. If it `iterates`, the data's iterator does not go back with its
    loader's state, as that of torchdata's StatefulDataLoader."""
    os.environ["ATOLL_SOCKET"] = address
    left = {point: number}

    def reach(point):
        left[point] = left.get(point, 0) - 1
        if left[point] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    send = _connection.Connection.send

    def killing_send(self, seq, kind, *arguments, **options):
        reach("before " + kind)
        send(self, seq, kind, *arguments, **options)
        reach("after " + kind)

    def killing(name):
        function = getattr(os, name)

        def call(*arguments):
            reach(name)
            return function(*arguments)

        return call

    class Momentum:

        def __init__(self):
            self.value = np.zeros(4, np.float32)

        def state_dict(self):
            return {"value": self.value}

        def load_state_dict(self, state):
            self.value[...] = state["value"]

    class Loader:

        position = 0

        def __iter__(self):
            while True:
                self.position += 1
                yield self.position

        def state_dict(self):
            return {"position": self.position}

        def load_state_dict(self, state):
            self.position = state["position"]

    class StatefulDataLoader(Loader):

        def __iter__(self):
            for self.position in itertools.count(self.position + 1):
                yield self.position

    loader = StatefulDataLoader() if iterates else Loader()
    momentum = Momentum()
    noise = np.random.default_rng(7)
    random.seed(8)
    np.random.seed(9)
    with mock.patch.object(_connection.Connection, "send", killing_send), \
            mock.patch.object(_store.os, "posix_fadvise",
                              killing("posix_fadvise")), \
            mock.patch.object(_store.os, "fsync", killing("fsync")), \
            mock.patch.object(_store.os, "rename", killing("rename")):
        with atoll.Island("nobody:1", run="spring", work_dir=work_dir,
                          state={"momentum": momentum, "noise": noise,
                                 "loader": loader}) as island:
            for position in loader:
                weights = island.arrays["v"]
                gradient = (weights * np.float32(random.random()) +
                            np.float32(np.random.normal()) +
                            noise.standard_normal(4, np.float32) +
                            np.float32(position))
                momentum.value = (np.float32(0.9) * momentum.value +
                                  gradient).astype(np.float32)
                weights -= np.float32(0.01) * momentum.value
                reach("step")
                if not island.step(float(weights.sum()), tokens=4):
                    break
