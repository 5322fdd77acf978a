"""The tokens of a run whose data Atoll's own engine reads too.

worker/data/DESIGN.md defines what this module repeats: the order of the files,
the split, the windows of a data shard, and the fingerprint. Letters:

  T  tokens a sequence; a window is T + 1 tokens: T inputs, T targets
  B  sequences a step
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Mapping, NamedTuple

import numpy as np

from .errors import Error

_MASK = (1 << 64) - 1
_GOLDEN_RATIO = 0x9e3779b97f4a7c15
_ROUND_COUNT = 6              # Rounds of the Feistel network.
_HEADER_BYTES = 1024          # Header of a file of llm.c.
_READ_BYTES = 1 << 20
_FORMATS = {"DATA_FORMAT_BYTES": 1, "DATA_FORMAT_LLMC": 2,
            "DATA_FORMAT_UINT16": 3}
# The type of a token, by the (magic, version) in the header of llm.c.
_LLMC_TOKENS = {(20240520, 1): "<u2", (20240801, 7): "<u4"}


def _mix(x: int) -> int:
    """SplitMix64's finaliser."""
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & _MASK
    return x ^ (x >> 31)


def counter_hash(seed: int, counter: int) -> int:
    first = _mix((seed + (counter + 1) * _GOLDEN_RATIO) & _MASK)
    return _mix((first + _GOLDEN_RATIO) & _MASK)


def _wrong(message: str, hint: str = "") -> Error:
    return Error(message, reason="WRONG_DATA", code="INVALID_ARGUMENT",
                 hint=hint)


class WindowOrder:
    """The order in which a data shard's windows are read.

    Attributes:
      windows_per_epoch: Windows after which another epoch begins.
    """

    def __init__(self, seed: int, data_shard: int, token_count: int,
                 sequence_length: int):
        """Error WRONG_DATA: the shard is too short for one window."""
        self._seed = counter_hash(seed, data_shard)
        self._length = sequence_length
        count = (token_count - 1) // sequence_length
        if count < 1:
            raise _wrong("a data shard of %d tokens is too short for a window "
                         "of %d" % (token_count, sequence_length + 1))
        self.windows_per_epoch = max(1, count - 1)
        self._phase_count = (sequence_length if count > 1 else
                             token_count - sequence_length)
        self._half_bits = 1
        while 1 << (2 * self._half_bits) < self.windows_per_epoch:
            self._half_bits += 1

    def offset(self, position: int) -> int:
        """Offset in the shard of the first token of window `position`."""
        epoch, rank = divmod(position, self.windows_per_epoch)
        phase = self._epoch_hash(1, epoch) % self._phase_count
        key = self._epoch_hash(2, epoch)
        keys = [counter_hash(key, r) for r in range(_ROUND_COUNT)]
        window = self._permute(keys, rank)
        while window >= self.windows_per_epoch:  # Outside of the permutation.
            window = self._permute(keys, window)
        return phase + window * self._length

    def _epoch_hash(self, purpose: int, epoch: int) -> int:
        return counter_hash(counter_hash(self._seed, purpose), epoch)

    def _permute(self, keys: list[int], value: int) -> int:
        mask = (1 << self._half_bits) - 1
        left, right = value >> self._half_bits, value & mask
        for key in keys:
            left, right = right, left ^ (counter_hash(key, right) & mask)
        return left << self._half_bits | right


def held_out_offsets(token_count: int, sequence_length: int,
                     window_count: int) -> list[int]:
    """Offsets in the held-out tokens of the windows of an evaluation."""
    there = max(0, (token_count - 1) // sequence_length)
    count = min(there, window_count)
    return [i * there // count * sequence_length for i in range(count)]


class _File(NamedTuple):
    path: str
    name: str         # Relative to the data's root; empty if it is the root.
    size_bytes: int


class _Piece(NamedTuple):
    """A file's tokens within the sequence of all tokens."""

    path: str
    first_token: int
    token_count: int
    header_bytes: int
    dtype: np.dtype


def _list_files(root: str, takes_all: bool) -> list[_File]:
    """The regular files below `root` that are not empty, by their names."""
    if not os.path.exists(root):
        raise Error("no data at %r" % root, reason="NO_DATA", code="NOT_FOUND",
                    hint="Give the path of the run's data on this machine.")
    if not os.path.isdir(root):
        return [_File(root, "", os.path.getsize(root))]
    files = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if (os.path.islink(path) or not os.path.isfile(path) or
                    not (takes_all or name.endswith(".bin"))):
                continue
            files.append(_File(path, os.path.relpath(path, root),
                               os.path.getsize(path)))
    files.sort(key=lambda file: os.fsencode(file.name))
    return [file for file in files if file.size_bytes]


def _shuffle(seed: int, files: list[_File]) -> list[_File]:
    files = list(files)
    for i in range(len(files) - 1, 0, -1):
        j = counter_hash(seed, i) % (i + 1)
        files[i], files[j] = files[j], files[i]
    return files


def _piece(file: _File, data_format: str, first_token: int) -> _Piece:
    header_bytes, dtype = 0, np.dtype(
        "u1" if data_format == "DATA_FORMAT_BYTES" else "<u2")
    said = None
    if data_format == "DATA_FORMAT_LLMC":
        header = np.fromfile(file.path, "<i4", 3)
        found = _LLMC_TOKENS.get(tuple(header[:2].tolist()))
        if found is None:
            raise _wrong("%s is not a token file of llm.c" % file.path)
        header_bytes, dtype, said = _HEADER_BYTES, np.dtype(found), header[2]
    count, rest = divmod(file.size_bytes - header_bytes, dtype.itemsize)
    if rest or said not in (None, count):
        raise _wrong("%s is %d bytes long, which is not its header and whole "
                     "tokens of %d bytes" % (file.path, file.size_bytes,
                                             dtype.itemsize))
    return _Piece(file.path, first_token, count, header_bytes, dtype)


class Data:
    """The data of a run, as each of its islands reads it.

        spec = atoll.get_run("spring", "HOST:7400")["spec"]
        data = atoll.Data(spec)
        with atoll.Island(..., data_fingerprint=data.fingerprint()) as island:
            while ...:
                tokens = data.batch(island)

    Reads files anew for each window, and keeps no state: the island's position
    says which windows are next, also after a restart.

    Attributes:
      token_count: Tokens of all files.
      batch_size: B.
      sequence_length: T.
    """

    def __init__(self, spec: Mapping[str, Any], path: str | None = None):
        """Opens the data.

        Args:
          spec: The run's RunSpec (proto/atoll/v1/run.proto), as in JSON.
          path: Path of the data on this machine; default: the run's.

        Error: nothing is there, or it is of another format than the run's.
        """
        self._data = spec["data"]
        self._seed = int(spec["inner"]["seed"])
        self._vocab_size = int(spec["model"]["vocab_size"])
        self.batch_size = int(spec["inner"]["batch_size"])
        self.sequence_length = int(spec["model"]["sequence_length"])
        self._evaluation_count = (int(spec["evaluation"]["batch_count"]) *
                                  self.batch_size)
        if self._data["format"] not in _FORMATS:
            raise _wrong("the run's data is %s, which only the trainer of an "
                         "island can read" % self._data["format"])
        root = path or self._data["path"]
        self._files = _list_files(root,
                                  self._data["format"] == "DATA_FORMAT_BYTES")
        self._pieces: list[_Piece] = []
        self.token_count = 0
        for file in _shuffle(int(self._data["seed"]), self._files):
            piece = _piece(file, self._data["format"], self.token_count)
            if not piece.token_count:
                continue
            if piece.dtype != (self._pieces or [piece])[0].dtype:
                raise _wrong("%s and %s have tokens of different sizes" %
                             (self._pieces[0].path, piece.path))
            self._pieces.append(piece)
            self.token_count += piece.token_count
        if not self._pieces:
            raise _wrong("the data at %r has no tokens" % root)
        self._first_tokens = np.array([p.first_token for p in self._pieces])
        held_out = int(self.token_count *
                       float(self._data["validation_fraction"]))
        self._held_out = range(self.token_count - held_out, self.token_count)
        self._shard_size = (self._held_out.start //
                            int(self._data["data_shard_count"]))
        self._orders: dict[int, WindowOrder] = {}

    def fingerprint(self) -> str:
        """SHA-256 in hex, by which islands know the same data; reads it all."""
        text = hashlib.sha256(b"atoll data 1 %d\n" %
                              _FORMATS[self._data["format"]])
        for file in self._files:
            digest = hashlib.sha256()
            with open(file.path, "rb") as content:
                while block := content.read(_READ_BYTES):
                    digest.update(block)
            text.update(b"%d %s %s\n" % (
                file.size_bytes, digest.hexdigest().encode("ascii"),
                os.fsencode(file.name)))
        return text.hexdigest()

    def batch(self, island: Any) -> np.ndarray:
        """The windows of the island's next step, int64 [B, T + 1]."""
        return self.windows(
            island.data_shard, island.data_position +
            island.done_step_count * self.batch_size, self.batch_size)

    def windows(self, data_shard: int, position: int,
                count: int) -> np.ndarray:
        """Windows [position, position + count) of a shard, int64 [., T + 1].

        Error WRONG_DATA: a token is not in the model's vocabulary, or the
        shard does not exist.
        """
        if not 0 <= data_shard < int(self._data["data_shard_count"]):
            raise _wrong("there is no data shard %d" % data_shard)
        if data_shard not in self._orders:
            self._orders[data_shard] = WindowOrder(
                self._seed, data_shard, self._shard_size, self.sequence_length)
        order = self._orders[data_shard]
        return self._read([data_shard * self._shard_size + order.offset(p)
                           for p in range(position, position + count)])

    def held_out(self) -> np.ndarray:
        """The windows of each evaluation of the run, int64 [., T + 1]."""
        return self._read([self._held_out.start + offset
                           for offset in held_out_offsets(
                               len(self._held_out), self.sequence_length,
                               self._evaluation_count)])

    def _read(self, offsets: list[int]) -> np.ndarray:
        windows = np.empty((len(offsets), self.sequence_length + 1), np.int64)
        for window, offset in zip(windows, offsets):
            self._read_tokens(offset, window)
        if windows.size and windows.max() >= self._vocab_size:
            raise _wrong("the data has token %d, but the model's vocabulary "
                         "ends at %d" % (windows.max(), self._vocab_size - 1),
                         "Use data that was made for this model.")
        return windows

    def _read_tokens(self, offset: int, out: np.ndarray) -> None:
        index = int(np.searchsorted(self._first_tokens, offset, "right")) - 1
        while out.size:
            piece = self._pieces[index]
            begin = offset - piece.first_token
            count = min(out.size, piece.token_count - begin)
            got = np.fromfile(
                piece.path, piece.dtype, count,
                offset=piece.header_bytes + begin * piece.dtype.itemsize)
            if got.size < count:
                raise Error("%s is shorter than when it was opened" %
                            piece.path, reason="DATA_CHANGED", code="DATA_LOSS",
                            hint="The data of a run must not change.")
            out[:count] = got
            out, offset, index = out[count:], offset + count, index + 1
