#!/usr/bin/env python3
"""A small MLP in a loop of accelerate, which joins a run by atoll.attach.

    accelerate_mlp.py create HOST:7400                 once
    accelerate_mlp.py join HOST:7400 ISLAND_ID         on each island

With the package wandb, and WANDB_MODE or a login, `on_event=wandb_rounds.log`
shows each round there. This is one line, too.
"""
import sys
import zlib

import accelerate
import torch
from torch import nn

import atoll

RUN, SIZE, CLASSES, BATCH = "accelerate-mlp", 8, 4, 32
ROUNDS, STEPS = 20, 10


def make_model():
    return nn.Sequential(nn.Linear(SIZE, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def points(seed, size):
    """Points; the class is the largest of the first coordinates."""
    x = torch.randn(size, SIZE, generator=torch.Generator().manual_seed(seed))
    return torch.utils.data.TensorDataset(x, x[:, :CLASSES].argmax(1))


def join(address, island_id):
    accelerator = accelerate.Accelerator(cpu=True)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = torch.utils.data.DataLoader(
        points(zlib.crc32(island_id.encode()), 50 * BATCH), BATCH, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    held_out, labels = points(0, 256).tensors

    def evaluate():
        with torch.no_grad():
            return nn.functional.cross_entropy(model(held_out), labels)

    # The lines that join the run: this one, and the next one's batches().
    island = atoll.attach(model, optimizer, run=RUN, coordinator=address,
                          island_id=island_id, evaluate=evaluate)
    for x, y in island.batches(loader):
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
    print("held-out loss %.4f" % evaluate())


if __name__ == "__main__":
    if sys.argv[1] == "create":
        atoll.create_run(RUN, make_model(), coordinator=sys.argv[2],
                         schedule={"round_count": ROUNDS,
                                   "inner_step_count": STEPS,
                                   "island_count_min": 2, "min_quorum": 1})
    else:
        join(*sys.argv[2:])
