"""Writes the golden files of decoder_golden_test: what PyTorch computes.

usage: make_golden.py OUTPUT_DIR [CASE...]  (needs torch, transformers, numpy)

The reference is transformers' LlamaForCausalLM, GPT2LMHeadModel or
MixtralForCausalLM. Parameters and tokens are made
from a counter (see `uniform`), so that the test makes the same ones and the
files hold results only. For each case:

  golden_NAME.f32  little-endian f32: the gradient of the first step (computed
                   in f64), then the parameters after 20 steps of AdamW (f32),
                   both flat in the order of parameter_layout.h
  golden_NAME.txt  one number a line: the loss of the first step (f64), the
                   global norm of its gradient (f64), the loss that balances
                   experts (of a mixture only), then the losses of 20 AdamW
                   steps (f32). Losses are without the one that balances
                   experts, gradients are with it
"""

import math
import sys

import numpy as np
import torch
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM, MixtralConfig, MixtralForCausalLM)

STEPS, WARMUP, PEAK, FLOOR = 20, 5, 1e-2, 0.1
CASES = {
    # name: kind, vocab, hidden, inner, layers, heads, kv heads, max, T, B, tied
    'tied': ('llama', 61, 32, 44, 2, 4, 4, 24, 24, 3, True),
    'grouped': ('llama', 47, 48, 40, 2, 6, 2, 32, 19, 2, False),
    'gpt2': ('gpt2', 53, 32, 40, 2, 4, 4, 24, 21, 3, True),
    # Two of five experts a token.
    'mixture': ('mixtral', 43, 24, 20, 2, 4, 2, 24, 20, 3, False),
}
EXPERTS, EXPERTS_A_TOKEN, ROUTER_LOSS = 5, 2, 0.05


def uniform(seed, count):
    """`count` numbers in [0, 1): SplitMix64 of seed + index."""
    with np.errstate(over='ignore'):
        z = (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(
            0x9E3779B97F4A7C15) + np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def make_model(name):
    kind, v, c, f, layers, h, g, longest, _, _, tied = CASES[name]
    if kind == 'gpt2':
        return GPT2LMHeadModel(GPT2Config(
            vocab_size=v, n_embd=c, n_inner=f, n_layer=layers, n_head=h,
            n_positions=longest, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0, attn_implementation='eager'))
    shape = dict(
        vocab_size=v, hidden_size=c, intermediate_size=f,
        num_hidden_layers=layers, num_attention_heads=h,
        num_key_value_heads=g, max_position_embeddings=longest,
        rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=tied,
        attn_implementation='eager')
    if kind == 'llama':
        return LlamaForCausalLM(LlamaConfig(**shape))
    return MixtralForCausalLM(MixtralConfig(
        num_local_experts=EXPERTS, num_experts_per_tok=EXPERTS_A_TOKEN,
        router_aux_loss_coef=ROUTER_LOSS, output_router_logits=True,
        experts_implementation='eager', **shape))


def tensors(model, what):
    """what(parameter), or the part of it that is one tensor of a checkpoint, in
    the order of parameter_layout.h."""
    parameters = dict(model.named_parameters())
    for name in model.state_dict():
        if name not in parameters:  # A tied head.
            continue
        value = what(parameters[name])
        if name.endswith('experts.gate_up_proj'):
            down = what(parameters[name.replace('gate_up', 'down')])
            for expert in range(EXPERTS):
                yield value[expert]  # Gate, then up.
                yield down[expert]
        elif not name.endswith('experts.down_proj'):
            yield value


def fill(model):
    """Matrices uniform in [-0.2, 0.2), gains and biases in [0.5, 1.5), rounded
    to f32."""
    parts = list(tensors(model, lambda p: p.data))
    flat, at = uniform(1, sum(t.numel() for t in parts)), 0
    for t in parts:
        u = flat[at:at + t.numel()]
        at += t.numel()
        values = (0.5 + u) if t.dim() == 1 else 0.4 * (u - 0.5)
        t.copy_(torch.from_numpy(
            values.astype(np.float32).astype(np.float64)).view_as(t))


def flat(model, what):
    return np.concatenate([
        t.detach().numpy().astype('<f4').ravel()
        for t in tensors(model, what)])


def losses_of(model, tokens):
    """The mean cross-entropy, and the loss that balances experts."""
    out = model(tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(
        out.logits.flatten(0, 1), tokens[:, 1:].flatten())
    aux = getattr(out, 'aux_loss', None)
    return loss, torch.zeros(()) if aux is None else ROUTER_LOSS * aux


def learning_rate(step):
    decay = math.cos(math.pi * max(0, step - WARMUP) / (STEPS - WARMUP))
    return PEAK * min(1, (step + 1) / WARMUP) * (
        FLOOR + (1 - FLOOR) * 0.5 * (1 + decay))


def run(name, out):
    v, t, b = CASES[name][1], CASES[name][8], CASES[name][9]
    tokens = torch.from_numpy(
        (uniform(2, STEPS * b * (t + 1)) * v).astype(np.int64)
    ).view(STEPS, b, t + 1)

    model = make_model(name).double()
    # Its rotary table and its router stay in f32: agreement ends near 1e-7.
    with torch.no_grad():
        fill(model)
    loss, balance = losses_of(model, tokens[0])
    (loss + balance).backward()
    gradient = flat(model, lambda p: p.grad)
    norm = math.sqrt(sum((p.grad**2).sum().item()
                         for p in model.parameters()))
    numbers = [loss.item(), norm]
    if CASES[name][0] == 'mixtral':
        numbers.append(balance.item())

    model = make_model(name).float()
    with torch.no_grad():
        fill(model)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95),
                                  eps=1e-8, weight_decay=0.1)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group['lr'] = learning_rate(step)
        loss, balance = losses_of(model, tokens[step])
        optimizer.zero_grad()
        (loss + balance).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        numbers.append(loss.item())
    after = flat(model, lambda p: p)
    np.concatenate([gradient, after]).tofile(f'{out}/golden_{name}.f32')
    with open(f'{out}/golden_{name}.txt', 'w') as file:
        file.writelines(f'{x:.17g}\n' for x in numbers)
    print(name, len(after), 'parameters', numbers[:3], numbers[-1])


for case in sys.argv[2:] or CASES:
    run(case, sys.argv[1])
