"""An exchange that plays a script, for tests of a trainer.

It speaks the protocol by itself (proto/TRAINER.md) and uses nothing of the
package under test.
"""

import contextlib
import json
import mmap
import os
import socket
import threading

import numpy as np

# Bound on a hang, also on a loaded machine.
PATIENCE_S = 60
RUN = "spring"
UID = "0123456789abcdef0123456789abcdef"
# The layout of tests that need no special one: {name: shape} a fragment.
LAYOUT = [{"w": [2, 3], "b": [3]}, {"v": [4]}]


def size(shape):
    count = 1
    for dimension in shape:
        count *= dimension
    return count


class Gone(AssertionError):
    """The trainer has closed the connection, or has died."""


class Peer:
    """The exchange's end of one connection.

    Attributes:
      regions: float32 arrays, one a fragment, after `layout`.
      frozen_digest: That of the hello, after `hello`.
      kept: What the hello tells about steps that the trainer has kept.
    """

    def __init__(self, sock):
        self.sock = sock
        self.seq = 0
        self.regions = []
        self.files = []

    def send(self, packet, files=()):
        """Sends bytes as they are, or a message."""
        if not isinstance(packet, bytes):
            packet = json.dumps(packet).encode()
        try:
            socket.send_fds(self.sock, [packet], list(files))
        except (BrokenPipeError, ConnectionResetError):
            raise Gone("it does not read %.200r" % packet) from None

    def receive(self):
        """The next message, without `progress`; None: the trainer is gone."""
        while True:
            try:
                packet = self.sock.recv(1 << 17)
            except ConnectionResetError:
                return None
            if not packet:
                return None
            assert len(packet) <= 65536, len(packet)
            message = json.loads(packet, parse_constant=self._no_constant)
            if "progress" not in message:
                return message

    @staticmethod
    def _no_constant(text):
        raise AssertionError("%s is not JSON" % text)

    def tell(self, kind, files=(), **body):
        """Sends a request. Returns its number."""
        self.seq += 1
        self.send({"seq": str(self.seq), kind: body}, files)
        return self.seq

    def ask(self, kind, files=(), **body):
        """Sends a request, and returns the body of its answer."""
        return self.answer_to(kind, self.tell(kind, files, **body))

    def answer_to(self, kind, seq):
        answer = self.receive()
        if answer is None:
            raise Gone("before its answer to %s" % kind)
        assert set(answer) == {"seq", kind}, (kind, answer)
        assert answer["seq"] == str(seq), (seq, answer)
        return answer[kind]

    def place(self, **fields):
        """Answers a join, which precedes the hello."""
        message = self.receive()
        if message is None:
            raise Gone("before its join")
        assert message == {"seq": "1", "join": {"version": 1}}, message
        self.send({"seq": "1", "join": {
            "version": 1, "run_uid": UID, "island_id": "kitchen", "slot": 4,
            "data_shard": 1, "data_shard_count": 3, **fields}})

    def hello(self, fragment_count=len(LAYOUT), seq="1", **fields):
        message = self.receive()
        if message is None:
            raise Gone("before its hello")
        self.frozen_digest = message.get("hello", {}).pop("frozen_digest", "")
        self.kept = {name: message["hello"].pop(name) for name in (
            "has_state", "standings") if name in message["hello"]}
        message.get("hello", {}).pop("weight_unit", "tokens")
        assert message == {"seq": seq, "hello": {"version": 1}}, message
        hello = {"version": 1, "run_id": RUN, "run_uid": UID,
                 "island_id": "kitchen", "program_version": "0.1.0",
                 "fragment_count": fragment_count, "strict": True,
                 "inner_step_count": "3", "weight_unit": "", **fields}
        hello = {name: value for name, value in hello.items()
                 if value is not None}
        self.send({"seq": seq, "hello": hello})

    def region(self, element_count):
        """A new region. Its descriptor is the last of `files`."""
        file = os.memfd_create("region", os.MFD_CLOEXEC)
        os.ftruncate(file, 4 * element_count)
        self.files.append(file)
        self.regions.append(np.frombuffer(
            mmap.mmap(file, 4 * element_count), np.float32))
        return file

    def layout(self, fragments=None, a_message=100):
        """Describes the fragments, `a_message` tensors in each message."""
        for number, tensors in enumerate(fragments or LAYOUT):
            rows, offset = [], 0
            for name, shape in tensors.items():
                rows.append({"name": name, "shape": [str(d) for d in shape],
                             "element_offset": str(offset)})
                offset += size(shape)
            file = self.region(offset)
            for begin in range(0, len(rows), a_message):
                self.ask("layout", [file] if begin == 0 else [],
                         fragment=number, element_count=str(offset),
                         tensors=rows[begin:begin + a_message],
                         last=begin + a_message >= len(rows))

    def write(self, *values):
        """Gives each fragment its values: an array, or one number for all."""
        for region, value in zip(self.regions, values):
            region[...] = value
        self.ask("write", fragments=list(range(len(self.regions))))

    def read(self):
        """Copies of the regions after a read of all fragments."""
        self.ask("read", fragments=list(range(len(self.regions))))
        return [region.copy() for region in self.regions]

    def begin(self, *values, **hello):
        """All that precedes the first `train`."""
        self.hello(**hello)
        self.layout()
        self.ask("load", save_id="")
        self.write(*(values or [0.0] * len(LAYOUT)))

    def train(self, step_count, step=0, **body):
        return self.ask("train", step=str(step), step_count=str(step_count),
                        lr_scale=1.0, **body)

    def end(self, complete=True, message="done", **fields):
        self.tell("end", complete=complete, message=message, **fields)

    def wait_for_close(self):
        """What the trainer still sends before it closes."""
        messages = []
        while (message := self.receive()) is not None:
            messages.append(message)
        return messages

    def close(self):
        self.sock.close()
        for file in self.files:
            os.close(file)
        self.files = []


class FakeExchange:
    """Takes one connection for each script, in order, on a thread.

        with FakeExchange(path, first, second):
            ...

    A script is a function of Peer. What it raises, leaving the block raises.
    """

    def __init__(self, path, *scripts):
        self._scripts = scripts
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.settimeout(PATIENCE_S)
        self._listener.bind(path)
        self._listener.listen(4)
        self._error = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def _run(self):
        try:
            for script in self._scripts:
                sock, _ = self._listener.accept()
                sock.settimeout(PATIENCE_S)
                peer = Peer(sock)
                try:
                    script(peer)
                except BaseException as error:
                    # Else the trainer would try for minutes to come back.
                    with contextlib.suppress(Gone):
                        peer.tell("error", message="script: %r" % error)
                    raise
                finally:
                    peer.close()
        except BaseException as error:  # pylint: disable=broad-except
            self._error = error
        finally:
            self._listener.close()

    def __exit__(self, kind, error, trace):
        self._thread.join(PATIENCE_S if error is None else 1)
        if self._error is not None:
            raise self._error
        if error is None and self._thread.is_alive():
            raise AssertionError("the script has not ended")
