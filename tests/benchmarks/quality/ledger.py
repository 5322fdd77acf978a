"""The record of finished runs: one JSON object a line, append-only."""

import hashlib
import json
import os


def digest_of(row, values, text):
    """Digest of a row's inputs except the program: its run file, its hostile or
    slow island, and the text."""
    content = {"play": row.play, "values": values, "hostile": row.hostile,
               "slow": row.slow, "text": text}
    # The path of the text does not matter.
    content["values"] = dict(values, data={k: v for k, v in
                                           values["data"].items()
                                           if k != "path"})
    encoded = json.dumps(content, sort_keys=True).encode()
    return hashlib.sha256(encoded).hexdigest()[:16]


class Ledger:
    """The entries of one file, by config and commit.

    Skips a line that a kill cut short; that row runs again.
    """

    def __init__(self, path):
        self._path = path
        self._entries = []
        try:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    try:
                        self._entries.append(json.loads(line))
                    except json.JSONDecodeError:
                        continue
        except FileNotFoundError:
            pass

    def find(self, digest, commit, any_commit=False):
        """The newest entry of this config and, unless `any_commit`, commit."""
        for entry in reversed(self._entries):
            if entry["digest"] == digest and (
                    any_commit or entry["commit"] == commit):
                return entry
        return None

    def add(self, entry):
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        with open(self._path, "a+b") as file:
            # Begin a new line after one that was cut short.
            file.seek(0, os.SEEK_END)
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._entries.append(entry)
