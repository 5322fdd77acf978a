#!/usr/bin/env python3
"""Trains a model of transformers and loads the result in transformers.

    train_model.py --kind llama|gpt2|mixtral [--size tiny|124m] [--rounds N]
                   [--atoll PATH] [--directory DIR]

make_model.py makes the model. `atoll dev up` imports it and trains it on one
island, N rounds of three steps, on real text. check_export.py compares the
export with `atoll eval` on held-out text. Fails if the losses differ, or if
training has not lowered that loss. Needs torch and transformers:

    python3 -m venv VENV && VENV/bin/pip install torch transformers
    bazel build -c opt //cli:atoll //coordinator:atoll-coordinator \\
        //server:atoll-server
    VENV/bin/python tests/tools/train_model.py --kind gpt2

A token is two bytes of text modulo the vocabulary, so thousands of ids occur.
"""

import argparse
import array
import os
import subprocess
import sys
import tempfile

import check_export
import make_model

TOOLS = os.path.dirname(os.path.abspath(__file__))
SEQUENCE_LENGTH = 128
# Tokens for training, and held-out tokens for the losses.
TRAINING_TOKENS, HELD_OUT_TOKENS = 200000, 9100

RUN_FILE = """\
durability = "process"
server_count = 1

[init]
model = "{model}"

[data]
format = "uint16"
path = "{data}"
seed = 1
validation_fraction = 0.05
data_shard_count = 1

[inner]
optimizer = "adamw"
learning_rate = {learning_rate}
beta1 = 0.9
beta2 = 0.95
epsilon = 1e-8
weight_decay = 0.1
clip_norm = 1.0
warmup_step_count = 1
batch_size = 4
seed = 1

[outer]
optimizer = "nesterov"
learning_rate = 0.7
momentum = 0.5
weighting = "tokens"

[schedule]
timing = "strict"
inner_step_count = 3
round_count = {rounds}
island_count_min = 1
min_quorum = 1
lease_duration = "60s"
"""


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Trains a model of transformers and compares the result.")
    parser.add_argument("--kind", required=True,
                        choices=("llama", "gpt2", "mixtral"))
    parser.add_argument("--size", default="124m",
                        choices=sorted(make_model.SIZES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--text", default=os.path.dirname(os.__file__),
                        help="directory of files to train on")
    parser.add_argument("--atoll", default="bazel-bin/cli/atoll",
                        help="the atoll command")
    parser.add_argument("--directory",
                        help="new directory for all files")
    return parser.parse_args()


def tokens_of(directory, vocabulary):
    """(training, held out): ids of the text of a directory's Python files."""
    wanted = 2 * (TRAINING_TOKENS + HELD_OUT_TOKENS)
    text = b""
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if name.endswith(".py") and os.path.isfile(path):
            with open(path, "rb") as file:
                text += file.read()
        if len(text) >= wanted:
            break
    if len(text) < wanted:
        sys.exit("%s: less than %d bytes of *.py" % (directory, wanted))
    ids = [(text[i] | text[i + 1] << 8) % vocabulary
           for i in range(0, wanted, 2)]
    return ids[:TRAINING_TOKENS], ids[TRAINING_TOKENS:]


def write_tokens(path, ids):
    tokens = array.array("H", ids)
    if sys.byteorder == "big":
        tokens.byteswap()
    with open(path, "wb") as file:
        file.write(tokens.tobytes())


def run(*command):
    print("+", " ".join(command), flush=True)
    # Messages of the command appear on standard error.
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main():
    arguments = parse_arguments()
    root = arguments.directory or tempfile.mkdtemp(prefix="atoll-model-")
    os.makedirs(root, exist_ok=True)
    model = os.path.join(root, "model")
    data = os.path.join(root, "training.bin")
    held_out = os.path.join(root, "held-out.bin")
    training_ids, held_out_ids = tokens_of(
        arguments.text, make_model.SIZES[arguments.size][3])
    write_tokens(data, training_ids)
    write_tokens(held_out, held_out_ids)
    run(sys.executable, os.path.join(TOOLS, "make_model.py"), "--kind",
        arguments.kind, "--size", arguments.size, "--sequence-length",
        str(SEQUENCE_LENGTH), "--output", model)
    before, _ = check_export.their_loss(model, held_out_ids, 8)

    run_file = os.path.join(root, "run.toml")
    with open(run_file, "w", encoding="utf-8") as file:
        file.write(RUN_FILE.format(
            model=model, data=data, rounds=arguments.rounds,
            learning_rate=3e-4 if arguments.size == "124m" else 3e-3))
    run(arguments.atoll, "dev", "up", run_file, "--dir",
        os.path.join(root, "run"), "--islands", "1", "-o", "json")
    export = os.path.join(root, "run", "export")
    after, _ = check_export.their_loss(export, held_out_ids, 8)
    print("held-out loss in transformers: %.6f before, %.6f after" %
          (before, after), flush=True)
    subprocess.run(
        [sys.executable, os.path.join(TOOLS, "check_export.py"), "--model",
         export, "--data", held_out, "--data-format", "uint16", "--atoll",
         arguments.atoll], check=True)
    if after >= before:
        sys.exit("FAILED: training has not made the text likelier")
    print("OK: all of it is in %s" % root)


if __name__ == "__main__":
    main()
