"""How fast this machine moves bytes without Atoll: what a recovery is compared
with. Bytes per second."""

import os
import socket
import statistics
import threading
import time

_PIECE = 1 << 20
_REPEATS = 3
# Shorter transfers measure calls, longer ones the same again.
BYTES_MIN, BYTES_MAX = 64 << 20, 1 << 30


def _write(path, size):
    piece = os.urandom(_PIECE)
    with open(path, "wb") as file:
        for _ in range(size // _PIECE):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _copy(source, target):
    """Reads `source` and writes it to `target`, durably; None: nowhere."""
    with open(source, "rb", buffering=0) as file:
        if target is None:
            while file.read(_PIECE):
                pass
            return
        with open(target, "wb", buffering=0) as out:
            while piece := file.read(_PIECE):
                out.write(piece)
            os.fsync(out.fileno())


def _send(size):
    """Sends `size` bytes over a loopback connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def receive():
            connection, _ = listener.accept()
            room = bytearray(_PIECE)
            with connection:
                while connection.recv_into(room):
                    pass

        receiver = threading.Thread(target=receive)
        receiver.start()
        piece = bytes(_PIECE)
        with socket.create_connection(listener.getsockname()) as connection:
            for _ in range(size // _PIECE):
                connection.sendall(piece)
        receiver.join()


def measure(directory, state_bytes):
    """{"read": of a file that was just written, "copy": of a file to another,
    with fsync, "send": over loopback}: the medians."""
    size = min(max(state_bytes, BYTES_MIN), BYTES_MAX)
    source = os.path.join(directory, "plain-source")
    target = os.path.join(directory, "plain-target")
    _write(source, size)
    ways = {"read": lambda: _copy(source, None),
            "copy": lambda: _copy(source, target),
            "send": lambda: _send(size)}
    taken = {way: [] for way in ways}
    try:
        for _ in range(_REPEATS):
            for way, move in ways.items():
                begin = time.monotonic()
                move()
                taken[way].append(time.monotonic() - begin)
    finally:
        for path in (source, target):
            if os.path.exists(path):
                os.unlink(path)
    return {way: size // _PIECE * _PIECE / statistics.median(seconds)
            for way, seconds in taken.items()}
