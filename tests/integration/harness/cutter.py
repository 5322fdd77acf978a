"""TCP relays that break connections. They know nothing of HTTP/2.

A Cutter counts forwarded bytes, and after a given number in one direction it
resets both ends of that connection. Bytes that it has read but not forwarded are
lost, as in a real cut. A Nat forgets connections and tells neither end. A Holder
delays what goes up.
"""

import socket
import struct
import threading

from harness import wait

_READ_MAX = 16 << 10
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close sends RST.

UP, DOWN = "up", "down"


class Cutter:
    """Cuts the connection of the next byte after `cut_every` bytes, {UP: n,
    DOWN: m}, at most `cuts_max` times each way.

    `handed_on` and `cuts`: bytes and cuts so far, by direction. A cut may have
    counted the few bytes of answers and window updates.
    """

    def __init__(self, cut_every, cuts_max):
        self.handed_on = {UP: 0, DOWN: 0}
        self.cuts = {UP: 0, DOWN: 0}
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
        """Sets the target; connections wait until then."""
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
            callee = socket.create_connection(self._target, timeout=wait.PATIENCE_S)
        except OSError:
            caller.close()
            return
        for end in (caller, callee):
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threads = [threading.Thread(target=self._pump, args=args, daemon=True)
                   for args in ((UP, caller, callee), (DOWN, callee, caller))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        caller.close()
        callee.close()

    def _admit(self, direction, count):
        """How many of `count` bytes to forward, and whether to cut then."""
        with self._lock:
            if self.cuts[direction] >= self._cuts_max:
                self.handed_on[direction] += count
                return count, False
            admitted = min(count, self._left[direction])
            self._left[direction] -= admitted
            self.handed_on[direction] += admitted
            is_cut = admitted < count
            if is_cut:
                self.cuts[direction] += 1
                self._left[direction] = self._cut_every[direction]
            return admitted, is_cut

    def _pump(self, direction, source, target):
        try:
            while True:
                data = source.recv(_READ_MAX)
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                admitted, is_cut = self._admit(direction, len(data))
                if admitted:
                    target.sendall(data[:admitted])
                if is_cut:
                    self._reset(source, target)
                    return
        except OSError:
            # Wakes up the other direction's thread too.
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
                # close() alone would wait for the other thread's recv.
                end.shutdown(socket.SHUT_RD)
                end.close()
            except OSError:
                pass


class Nat(Cutter):
    """Forgets connections as a NAT forgets flows: from then on bytes of either
    end are lost, and neither end is told. New connections work.
    """

    def __init__(self):
        super().__init__({UP: 0, DOWN: 0}, 0)
        self._forgotten_count = 0

    def forget(self):
        """Forgets all present connections."""
        with self._lock:
            self._forgotten_count += 1

    def _pump(self, direction, source, target):
        made_at = self._forgotten_count
        try:
            while True:
                data = source.recv(_READ_MAX)
                is_forgotten = made_at != self._forgotten_count
                if data and not is_forgotten:
                    target.sendall(data)
                elif not data:
                    if not is_forgotten:
                        target.shutdown(socket.SHUT_WR)
                    return
        except OSError:
            if made_at == self._forgotten_count:
                for end in (source, target):
                    try:
                        end.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass


class Holder(Cutter):
    """Forwards `byte_count` bytes UP, and holds the rest until `let_go`. `held`
    is set once bytes wait.
    """

    def __init__(self, byte_count):
        super().__init__({UP: byte_count, DOWN: 0}, 0)
        self.held = threading.Event()
        self._may_pass = threading.Event()

    def let_go(self):
        self._may_pass.set()

    def close(self):
        self.let_go()
        super().close()

    def _admit(self, direction, count):
        if direction == UP and self.handed_on[UP] >= self._cut_every[UP]:
            self.held.set()
            self._may_pass.wait()
        return super()._admit(direction, count)
