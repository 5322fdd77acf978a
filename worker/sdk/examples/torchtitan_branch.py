"""torchtitan joins a run: lines for its Trainer, which keeps its loop.

Four places of torchtitan/trainer.py change (torchtitan 0.3):

    import torchtitan_branch                                       # new

where the model is on the meta device, before it is split:

    torchtitan_branch.create(model, "HOST:7400", "titan")          # new

before the data loader is built, so that islands read different data (later
versions call the two dp_degree and dp_rank):

    batch_degree, batch_rank = torchtitan_branch.shard(            # new
        self, "HOST:7400", "titan", batch_degree, batch_rank)

and where train() enters the profiler:

    ) as profiler, torchtitan_branch.join(self):                   # changed

Only the first island needs `create`; the others start once the run exists.
Leave checkpoint.enable false: the island has saves of its own. training.steps,
which decides the learning rates, is the number of the run's inner steps. The
run weighs islands by steps. torchft is not used.
"""
import contextlib
import copy

import torch

import atoll


def create(model, coordinator, run, seed=0, **tables):
    """Creates the run of a whole model, with torchtitan's first values.

    Rank 0 makes them, on the CPU. Again, with the same seed: no change.
    """
    if torch.distributed.get_rank() != 0:
        return
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        whole = copy.deepcopy(model).to_empty(device="cpu")
        whole.init_weights(buffer_device=torch.device("cpu"))
    atoll.create_run(run, whole, coordinator=coordinator, **tables)


def shard(trainer, coordinator, run, degree, rank, **options):
    """Joins the run. Returns the data loader's dp_world_size and dp_rank.

    Args:
      degree, rank: Those of the island alone.
      **options: As for atoll.join.
    """
    joined = trainer.joined = atoll.join(coordinator, run=run, **options)
    return degree * joined.shard_count, degree * joined.shard + rank


@contextlib.contextmanager
def join(trainer, **options):
    """A `with` block that is an island, and ends with the run.

    Args:
      trainer: It has model_parts (of pipeline stages, each with the names of
        the whole model), optimizers, lr_schedulers and a data loader.
      **options: As for atoll.attach.
    """
    with atoll.attach(
            torch.nn.ModuleList(trainer.model_parts), list(trainer.optimizers),
            joined=trainer.joined, scheduler=list(trainer.lr_schedulers),
            state={"trainer": trainer, "dataloader": trainer.dataloader},
            # Without the number of the part.
            names=lambda name: name.split(".", 1)[1],
            **options) as island, contextlib.suppress(atoll.RunEnded):
        yield island
