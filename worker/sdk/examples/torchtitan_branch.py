"""torchtitan joins a run: the branch for its semi-synchronous training.

Three lines of torchtitan change. Its trainer enters maybe_semi_sync_training
in a `with` block around its loop, once the model is on its devices:

    import torchtitan_branch                                       # new
    ...
        with (
            ...
            maybe_semi_sync_training(
                ...
            ),
            torchtitan_branch.join(self, "HOST:7400", "titan"),     # new
        ):
            while self.should_continue_training():

and where it builds the model on the meta device, before it is split:

    torchtitan_branch.create(model, "HOST:7400", "titan")          # new

Only one process of all islands needs the last one. Leave
fault_tolerance.enable false: torchft is not used.
"""
import contextlib

import torch

import atoll


def create(model, coordinator, run, **tables):
    """Creates the run of a whole model without values; again: no change."""
    return atoll.create_run(run, model, coordinator=coordinator, **tables)


@contextlib.contextmanager
def join(trainer, coordinator, run, **options):
    """A `with` block that is an island, and ends with the run.

    Args:
      trainer: It has model_parts (of pipeline stages, each with the names of
        the whole model), optimizers and lr_schedulers.
      **options: As for atoll.attach.
    """
    island = atoll.attach(
        torch.nn.ModuleList(trainer.model_parts),
        list(trainer.optimizers.optimizers), run=run, coordinator=coordinator,
        scheduler=list(trainer.lr_schedulers.schedulers),
        names=lambda name: name.split(".", 1)[1],  # Without the part's number.
        **options)
    try:
        with contextlib.suppress(atoll.RunEnded):
            yield island
    finally:
        island.close()
