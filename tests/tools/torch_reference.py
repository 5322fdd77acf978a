#!/usr/bin/env python3
"""Trains a run file's model in PyTorch, to compare our loss with.

    torch_reference.py --values FILE.json --start DIR --data DIR [--alone]

VALUES is a run file as JSON (from the quality benchmark), START an export of
its version 0, so both sides begin with the same bits. The batches are the same
windows in the same order. With --alone one island trains on the whole text.
Otherwise islands take turns in this process, with inner AdamW, outer Nesterov
or SGD, and the codecs f32, two_bit and top_k with error feedback
(base/codec/{two_level,two_bit,top_k}.h). Prints one JSON object with the loss
on all held-out windows. Needs torch.
"""

import argparse
import copy
import json
import math
import os
import struct
import sys

import torch
from torch import nn
from torch.nn import functional

sys.path[:0] = [os.path.dirname(os.path.realpath(__file__))]

# pylint: disable=wrong-import-position
import atoll_data

_BLOCK = 4096


class RmsNorm(nn.Module):

    def __init__(self, size, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._epsilon = epsilon

    def forward(self, x):
        return functional.rms_norm(x, (x.shape[-1],), self.weight,
                                   self._epsilon)


class Layer(nn.Module):

    def __init__(self, m):
        super().__init__()
        hidden, heads, kv = m["hidden_size"], m["head_count"], m[
            "kv_head_count"]
        self.heads, self.kv, self.size = heads, kv, hidden // heads
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.self_attn = nn.ModuleDict({
            "q_proj": linear(hidden, heads * self.size),
            "k_proj": linear(hidden, kv * self.size),
            "v_proj": linear(hidden, kv * self.size),
            "o_proj": linear(heads * self.size, hidden)})
        self.mlp = nn.ModuleDict({
            "gate_proj": linear(hidden, m["intermediate_size"]),
            "up_proj": linear(hidden, m["intermediate_size"]),
            "down_proj": linear(m["intermediate_size"], hidden)})
        self.input_layernorm = RmsNorm(hidden, m["rms_norm_eps"])
        self.post_attention_layernorm = RmsNorm(hidden, m["rms_norm_eps"])

    def forward(self, x, cosine, sine):
        b, t, _ = x.shape

        def head(name, z, count):
            z = self.self_attn[name](z)
            return z.view(b, t, count, self.size).transpose(1, 2)

        def rotate(z):
            first, second = z.chunk(2, -1)
            return z * cosine + torch.cat((-second, first), -1) * sine

        z = self.input_layernorm(x)
        q = rotate(head("q_proj", z, self.heads))
        k = rotate(head("k_proj", z, self.kv))
        v = head("v_proj", z, self.kv)
        share = self.heads // self.kv
        y = functional.scaled_dot_product_attention(
            q, k.repeat_interleave(share, 1), v.repeat_interleave(share, 1),
            is_causal=True)
        x = x + self.self_attn["o_proj"](y.transpose(1, 2).reshape(b, t, -1))
        z = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](
            functional.silu(self.mlp["gate_proj"](z)) * self.mlp["up_proj"](z))


class Llama(nn.Module):

    def __init__(self, m):
        super().__init__()
        self.embed_tokens = nn.Embedding(m["vocab_size"], m["hidden_size"])
        self.layers = nn.ModuleList(Layer(m) for _ in range(m["layer_count"]))
        self.norm = RmsNorm(m["hidden_size"], m["rms_norm_eps"])
        self.lm_head = nn.Linear(m["hidden_size"], m["vocab_size"], bias=False)
        size = m["hidden_size"] // m["head_count"]
        rates = m["rope_theta"] ** (
            -torch.arange(0, size, 2, dtype=torch.float64) / size)
        angles = torch.outer(torch.arange(m["sequence_length"]).double(), rates)
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cosine", angles.cos().float())
        self.register_buffer("sine", angles.sin().float())

    def forward(self, inputs, targets):
        x = self.embed_tokens(inputs)
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        logits = self.lm_head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1),
                                        targets.flatten())


def load_start(model, directory):
    """Reads the tensors of an export, f32, into `model`."""
    with open(os.path.join(directory, "model.safetensors"), "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    own = dict(model.named_parameters())
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = torch.frombuffer(bytearray(data[begin:end]),
                                  dtype=torch.float32)
        parameter = own.pop(name[len("model."):] if name.startswith("model.")
                            else name)
        with torch.no_grad():
            parameter.copy_(values.view(parameter.shape))
    assert not own, "not in the export: %s" % sorted(own)


# --- Codecs -----------------------------------------------------------------

def _two_levels(v, base):
    """Dec(Enc(v)) of one group of 2-bit values, shape [m]."""
    a = v.abs().double()
    mean = a.mean().item()
    threshold = torch.tensor(mean + (mean - base) * 0.25).float()
    high = v.abs() >= threshold
    if not high.any():
        high = torch.ones_like(high)
    h = a[high].mean().float().bfloat16().float()
    low = torch.zeros(())
    if not high.all() and h > 0:
        ratio = (a[~high].mean() / h.double()).item()
        low = h * (math.floor(min(ratio * 256 + 0.5, 255)) / 256)
    return torch.copysign(torch.where(high, h, low), v)


def two_bit(v):
    return torch.cat([_two_levels(part, 0.0) for part in v.split(512)])


def top_k(v):
    """The largest 64th of a block; of equal values the first."""
    count = (v.numel() + 63) // 64
    places = torch.sort(v.abs(), descending=True, stable=True).indices[:count]
    places = places.sort().values
    result = torch.zeros_like(v)
    result[places] = _two_levels(v[places], v[places].abs().min().item())
    return result


_CODECS = {"f32": lambda v: v, "two_bit": two_bit, "top_k": top_k}


def encoded(codec, tensor):
    """`tensor` encoded and decoded, block by block from its start."""
    if codec == "f32":
        return tensor
    return torch.cat([_CODECS[codec](block)
                      for block in tensor.flatten().split(_BLOCK)]
                     ).view(tensor.shape)


# --- Training ---------------------------------------------------------------

class Island:
    """One replica with its optimizer, its data and its error feedback."""

    def __init__(self, values, model, tokens, data_shard):
        inner = values["inner"]
        self.model = model
        self._inner = inner
        self._length = values["model"]["sequence_length"]
        self._tokens = tokens
        self._windows = atoll_data.Windows(inner["seed"], data_shard,
                                           len(tokens), self._length)
        schedule = values["schedule"]
        self._steps = schedule["round_count"] * schedule["inner_step_count"]
        self._optimizer = torch.optim.AdamW(
            model.parameters(), lr=inner["learning_rate"],
            betas=(inner["beta1"], inner["beta2"]), eps=inner["epsilon"],
            weight_decay=inner["weight_decay"])
        self._residual = [torch.zeros_like(p) for p in model.parameters()]

    def _rate(self, step):
        warmup = self._inner["warmup_step_count"]
        rate = self._inner["learning_rate"]
        if warmup > 0:
            rate *= min(1.0, (step + 1) / warmup)
        span = max(1, self._steps - warmup)
        done = min(max(step - warmup, 0), span)
        floor = self._inner["final_learning_rate_fraction"]
        return rate * (floor + (1 - floor) * 0.5 *
                       (1 + math.cos(math.pi * done / span)))

    def train(self, step):
        batch = self._inner["batch_size"]
        rows = []
        for i in range(batch):
            at = self._windows.offset(step * batch + i)
            rows.append(self._tokens[at:at + self._length + 1])
        windows = torch.stack(rows).long()
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate(step)
        loss = self.model(windows[:, :-1], windows[:, 1:])
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(),
                                 self._inner["clip_norm"])
        self._optimizer.step()

    @torch.no_grad()
    def contribution(self, anchors, exchange):
        """The decoded outer gradient, anchor - local, tensor by tensor."""
        codec = exchange.get("up", "f32")
        feedback = exchange.get("error_feedback", False)
        decay = exchange.get("error_feedback_decay", 1.0) or 1.0
        sent = []
        for i, (anchor, local) in enumerate(
                zip(anchors, self.model.parameters())):
            g = anchor - local
            if feedback:
                g = decay * self._residual[i] + g
            q = encoded(codec, g)
            if feedback:
                self._residual[i] = g - q
            sent.append(q)
        return sent

    @torch.no_grad()
    def take(self, anchors):
        for local, anchor in zip(self.model.parameters(), anchors):
            local.copy_(anchor)


def make_outer(values, anchors):
    outer = values["outer"]
    if outer["optimizer"] == "fedavg":
        return torch.optim.SGD(anchors, lr=1.0)
    assert outer["optimizer"] in ("sgd", "momentum", "nesterov"), (
        "no reference for %s" % outer["optimizer"])
    momentum = outer.get("momentum", 0.0)
    return torch.optim.SGD(
        anchors, lr=outer["learning_rate"], momentum=momentum,
        nesterov=outer["optimizer"] == "nesterov" and momentum > 0)


def train_islands(values, model, tokens):
    schedule = values["schedule"]
    count = schedule["island_count_min"]
    shards = values["data"]["data_shard_count"]
    size = len(tokens) // shards
    anchors = [p.detach().clone().requires_grad_()
               for p in model.parameters()]
    outer = make_outer(values, anchors)
    islands = [Island(values, copy.deepcopy(model),
                      tokens[i * size:(i + 1) * size], i)
               for i in range(count)]
    steps = schedule["inner_step_count"]
    for round_number in range(schedule["round_count"]):
        sent = []
        for island in islands:
            island.take(anchors)
            for k in range(steps):
                island.train(round_number * steps + k)
            sent.append(island.contribution(anchors, values.get("exchange",
                                                                {})))
        for i, anchor in enumerate(anchors):
            anchor.grad = sum(s[i] for s in sent) / count
        outer.step()
        print("round %d" % (round_number + 1), file=sys.stderr, flush=True)
    with torch.no_grad():
        for parameter, anchor in zip(model.parameters(), anchors):
            parameter.copy_(anchor)


def train_alone(values, model, tokens):
    island = Island(values, model, tokens, 0)
    schedule = values["schedule"]
    for step in range(schedule["round_count"] * schedule["inner_step_count"]):
        island.train(step)


@torch.no_grad()
def loss_on(model, tokens, length):
    count = (len(tokens) - 1) // length
    total = 0.0
    for begin in range(0, count, 64):
        rows = [tokens[k * length:(k + 1) * length + 1]
                for k in range(begin, min(begin + 64, count))]
        windows = torch.stack(rows).long()
        total += model(windows[:, :-1], windows[:, 1:]).item() * len(rows)
    return total / count, count * length


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--values", required=True)
    parser.add_argument("--start", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with open(arguments.values, encoding="utf-8") as file:
        values = json.load(file)
    data = values["data"]
    everything = atoll_data.read_tokens(arguments.data, data["seed"])
    training, held_out = (
        torch.frombuffer(bytearray(part), dtype=torch.uint8)
        for part in atoll_data.split(everything, data["validation_fraction"]))
    model = Llama(values["model"])
    load_start(model, arguments.start)
    if arguments.alone:
        train_alone(values, model, training)
    else:
        train_islands(values, model, training)
    loss, count = loss_on(model, held_out, values["model"]["sequence_length"])
    print(json.dumps({"loss": loss, "tokens": count,
                      "torch": torch.__version__}))


if __name__ == "__main__":
    main()
