"""A small text that a model can learn from, made from a seed."""

import os
import random

_WORDS = ("atoll island coral lagoon reef tide shell sand palm wave wind boat "
          "harbour channel current north south the a of over under slow fast "
          "carries finds keeps loses follows").split()


def write_text(directory, seed, file_count=4, bytes_each=24 * 1024):
    """Fills `directory` with files of sentences; returns it."""
    generator = random.Random(seed)
    os.makedirs(directory, exist_ok=True)
    for index in range(file_count):
        parts = []
        size = 0
        while size < bytes_each:
            sentence = " ".join(generator.choice(_WORDS) for _ in
                                range(generator.randint(4, 11))) + ".\n"
            parts.append(sentence)
            size += len(sentence)
        with open(os.path.join(directory, "part%d.txt" % index), "w",
                  encoding="ascii") as file:
            file.write("".join(parts)[:bytes_each])
    return directory
