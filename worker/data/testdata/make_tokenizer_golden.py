#!/usr/bin/env python3
"""Writes the golden files of tokenizer_test: encodings of the references.

usage: make_tokenizer_golden.py OUTPUT_DIR      (needs tokenizers, tiktoken)

Trains two small byte-level BPEs on generated text, one with GPT-2's
pre-tokenizer and one with Llama 3's. For each NAME of the two:

  tokenizer_NAME.json       as Hugging Face's tokenizers saves it, with two added
                            tokens; llama3 ignores merges for whole pieces
  tokenizer_NAME.cases      one text a line, hexadecimal, and its ids

For gpt2 also gpt2.tiktoken with tiktoken.cases. Texts mix scripts, digits of
several scripts, kinds of space, contractions, marks and symbols.
"""

import base64
import json
import random
import sys

import tiktoken
import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
        r"|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ADDED = ["<|end|>", "<|end|>of"]

LATIN = "etaoinshrdlu" * 4 + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP"
GROUPS = [
    LATIN, LATIN, LATIN, "0123456789" * 2, " " * 40, "\n\n\r\t \u00a0\u2003",
    ".,;:!?'\"()[]{}<>|/\\+-*=_#@$%^&~`", "\u00e9\u00fc\u00df\u0131\u017f\u0130",
    "\u03b1\u03b2\u03b3\u03a9", "\u0416\u0434\u044f", "\u4e2d\u6587\u5b57",
    "\u0661\u0662\u0663\u2160\u00bd\u00b2", "\u0301\u0308\u200d\ufe0f",
    "\U0001f600\U0001f468\u2603\u20ac", "\u0905\u0928\u093f", "\uac00\ud55c",
]
WORDS = ["'s", "'t", "'re", "'VE", "'m", "'LL", "'d", "'\u017f", " the", " of",
         " and", "ing", "  ", "\n\n", "\r\n", "   \n ", "123", "4567", "<|end|>",
         "<|end|>of", "<|end", "don't", "I'm", "=="]


def text(rng, length):
    parts = []
    for _ in range(length):
        if rng.random() < 0.3:
            parts.append(rng.choice(WORDS))
        else:
            group = rng.choice(GROUPS)
            parts.extend(rng.choice(group)
                         for _ in range(rng.randint(1, 6)))
    return "".join(parts)


def learn(pre_tokenizer, corpus, ignore_merges):
    model = models.BPE(ignore_merges=ignore_merges)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=700, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens(ADDED[:1])
    tokenizer.add_tokens([tokenizers.AddedToken(ADDED[1], normalized=False)])
    return tokenizer


def write_cases(path, cases):
    with open(path, "w", encoding="ascii") as file:
        for case, ids in cases:
            file.write("%s %s\n" % (case.encode().hex() or "-",
                                    " ".join(map(str, ids))))


def write_tiktoken(out, tokenizer, cases):
    byte_of = {c: b for b, c in pre_tokenizer_bytes().items()}
    vocabulary = {}
    for token, rank in tokenizer.get_vocab(with_added_tokens=False).items():
        vocabulary[bytes(byte_of[c] for c in token)] = rank
    with open(out + "/gpt2.tiktoken", "wb") as file:
        for token, rank in sorted(vocabulary.items(), key=lambda i: i[1]):
            file.write(base64.b64encode(token) + b" %d\n" % rank)
    encoding = tiktoken.Encoding("golden", pat_str=GPT2,
                                 mergeable_ranks=vocabulary, special_tokens={})
    write_cases(out + "/tiktoken.cases", [
        (case, encoding.encode(case, disallowed_special=())) for case in cases])


def pre_tokenizer_bytes():
    """GPT-2's character of each byte."""
    printable = [b for b in range(256) if 0x21 <= b <= 0x7e or
                 0xa1 <= b <= 0xac or 0xae <= b]
    others = [b for b in range(256) if b not in printable]
    table = {b: chr(b) for b in printable}
    table.update({b: chr(256 + i) for i, b in enumerate(others)})
    return table


def main():
    out = sys.argv[1]
    rng = random.Random(20260000 + 1121)
    corpus = [text(rng, 40) for _ in range(400)]
    cases = [""] + [text(rng, rng.randint(1, 30)) for _ in range(160)]
    split = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    shapes = {
        "gpt2": (pre_tokenizers.ByteLevel(add_prefix_space=False), False),
        "llama3": (split, True)}
    for name, (pre_tokenizer, ignore_merges) in shapes.items():
        tokenizer = learn(pre_tokenizer, corpus, ignore_merges)
        with open(out + "/tokenizer_%s.json" % name, "w",
                  encoding="utf-8") as file:
            json.dump(json.loads(tokenizer.to_str()), file)
            file.write("\n")
        write_cases(out + "/tokenizer_%s.cases" % name, [
            (case, tokenizer.encode(case, add_special_tokens=False).ids)
            for case in cases])
        for case in cases:
            ids = tokenizer.encode(case, add_special_tokens=False).ids
            decoded = tokenizer.decode(ids, skip_special_tokens=False)
            assert decoded == case, (case, decoded)
        if name == "gpt2":
            write_tiktoken(out, tokenizer, cases)


main()
