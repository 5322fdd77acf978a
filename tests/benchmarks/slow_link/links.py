"""Islands behind slow links, in network namespaces that end with the program.

The services stay in the caller's namespace, which must be private (see
slow_link.py). Each island has its own namespace, joined to the caller's by a
pair of virtual interfaces with a token bucket filter at either end. Plans have
loopback addresses. So a relay listens on loopback in the island's namespace, at
the services' ports, and connects over the link to a relay next to the services.
The first relay adds half a round trip each way.
"""

import os
import subprocess

# `ip` and `tc` may be missing from the caller's PATH.
os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"

# Queue limit in front of a link: a home router's buffer.
_QUEUE_MS = 100


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError("%s: %s" % (" ".join(command), done.stderr.strip()))
    return done.stdout


class Link:
    """One island's link: `bits_per_second` each way, `round_trip_ms`."""

    def __init__(self, index, bits_per_second, round_trip_ms, relay):
        self._relay_program = relay
        self._round_trip_ms = round_trip_ms
        self._index = index
        self._here = "10.77.%d.1" % index
        self._there = "10.77.%d.2" % index
        self._processes = []
        # Keeps the island's namespace open; ends with this program's pipe.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo made; cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout.readline() == "made\n"
        outside, inside = "at%dh" % index, "at%di" % index
        _run("ip", "link", "add", outside, "type", "veth", "peer", "name",
             inside, "netns", str(self._holder.pid))
        self._shape(outside, self._here, bits_per_second, ())
        self._shape(inside, self._there, bits_per_second, self.prefix)
        _run(*self.prefix, "ip", "link", "set", "lo", "up")

    def _shape(self, name, address, bits_per_second, prefix):
        _run(*prefix, "ip", "address", "add", address + "/24", "dev", name)
        _run(*prefix, "ip", "link", "set", name, "up")
        # The bytes of one timer tick, at least one large packet.
        burst = max(65536, bits_per_second // 8 // 250)
        _run(*prefix, "tc", "qdisc", "add", "dev", name, "root", "tbf", "rate",
             "%dbit" % bits_per_second, "burst", str(burst), "latency",
             "%dms" % _QUEUE_MS)

    @property
    def interface(self):
        """The services' end of the link: it receives the island's bytes."""
        return "at%dh" % self._index

    @property
    def prefix(self):
        return ("nsenter", "--net=/proc/%d/ns/net" % self._holder.pid)

    def relay(self, ports):
        """Makes services at these loopback ports reachable behind the link."""
        self._start((), ["%s:%d=127.0.0.1:%d" % (self._here, p, p)
                         for p in ports])
        self._start(self.prefix,
                    ["--delay-ms", str(self._round_trip_ms / 2)] +
                    ["127.0.0.1:%d=%s:%d" % (p, self._here, p) for p in ports])

    def _start(self, prefix, arguments):
        process = subprocess.Popen(
            list(prefix) + [self._relay_program] + arguments,
            stdout=subprocess.PIPE, text=True)
        self._processes.append(process)
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the relay did not start")

    def close(self):
        for process in self._processes:
            process.kill()
            process.wait()
            process.stdout.close()
        subprocess.run(["ip", "link", "delete", "at%dh" % self._index],
                       check=False, stderr=subprocess.DEVNULL)
        self._holder.stdin.close()
        self._holder.wait()
        self._holder.stdout.close()


def in_private_namespace(argv):
    """Restarts the program in its own network namespace.

    Returns if it already runs in one. Exits with 2 and a message if the machine
    does not permit it.
    """
    if os.environ.get("ATOLL_PRIVATE_NETWORK") == "1":
        _run("ip", "link", "set", "lo", "up")
        return
    probe = subprocess.run(
        ["unshare", "--net", "sh", "-c",
         "ip link set lo up && ip link add pr0 type veth peer name pr1 && "
         "tc qdisc add dev pr0 root tbf rate 1mbit burst 65536 latency 10ms"],
        capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        raise SystemExit("network namespaces with shaped links cannot be made "
                         "here (root, `ip` and `tc` are needed): %s" %
                         probe.stderr.strip())
    os.environ["ATOLL_PRIVATE_NETWORK"] = "1"
    os.execvp("unshare", ["unshare", "--net"] + argv)
