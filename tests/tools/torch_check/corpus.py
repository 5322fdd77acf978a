"""Bytes to train on, made from a seed: words that choose the next one."""

import random

import torch

CONTEXT, BATCH = 64, 8
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def make_text(size=300_000, seed=1):
    chance = random.Random(seed)
    words = ["".join(chance.choices(_LETTERS, k=chance.randint(2, 7))) + " "
             for _ in range(200)]
    follows = {word: chance.sample(words, 5) for word in words}
    text, length = [words[0]], 0
    while length < size:
        text.append(chance.choices(follows[text[-1]], (16, 8, 4, 2, 1))[0])
        length += len(text[-1])
    return torch.tensor(list("".join(text).encode()))


def split(shard):
    """(training data of the shard, one of two; held-out data)"""
    text = make_text()
    training, held_out = text[:-10_000], text[-10_000:]
    return training.chunk(2)[shard], held_out


def batches(data, seed):
    """Endless random windows: (inputs, targets), shape [BATCH, CONTEXT]."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        begins = torch.randint(len(data) - CONTEXT, (BATCH,),
                               generator=generator)
        rows = torch.stack([data[i:i + CONTEXT + 1] for i in begins.tolist()])
        yield rows[:, :-1], rows[:, 1:]


def windows(data):
    """All windows of the held-out data, at once."""
    rows = data.unfold(0, CONTEXT + 1, CONTEXT)
    return rows[:, :-1], rows[:, 1:]
