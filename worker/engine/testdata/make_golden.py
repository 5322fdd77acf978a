"""Writes the golden files of decoder_golden_test: what PyTorch computes.

usage: make_golden.py OUTPUT_DIR     (needs torch, transformers, numpy)

The reference is transformers' LlamaForCausalLM. Parameters and tokens are made
from a counter (see `uniform`), so that the test makes the same ones and the
files hold results only. For each case:

  golden_NAME.f32  little-endian f32: the gradient of the first step (computed
                   in f64), then the parameters after 20 steps of AdamW (f32),
                   both flat in the order of the state dict
  golden_NAME.txt  one number a line: the loss of the first step (f64), the
                   global norm of its gradient (f64), then the losses of 20
                   AdamW steps (f32)
"""

import math
import sys

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

STEPS, WARMUP, PEAK, FLOOR = 20, 5, 1e-2, 0.1
CASES = {
    # name: vocab, hidden, inner, layers, heads, kv heads, max, T, B, tied
    'tied': (61, 32, 44, 2, 4, 4, 24, 24, 3, True),
    'grouped': (47, 48, 40, 2, 6, 2, 32, 19, 2, False),
}


def uniform(seed, count):
    """`count` numbers in [0, 1): SplitMix64 of seed + index."""
    with np.errstate(over='ignore'):
        z = (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(
            0x9E3779B97F4A7C15) + np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def names(model, tied):
    return [n for n in model.state_dict() if not (tied and n == 'lm_head.weight')]


def fill(model, tied):
    """Matrices uniform in [-0.2, 0.2), gains in [0.5, 1.5), rounded to f32."""
    state = model.state_dict()
    total = sum(state[n].numel() for n in names(model, tied))
    flat, at = uniform(1, total), 0
    for name in names(model, tied):
        t = state[name]
        u = flat[at:at + t.numel()]
        at += t.numel()
        values = (0.5 + u) if t.dim() == 1 else 0.4 * (u - 0.5)
        t.copy_(torch.from_numpy(
            values.astype(np.float32).astype(np.float64)).view_as(t))


def flat(model, tied, what):
    parameters = dict(model.named_parameters())
    return np.concatenate([
        what(parameters[n]).detach().numpy().astype('<f4').ravel()
        for n in names(model, tied)])


def loss_of(model, tokens):
    logits = model(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), tokens[:, 1:].flatten())


def learning_rate(step):
    decay = math.cos(math.pi * max(0, step - WARMUP) / (STEPS - WARMUP))
    return PEAK * min(1, (step + 1) / WARMUP) * (
        FLOOR + (1 - FLOOR) * 0.5 * (1 + decay))


def run(name, out):
    v, c, f, layers, h, g, longest, t, b, tied = CASES[name]
    config = LlamaConfig(
        vocab_size=v, hidden_size=c, intermediate_size=f,
        num_hidden_layers=layers, num_attention_heads=h,
        num_key_value_heads=g, max_position_embeddings=longest,
        rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=tied,
        attn_implementation='eager')
    tokens = torch.from_numpy(
        (uniform(2, STEPS * b * (t + 1)) * v).astype(np.int64)
    ).view(STEPS, b, t + 1)

    model = LlamaForCausalLM(config).double()
    # Its rotary table stays in f32: agreement ends near 1e-7.
    with torch.no_grad():
        fill(model, tied)
    loss = loss_of(model, tokens[0])
    loss.backward()
    gradient = flat(model, tied, lambda p: p.grad)
    norm = math.sqrt(sum((p.grad**2).sum().item()
                         for p in model.parameters()))
    numbers = [loss.item(), norm]

    model = LlamaForCausalLM(config).float()
    with torch.no_grad():
        fill(model, tied)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95),
                                  eps=1e-8, weight_decay=0.1)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group['lr'] = learning_rate(step)
        loss = loss_of(model, tokens[step])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        numbers.append(loss.item())
    after = flat(model, tied, lambda p: p)
    np.concatenate([gradient, after]).tofile(f'{out}/golden_{name}.f32')
    with open(f'{out}/golden_{name}.txt', 'w') as file:
        file.writelines(f'{x:.17g}\n' for x in numbers)
    print(name, len(after), 'parameters', numbers[:2], numbers[-1])


for case in CASES:
    run(case, sys.argv[1])
