"""One rank of an island, for torch_mesh_test.py.

The ranks meet at FOLDER/meeting. When the run is complete, a rank leaves its
parameters in FOLDER/rank-N.npz; what it prints is in FOLDER/output-N. Settings:

    FAR           ranks on another node than rank 0: "1,3"
    DIE           RANK POINT N: this rank dies where it reaches POINT for the
                  N-th time: step, fsync, rename; or it raises: raise
    DTYPE         of the parameters; float32 by default
    LEAVE         RANKS STEP: these leave the loop after so many steps: "0,1 2"
    BASE          seed of a frozen parameter; none by default
    JOIN          not empty: joins before the model is made
    ATOLL_SOCKET  where the exchange listens
"""

import os
import signal
import sys
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed import pipelining  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel, RowwiseParallel, parallelize_module)

import atoll  # noqa: E402
from atoll import _regions, _store  # noqa: E402

BATCH = 4
# {kind: sizes of the mesh's dimensions}
KINDS = {"ddp": {"dp": 2}, "fsdp": {"dp": 2}, "tp": {"dp": 1, "tp": 2},
         "fsdp_tp": {"dp": 2, "tp": 2}, "pp": {"dp": 1, "pp": 2}}


class Net(nn.Module):
    """Sizes that FSDP2 over two ranks cannot split evenly."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 6)
        self.second = nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.scale * self.second(torch.relu(self.first(x)))


def make_optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=0.05, weight_decay=0.1)


def batch(replica, step, generator=None):
    """Data of one replica: inputs with noise of its generator, and targets."""
    own = torch.Generator().manual_seed(1000 * replica + step)
    x = torch.randn(BATCH, 5, generator=own)
    y = torch.randn(BATCH, 3, generator=own)
    return x + torch.rand(x.shape, generator=generator), y


class Position:

    def __init__(self):
        self.step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


class Trained:
    """A model that is split as KIND says.

    Attributes:
      forward: (inputs, targets) -> loss, or None where another rank has it;
        with `backward` it computes gradients too.
    """

    def __init__(self, kind, mesh, dtype, base=None):
        net = Net().to(dtype)
        if base is not None:
            net.base = nn.Parameter(torch.randn(
                7, generator=torch.Generator().manual_seed(base)), False)
        self.names = None
        self.pipeline = None
        if kind == "pp":
            self._make_stage(net, mesh["pp"])
            return
        if "tp" in mesh.mesh_dim_names:
            parallelize_module(net, mesh["tp"], {
                "first": ColwiseParallel(), "second": RowwiseParallel()})
        if kind == "ddp":
            net = nn.parallel.DistributedDataParallel(net)
        elif kind.startswith("fsdp"):
            fully_shard(net.second, mesh=mesh["dp"])
            fully_shard(net, mesh=mesh["dp"])
        self.model = net

    def _make_stage(self, net, mesh):
        self.is_last = mesh.get_local_rank() == 1
        if self.is_last:
            del net.first
            net.forward = lambda x: net.scale * net.second(x)
            self.model = net
        else:
            self.model = nn.Sequential(net.first, nn.ReLU())
            self.names = {"0.weight": "first.weight", "0.bias": "first.bias"}
        self.pipeline = pipelining.ScheduleGPipe(pipelining.PipelineStage(
            self.model, mesh.get_local_rank(), 2, torch.device("cpu"),
            group=mesh.get_group()), n_microbatches=2,
            loss_fn=nn.functional.mse_loss)

    def train(self, x, y):
        if self.pipeline is None:
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            return loss
        losses = []
        if self.is_last:
            self.pipeline.step(target=y, losses=losses)
        else:
            self.pipeline.step(x)
        return torch.stack(losses).mean() if losses else None


def main(kind, rank, size, folder, settings):
    output = os.open(os.path.join(folder, "output-%d" % rank),
                     os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(output, 2)
    os.environ["ATOLL_SOCKET"] = settings["ATOLL_SOCKET"]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method="file://" + os.path.join(folder, "meeting"),
        rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", tuple(KINDS[kind].values()),
                            mesh_dim_names=tuple(KINDS[kind]))
    replica = mesh["dp"].get_local_rank()
    torch.manual_seed(1)
    dtype = getattr(torch, settings.get("DTYPE", "float32"))
    work_dir = os.path.join(folder, "work")
    if settings.get("JOIN"):
        joined = atoll.join("nobody:1", run="spring", work_dir=work_dir)
        print("joined", joined.index, joined.shard, joined.shard_count,
              file=sys.stderr)
        place = {"joined": joined}
    else:
        place = {"address": "nobody:1", "run": "spring", "work_dir": work_dir}
    base = settings.get("BASE")
    trained = Trained(kind, mesh, dtype, base if base is None else int(base))
    optimizer = make_optimizer(trained.model.parameters())
    position = Position()
    torch.manual_seed(100 + replica)

    victim, point, number = settings.get("DIE", "-1 none 0").split()
    leaving, last_step = settings.get("LEAVE", "-1 0").split()
    left = {point: int(number) if int(victim) == rank else 0}

    def reach(point):
        left[point] = left.get(point, 0) - 1
        if left[point] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def killing(name):
        function = getattr(os, name)

        def call(*arguments):
            reach(name)
            return function(*arguments)

        return call

    def evaluate():
        # Without gradients FSDP2 leaves the root's parameters whole.
        return trained.model(torch.ones(2, 5, dtype=dtype)).sum(), 2

    if str(rank) in settings.get("FAR", "").split(","):
        _regions.node = lambda: ("elsewhere", "")
    with mock.patch.object(_store.os, "fsync", killing("fsync")), \
            mock.patch.object(_store.os, "rename", killing("rename")), \
            atoll.Island(
                model=trained.model, **place,
                state={"optimizer": optimizer, "position": position},
                mesh=mesh["dp"],
                evaluate=None if kind == "pp" else evaluate,
                names=trained.names) as island:
        while True:
            loss = trained.train(*(values.to(dtype) for values in batch(
                replica, position.step)))
            optimizer.step()
            optimizer.zero_grad()
            position.step += 1
            reach("step")
            left["raise"] = left.get("raise", 0) - 1
            if left["raise"] == 0:
                raise ValueError("this rank raises")
            if not island.step(loss=loss, tokens=BATCH, metrics={
                    "replica": replica}):
                break
            if (str(rank) in leaving.split(",") and
                    position.step == int(last_step)):
                break
    names = trained.names or {}
    np.savez(os.path.join(folder, "rank-%d.npz" % rank), **{
        names.get(name, name).removeprefix("module."): (
            p.full_tensor() if hasattr(p, "full_tensor") else p
        ).detach().float().numpy() for name, p in trained.model.named_parameters()},
        **{"metric:" + name: value for name, value in island.metrics.items()})
    dist.destroy_process_group()

