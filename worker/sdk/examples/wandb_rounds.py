"""A run's rounds in Weights & Biases: atoll.attach(..., on_event=log).

`wandb.init()` comes before it. Island and AtollCallback take it, too.
"""
import wandb


def log(event):
    if event["event"] == "committed":
        wandb.log({"atoll/" + name: event[name] for name in (
            "round", "loss", "training_share", "waited_seconds")
                   if event[name] is not None})
    elif event["event"] in ("lost", "refused", "warned"):
        wandb.alert(title="atoll: " + event["event"], text=event["message"])
