#!/usr/bin/python3
"""Linear regression in NumPy, on islands with data of their own.

    numpy_linear.py create HOST:7400                      once
    numpy_linear.py join HOST:7400 ISLAND_ID              on each island
"""

import sys
import zlib

import numpy as np

import atoll

RUN = "numpy-linear"
INPUTS, BATCH = 16, 32
LEARNING_RATE, MOMENTUM = 0.05, 0.9
TRUTH = np.linspace(-1, 1, INPUTS, dtype=np.float32)
# The parameters: y = x @ weight + bias. The run's own values replace these.
PARAMETERS = {"weight": np.zeros(INPUTS, np.float32),
              "bias": np.zeros(1, np.float32)}


class Optimizer:
    """SGD with momentum. Its state decides the next step: it is saved."""

    def __init__(self):
        self.speed = {n: np.zeros_like(p) for n, p in PARAMETERS.items()}

    def step(self, gradients, scale):
        for name, gradient in gradients.items():
            self.speed[name] = MOMENTUM * self.speed[name] + gradient
            PARAMETERS[name] -= scale * LEARNING_RATE * self.speed[name]

    def state_dict(self):
        return self.speed

    def load_state_dict(self, state):
        self.speed = state


def batch(generator):
    x = generator.standard_normal((BATCH, INPUTS), dtype=np.float32)
    noise = 0.01 * generator.standard_normal(BATCH, dtype=np.float32)
    return x, x @ TRUTH + np.float32(0.5) + noise


def errors(x, y):
    return x @ PARAMETERS["weight"] + PARAMETERS["bias"] - y


def join(address, island_id):
    # The generator is the data's position too: it is a part of the state.
    generator = np.random.default_rng(zlib.crc32(island_id.encode()))
    optimizer = Optimizer()
    held_out = batch(np.random.default_rng(0))
    with atoll.Island(
            address, run=RUN, arrays=PARAMETERS, island_id=island_id,
            state={"optimizer": optimizer, "data": generator},
            evaluate=lambda: (np.mean(errors(*held_out)**2), BATCH)) as island:
        while True:
            x, y = batch(generator)
            error = errors(x, y)
            optimizer.step({"weight": 2 * x.T @ error / BATCH,
                            "bias": 2 * error.mean(keepdims=True)},
                           island.lr_scale)
            if not island.step(loss=np.mean(error**2), tokens=BATCH):
                break
    print("bias %.4f, largest error of a weight %.4f" % (
        PARAMETERS["bias"][0], np.abs(PARAMETERS["weight"] - TRUTH).max()))


if __name__ == "__main__":
    if sys.argv[1] == "create":
        atoll.create_run(RUN, arrays=PARAMETERS, coordinator=sys.argv[2],
                         schedule={"round_count": 20, "inner_step_count": 10,
                                   "island_count_min": 2, "min_quorum": 1})
    else:
        join(*sys.argv[2:])
