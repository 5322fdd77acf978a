#!/usr/bin/env python3
"""Trains LoRA adapters of a small Llama with random weights on bytes.

Arguments: SEED SHARD"""
import os
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

import atoll
import corpus

STEPS = int(os.environ.get("STEPS", "200"))


def make_model(seed):
    torch.manual_seed(0)  # The base model is the same for every seed.
    base = LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        max_position_embeddings=corpus.CONTEXT, initializer_range=0.2))
    torch.manual_seed(seed)
    return get_peft_model(base, LoraConfig(r=8, target_modules="all-linear"))


def main(seed, shard):
    model = make_model(seed)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    island = atoll.attach(model, optimizer, scheduler=scheduler, run="lora",
                          island_id="island-%d" % shard)
    data, held_out = corpus.split(shard)
    loader = corpus.batches(data, 2 * seed + shard)
    for x, _ in island.batches(loader):
        loss = model(input_ids=x, labels=x).loss
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    x, _ = corpus.windows(held_out)
    with torch.no_grad():
        print("validation loss %.5f" % model(input_ids=x, labels=x).loss)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
