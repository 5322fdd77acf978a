"""A proxy on loopback that knows HTTP's CONNECT, and hosts by name."""

import base64
import collections
import re
import select
import socket
import threading

_CONNECT = re.compile(r"CONNECT ([^ :]+):(\d+) HTTP/1\.1\r\n")


class ConnectProxy:
    """Connects to port 443 of the names in `hosts`, {name: port of loopback},
    and refuses the rest with 403. With `credentials`, "USER:PASSWORD", it
    refuses who does not have them with 407."""

    def __init__(self, hosts, credentials=None):
        self._hosts = hosts
        self._wanted = credentials and "\r\nProxy-Authorization: Basic %s\r\n" % (
            base64.b64encode(credentials.encode()).decode())
        self._lock = threading.Lock()
        self._counts = collections.Counter()
        self._refused = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self.url = "http://%s%s" % (
            credentials + "@" if credentials else "", self.address)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def counts(self):
        """Tunnels that were opened, by name."""
        with self._lock:
            return dict(self._counts)

    @property
    def refused(self):
        """First lines of requests that were refused."""
        with self._lock:
            return list(self._refused)

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,),
                             daemon=True).start()

    def _serve(self, client):
        with client:
            request = b""
            while b"\r\n\r\n" not in request:
                piece = client.recv(4096)
                if not piece:
                    return
                request += piece
            text = request.decode("latin-1")
            found = _CONNECT.match(text)
            refusal = None
            if self._wanted and self._wanted not in text:
                refusal = "407 Proxy Authentication Required"
            elif (not found or found.group(1) not in self._hosts or
                  found.group(2) != "443"):
                refusal = "403 Forbidden"
            if refusal:
                with self._lock:
                    self._refused.append(text.split("\r\n", 1)[0])
                client.sendall(("HTTP/1.1 %s\r\n\r\n" % refusal).encode())
                return
            name = found.group(1)
            with socket.create_connection(
                    ("127.0.0.1", self._hosts[name])) as server:
                with self._lock:
                    self._counts[name] += 1
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                self._relay(client, server)

    @staticmethod
    def _relay(client, server):
        other = {client: server, server: client}
        try:
            while True:
                for readable in select.select([client, server], [], [])[0]:
                    piece = readable.recv(65536)
                    if not piece:
                        return
                    other[readable].sendall(piece)
        except OSError:
            return
