#!/usr/bin/env python3
"""A small Llama of transformers with its Trainer, on data that it makes.

    hf_llama.py create HOST:7400                      once
    hf_llama.py join HOST:7400 ISLAND_ID [--device cuda]    on each island
"""
import zlib

import torch
import torch_device

(COMMAND, *NAMES), DEVICE = torch_device.parse(__doc__, hides_others=True)

import transformers  # noqa: E402

import atoll  # noqa: E402
import atoll.hf  # noqa: E402

RUN, VOCABULARY, LENGTH, BATCH = "hf-llama", 32, 24, 8
ROUNDS, STEPS = 10, 10


def make_model():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        max_position_embeddings=LENGTH))


class Walks(torch.utils.data.Dataset):
    """Sequences that count by 1, 2 or 3, modulo the vocabulary."""

    def __init__(self, seed, size):
        self.seed, self.size = seed << 32, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.seed + index)
        start, step = torch.randint(VOCABULARY, (2,), generator=generator)
        step = step % 3 + 1
        tokens = (start + step * torch.arange(LENGTH)) % VOCABULARY
        return {"input_ids": tokens, "labels": tokens}


def join(address, island_id):
    model = make_model()
    island = atoll.hf.AtollCallback(
        address, run=RUN, island_id=island_id,
        evaluate=lambda: trainer.evaluate()["eval_loss"])
    trainer = transformers.Trainer(
        model, transformers.TrainingArguments(
            output_dir="hf-work-" + island_id, max_steps=ROUNDS * STEPS,
            per_device_train_batch_size=BATCH, learning_rate=1e-2,
            use_cpu=DEVICE.type == "cpu", save_strategy="no", report_to="none",
            disable_tqdm=True),
        train_dataset=Walks(zlib.crc32(island_id.encode()), 40 * BATCH),
        eval_dataset=Walks(0, 64), callbacks=[island])
    trainer.train()
    print("held-out loss %.4f" % trainer.evaluate()["eval_loss"])


if __name__ == "__main__":
    if COMMAND == "create":
        atoll.create_run(RUN, make_model(), coordinator=NAMES[0],
                         sequence_length=LENGTH, inner={"batch_size": BATCH},
                         schedule={"round_count": ROUNDS,
                                   "inner_step_count": STEPS,
                                   "island_count_min": 2, "min_quorum": 1})
    else:
        join(*NAMES)
