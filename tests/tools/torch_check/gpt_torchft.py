#!/usr/bin/env python3
"""Trains a small GPT on bytes. Arguments: SEED SHARD"""
import os
import sys
from datetime import timedelta

import torch
from torch import nn
from torch.nn import functional as F
from torchft import Manager, ProcessGroupGloo
from torchft.local_sgd import DiLoCo

import corpus

STEPS = int(os.environ.get("STEPS", "400"))
WIDTH, LAYERS, HEADS = 64, 2, 4


class Block(nn.Module):

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(),
                                 nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, -1).permute(
            2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):

    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(256, WIDTH)
        self.place = nn.Embedding(corpus.CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, x, y):
        x = self.blocks(self.token(x) + self.place.weight[:x.shape[1]])
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1),
                               y.flatten())


def make_model(seed):
    torch.manual_seed(seed)
    return GPT()


def main(seed, shard):
    model = make_model(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9,
                            nesterov=True)
    parts = {"model": model, "inner": optimizer, "outer": outer,
             "schedule": scheduler}

    def load(state):
        for name, part in parts.items():
            part.load_state_dict(state[name])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=10)),
        state_dict=lambda: {n: p.state_dict() for n, p in parts.items()},
        load_state_dict=load, use_async_quorum=False, min_replica_size=1,
        replica_id="gpt_%d" % shard, init_sync=False)
    data, held_out = corpus.split(shard)
    loader = corpus.batches(data, 2 * seed + shard)
    with DiLoCo(manager, [model], optimizer, outer, sync_every=20):
        for x, y in loader:
            if manager.current_step() >= STEPS // 20:
                break
            loss = model(x, y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    with torch.no_grad():
        print("validation loss %.5f" % model(*corpus.windows(held_out)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
