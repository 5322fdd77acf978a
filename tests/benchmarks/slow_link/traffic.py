"""The traffic of an interface over time, compared with a cap."""

import threading
import time

_INTERVAL_S = 0.05


def _counters(interface):
    with open("/proc/net/dev", encoding="ascii") as file:
        for line in file:
            name, _, values = line.partition(":")
            if name.strip() == interface:
                numbers = values.split()
                return int(numbers[0]), int(numbers[8])
    raise RuntimeError("no interface " + interface)


class Recorder:
    """Samples an interface until it is closed.

    `samples`: [(seconds, bytes received, bytes sent)].
    """

    def __init__(self, interface):
        self._interface = interface
        self._ended = threading.Event()
        self.samples = []
        self._thread = threading.Thread(target=self._record, daemon=True)
        self._thread.start()

    def _record(self):
        while not self._ended.wait(_INTERVAL_S):
            self.samples.append((time.monotonic(),) +
                                _counters(self._interface))

    def close(self):
        self._ended.set()
        self._thread.join()


def busy_stretches(points, bytes_per_second, idle_s=1.0):
    """The parts of [(seconds, bytes so far)] in which bytes move at least at
    half the rate over any `idle_s`."""
    stretches, current = [], []
    first = 0
    for index, (now, count) in enumerate(points):
        while points[first][0] < now - idle_s:
            first += 1
        then, before = points[first]
        busy = now > then and (
            count - before >= bytes_per_second / 2 * (now - then))
        if busy:
            current = current or [points[max(0, index - 1)]]
            current.append((now, count))
        elif current:
            # The end is detected `idle_s` late.
            stretches.append([p for p in current if p[0] <= now - idle_s])
            current = []
    return [s for s in stretches + [current] if s]


def shares_of(points, bytes_per_second, window_s):
    """For every window within a busy stretch: its bytes over the cap's."""
    shares = []
    for stretch in busy_stretches(points, bytes_per_second):
        first = 0
        for now, count in stretch:
            if now - stretch[0][0] < window_s:
                continue
            while stretch[first + 1][0] <= now - window_s:
                first += 1
            then, before = stretch[first]
            shares.append((count - before) / (now - then) / bytes_per_second)
    return sorted(shares)
