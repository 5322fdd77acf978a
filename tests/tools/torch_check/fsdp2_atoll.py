#!/usr/bin/env python3
"""Trains the GPT of gpt.py, sharded by FSDP2 over the ranks of torchrun.

Arguments: SEED SHARD"""
import os
import sys

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard

import atoll
import corpus
import gpt

STEPS = int(os.environ.get("STEPS", "200"))
make_model = gpt.make_model


def main(seed, shard):
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    model = make_model(seed)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    island = atoll.attach(model, optimizer, scheduler=scheduler, run="fsdp2",
                          island_id="island-%d" % shard)
    data, held_out = corpus.split(shard)
    loader = corpus.batches(data, 4 * seed + 2 * shard + rank)
    for x, y in island.batches(loader):
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    with torch.no_grad():
        loss = model(*corpus.windows(held_out))
    if rank == 0:
        print("validation loss %.5f" % loss)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
