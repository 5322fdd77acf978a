"""Writes outer_step_goldens.h: what PyTorch's SGD makes of given gradients.

Run with a Python that has PyTorch; the header's top says which one it was.

    ATEN_CPU_CAPABILITY=avx2 python3 make_goldens.py > outer_step_goldens.h

The AVX2 path is asked for because it uses explicit FMAs and is what most CPUs
take; tensors are a multiple of its width, so that its scalar tail, which rounds
differently, is never reached.
"""

import os
import struct
import sys

assert os.environ.get("ATEN_CPU_CAPABILITY") == "avx2", __doc__

import torch

DRAWN = 64
COUNT = 32  # The first ones are kept.
STEPS = 3
CASES = [
    ("Sgd", dict(lr=0.7)),
    ("Momentum", dict(lr=0.7, momentum=0.9)),
    ("Nesterov", dict(lr=0.7, momentum=0.9, nesterov=True)),
    ("NesterovSmall", dict(lr=0.0333, momentum=0.57, nesterov=True)),
]


def bits(tensor):
    return [struct.unpack("<I", struct.pack("<f", x))[0] for x in tensor.tolist()]


def array(name, values):
    lines = []
    for i in range(0, len(values), 6):
        lines.append("    " + ", ".join("0x%08x" % v for v in values[i : i + 6]))
    print("constexpr uint32_t %s[] = {\n%s};" % (name, ",\n".join(lines)))


def main():
    torch.manual_seed(20261121)
    theta0 = torch.randn(DRAWN)[:COUNT]
    gradients = [torch.randn(DRAWN)[:COUNT] * 0.1 ** (i % 3) for i in range(STEPS)]
    # Zeros of both signs and a large spread.
    gradients[0][0] = 0.0
    gradients[0][1] = -0.0
    gradients[1][2] = 1e-30
    gradients[2][3] = 1e6

    out = os.path.basename(__file__)
    print("// Made by %s with PyTorch %s, ATEN_CPU_CAPABILITY=avx2." % (out, torch.__version__))
    print("// Bits of f32 values. Do not edit.")
    print()
    print("#pragma once")
    print()
    print("#include <cstdint>")
    print()
    print("namespace atl::kernels::goldens {")
    print()
    print("constexpr int kCount = %d;" % COUNT)
    print("constexpr int kSteps = %d;" % STEPS)
    array("kTheta0", bits(theta0))
    print("// One row of kCount a step.")
    array("kGradients", sum((bits(g) for g in gradients), []))
    for name, options in CASES:
        parameter = torch.nn.Parameter(theta0.clone())
        sgd = torch.optim.SGD([parameter], foreach=False, fused=False, **options)
        thetas, momenta = [], []
        for gradient in gradients:
            parameter.grad = gradient.clone()
            sgd.step()
            thetas += bits(parameter.detach())
            buffer = sgd.state[parameter].get("momentum_buffer")
            if buffer is not None:
                momenta += bits(buffer)
        print()
        print("// torch.optim.SGD(%s)" % ", ".join("%s=%s" % kv for kv in options.items()))
        array("k%sTheta" % name, thetas)
        if momenta:
            array("k%sMomentum" % name, momenta)
    print()
    print("}  // namespace atl::kernels::goldens")


if __name__ == "__main__":
    sys.exit(main())
