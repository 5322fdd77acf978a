#!/usr/bin/env python3
"""A small MLP, sharded by FSDP2 over the ranks of each island.

    torch_fsdp2.py create HOST:7400                    once
    torchrun --nproc-per-node 2 torch_fsdp2.py join HOST:7400 ISLAND_ID
        [--device cuda: each rank has the card of its number]"""
import zlib

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
import atoll
import torch_device

RUN, SIZE, CLASSES, BATCH = "torch-fsdp2", 8, 4, 32


def make_model():
    return nn.Sequential(nn.Linear(SIZE, 64), nn.ReLU(), nn.Linear(64, CLASSES))


class Points:
    """Batches of points; the class is the largest of the first coordinates."""

    def __init__(self, seed):
        self.seed, self.position = seed << 24, 0

    def batch(self, number):
        generator = torch.Generator().manual_seed(self.seed + number)
        x = torch.randn(BATCH, SIZE, generator=generator)
        return x, x[:, :CLASSES].argmax(1)

    def __iter__(self):
        while True:  # A restore may change the position at any step.
            self.position += 1
            yield self.batch(self.position)

    def state_dict(self):
        return vars(self)

    def load_state_dict(self, state):
        vars(self).update(state)


def join(address, island_id, device):
    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    model = make_model().to(device)
    for layer in model[::2]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    # Each rank of each island has data of its own.
    loader = Points(zlib.crc32(island_id.encode()) + mesh.get_rank())

    def evaluate():
        x, y = (z.to(device) for z in Points(0).batch(0))
        return nn.functional.cross_entropy(model(x), y), BATCH

    with atoll.Island(address, run=RUN, island_id=island_id, model=model,
                      state={"optimizer": optimizer, "loader": loader},
                      mesh=mesh, evaluate=evaluate) as island:
        for x, y in ((x.to(device), y.to(device)) for x, y in loader):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if not island.step(loss=loss, tokens=BATCH):
                break


if __name__ == "__main__":
    (command, *names), device = torch_device.parse(__doc__)
    if command == "create":
        atoll.create_run(RUN, make_model(), coordinator=names[0],
                         schedule={"round_count": 20, "inner_step_count": 10})
    else:
        distributed.init_process_group()
        join(*names, device)
        distributed.destroy_process_group()
