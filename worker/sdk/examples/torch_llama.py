#!/usr/bin/env python3
"""Llama or GPT-2 of transformers, in a run of Atoll's own model.

    atoll run create laptop --run-id laptop --coordinator HOST:7400      once
    torch_llama.py HOST:7400 laptop ISLAND_ID [DATA] [--device cuda]    here
    atoll join HOST:7400 --run laptop --island-id OTHER         on another one

It reads the windows that Atoll's engine would read, and trains as the run's
file says. DATA is the path of the run's data here, if it differs.
"""
import torch
import transformers
from torch.nn import functional

import atoll
import atoll.hf
import torch_device


def make_optimizer(model, inner):
    if inner["optimizer"] == "INNER_OPTIMIZER_KIND_SGD":
        return torch.optim.SGD(model.parameters(), lr=inner["learning_rate"])
    return torch.optim.AdamW(
        model.parameters(), lr=inner["learning_rate"], eps=inner["epsilon"],
        betas=(inner["beta1"], inner["beta2"]),
        weight_decay=inner["weight_decay"])


def loss_of(model, windows):
    """windows: int64 [B, T + 1]."""
    logits = model(input_ids=windows[:, :-1]).logits
    return functional.cross_entropy(logits.flatten(0, 1),
                                    windows[:, 1:].flatten())


def join(device, address, run, island_id, path=None):
    spec = atoll.get_run(run, address)["spec"]
    data, inner = atoll.Data(spec, path), spec["inner"]
    model = transformers.AutoModelForCausalLM.from_config(
        atoll.hf.model_config(spec)).to(device)
    optimizer = make_optimizer(model, inner)
    held_out = torch.from_numpy(data.held_out()).to(device)

    def evaluate():
        losses = [loss_of(model, part).item() * len(part)
                  for part in held_out.split(data.batch_size)]
        return sum(losses) / max(1, len(held_out)), held_out[:, 1:].numel()

    with atoll.Island(address, run=run, island_id=island_id, model=model,
                      state={"optimizer": optimizer}, evaluate=evaluate,
                      data_fingerprint=data.fingerprint()) as island:
        while True:
            for group in optimizer.param_groups:
                group["lr"] = island.lr_scale * atoll.schedule.learning_rate(
                    spec, island.clock)
            windows = torch.from_numpy(data.batch(island)).to(device)
            loss = loss_of(model, windows)
            loss.backward()
            if inner["clip_norm"]:
                torch.nn.utils.clip_grad_norm_(model.parameters(),
                                               inner["clip_norm"])
            optimizer.step()
            optimizer.zero_grad()
            if not island.step(loss=loss, tokens=windows[:, 1:].numel()):
                break
    print("held-out loss %.4f" % evaluate()[0])


if __name__ == "__main__":
    arguments, on = torch_device.parse(__doc__)
    join(on, *arguments)
