#!/usr/bin/python3
"""The trainer of the standard library alone against an exchange that plays."""

import os
import signal
import socket
import subprocess
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(_HERE, "..", "..", "worker", "sdk", "python",
                                "testing"))

import cases  # noqa: E402
import fake_exchange  # noqa: E402

import numpy as np  # noqa: E402

_TRAINER = os.path.join(_HERE, "stdlib_trainer.py")
_LAYOUT = [{"w": [3], "b": [1]}]


class StdlibTrainerTest(cases.FolderCase):

    def setUp(self):
        super().setUp()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(self.listener.close)
        self.listener.settimeout(fake_exchange.PATIENCE_S)
        self.listener.bind(self.path("socket"))
        self.listener.listen(4)

    def start(self, work="work"):
        trainer = subprocess.Popen([sys.executable, "-B", _TRAINER,
                                    self.path("socket"), self.path(work)])
        self.addCleanup(trainer.wait)
        self.addCleanup(trainer.kill)
        return trainer

    def connect(self):
        sock, _ = self.listener.accept()
        sock.settimeout(fake_exchange.PATIENCE_S)
        peer = fake_exchange.Peer(sock)
        self.addCleanup(peer.close)
        return peer

    def begin(self, save_id="", values=0.0):
        peer = self.connect()
        peer.hello(1)
        peer.layout(_LAYOUT)
        peer.ask("load", save_id=save_id)
        peer.write(values)
        return peer

    def finish(self, trainer, peer):
        peer.end()
        self.assertEqual(trainer.wait(fake_exchange.PATIENCE_S), 0)

    def test_it_learns_the_line(self):
        trainer, peer = self.start(), self.begin()
        first = float(peer.ask("evaluate")["loss"])
        answer = peer.train(300)
        self.assertEqual((answer["step_count"], answer["token_count"]),
                         ("300", "2400"))
        values, = peer.read()
        np.testing.assert_allclose(values, [1, 2, 3, 0.5], atol=0.02)
        last = peer.ask("evaluate")
        self.assertGreater(int(last["token_count"]), 0)
        self.assertLess(last["loss"], first / 1000)
        self.finish(trainer, peer)

    def test_after_a_kill_it_goes_on_with_the_same_bits(self):
        results = []
        for kill in (False, True):
            work = "work%d" % kill
            trainer, peer = self.start(work), self.begin()
            peer.train(5)
            values, = peer.read()
            peer.ask("save", save_id="five")
            if kill:
                peer.train(2)
                peer.ask("save", save_id="unknown")
                trainer.send_signal(signal.SIGKILL)
                trainer.wait()
                trainer, peer = self.start(work), self.begin("five", values)
            for name in ("six", "seven"):
                peer.train(1)
                values, = peer.read()
                peer.ask("save", save_id=name)
            results.append(values.tobytes())
            self.assertEqual(sorted(os.listdir(self.path(work, "states"))),
                             ["_initial", "seven", "six"])
            self.finish(trainer, peer)
        self.assertEqual(results[0], results[1])

    def test_it_comes_back_to_an_exchange_that_was_away(self):
        trainer, peer = self.start(), self.begin()
        peer.tell("train", step_count=str(1 << 40))
        peer.close()
        peer = self.begin()
        peer.train(1)
        self.finish(trainer, peer)

    def test_an_interrupt_ends_a_train(self):
        trainer, peer = self.start(), self.begin()
        seq = peer.tell("train", step_count=str(1 << 40))
        peer.tell("interrupt")
        self.assertGreater(int(peer.answer_to("train", seq)["step_count"]), 0)
        self.finish(trainer, peer)

    def test_it_uses_the_standard_library_alone_in_few_lines(self):
        with open(_TRAINER, encoding="utf-8") as file:
            lines = file.read().split("\n")
        self.assertLessEqual(len(lines), 201)
        imported = {line.split()[1].split(".")[0] for line in lines
                    if line.startswith(("import ", "from "))}
        self.assertLessEqual(imported, set(sys.stdlib_module_names))


if __name__ == "__main__":
    cases.main()
