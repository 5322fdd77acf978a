"""Ports for services that must start, or restart, at a known address.

A port that the kernel chose and the test closed again may be given to any
connection or test before its service binds it. So these ports lie outside the
kernel's range for such choices, and a name in the abstract Unix namespace holds
each one among all tests of the machine.
"""

import errno
import random
import socket

_BEGIN, _END = 10000, 1 << 16
# Fewer ports than this outside the kernel's range are too few.
_COUNT_MIN = 1000

_held = {}     # The name's socket by port.
_order = []    # Ports to try, from a random start.


def kernel_range():
    path = "/proc/sys/net/ipv4/ip_local_port_range"
    with open(path, encoding="ascii") as file:
        begin, last = (int(word) for word in file.read().split())
    return range(begin, last + 1)


def candidates(taken):
    """Ports to choose from, in order; `taken`: the kernel's range."""
    everything = range(_BEGIN, _END)
    outside = [p for p in everything if p not in taken]
    return outside if len(outside) >= _COUNT_MIN else list(everything)


def _is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def claim():
    """A free port that no other test takes until `release`, or until this
    process ends."""
    if not _order:
        ports = candidates(kernel_range())
        start = random.SystemRandom().randrange(len(ports))
        _order.extend(ports[start:] + ports[:start])
    for _ in range(len(_order)):
        port = _order.pop(0)
        _order.append(port)
        # Not inherited: only this process holds the name.
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind("\0atoll-test-port-%d" % port)
        except OSError as error:
            name.close()
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        if _is_free(port):
            _held[port] = name
            return port
        name.close()
    raise RuntimeError("no port is free")


def release(port):
    """Lets other tests take the port. Its service must have ended."""
    held = _held.pop(port, None)
    if held is not None:
        held.close()
