#!/usr/bin/env python3
"""Makes a model directory in the format of transformers, with random weights.

    make_model.py --kind llama|gpt2|mixtral --output DIR [--size tiny|124m]
                  [--sequence-length N] [--file-mb N] [--seed N]

A run imports it with [init] model = "DIR", and check_export.py checks the run's
export. --file-mb splits the weights into files of at most that many MB, with an
index. Needs torch and transformers, like check_export.py.
"""

import argparse

SIZES = {
    # hidden, layers, heads, vocabulary
    "tiny": (64, 2, 4, 256),
    "124m": (768, 12, 12, 50257),
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Makes a model with random weights.")
    parser.add_argument("--kind", required=True,
                        choices=("llama", "gpt2", "mixtral"))
    parser.add_argument("--output", required=True, help="directory to write")
    parser.add_argument("--size", default="tiny", choices=sorted(SIZES))
    parser.add_argument("--sequence-length", type=int, default=256)
    parser.add_argument("--file-mb", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def make_config(kind, size, sequence_length):
    import transformers

    hidden, layers, heads, vocabulary = SIZES[size]
    if kind == "gpt2":
        return transformers.GPT2Config(
            vocab_size=vocabulary, n_embd=hidden, n_layer=layers, n_head=heads,
            n_positions=sequence_length, bos_token_id=None, eos_token_id=None)
    shape = {
        "vocab_size": vocabulary, "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": heads // 2 if kind == "mixtral" else heads,
        "max_position_embeddings": sequence_length, "bos_token_id": None,
        "eos_token_id": None}
    if kind == "mixtral":
        return transformers.MixtralConfig(
            intermediate_size=hidden * 2, num_local_experts=4,
            num_experts_per_tok=2, tie_word_embeddings=False, **shape)
    # Like a GPT-2 of that size: a tied head and about as many parameters.
    return transformers.LlamaConfig(
        intermediate_size=(8 * hidden // 3 + 7) // 8 * 8,
        tie_word_embeddings=True, **shape)


def main():
    import torch
    import transformers

    arguments = parse_arguments()
    torch.manual_seed(arguments.seed)
    model = transformers.AutoModelForCausalLM.from_config(make_config(
        arguments.kind, arguments.size, arguments.sequence_length))
    model.save_pretrained(arguments.output,
                          max_shard_size="%dMB" % arguments.file_mb)
    print("%s: %d parameters" % (
        arguments.output, sum(p.numel() for p in model.parameters())))


if __name__ == "__main__":
    main()
