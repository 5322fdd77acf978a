"""A trainer with NumPy: linear regression, gradient descent with momentum.

usage: numpy_trainer.py RUN SOCKET WORK_DIR [--die-at POINT@N] [--count WHAT]
                        [--says UNIT] [--base N] [--samples N]
                        [--nan-at N] [--rate RATE] [--stop-at N]

Its exchange listens at SOCKET; it keeps its states in WORK_DIR. POINT is
`step` (after the Nth step), `save` (while the Nth state is captured), `saved`
(once the Nth state is durable, before the exchange knows) or `load` (while the
Nth state is taken back). WHAT it counts for each step is `tokens`, `samples` or
`nothing`. UNIT is what its hello says that it counts. --base stands for frozen
parameters. With --samples it joins first, and has a sampler of N samples. With
--nan-at it tells no loss, and its parameters are lost after the Nth step. RATE
is its learning rate. With --stop-at it stops after the Nth step, until a signal
continues it. The SDK is the one in the folder $ATOLL_SDK, or of the tree.
"""

import argparse
import hashlib
import os
import signal
import sys

import numpy

_TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
sys.path.insert(0, os.environ.get("ATOLL_SDK") or
                os.path.join(_TREE, "worker/sdk/python"))
import atoll  # pylint: disable=wrong-import-position
from atoll import _connection  # pylint: disable=wrong-import-position
from atoll import _store, _trainer  # pylint: disable=wrong-import-position

# Rows and columns of the weights: more than one block.
INPUTS, OUTPUTS = 90, 50
BATCH = 16
TENSORS = {"version": 1, "tensors": [
    {"name": "weights", "shape": [INPUTS, OUTPUTS],
     "init": {"kind": "normal", "value": 0.1}},
    {"name": "bias", "shape": [OUTPUTS]},
]}


class Death:
    """Kills this process at one point."""

    def __init__(self, text):
        self._point, _, count = (text or "").partition("@")
        self._left = int(count or 1)

    def hit(self, point):
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Momentum:
    """The optimizer. Its state is more than the parameters say."""

    def __init__(self, death):
        self._death = death
        self.values = {"weights": numpy.zeros((INPUTS, OUTPUTS), "f4"),
                       "bias": numpy.zeros(OUTPUTS, "f4")}
        self.position = 0
        self.rewound = 0  # Steps that a restore has taken back.

    def step(self, arrays, gradients, rate):
        for name, gradient in gradients.items():
            self.values[name] *= numpy.float32(0.5)
            self.values[name] += gradient
            arrays[name] -= numpy.float32(rate) * self.values[name]
        self.position += 1

    def state_dict(self):
        self._death.hit("save")
        return {"values": self.values, "position": self.position}

    def load_state_dict(self, state):
        self._death.hit("load")
        self.rewound += self.position - state["position"]
        self.values = {k: v.copy() for k, v in state["values"].items()}
        self.position = state["position"]


def batch(shard, position):
    """Inputs and targets, the same for the same arguments."""
    generator = numpy.random.default_rng([7, shard, position])
    inputs = generator.standard_normal((BATCH, INPUTS), "f4")
    truth = numpy.sin(numpy.arange(INPUTS * OUTPUTS, dtype="f4")).reshape(
        INPUTS, OUTPUTS)
    return inputs, inputs @ truth


def loss_and_gradients(arrays, inputs, targets):
    error = inputs @ arrays["weights"] + arrays["bias"] - targets
    scale = numpy.float32(2 / error.size)
    return float(numpy.mean(error * error)), {
        "weights": inputs.T @ error * scale,
        "bias": error.sum(axis=0) * scale}


def die_once_saved(death):
    save = _store.Store.save

    def dying_save(self, save_id, state):
        save(self, save_id, state)
        death.hit("saved")

    _store.Store.save = dying_save


def say_unit(unit):
    send = _connection.Connection.send

    def saying(self, seq, kind, body, **options):
        if kind == "hello":
            body = {**body, "weight_unit": unit}
        send(self, seq, kind, body, **options)

    _connection.Connection.send = saying


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("socket")
    parser.add_argument("work_dir")
    parser.add_argument("--die-at")
    parser.add_argument("--count", default="tokens")
    parser.add_argument("--says")
    parser.add_argument("--base", default="")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--nan-at", type=int)
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--stop-at", type=int)
    arguments = parser.parse_args()
    weight = {} if arguments.count == "nothing" else {arguments.count: BATCH}
    if arguments.says:
        say_unit(arguments.says)
    death = Death(arguments.die_at)
    die_once_saved(death)
    optimizer = Momentum(death)
    os.environ["ATOLL_SOCKET"] = arguments.socket
    if arguments.base:
        digest = hashlib.sha256(arguments.base.encode()).hexdigest()
        _trainer.Trainer.frozen_digest = lambda self: digest
    place = {"run": arguments.run, "work_dir": arguments.work_dir}
    if arguments.samples:
        joined = atoll.join("", **place)
        atoll.ShardSampler(arguments.samples, joined)
        print("joined", joined.index, joined.shard, joined.shard_count,
              flush=True)
        place = {"joined": joined}
    else:
        place["address"] = ""
    island = atoll.Island(state={"optimizer": optimizer}, save="always",
                          **place)

    @island.evaluate
    def evaluate():
        inputs, targets = batch(999, 0)
        return loss_and_gradients(island.arrays, inputs, targets)[0], BATCH

    with island:
        while True:
            inputs, targets = batch(island.data_shard, optimizer.position)
            loss, gradients = loss_and_gradients(island.arrays, inputs, targets)
            optimizer.step(island.arrays, gradients,
                           arguments.rate * island.lr_scale)
            death.hit("step")
            if optimizer.position == arguments.stop_at:
                os.kill(os.getpid(), signal.SIGSTOP)
            if optimizer.position == arguments.nan_at:
                island.arrays["bias"][3] = numpy.nan
            if not island.step(None if arguments.nan_at else loss, metrics={"rmse": loss ** 0.5},
                               **weight):
                break
        values = b"".join(island.arrays[t["name"]].tobytes()
                          for t in TENSORS["tensors"])
        print("final", hashlib.sha256(values).hexdigest(), flush=True)
        print("rewound", optimizer.rewound, flush=True)


if __name__ == "__main__":
    main()
