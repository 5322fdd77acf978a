"""One gRPC call over a bare socket, frame by frame.

A gRPC library always sends whole messages and always reads. This does neither
unless told to, like a malicious or dead peer. One stream per connection; no
thread.
"""

import select
import socket
import ssl
import struct

from harness import wait

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = (
    0, 1, 3, 4, 6, 7, 8)
END_STREAM, _ACK, END_HEADERS = 1, 1, 4
_INITIAL_WINDOW_SIZE = 4
_FRAME_BYTES_MAX = 16384


def message(payload, compressed=False):
    """A message in the framing of gRPC's DATA frames."""
    return struct.pack(">BI", compressed, len(payload)) + payload


def _header(name, value):
    # HPACK: a literal without indexing, with a literal name.
    name, value = (part if isinstance(part, bytes) else part.encode()
                   for part in (name, value))
    assert len(name) < 127 and len(value) < 127
    return b"\0%c%b%c%b" % (len(name), name, len(value), value)


def frame(kind, flags, stream, payload=b""):
    return (struct.pack(">I", len(payload))[1:] +
            struct.pack(">BBI", kind, flags, stream) + payload)


def headers(scheme, path, metadata=()):
    """A call's headers, as the payload of a HEADERS frame."""
    return b"".join(_header(*h) for h in [
        (":method", "POST"), (":scheme", scheme), (":path", path),
        (":authority", "test"), ("te", "trailers"),
        ("content-type", "application/grpc")] + list(metadata))


def repeated_header(count):
    """One header, and `count` references to it of one byte."""
    return b"\x40\x01x\x01y" + b"\xbe" * count  # HPACK: entry 62.


def connect(address, certificate=None):
    """A socket; with a certificate it speaks TLS, and checks no server."""
    host, port = address.rsplit(":", 1)
    plain = socket.create_connection((host, int(port)),
                                     timeout=wait.PATIENCE_S)
    if certificate is None:
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(certificate.cert, certificate.key)
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain)


class RawCall:
    """`path`: "/atoll.v1.ParameterService/PullParameters".

    `certificate`: a client's, for TLS (harness/certificates.py).
    `window`: total bytes of answers to accept. Nothing is acknowledged, so the
    server may not send more.
    """

    def __init__(self, address, path, metadata=(), window=65535,
                 certificate=None):
        self._socket = connect(address, certificate)
        self._in = b""
        self._send_window = 65535  # Of the stream; the connection's is larger.
        self._connection_window = 65535
        self._initial_window = 65535
        self.is_open = True
        self.answer_bytes = 0
        self.trailers = b""
        self.reset_code = None
        self._send(PREFACE)
        self._frame(SETTINGS, 0, 0, struct.pack(
            ">HI", _INITIAL_WINDOW_SIZE, window))
        self._frame(HEADERS, END_HEADERS, 1, headers(
            "https" if certificate else "http", path, metadata))

    def _send(self, data):
        try:
            self._socket.sendall(data)
        except OSError:
            self.is_open = False

    def _frame(self, kind, flags, stream, payload=b""):
        self._send(frame(kind, flags, stream, payload))

    def send(self, data, end=False, frame_bytes=_FRAME_BYTES_MAX):
        """Sends bytes of the request in frames of `frame_bytes`. Returns whether
        the call stayed open."""
        data = memoryview(data)
        while self.is_open:
            room = min(self._send_window, self._connection_window,
                       _FRAME_BYTES_MAX)
            piece = data[:room]
            data = data[len(piece):]
            last = end and not data
            if piece or last:
                self._send_window -= len(piece)
                self._connection_window -= len(piece)
                parts = [bytes(piece[i:i + frame_bytes])
                         for i in range(0, len(piece), frame_bytes)] or [b""]
                self._send(b"".join(frame(DATA, 0, 1, part)
                                    for part in parts[:-1]))
                self._frame(DATA, END_STREAM if last else 0, 1, parts[-1])
            self.look(0 if room else 0.05)
            if not data:
                break
        return self.is_open

    def look(self, timeout=0.0):
        """Reads the received bytes; waits for them at most `timeout` seconds.
        Returns whether the call is open."""
        while self.is_open:
            # TLS may hold bytes that the socket no longer shows.
            held = getattr(self._socket, "pending", int)()
            ready, _, _ = select.select([self._socket], [], [],
                                        0 if held else timeout)
            if not ready and not held:
                break
            timeout = 0
            try:
                data = self._socket.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                self.is_open = False
            self._in += data
            while self._take_frame():
                pass
        return self.is_open

    def _take_frame(self):
        if len(self._in) < 9:
            return False
        length = int.from_bytes(self._in[:3], "big")
        if len(self._in) < 9 + length:
            return False
        kind, flags = self._in[3], self._in[4]
        stream = int.from_bytes(self._in[5:9], "big")
        payload, self._in = self._in[9:9 + length], self._in[9 + length:]
        if kind == SETTINGS and not flags & _ACK:
            self._take_settings(payload)
            self._frame(SETTINGS, _ACK, 0)
        elif kind == _PING and not flags & _ACK:
            self._frame(_PING, _ACK, 0, payload)
        elif kind == _WINDOW_UPDATE:
            more = int.from_bytes(payload, "big")
            if stream:
                self._send_window += more
            else:
                self._connection_window += more
        elif kind == DATA:
            self.answer_bytes += length
        elif kind == HEADERS and flags & END_STREAM:
            self.trailers = payload
        elif kind == RST_STREAM:
            self.reset_code = int.from_bytes(payload, "big")
        if kind in (RST_STREAM, _GOAWAY) or (kind in (DATA, HEADERS) and
                                              flags & END_STREAM):
            self.is_open = False
        return True

    def _take_settings(self, payload):
        for at in range(0, len(payload), 6):
            key, value = struct.unpack(">HI", payload[at:at + 6])
            if key == _INITIAL_WINDOW_SIZE:
                self._send_window += value - self._initial_window
                self._initial_window = value

    def is_connected(self):
        """Discards received bytes. False: the server has closed the connection,
        possibly long after the call has ended."""
        ready, _, _ = select.select([self._socket], [], [], 0)
        if not ready:
            return True
        try:
            return bool(self._socket.recv(1 << 16))
        except OSError:
            return False

    def close(self):
        self.is_open = False
        self._socket.close()
