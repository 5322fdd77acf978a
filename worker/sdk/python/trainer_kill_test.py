#!/usr/bin/python3
"""kill -9 of a trainer, and loss of its exchange, at every point: same bits."""

import multiprocessing
import os
import shutil
import signal
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402
import fake_exchange  # noqa: E402
import killed_trainer  # noqa: E402
from fake_exchange import Gone, Peer  # noqa: E402

import numpy as np  # noqa: E402

_ROUNDS = 4
_STEPS = 3
# An interpreter that starts and imports takes most of such a trainer's time.
_FORK = multiprocessing.get_context("fork")


class Exchange:
    """The exchange of a strict run with one island, which is durable here.

    Its record names a save, as the record of a real one does: it is written
    once the trainer has answered `save`, and is where a restart begins.
    `keeps`: the trainer continues after the steps that it has kept.
    """

    def __init__(self, drop_after=None, keeps=False):
        self._keeps = keeps
        self._record = ("", 0, np.ones(4, np.float32))
        self._left = drop_after  # Requests until it drops the connection once.
        self._save_count = 0
        self.losses = {}
        self.request_count = 0

    def _ask(self, peer, kind, **body):
        answer = peer.ask(kind, **body)
        self.request_count += 1
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise Gone("dropped")
        return answer

    def serve(self, peer):
        """Plays the run from the record to its end. Gone: must come again."""
        peer.hello(1)
        peer.layout([{"v": [4]}])
        save_id, version, weights = self._record
        standing = next((of for of in peer.kept.get("standings", ())
                         if self._keeps and of["save_id"] == save_id), None)
        self._ask(peer, "load", save_id=save_id, keep=standing is not None)
        kept = int(standing["step_count"]) if standing else 0
        while version < _ROUNDS:
            if kept:
                assert (int(standing["step"]), int(standing["version"])) == (
                    version * _STEPS, version), (standing, version)
            else:
                peer.regions[0][:] = weights
                self._ask(peer, "write", fragments=[0])
            answer = self._ask(peer, "train", step=version * _STEPS,
                               step_count=_STEPS, version=version,
                               kept_step_count=kept)
            kept = 0
            assert answer["token_count"] == str(4 * _STEPS), answer
            # A round that is repeated gives the same loss.
            assert self.losses.setdefault(
                version, answer["loss"]) == answer["loss"], (version, answer)
            self._ask(peer, "read", fragments=[0])
            weights = (weights + peer.regions[0]) / np.float32(2)
            version += 1
            self._save_count += 1  # No id is used twice.
            save_id = "save-%d" % self._save_count
            assert self._ask(peer, "save", save_id=save_id) == {
                "save_id": save_id}
            self._record = (save_id, version, weights)
        peer.end()

    @property
    def weights(self):
        return self._record[2].tobytes()


class KillTest(cases.FolderCase):

    def setUp(self):
        super().setUp()
        self.count = 0

    def run_to_the_end(self, point="step", *numbers, drop_after=None,
                       keeps=False):
        """Runs trainers, each after the other's death. Returns the exchange.

        The first kills itself at `numbers[0]`, the next at `numbers[1]`, ...
        """
        self.count += 1
        path = self.path("socket%d" % self.count)
        work = self.path("work%d" % self.count)
        exchange = Exchange(drop_after, keeps)
        trainer = None
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.settimeout(fake_exchange.PATIENCE_S)
            listener.bind(path)
            listener.listen(4)
            for life in range(6):
                if trainer is None:
                    number, *numbers = numbers or [0]
                    trainer = _FORK.Process(
                        target=killed_trainer.main,
                        args=(path, work, point, number, keeps))
                    trainer.start()
                sock, _ = listener.accept()
                sock.settimeout(fake_exchange.PATIENCE_S)
                peer = Peer(sock)
                try:
                    exchange.serve(peer)
                    trainer.join(fake_exchange.PATIENCE_S)
                    self.assertEqual(trainer.exitcode, 0)
                    break
                except Gone as gone:
                    if str(gone) != "dropped":
                        trainer.join(fake_exchange.PATIENCE_S)
                        self.assertEqual(trainer.exitcode, -signal.SIGKILL)
                        trainer = None
                finally:
                    peer.close()
            else:
                self.fail("the trainer died in each of its lives")
        shutil.rmtree(work)
        exchange.lives = life + 1
        return exchange

    def test_kill_of_the_trainer_at_every_point(self):
        undisturbed = self.run_to_the_end()
        for point in killed_trainer.POINTS:
            kills = 0
            for number in (1, 3):
                with self.subTest(point=point, number=number):
                    got = self.run_to_the_end(point, number)
                    kills += got.lives - 1
                    self.assertEqual(got.weights, undisturbed.weights)
                    self.assertEqual(got.losses, undisturbed.losses)
            self.assertGreater(kills, 0, "nothing dies at %s" % point)

    def test_several_deaths_before_the_same_save_is_recorded(self):
        undisturbed = self.run_to_the_end()
        got = self.run_to_the_end("before save", 2, 1, 1)
        self.assertEqual(got.lives, 4)
        self.assertEqual(got.weights, undisturbed.weights)

    def test_loss_of_the_exchange_after_every_answer(self):
        undisturbed = self.run_to_the_end()
        for number in range(1, undisturbed.request_count + 1):
            with self.subTest(number=number):
                got = self.run_to_the_end(drop_after=number)
                self.assertEqual(got.lives, 2)
                self.assertEqual(got.weights, undisturbed.weights)
                self.assertEqual(got.losses, undisturbed.losses)

    def test_steps_that_are_kept_need_no_data_again(self):
        undisturbed = self.run_to_the_end()
        for number in range(1, undisturbed.request_count):
            with self.subTest(number=number):
                got = self.run_to_the_end(drop_after=number, keeps=True)
                self.assertEqual(got.lives, 2)
                self.assertEqual(got.weights, undisturbed.weights)
                self.assertEqual(got.losses, undisturbed.losses)

    def test_loss_of_both(self):
        undisturbed = self.run_to_the_end()
        for number in (2, 6, 9):
            with self.subTest(number=number):
                got = self.run_to_the_end("before save", 2, drop_after=number)
                self.assertGreaterEqual(got.lives, 2)
                self.assertEqual(got.weights, undisturbed.weights)


if __name__ == "__main__":
    cases.main()
