"""An island of the Trainer of Lightning.

    lightning.Trainer(max_epochs=-1, callbacks=[
        lightning_callback.Join(run="spring", coordinator="HOST:7400")])

The run's end stops the Trainer. `atoll.create_run("spring", module)` makes the
run: the module's parameters are the run's.
"""
import lightning

import atoll


class Join(lightning.Callback):

    def __init__(self, **options):
        """`options`: those of atoll.attach."""
        self.options = options

    def on_train_start(self, trainer, module):
        # A scheduler of whole epochs has another clock than a run.
        schedulers = [of.scheduler for of in trainer.lr_scheduler_configs
                      if of.interval == "step"]
        self.island = atoll.attach(
            module, trainer.optimizers, scheduler=schedulers or None,
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            **self.options)
        trainer.should_stop = self.island.ended

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = self.island.ended

    def on_train_end(self, *_):
        self.island.close()
