"""A connection with the exchange: packets over a Unix socket (SEQPACKET).

Not thread-safe.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import select
import socket
import sys
import termios
from typing import Any, Iterator

from . import _forks, _messages
from ._messages import Message
from .errors import ConnectionLost, Error

_PATH_BYTES_MAX = 107  # Linux's longest path of a Unix socket.
_NAME_BYTES_MAX = 80   # Fits behind /proc/self/fd/N/.
_ANCILLARY_BYTES = socket.CMSG_SPACE(4 * 4)  # For four file descriptors.
# Unread packets, as the kernel counts them. A full socket holds three
# times as much.
_UNREAD_BYTES_MAX = 65536


def check_path(path: str) -> None:
    """Error PATH_TOO_LONG: a long path needs a short name at its end."""
    if (len(os.fsencode(path)) > _PATH_BYTES_MAX and
            len(os.fsencode(os.path.basename(path))) > _NAME_BYTES_MAX):
        raise Error("the socket's name is longer than %d bytes: %s" %
                    (_NAME_BYTES_MAX, path), reason="PATH_TOO_LONG",
                    code="INVALID_ARGUMENT", hint="Give it a shorter name.")


@contextlib.contextmanager
def _address(path: str) -> Iterator[str]:
    """The path, or a short one in its place, while the block runs."""
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX:
        yield path
        return
    folder = os.open(os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY)
    try:
        yield "/proc/self/fd/%d/%s" % (folder, os.path.basename(path))
    finally:
        os.close(folder)


class Connection:
    """One connection. It owns the socket."""

    def __init__(self, sock: socket.socket):
        self._socket = sock
        waiter = select.poll()
        waiter.register(sock, select.POLLIN)
        self.poll = waiter.poll  # (milliseconds) -> [] if no packet came.
        self._files: list[int] = []
        _forks.close_in_children(self)

    @classmethod
    def to(cls, path: str) -> "Connection":
        """Connects. OSError: nothing accepts connections at `path`."""
        check_path(path)
        sock = socket.socket(socket.AF_UNIX,
                             socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            with _address(path) as address:
                sock.connect(address)
        except OSError:
            sock.close()
            raise
        return cls(sock)

    def send(self, seq: int, kind: str, body: dict[str, Any],
             wait: bool = True) -> None:
        """Sends a packet. With wait=False it is lost if it does not fit.

        Progress is also lost if others are unread, so that an exchange that
        hangs has room for the answer.

        ConnectionLost: the exchange is away.
        """
        if kind == "progress" and self._unread_bytes() > _UNREAD_BYTES_MAX:
            return
        flags = socket.MSG_NOSIGNAL | (0 if wait else socket.MSG_DONTWAIT)
        try:
            self._socket.send(_messages.encode(seq, kind, body), flags)
        except BlockingIOError:
            return
        except OSError as error:
            raise ConnectionLost("cannot send to the exchange: %s" %
                                 error) from error

    def _unread_bytes(self) -> int:
        return int.from_bytes(fcntl.ioctl(self._socket, termios.TIOCOUTQ,
                                          bytes(4)), sys.byteorder)

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next packet; None: none came in time. None as time: no bound.

        ConnectionLost: the exchange is away. Error UNREADABLE_MESSAGE: the
        packet is not a message; the connection is useless then.
        """
        # A look is cheap: no buffer of a packet, and no exception.
        if timeout_s is not None and not self.poll(
                math.ceil(timeout_s * 1000)):
            return None
        try:
            # Not recv_fds: in Python 3.11 it ignores its flags.
            packet, ancillary, flags, _ = self._socket.recvmsg(
                _messages.PACKET_BYTES_MAX, _ANCILLARY_BYTES,
                socket.MSG_CMSG_CLOEXEC |
                (0 if timeout_s is None else socket.MSG_DONTWAIT))
        except BlockingIOError:
            return None
        except OSError as error:
            raise ConnectionLost("cannot receive from the exchange: %s" %
                                 error) from error
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._files += memoryview(data)[:len(data) // 4 * 4].cast("i")
        if not packet:
            raise ConnectionLost("the exchange closed the connection")
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise _messages.unreadable("a packet of more than %d bytes, or too "
                                       "many file descriptors" %
                                       _messages.PACKET_BYTES_MAX)
        return _messages.decode(packet)

    def take_file(self) -> int | None:
        """The descriptor that came with the newest packet, for the caller.

        Error UNREADABLE_MESSAGE: it came with more than one.
        """
        if len(self._files) > 1:
            raise _messages.unreadable("%d file descriptors in a packet" %
                                       len(self._files))
        return self._files.pop() if self._files else None

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files.clear()
        self._socket.close()
