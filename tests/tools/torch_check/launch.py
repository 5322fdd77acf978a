"""Runs a script as `python SCRIPT ARGUMENT ...` does, and notes its steps.

    launch.py TRACE SCRIPT [ARGUMENT ...]

TRACE gets a line for each step of AdamW, after what its hooks do: seconds of
CLOCK_MONOTONIC. A step takes PACE_S seconds longer, so that a run lasts long
enough for a fault. For torchft it serves the store that torchrun would.
"""

import os
import runpy
import sys
import time

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


def main():
    trace, script, *arguments = sys.argv[1:]
    pace_s = float(os.environ.get("PACE_S", "0"))
    # pylint: disable-next=consider-using-with
    file = open(trace, "a", buffering=1, encoding="ascii")

    def note(optimizer, *_):
        if isinstance(optimizer, torch.optim.AdamW):
            file.write("%.6f\n" % time.monotonic())
            time.sleep(pace_s)

    register_optimizer_step_post_hook(note)
    if "TORCHFT_LIGHTHOUSE" in os.environ:
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True,
                                           wait_for_workers=False)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port),
                          RANK="0", WORLD_SIZE="1")
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
