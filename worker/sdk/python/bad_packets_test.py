#!/usr/bin/python3
"""Wrong packets: each is an error of the trainer, and none a hang or a crash."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402
import fake_exchange  # noqa: E402
from fake_exchange import FakeExchange  # noqa: E402

import atoll  # noqa: E402
from atoll import _messages  # noqa: E402

_TENSOR = {"name": "w", "shape": [4], "element_offset": 0}
_LAYOUT = {"fragment": 0, "element_count": 4, "last": True,
           "tensors": [_TENSOR]}

# Packets instead of the answer to the hello: name, packet.
_NO_HELLO = [
    ("no JSON", b"hello"),
    ("no text", b"\xff\xfe\x00"),
    ("a list", b"[]"),
    ("deep", b"[" * 60000),
    ("a huge number", b'{"seq":%s}' % (b"9" * 60000)),
    ("no kind", b'{"seq":"1"}'),
    ("two kinds", b'{"seq":"1","hello":{},"read":{}}'),
    ("another kind", b'{"seq":"1","read":{}}'),
    ("another seq", b'{"seq":"2","hello":{"version":1,"fragment_count":1}}'),
    ("no fragment", b'{"seq":"1","hello":{"version":1}}'),
    ("NaN without quotes", b'{"seq":"1","train":{"lr_scale":NaN}}'),
    ("a number as text", b'{"seq":"one","hello":{"version":1}}'),
    ("a bool as number", b'{"seq":"1","hello":{"version":true}}'),
    ("a number too large", b'{"seq":"1","hello":{"version":2147483648}}'),
    ("a text that is a number", b'{"seq":"1","hello":{"run_id":5}}'),
    ("a body that is a list", b'{"seq":"1","hello":[]}'),
    ("more than 64 KiB", b'{"seq":"1","hello":{"run_id":"' + b"x" * 65536 +
     b'"}}'),
    ("more than 64 KiB, with spaces", (
        b'{"seq":"1","hello":{"version":1,"fragment_count":1,"run_id":"%s",'
        b'"run_uid":"u"}}' % fake_exchange.RUN.encode()).ljust(65537)),
]

# Packets after the hello: name, body of `layout`, files with it.
_LAYOUTS = [
    ("no file", _LAYOUT, 0),
    ("two files", _LAYOUT, 2),
    ("six files", _LAYOUT, 6),
    ("another fragment", {**_LAYOUT, "fragment": 1}, 1),
    ("no elements", {**_LAYOUT, "element_count": 0}, 1),
    ("less than no elements", {**_LAYOUT, "element_count": -4}, 1),
    ("more than the file has", {**_LAYOUT, "element_count": 5}, 1),
    ("more than memory", {**_LAYOUT, "element_count": str(1 << 62)}, 1),
    ("no tensor", {**_LAYOUT, "tensors": []}, 1),
    ("tensors that are no list", {**_LAYOUT, "tensors": {}}, 1),
    ("a tensor that is no object", {**_LAYOUT, "tensors": [5]}, 1),
    ("a name twice", {**_LAYOUT, "tensors": [
        {"name": "w", "shape": [1]},
        {"name": "w", "shape": [1], "element_offset": 1}]}, 1),
    ("no name", {**_LAYOUT, "tensors": [{**_TENSOR, "name": ""}]}, 1),
    ("a negative shape", {**_LAYOUT, "tensors": [
        {**_TENSOR, "shape": [-2, -2]}]}, 1),
    ("an empty shape", {**_LAYOUT, "tensors": [{**_TENSOR, "shape": [0]}]}, 1),
    ("beyond the region", {**_LAYOUT, "tensors": [
        {**_TENSOR, "element_offset": 1}]}, 1),
    ("before the region", {**_LAYOUT, "tensors": [
        {**_TENSOR, "element_offset": -1}]}, 1),
    ("over another", {**_LAYOUT, "tensors": [
        {"name": "a", "shape": [2]},
        {"name": "b", "shape": [2], "element_offset": 1}]}, 1),
]

# Requests with a whole layout.
_REQUESTS = [
    ("no such fragment", "read", {"fragments": [1]}),
    ("fragment -1", "write", {"fragments": [-1]}),
    ("a train of no steps", "train", {"step": 4}),
    ("a second layout", "layout", _LAYOUT),
    ("a second hello", "hello", {"version": 1}),
    ("a save id that is a path", "save", {"save_id": "../x"}),
    ("a save id with a capital", "save", {"save_id": "A"}),
    ("no save id", "save", {}),
    ("a load of a path", "load", {"save_id": "../_initial"}),
    ("progress", "progress", {}),
]


class BadPacketsTest(cases.FolderCase):

    def failure(self, script, name):
        """The Error that the trainer raises, and what it sends at its end."""
        os.environ["ATOLL_SOCKET"] = self.path(name)
        last = []

        def whole(peer):
            script(peer)
            last.extend(peer.wait_for_close())

        with FakeExchange(self.path(name), whole):
            with self.assertRaises(atoll.Error) as caught:
                with atoll.Island("nobody:1", run=fake_exchange.RUN,
                                  work_dir=self.path("work")) as island:
                    while island.step():
                        pass
        return caught.exception, last

    def check(self, script, name, code="INVALID_ARGUMENT"):
        error, last = self.failure(script, name)
        self.assertEqual(error.code, code, error)
        self.assertIn("error", last[-1])
        self.assertEqual(last[-1]["error"]["code"], code)

    def test_instead_of_the_hello(self):
        for number, (name, packet) in enumerate(_NO_HELLO):
            with self.subTest(name):
                def script(peer):
                    peer.receive()
                    peer.send(packet)

                error, _ = self.failure(script, "hello%d" % number)
                self.assertEqual(error.reason, "UNREADABLE_MESSAGE", error)

    def test_in_the_layout(self):
        for number, (name, body, file_count) in enumerate(_LAYOUTS):
            with self.subTest(name):
                def script(peer):
                    peer.hello(2)
                    peer.tell("layout", [peer.region(4)
                                         for _ in range(file_count)], **body)

                self.check(script, "layout%d" % number)

    def test_in_the_second_part_of_a_fragment(self):
        second = {**_LAYOUT, "tensors": [
            {"name": "x", "shape": [1], "element_offset": 3}]}
        for number, (name, body, file_count) in enumerate([
                ("a second file", second, 1),
                ("another size", {**second, "element_count": 5}, 0),
                ("another fragment", {**second, "fragment": 1}, 0),
                ("before the first part", {**second, "tensors": [
                    {"name": "x", "shape": [1], "element_offset": 0}]}, 0)]):
            with self.subTest(name):
                def script(peer):
                    peer.hello(1)
                    peer.ask("layout", [peer.region(4)], fragment=0,
                             element_count=4,
                             tensors=[{"name": "w", "shape": [3]}])
                    peer.tell("layout", [peer.region(4)
                                         for _ in range(file_count)], **body)

                self.check(script, "part%d" % number)

    def test_after_the_layout(self):
        for number, (name, kind, body) in enumerate(_REQUESTS):
            with self.subTest(name):
                def script(peer):
                    peer.hello(1)
                    peer.layout([{"w": [4]}])
                    peer.tell(kind, **body)

                self.check(script, "request%d" % number)

    def test_before_the_layout_has_ended(self):
        for kind, body in [("read", {}), ("write", {}), ("save", {}),
                           ("load", {}), ("evaluate", {}),
                           ("train", {"step_count": 1})]:
            with self.subTest(kind):
                def script(peer):
                    peer.hello(2)
                    peer.ask("layout", [peer.region(4)], **_LAYOUT)
                    peer.tell(kind, **body)

                self.check(script, "early-" + kind)

    def test_a_request_while_a_train_is_open(self):
        def script(peer):
            peer.begin()
            peer.tell("train", step_count=str(1 << 40))
            peer.tell("read", fragments=[0])

        self.check(script, "open")

    def test_a_request_without_a_number(self):
        def script(peer):
            peer.begin()
            peer.send({"read": {"fragments": [0]}})

        self.check(script, "seq")

    def test_a_message_of_a_later_version(self):
        def script(peer):
            peer.begin()
            peer.tell("shuffle", x=1)

        self.check(script, "later", code="UNIMPLEMENTED")

    def test_another_version_of_the_protocol(self):
        error, _ = self.failure(lambda peer: peer.hello(version=2), "version")
        self.assertEqual(error.reason, "OTHER_VERSION")

    def test_an_error_instead_of_the_hello(self):
        def script(peer):
            peer.receive()
            peer.send({"seq": "1", "error": {"reason": "BUSY", "code": "ABORTED",
                                             "message": "one at a time"}})

        error, _ = self.failure(script, "busy")
        self.assertEqual((error.reason, error.code), ("BUSY", "ABORTED"))

    def test_a_state_that_nobody_saved(self):
        def script(peer):
            peer.begin()
            peer.tell("load", save_id="never")

        self.check(script, "never", code="NOT_FOUND")

    def test_random_bytes_are_errors(self):
        random = cases.random()
        for _ in range(2000):
            packet = bytearray(
                b'{"seq":"4","train":{"step":"4","step_count":2,"loss":"NaN"},'
                b'"x":[1,{"y":null}]}')
            for _ in range(random.randrange(1, 5)):
                packet[random.randrange(len(packet))] = random.randrange(256)
            try:
                _messages.decode(bytes(packet))
            except atoll.Error:
                pass


if __name__ == "__main__":
    cases.main()
