#!/usr/bin/env python3
"""Loads an exported model in transformers and compares its loss with ours.

    check_export.py --model DIR --data FILE --atoll PATH [--tolerance 1e-3]
                    [--data-format bytes|uint16]

Needs torch and transformers:

    python3 -m venv VENV && VENV/bin/pip install torch transformers
    VENV/bin/python tests/tools/check_export.py \\
        --model quickstart-out/run/export \\
        --data quickstart-out/run/validation.bin --atoll bazel-bin/cli/atoll

The tokens are DATA's bytes, or its little-endian pairs of bytes. Both sides use
the windows [kT, kT + T], where T is the model's sequence length, and drop the
rest.
"""

import argparse
import array
import json
import os
import subprocess
import sys


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Compares an export's loss in transformers with ours.")
    parser.add_argument("--model", required=True, help="exported directory")
    parser.add_argument("--data", required=True, help="file of tokens")
    parser.add_argument("--data-format", default="bytes",
                        choices=("bytes", "uint16"))
    parser.add_argument("--atoll", default="bazel-bin/cli/atoll",
                        help="the atoll command")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--batch", type=int, default=32)
    return parser.parse_args()


def our_loss(atoll, model, data, data_format):
    done = subprocess.run(
        [atoll, "eval", "--model", model, "--data", data, "--data-format",
         data_format, "-o", "json"],
        stdout=subprocess.PIPE, check=True, text=True)
    result = json.loads(done.stdout)["data"]
    return float(result["loss"]), int(result["tokens"])


def read_tokens(data, data_format):
    """A list of ids."""
    tokens = array.array("B" if data_format == "bytes" else "H")
    with open(data, "rb") as file:
        tokens.frombytes(file.read())
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens.tolist()


def their_loss(model_directory, tokens, batch):
    import torch
    import transformers

    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        model_directory, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if loading[key]:
            sys.exit("%s: %s" % (key, loading[key]))
    model.float().eval()
    length = model.config.max_position_embeddings
    tokens = torch.tensor(tokens, dtype=torch.long)
    count = (len(tokens) - 1) // length
    if count == 0:
        sys.exit("the data is shorter than one window")
    windows = torch.stack([tokens[k * length:(k + 1) * length + 1]
                           for k in range(count)])
    total = 0.0
    with torch.no_grad():
        for begin in range(0, count, batch):
            part = windows[begin:begin + batch]
            logits = model(part[:, :-1]).logits
            total += torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]).double(),
                part[:, 1:].reshape(-1), reduction="sum").item()
    return total / (count * length), count * length


def main():
    arguments = parse_arguments()
    model = os.path.abspath(arguments.model)
    ours, our_tokens = our_loss(arguments.atoll, model, arguments.data,
                                arguments.data_format)
    theirs, their_tokens = their_loss(
        model, read_tokens(arguments.data, arguments.data_format),
        arguments.batch)
    print("atoll eval    loss %.6f over %d tokens" % (ours, our_tokens))
    print("transformers  loss %.6f over %d tokens" % (theirs, their_tokens))
    if our_tokens != their_tokens:
        sys.exit("FAILED: not the same tokens")
    if abs(ours - theirs) > arguments.tolerance:
        sys.exit("FAILED: they differ by %.6f" % abs(ours - theirs))
    print("OK: they differ by %.2e" % abs(ours - theirs))


if __name__ == "__main__":
    main()
