#!/usr/bin/env python3
"""Trains the GPT of gpt.py with dropout and a loader that has a state.

Arguments: SEED SHARD

It prints what kills must not change: the last rate, the parameters, and how
often the optimizer's own count of steps went back.
"""
import hashlib
import os
import sys

import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import atoll
import corpus
import gpt_atoll

STEPS = int(os.environ["STEPS"])
make_model = gpt_atoll.make_model


class Windows(torch.utils.data.Dataset):

    def __init__(self, data):
        self._rows = data.unfold(0, corpus.CONTEXT + 1, corpus.CONTEXT)

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, index):
        return self._rows[index][:-1], self._rows[index][1:]


def main(seed, shard):
    model = make_model(seed)
    model.blocks.register_forward_hook(
        lambda _, __, x: torch.nn.functional.dropout(x, 0.1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    data, _ = corpus.split(shard)
    loader = StatefulDataLoader(Windows(data), corpus.BATCH, shuffle=True,
                                num_workers=0)
    island = atoll.attach(model, optimizer, scheduler=scheduler, run="kills",
                          island_id="island-%d" % shard,
                          state={"loader": loader})
    newest = rewinds = 0
    for x, y in island.batches(loader):
        model(x, y).backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        before, newest = newest, int(next(iter(
            optimizer.state.values()))["step"])
        rewinds += newest <= before
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print("last rate %r" % optimizer.param_groups[0]["lr"])
    print("rewinds %d" % rewinds)
    print("parameters " + digest.hexdigest()[:16])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
