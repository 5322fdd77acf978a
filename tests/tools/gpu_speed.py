#!/usr/bin/env python3
"""Training speed on a GPU: alternates cuda_check and PyTorch.

    gpu_speed.py --cuda-check PATH [--shapes 124m,1b] [--repeats 3] [--steps 20]
    gpu_speed.py --ours FILE                       # what cuda_check has printed
    gpu_speed.py --device cpu --shapes tiny        # only PyTorch

Steps are forward, backward, clipping and AdamW of a Llama in bf16 with f32
master weights: cuda_check with and without CUDA graphs, PyTorch with
torch.compile, autocast, SDPA and fused AdamW.

MFU is operations a second over 989e12, the peak of dense bf16 that NVIDIA's data
sheet has for the H100 and the H200 (SXM). A token takes 6 N + 12 L C T
operations: N parameters without the table of the input embedding, which stays if
it is tied, since the head multiplies by it; L layers of C channels attend to T
tokens, and a causal mask saves nothing. Source: PaLM (arXiv 2204.02311), appendix
B, with torchtitan's N. cuda_check counts in the same way.

Needs torch built for CUDA. Each result is a line of JSON, then the medians, then
a line to read for each shape; its ratio is of our faster speed to PyTorch's.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

SHAPES = {
    # layers, channels, feed-forward, heads, key and value heads, vocabulary,
    # batch, length, tied: as in SpeedShapes of cuda_check.
    "tiny": (2, 64, 128, 4, 4, 256, 2, 64, True),
    "124m": (12, 768, 2048, 12, 12, 50304, 16, 1024, True),
    "1b": (22, 2048, 5632, 32, 4, 32000, 4, 2048, False),
}
PEAK = 989e12
TORCH = "torch.compile"


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Compares the training speed of cuda_check and PyTorch.")
    parser.add_argument("--cuda-check", help="path of cuda_check; default: "
                        "only PyTorch")
    parser.add_argument("--ours", help="a file with cuda_check's lines")
    parser.add_argument("--shapes", default="124m,1b")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    arguments = parser.parse_args()
    arguments.shapes = arguments.shapes.split(",")
    for shape in arguments.shapes:
        if shape not in SHAPES:
            parser.error("no shape %r; there are %s" %
                         (shape, ", ".join(SHAPES)))
    return arguments


def make_model(shape):
    import torch
    from torch import nn
    from torch.nn import functional

    (layers, channels, width, heads, kv_heads, vocabulary, _, length,
     tied) = SHAPES[shape]
    head = channels // heads

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(channels))

        def forward(self, x):
            return functional.rms_norm(x, (channels,), self.weight, 1e-5)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Norm(), Norm()
            self.queries = nn.Linear(channels, heads * head, bias=False)
            self.keys = nn.Linear(channels, kv_heads * head, bias=False)
            self.values = nn.Linear(channels, kv_heads * head, bias=False)
            self.output = nn.Linear(heads * head, channels, bias=False)
            self.gate = nn.Linear(channels, width, bias=False)
            self.up = nn.Linear(channels, width, bias=False)
            self.down = nn.Linear(width, channels, bias=False)

        def forward(self, x, cosine, sine):
            batch, steps, _ = x.shape
            y = self.first(x)

            def split(z, count):
                return z.view(batch, steps, count, head).transpose(1, 2)

            def turn(z):
                left, right = z.chunk(2, -1)
                return z * cosine + torch.cat((-right, left), -1) * sine

            y = functional.scaled_dot_product_attention(
                turn(split(self.queries(y), heads)),
                turn(split(self.keys(y), kv_heads)),
                split(self.values(y), kv_heads), is_causal=True,
                enable_gqa=kv_heads != heads)
            x = x + self.output(y.transpose(1, 2).reshape(batch, steps, -1))
            y = self.second(x)
            return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, channels)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = Norm()
            self.head = nn.Linear(channels, vocabulary, bias=False)
            if tied:
                self.head.weight = self.embedding.weight
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)
            angles = torch.outer(
                torch.arange(length).float(),
                10000 ** (-torch.arange(0, head, 2).float() / head))
            angles = torch.cat((angles, angles), -1)
            self.register_buffer("cosine", angles.cos().bfloat16())
            self.register_buffer("sine", angles.sin().bfloat16())

        def forward(self, inputs, targets):
            x = self.embedding(inputs)
            for block in self.blocks:
                x = block(x, self.cosine, self.sine)
            return functional.cross_entropy(
                self.head(self.norm(x)).float().flatten(0, 1),
                targets.flatten())

    return Model()


def synchronize(device):
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def count_operations(shape, parameters):
    """Of one token, in a model of so many parameters."""
    layers, channels, _, _, _, vocabulary, _, length, tied = SHAPES[shape]
    if not tied:
        parameters -= vocabulary * channels
    return 6 * parameters + 12 * layers * channels * length


def measure_torch(shape, steps, device):
    """PyTorch's result, in the form of cuda_check's."""
    import torch

    torch.manual_seed(1)
    _, _, _, _, _, vocabulary, batch, length, _ = SHAPES[shape]
    model = make_model(shape).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, vocabulary, (batch, length + 1), device=device)

    def step():
        with torch.autocast(device, torch.bfloat16):
            loss = compiled(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    for _ in range(3):
        step()
    seconds = []
    for _ in range(steps):
        synchronize(device)
        start = time.perf_counter()
        step()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    speed = batch * length / statistics.median(seconds)
    return {"case": shape, "by": TORCH, "parameters": parameters,
            "tokens_per_second": speed,
            "mfu": count_operations(shape, parameters) * speed / PEAK}


def measure_ours(program, shapes, steps):
    """The results of cuda_check for `shapes`, in bf16."""
    done = subprocess.run(
        [program, "--only=speed", "--steps=%d" % steps, "--dtypes=bf16",
         "--shapes=" + ",".join(shapes)],
        stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit("%s ended with %d:\n%s" % (program, done.returncode,
                                            done.stdout))
    return read_ours(done.stdout.splitlines(), shapes)


def read_ours(lines, shapes):
    """The newest results in cuda_check's lines, in bf16."""
    results = {}
    for line in lines:
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        if (row.get("measure") != "training" or row["case"] not in shapes or
                row["dtype"] != "bf16"):
            continue
        results[row["case"], row["graphs"]] = {
            "case": row["case"],
            "by": "graphs" if row["graphs"] else "ours",
            "parameters": row["parameters"],
            "tokens_per_second": row["tokens_per_second"],
            "mfu": row["mfu"]}
    return list(results.values())


def describe(shape, medians):
    """A line to read about a shape. PyTorch's median is there."""
    torch, = [m for m in medians if m["by"] == TORCH]
    ours = [m for m in medians if m["by"] != TORCH]
    parts = [", ".join(map(_speed, ours))] if ours else []
    parts.append(_speed(torch))
    if ours:
        parts.append("%.2fx" % (max(m["tokens_per_second"] for m in ours) /
                                torch["tokens_per_second"]))
    return "%s bf16: %s" % (shape, " | ".join(parts))


def _speed(median):
    return "%s %s tok/s MFU %.1f %%" % (
        median["by"], format(round(median["tokens_per_second"]), ","),
        100 * median["mfu"])


def main():
    arguments = parse_arguments()
    rows = {}
    for repeat in range(arguments.repeats):
        results = [measure_torch(shape, arguments.steps, arguments.device)
                   for shape in arguments.shapes]
        if arguments.cuda_check:
            results += measure_ours(arguments.cuda_check, arguments.shapes,
                                    arguments.steps)
        elif arguments.ours and repeat == 0:
            with open(arguments.ours, encoding="utf-8") as file:
                results += read_ours(file, arguments.shapes)
        for result in results:
            print(json.dumps(result), flush=True)
            rows.setdefault((result["case"], result["by"]), []).append(result)
    medians = {}
    for (shape, by), results in rows.items():
        medians.setdefault(shape, []).append({
            "case": shape, "by": by, "repeats": len(results),
            **{name: statistics.median(r[name] for r in results)
               for name in ("tokens_per_second", "mfu")}})
        print(json.dumps(medians[shape][-1]))
    for shape, found in medians.items():
        print(json.dumps({"say": describe(shape, found)}))


if __name__ == "__main__":
    main()
