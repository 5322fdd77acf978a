#!/usr/bin/env python3
"""Training speed on a GPU: alternates cuda_check and PyTorch.

    gpu_speed.py --cuda-check PATH [--shapes 124m,1b] [--repeats 3] [--steps 20]
    gpu_speed.py --device cpu --shapes tiny        # only PyTorch

Steps are forward, backward, clipping and AdamW of a Llama in bf16 with f32
master weights: cuda_check with and without CUDA graphs, PyTorch with
torch.compile, autocast, SDPA and fused AdamW. MFU is 6 P + 12 L C T operations
per token over PyTorch's speed for bf16 products of 8192 cubed in the same run.
Needs torch built for CUDA. Each result is a line of JSON, medians last.
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


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Compares the training speed of cuda_check and PyTorch.")
    parser.add_argument("--cuda-check", help="path of cuda_check; default: "
                        "only PyTorch")
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


def measure_peak(device):
    """PyTorch's operations a second for products of bf16 operands."""
    import torch

    size = 8192 if device == "cuda" else 512
    x = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    w = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    best = 0.0
    for _ in range(5):
        synchronize(device)
        start = time.perf_counter()
        for _ in range(10):
            x @ w
        synchronize(device)
        best = max(best, 20 * size ** 3 / (time.perf_counter() - start))
    return best


def measure_torch(shape, steps, device):
    """PyTorch's result, in the form of cuda_check's."""
    import torch

    torch.manual_seed(1)
    layers, channels, _, _, _, vocabulary, batch, length, _ = SHAPES[shape]
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
    median = statistics.median(seconds)
    operations = 6.0 * parameters + 12.0 * layers * channels * length
    return {"case": shape, "by": "torch.compile", "parameters": parameters,
            "tokens_per_second": batch * length / median,
            "tflops": operations * batch * length / median / 1e12}


def measure_ours(program, shapes, steps):
    """The results of cuda_check for `shapes`, in bf16."""
    done = subprocess.run(
        [program, "--only=speed", "--steps=%d" % steps],
        stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit("%s ended with %d:\n%s" % (program, done.returncode,
                                            done.stdout))
    results = []
    for line in done.stdout.splitlines():
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        if (row.get("measure") != "training" or row["case"] not in shapes or
                row["dtype"] != "bf16"):
            continue
        results.append({
            "case": row["case"],
            "by": "atoll, graphs" if row["graphs"] else "atoll",
            "parameters": row["parameters"],
            "tokens_per_second": row["tokens_per_second"],
            "tflops": row["tflops"]})
    return results


def main():
    arguments = parse_arguments()
    rows = {}
    for _ in range(arguments.repeats):
        peak = measure_peak(arguments.device)
        results = [measure_torch(shape, arguments.steps, arguments.device)
                   for shape in arguments.shapes]
        if arguments.cuda_check:
            results += measure_ours(arguments.cuda_check, arguments.shapes,
                                    arguments.steps)
        for result in results:
            result["mfu"] = result["tflops"] * 1e12 / peak
            print(json.dumps(result), flush=True)
            rows.setdefault((result["case"], result["by"]), []).append(result)
    for (shape, by), results in rows.items():
        print(json.dumps({
            "case": shape, "by": by, "repeats": len(results),
            "tokens_per_second": statistics.median(
                r["tokens_per_second"] for r in results),
            "mfu": statistics.median(r["mfu"] for r in results)}))


if __name__ == "__main__":
    main()
