"""A trainer that observes a variance, as BatchNorm does.

usage: variance_trainer.py RUN SOCKET WORK_DIR

Each step moves `variance` halfway to what the island's data shard shows. The
first evaluation of each process is not finite.
"""

import os
import sys

import numpy

_TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
sys.path.insert(0, os.path.join(_TREE, "worker/sdk/python"))
import atoll  # pylint: disable=wrong-import-position

BATCH = 16
ELEMENTS = 5000  # More than a block.
TENSORS = {"version": 1, "tensors": [
    {"name": "weights", "shape": [3]},
    {"name": "variance", "shape": [ELEMENTS], "class": "buffer",
     "init": {"kind": "constant", "value": 1}},
]}


def observed(data_shard):
    return 0.01 * (data_shard + 1) * numpy.linspace(1, 2, ELEMENTS)


def main():
    run, socket, work_dir = sys.argv[1:4]
    os.environ["ATOLL_SOCKET"] = socket
    losses = iter([float("nan")])
    with atoll.Island("", run=run, work_dir=work_dir,
                      evaluate=lambda: next(losses, 2.0)) as island:
        while True:
            variance = island.arrays["variance"]
            variance += (observed(island.data_shard) - variance) / 2
            island.arrays["weights"] += 1
            if not island.step(loss=1.0, tokens=BATCH):
                break


if __name__ == "__main__":
    main()
