"""What has been run: one JSON object a line, never changed, only added to."""

import hashlib
import json
import os


def digest_of(row, values, text):
    """Of all that decides a row's result but the program: its run file, who is
    hostile or slow, and the text that is read."""
    content = {"play": row.play, "values": values, "hostile": row.hostile,
               "slow": row.slow, "text": text}
    # The place of the text does not matter.
    content["values"] = dict(values, data={k: v for k, v in
                                           values["data"].items()
                                           if k != "path"})
    encoded = json.dumps(content, sort_keys=True).encode()
    return hashlib.sha256(encoded).hexdigest()[:16]


class Ledger:
    """The entries of one file, by config and commit.

    A line that was cut short by a kill is left out; the row is run again.
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
        """The newest entry of this config; of this commit, unless any will do.
        """
        for entry in reversed(self._entries):
            if entry["digest"] == digest and (
                    any_commit or entry["commit"] == commit):
                return entry
        return None

    def add(self, entry):
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        with open(self._path, "a+b") as file:
            # Behind a line that was cut short, on a line of its own.
            file.seek(0, os.SEEK_END)
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._entries.append(entry)
