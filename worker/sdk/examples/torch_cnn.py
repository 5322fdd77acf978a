#!/usr/bin/env python3
"""A small CNN in plain PyTorch, on data that it makes itself.

    torch_cnn.py create HOST:7400                      once
    torch_cnn.py join HOST:7400 ISLAND_ID [--device cuda]   on each island"""
from zlib import crc32

import torch
from torch import nn
import atoll
import torch_device

RUN, CLASSES, SIDE, BATCH = "torch-cnn", 4, 12, 32


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES))


class Stripes:
    """Batches of noisy stripes; the class is their direction."""
    def __init__(self, seed):
        self.seed, self.position = seed << 32, 0

    def batch(self, number):
        generator = torch.Generator().manual_seed(self.seed + number)
        labels = torch.randint(CLASSES, (BATCH,), generator=generator)
        angles = (labels * torch.pi / CLASSES)[:, None, None]
        line = torch.arange(SIDE)
        waves = line[:, None] * angles.cos() + line * angles.sin()
        noise = torch.randn(waves.shape, generator=generator)
        return (torch.sin(1.5 * waves) + 0.5 * noise)[:, None], labels

    def __iter__(self):
        while True:  # A restore may change the position at any step.
            self.position += 1
            yield self.batch(self.position)

    def state_dict(self):
        return vars(self)

    def load_state_dict(self, state):
        vars(self).update(state)


def join(address, island_id, device):
    model, loader = make_model().to(device), Stripes(crc32(island_id.encode()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    held_out, labels = (x.to(device) for x in Stripes(0).batch(0))

    def evaluate():
        model.eval()
        loss = nn.functional.cross_entropy(model(held_out), labels)
        model.train()
        return loss.item(), BATCH

    with atoll.Island(address, run=RUN, island_id=island_id, model=model,
                      buffers="average", evaluate=evaluate, state={
                          "optimizer": optimizer, "loader": loader}) as island:
        for x, y in ((x.to(device), y.to(device)) for x, y in loader):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if not island.step(loss=loss, tokens=y.numel()):
                break
    print("held-out loss %.4f" % evaluate()[0])


if __name__ == "__main__":
    (command, *names), device = torch_device.parse(__doc__)
    if command == "create":
        atoll.create_run(
            RUN, make_model(), coordinator=names[0], buffers="average",
            schedule={"round_count": 20, "inner_step_count": 10,
                      "island_count_min": 2, "min_quorum": 1})
    else:
        join(*names, device)
