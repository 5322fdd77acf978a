"""The tokens of a run of format "bytes", as worker/data/DESIGN.md defines them,
reimplemented in Python: their order, their split, and the windows that are
read.
"""

import os

_MASK = (1 << 64) - 1
_GOLDEN_RATIO = 0x9e3779b97f4a7c15


def _mix(x):
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & _MASK
    return x ^ (x >> 31)


def counter_hash(seed, counter):
    first = _mix((seed + (counter + 1) * _GOLDEN_RATIO) & _MASK)
    return _mix((first + _GOLDEN_RATIO) & _MASK)


def read_tokens(path, seed):
    """All bytes of the files of `path`, in shuffled order."""
    if os.path.isfile(path):
        names = [path]
    else:
        names = []
        for directory, _, files in os.walk(path):
            for file in files:
                name = os.path.join(directory, file)
                if os.path.islink(name) or not os.path.isfile(name):
                    continue
                if os.path.getsize(name) > 0:
                    names.append(name)
        names.sort(key=lambda name: os.fsencode(os.path.relpath(name, path)))
    for i in range(len(names) - 1, 0, -1):
        j = counter_hash(seed, i) % (i + 1)
        names[i], names[j] = names[j], names[i]
    parts = []
    for name in names:
        with open(name, "rb") as file:
            parts.append(file.read())
    return b"".join(parts)


def split(tokens, validation_fraction):
    held_out = int(len(tokens) * validation_fraction)
    begin = len(tokens) - held_out
    return tokens[:begin], tokens[begin:]


class Windows:
    """The windows of one data shard of `token_count` tokens."""

    def __init__(self, seed, data_shard, token_count, sequence_length):
        self._seed = counter_hash(seed, data_shard)
        self._length = sequence_length
        count = (token_count - 1) // sequence_length
        self.per_epoch = max(1, count - 1)
        self._phases = (sequence_length if count > 1 else
                        token_count - sequence_length)
        self._half_bits = 1
        while 1 << (2 * self._half_bits) < self.per_epoch:
            self._half_bits += 1

    def _epoch_hash(self, purpose, epoch):
        return counter_hash(counter_hash(self._seed, purpose), epoch)

    def _once(self, keys, value):
        mask = (1 << self._half_bits) - 1
        left, right = value >> self._half_bits, value & mask
        for key in keys:
            left, right = right, left ^ (counter_hash(key, right) & mask)
        return left << self._half_bits | right

    def offset(self, position):
        """The offset in the shard of the first token of window `position`."""
        epoch, rank = divmod(position, self.per_epoch)
        phase = self._epoch_hash(1, epoch) % self._phases
        order = self._epoch_hash(2, epoch)
        keys = [counter_hash(order, r) for r in range(6)]
        value = self._once(keys, rank)
        while value >= self.per_epoch:
            value = self._once(keys, value)
        return phase + value * self._length
