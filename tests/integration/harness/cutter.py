"""A TCP relay that breaks connections in the middle of what they carry.

It knows nothing of HTTP/2: it counts the bytes that it hands on, and when so
many have gone one way it hands on no more of that connection and resets both
ends. What it had read and not handed on is lost, as in a real cut.
"""

import socket
import struct
import threading

_READ_MAX = 16 << 10
_RECENT_MAX = 64 << 10
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close sends RST.

UP, DOWN = "up", "down"


class Cutter:
    """`cut_every`: bytes one way, {UP: n, DOWN: m}, after which the connection
    that carries the next one is cut; `cuts_max` of them at most each way.

    `handed_on` and `cuts`: bytes and cuts so far, by direction. `carried`: cuts
    by the direction in which most of the connection's last bytes went: what
    little goes the other way, answers and window updates, may be what a cut
    counted.
    """

    def __init__(self, cut_every, cuts_max):
        self.handed_on = {UP: 0, DOWN: 0}
        self.cuts = {UP: 0, DOWN: 0}
        self.carried = {UP: 0, DOWN: 0}
        self._cut_every = cut_every
        self._cuts_max = cuts_max
        self._left = dict(cut_every)
        self._lock = threading.Lock()
        self._target = None
        self._ready = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self):
        return "127.0.0.1:%d" % self._listener.getsockname()[1]

    def forward_to(self, address):
        """Connections wait until this has been said."""
        host, port = address.rsplit(":", 1)
        self._target = (host, int(port))
        self._ready.set()

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(caller,),
                             daemon=True).start()

    def _relay(self, caller):
        self._ready.wait()
        try:
            callee = socket.create_connection(self._target, timeout=20)
        except OSError:
            caller.close()
            return
        for end in (caller, callee):
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        recent = {UP: 0, DOWN: 0}
        threads = [threading.Thread(target=self._pump, args=(*args, recent),
                                    daemon=True)
                   for args in ((UP, caller, callee), (DOWN, callee, caller))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        caller.close()
        callee.close()

    def _admit(self, direction, count, recent):
        """How many of `count` bytes may go on, and whether that is the end."""
        with self._lock:
            if self.cuts[direction] >= self._cuts_max:
                self.handed_on[direction] += count
                return count, False
            admitted = min(count, self._left[direction])
            self._left[direction] -= admitted
            self.handed_on[direction] += admitted
            recent[direction] += admitted
            if recent[UP] + recent[DOWN] > _RECENT_MAX:
                for way in recent:
                    recent[way] //= 2
            is_cut = admitted < count
            if is_cut:
                self.cuts[direction] += 1
                self.carried[max(recent, key=recent.get)] += 1
                self._left[direction] = self._cut_every[direction]
            return admitted, is_cut

    def _pump(self, direction, source, target, recent):
        try:
            while True:
                data = source.recv(_READ_MAX)
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                admitted, is_cut = self._admit(direction, len(data),
                                                 recent)
                if admitted:
                    target.sendall(data[:admitted])
                if is_cut:
                    self._reset(source, target)
                    return
        except OSError:
            # The other direction's thread wakes up, too.
            for end in (source, target):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    @staticmethod
    def _reset(*ends):
        for end in ends:
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                # A close alone waits for the other thread's recv.
                end.shutdown(socket.SHUT_RD)
                end.close()
            except OSError:
                pass
