#!/usr/bin/python3
"""An island's loop against an exchange that plays a script."""

import math
import os
import random
import socket
import subprocess
import sys
import threading
import types
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402
import fake_exchange  # noqa: E402
from fake_exchange import FakeExchange  # noqa: E402

import numpy as np  # noqa: E402

import atoll  # noqa: E402
from atoll._connection import Connection  # noqa: E402
from atoll import _news as news_module  # noqa: E402
from atoll import _saver as saver_module  # noqa: E402
from atoll import _store as store_module  # noqa: E402
from atoll import _trainer as trainer_module  # noqa: E402
from atoll import island as island_module  # noqa: E402


class Loader:
    """A loader of numbers whose state is its position."""

    def __init__(self):
        self.position = 0

    def next(self):
        self.position += 1
        return self.position

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class Cosine:
    """A schedule of torch's kind, over `step_count` steps."""

    def __init__(self, step_count):
        self.optimizer = types.SimpleNamespace(param_groups=[{"lr": 1.0}])
        self.last_epoch = 0
        self._step_count = step_count

    def step(self):
        if self.last_epoch == self._step_count:
            raise ValueError("a step after the last one")  # As OneCycleLR.
        self.last_epoch += 1
        self.optimizer.param_groups[0]["lr"] = 0.5 * (
            1 + math.cos(math.pi * self.last_epoch / self._step_count))

    def state_dict(self):
        return {"last_epoch": self.last_epoch}

    def load_state_dict(self, state):
        self.last_epoch = state["last_epoch"]


class IslandCase(cases.FolderCase):

    def setUp(self):
        super().setUp()
        self.socket = self.path("socket")
        os.environ["ATOLL_SOCKET"] = self.socket

    def exchange(self, *scripts):
        return FakeExchange(self.socket, *scripts)

    def island(self, **options):
        options.setdefault("work_dir", self.path("work"))
        return atoll.Island("nobody:1", run=fake_exchange.RUN, **options)


class ScheduleTest(IslandCase):

    def test_a_cosine_ends_at_zero_over_kills_wherever_the_run_ends(self):
        """An elastic run of 63 rounds; 20 of them lose the trainer."""
        def script(peer):
            peer.hello(strict=False, planned_step_count="630")
            peer.layout()
            if run["version"] == 63:
                peer.write(0, 0)
                peer.end()
                return
            peer.ask("load", save_id="")
            peer.write(0, 0)
            while run["version"] < 63:
                version = run["version"]
                body = {"step": str(10 * version), "version": str(version)}
                run["version"] += 1
                if version == 62 and ending == "interrupted":
                    peer.tell("train", step_count=str(1 << 40), **body)
                    peer.end()  # The others' contributions were enough.
                    return
                if version in kills:
                    peer.end(complete=False)
                    return
                peer.train(7 if ending == "few steps" else 10, **body)
            peer.end()

        for ending in ("whole", "few steps", "interrupted", "away"):
            with self.subTest(ending):
                kills = set(range(0, 60, 3))
                if ending == "away":
                    kills = kills - {0} | {62}
                run = {"version": 0}
                self.socket = os.environ["ATOLL_SOCKET"] = self.path(
                    ending[:4])
                lives, ended = 0, False
                with self.exchange(*[script] * (len(kills) + 1)):
                    while not ended:
                        lives += 1
                        schedule = Cosine(630)
                        try:
                            with self.island(
                                    work_dir=self.path("w-" + ending),
                                    scheduler=schedule) as island:
                                while not island.ended:
                                    # The end may take 50 ms to be seen.
                                    if (ending != "interrupted" or
                                            island.clock < 625):
                                        self.assertEqual(schedule.last_epoch,
                                                         island.clock)
                                        schedule.step()
                                    if not island.step():
                                        break
                            ended = True
                        except atoll.Error as error:
                            self.assertEqual(error.reason, "ISLAND_ENDED")
                self.assertEqual(lives, 21)
                self.assertEqual(schedule.optimizer.param_groups[0]["lr"], 0)


class LoopTest(IslandCase):

    def test_a_round_trains_on_what_was_written_and_tells_its_sums(self):
        def script(peer):
            peer.begin(1.5, 2.5)
            answer = peer.train(3, step=40, version="7", data_shard=2,
                                data_position="90")
            self.assertEqual(answer, {"step_count": "3", "token_count": "60",
                                      "loss": 2.0})
            np.testing.assert_array_equal(peer.read()[0], [2.5] * 9)
            peer.end()

        with self.exchange(script), self.island() as island:
            self.assertEqual((island.round, island.clock, island.data_shard,
                              island.data_position), (7, 40, 2, 90))
            np.testing.assert_array_equal(island.arrays["v"], [2.5] * 4)
            self.assertEqual(island.arrays["w"].shape, (2, 3))
            for number in range(3):
                if number == 2:
                    for name in ("w", "b"):
                        island.arrays[name][...] += 1
                self.assertEqual(island.clock, 40 + number)
                going = island.step(loss=1.0 + number, tokens=20)
                self.assertEqual(going, number < 2)
            self.assertFalse(island.step())

    def test_rounds_follow_each_other(self):
        def script(peer):
            peer.begin()
            for version in range(5):
                self.assertEqual(peer.train(2, step=2 * version,
                                            version=version)["step_count"], "2")
                peer.write(*[region + 1 for region in peer.read()])
            peer.end()

        rounds = []
        with self.exchange(script), self.island() as island:
            while True:
                rounds.append(island.round)
                island.arrays["v"][...] += 0.5
                if not island.step():
                    break
            np.testing.assert_array_equal(island.arrays["v"], [10] * 4)
        self.assertEqual(rounds, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4])

    def test_a_restore_resets_the_state_unless_it_is_to_be_kept(self):
        for on_restore, position in (("reset", 0), ("keep", 2)):
            def script(peer):
                peer.begin(1, 1)
                peer.train(2, step=8, version=4)
                peer.ask("load", save_id="", run_epoch="2",
                         restored_commit_seq="9")
                peer.write(5, 6)
                peer.train(1, step=2, version=1)
                peer.end()

            events, loader = [], {"position": 0}
            with self.exchange(script), self.island(
                    work_dir=self.path(on_restore), state={"loader": loader},
                    on_event=events.append, on_restore=on_restore) as island:
                for _ in range(2):
                    loader["position"] += 1
                    self.assertTrue(island.step())
                self.assertEqual(loader["position"], position, on_restore)
                np.testing.assert_array_equal(island.arrays["v"], [6] * 4)
                self.assertEqual((island.round, island.clock), (1, 2))
                self.assertFalse(island.step())
            told = [event for event in events if event["event"] == "restored"]
            self.assertEqual([(event["commit"], event["run_epoch"])
                              for event in told], [(9, 2)])
            self.assertIn("reset" if on_restore == "reset" else
                          "left as it is", told[0]["message"])
            os.unlink(self.socket)

    def test_another_on_restore_is_refused(self):
        with self.assertRaisesRegex(atoll.Error, "on_restore is 'none'"):
            self.island(on_restore="none")

    def test_given_arrays_are_copied_at_read_and_write(self):
        def script(peer):
            peer.begin(3, 4)
            peer.train(1)
            self.assertEqual(peer.regions[1][0], 4)  # Until it is read.
            np.testing.assert_array_equal(peer.read()[1], [5] * 4)
            peer.end()

        mine = {"w": np.zeros((2, 3), np.float32),
                "b": np.zeros(3, np.float32), "v": np.zeros(4, np.float32)}
        with self.exchange(script), self.island(arrays=mine) as island:
            np.testing.assert_array_equal(mine["b"], [3] * 3)
            mine["v"] += 1
            island.step()

    def test_a_forked_child_has_arrays_of_its_own(self):
        def script(peer):
            peer.begin(3, 4)
            peer.train(1)
            np.testing.assert_array_equal(peer.read()[1], [4] * 4)
            peer.end()

        with self.exchange(script), self.island() as island:
            child = os.fork()
            if not child:
                island.arrays["v"] += 1
                os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            island.step()

    def test_a_forked_child_that_trains_is_refused(self):
        def script(peer):
            peer.begin()
            peer.train(1)
            peer.end()

        with self.exchange(script), self.island() as island:
            child = os.fork()
            if not child:
                code = 1
                try:
                    island.step()
                except atoll.Error as error:
                    code = 7 if error.reason == "FORKED" else 2
                os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(
                os.waitpid(child, 0)[1]), 7)
            island.step()

    def test_a_layout_takes_as_many_packets_as_it_needs(self):
        layout = [{"layers.%d.%s" % (number, "x" * 60): [2, 1]
                   for number in range(2000)}, {"last": [1]}]

        def script(peer):
            peer.hello(2)
            peer.layout(layout, a_message=300)
            peer.regions[0][:] = np.arange(4000)
            peer.ask("write", fragments=[0, 1])
            peer.train(1)
            peer.end()

        with self.exchange(script), self.island() as island:
            self.assertEqual(len(island.arrays), 2001)
            name = "layers.1999." + "x" * 60
            np.testing.assert_array_equal(island.arrays[name], [[3998], [3999]])
            island.step()

    def test_a_step_that_was_skipped_has_no_part_in_the_loss(self):
        def script(peer):
            peer.begin(3, 4)
            self.assertEqual(peer.train(3)["loss"], 1.5)
            self.assertEqual(peer.train(2)["loss"], 1.0)
            self.assertEqual(peer.train(2)["loss"], "NaN")
            peer.end()

        with self.exchange(script), self.island() as island:
            for loss in (1.0, float("inf"), 2.0, 1.0, float("nan"), 1.0):
                island.step(loss=loss)
            island.arrays["v"][1] = np.nan
            island.step(loss=float("nan"))

    def test_an_event_names_the_step_whose_loss_was_lost(self):
        def script(peer):
            peer.begin(3, 4)
            self.assertEqual(peer.train(5, step=40)["loss"], "NaN")
            peer.write(1.0, 1.0)
            peer.train(1, version="0", step="40")  # Again.
            peer.end(version="1")

        events = []
        with self.exchange(script), self.island(
                on_event=events.append) as island:
            island.step(loss=float("nan"))  # Skipped.
            island.step(loss=1.0)
            island.step()  # Another rank has the loss.
            island.arrays["v"][1] = np.nan
            island.step(loss=float("nan"))
            island.step(loss=float("nan"))
            island.step(loss=2.0)
        self.assertEqual([(e["step"], e["message"]) for e in events
                          if e["event"] == "not_finite"],
                         [(43, "no loss is finite from step 43 on")])
        # Steps that are lost have no part in a round.
        self.assertEqual([e["loss"] for e in events
                          if e["event"] == "committed"], [2.0])

    def test_lost_parameters_end_a_train_early(self):
        def script(peer):
            peer.begin(3, 4)
            self.assertEqual(peer.train(1 << 40)["loss"], "NaN")
            peer.write(3, 4)
            self.assertEqual(peer.train(1)["loss"], 2.0)
            peer.end()

        with mock.patch.object(island_module, "_PROGRESS_S", 0), \
                self.exchange(script), self.island() as island:
            island.step(loss=float("nan"))  # Skipped.
            self.assertGreater(island.done_step_count, 0)
            island.arrays["v"][1] = np.nan
            while np.isnan(island.arrays["v"][1]):
                island.step(loss=float("nan"))
            island.step(loss=2.0)

    def test_a_dictionary_is_a_state(self):
        def first(peer):
            peer.begin()
            peer.train(1)
            peer.ask("save", save_id="s-1")

        def second(peer):
            peer.hello()
            peer.layout()
            peer.ask("load", save_id="s-1")
            peer.write(0, 0)
            peer.train(1)
            peer.end()

        progress, seen = {"epoch": 0, "best": [1]}, []
        with self.exchange(first, second), self.island(
                state={"progress": progress}) as island:
            while True:
                progress["epoch"] += 1
                seen.append(progress["epoch"])
                if not island.step():
                    break
        self.assertEqual((seen[0], progress["epoch"], progress["best"]),
                         (1, 2, [1]))
        self.assertGreaterEqual(len(seen), 2)
        with self.assertRaisesRegex(atoll.Error, "Keep numbers in"):
            self.island(state={"epoch": 3}, work_dir=self.path("other"))

    def test_numbers_come_as_numbers_or_texts_and_unknown_fields_pass(self):
        def script(peer):
            peer.hello(inner_step_count=3, later="unknown")
            peer.layout()
            peer.write(0, 0)
            peer.send({"seq": 50, "unknown": {"x": [1]}, "train": {
                "step": 4.0, "step_count": 1, "lr_scale": "0.25",
                "data_position": "9007199254740993", "new": {"y": 1}}})
            peer.answer_to("train", 50)
            peer.end()

        with self.exchange(script), self.island() as island:
            self.assertEqual((island.clock, island.lr_scale), (4, 0.25))
            self.assertEqual(island.data_position, 9007199254740993)
            island.step()

    def test_the_hello_tells_the_fingerprint_of_the_data(self):
        def script(peer):
            self.assertEqual(peer.receive(), {"seq": "1", "hello": {
                "version": 1, "weight_unit": "any",
                "data_fingerprint": "beef"}})
            peer.tell("error", message="the run has other data")

        with self.exchange(script), self.assertRaisesRegex(
                atoll.Error, "other data"):
            self.island(data_fingerprint="beef").start()

    def test_steps_are_counted_from_the_data_s_position(self):
        seen = []

        def script(peer):
            peer.hello()
            peer.layout()
            peer.write(0, 0)
            peer.train(2, step=10, data_position="80", data_shard=3)
            peer.train(1, step=12, data_position="96", data_shard=3)
            peer.end()

        island = self.island()
        # A loader that is made now would have another island's data.
        with self.assertRaisesRegex(atoll.Error, "(?s)block.*atoll.join"):
            print(island.data_shard)
        with self.exchange(script), island:
            while True:
                seen.append((island.clock, island.data_position,
                             island.done_step_count))
                if not island.step():
                    break
        self.assertEqual(seen, [(10, 80, 0), (11, 80, 1), (12, 96, 0)])
        self.assertEqual(island.data_shard, 3)

    def test_losses_that_are_not_finite_are_texts(self):
        def script(peer):
            peer.begin()
            self.assertEqual(peer.train(1)["loss"], "NaN")
            self.assertEqual(peer.train(1)["loss"], "Infinity")
            self.assertEqual(peer.train(1)["loss"], "-Infinity")
            self.assertNotIn("loss", peer.train(1))
            peer.end()

        with self.exchange(script), self.island() as island:
            for loss in (float("nan"), np.float32("inf"), -np.inf, None):
                island.step(loss=loss)

    def count(self, unit, *steps):
        """Steps of one `train` in a run of `unit`; returns the answer."""
        answers = []

        def script(peer):
            peer.begin(weight_unit=unit)
            answers.append(peer.train(len(steps)))
            peer.end()

        self.socket = self.path("socket-%s-%d" % (unit, len(steps)))
        os.environ["ATOLL_SOCKET"] = self.socket
        with self.exchange(script), self.island() as island:
            for step in steps:
                island.step(**step)
        return answers[0]["token_count"]

    def test_a_step_weighs_in_the_unit_of_the_run(self):
        both = {"tokens": 20, "samples": 3}
        self.assertEqual(self.count("tokens", both, {"tokens": 5}), "25")
        self.assertEqual(self.count("samples", both, {"samples": 2}), "5")
        self.assertEqual(self.count("steps", both, {"loss": 1.0}, {}), "3")
        self.assertEqual(self.count("", both, {"loss": 1.0}), "20")
        # An older exchange does not tell; its runs weigh by tokens.
        self.assertEqual(self.count(None, both, {"tokens": 5}), "25")

    def test_a_step_without_the_unit_of_the_run_is_an_error_at_once(self):
        for unit, other in (("tokens", "samples"), ("samples", "tokens"),
                            (None, "samples")):
            for step in ({"loss": 1.0}, {other: 5}):
                def script(peer):
                    peer.begin(weight_unit=unit)
                    peer.tell("train", step_count=100)
                    told, = peer.wait_for_close()
                    self.assertEqual(told["error"]["reason"], "NO_WEIGHT")

                self.socket = self.path("%s%d" % (unit, len(step)) + other[0] +
                                        "".join(step))
                os.environ["ATOLL_SOCKET"] = self.socket
                with self.exchange(script), self.assertRaisesRegex(
                        atoll.Error, "weighs by %s(.|\n)*step\\(%s=" %
                        ((unit or "tokens",) * 2)), self.island() as island:
                    island.step(**step)

    def test_a_weight_that_is_no_count_is_an_error_at_once(self):
        def script(peer):
            peer.begin(weight_unit=unit)
            self.assertEqual(peer.train(1)["token_count"], "7")
            peer.end()

        for unit in ("tokens", "samples"):
            os.environ["ATOLL_SOCKET"] = self.socket = self.path(unit)
            with self.exchange(script), self.island() as island:
                for weight in (float("nan"), np.float32("inf"), -1, -0.5, "5",
                               [5], np.arange(2)):
                    with self.assertRaisesRegex(
                            atoll.Error, "^%s is .*WRONG_WEIGHT" % unit):
                        island.step(**{unit: weight})
                island.step(**{unit: np.float32(7)})

    def test_a_unit_that_it_does_not_know_is_an_error(self):
        def script(peer):
            peer.hello(weight_unit="words")
            peer.wait_for_close()

        with self.exchange(script), self.assertRaisesRegex(
                atoll.Error, "weighs by 'words'"):
            self.island().start()

    def test_why_a_contribution_was_refused_is_logged(self):
        def script(peer):
            peer.begin()
            peer.train(1)
            peer.train(1, notices=["its norm is too large", "so is this"])
            peer.tell("end", complete=True, notices=["the last one too"])

        events = []
        with self.assertLogs("atoll", "WARNING") as logs, self.exchange(
                script), self.island(on_event=events.append) as island:
            while island.step():
                pass
        told = ["its norm is too large", "so is this", "the last one too"]
        self.assertEqual([e["message"] for e in events
                          if e["event"] == "warned"], told)
        self.assertEqual([r.getMessage() for r in logs.records],
                         ["run spring: " + line for line in told])

    def test_an_island_that_is_refused_says_why(self):
        def script(peer):
            peer.hello()
            peer.layout()
            peer.end(complete=False, message="the island counts tokens",
                     code="FAILED_PRECONDITION", reason="OTHER_WEIGHT_UNIT")

        with self.exchange(script), self.assertRaisesRegex(
                atoll.Error, r"the island counts tokens \(OTHER_WEIGHT_UNIT\)"
        ) as raised:
            self.island().start()
        self.assertEqual(raised.exception.code, "FAILED_PRECONDITION")

    def test_metrics_are_means_by_tokens(self):
        def script(peer):
            peer.begin()
            self.assertEqual(peer.train(2)["metrics"],
                             {"accuracy": 0.25, "once": 7.0})
            self.assertNotIn("metrics", peer.train(1))
            peer.end()

        with self.exchange(script), self.island() as island:
            island.step(tokens=1, metrics={"accuracy": 1.0, "once": 7})
            island.step(tokens=3, metrics={"accuracy": np.float32(0),
                                           "unknown": float("nan")})
            self.assertEqual({**island.metrics, "unknown": 0},
                             {"accuracy": 0.25, "once": 7, "unknown": 0})
            island.step()

    def test_a_pause_is_told_with_the_steps(self):
        def script(peer):
            peer.begin()
            self.assertEqual(peer.train(2)["paused_seconds"], 30.0)
            self.assertNotIn("paused_seconds", peer.train(1))
            peer.end()

        with self.exchange(script), self.island() as island:
            island.step()
            clock = types.SimpleNamespace(monotonic=iter([5.0, 35.0]).__next__)
            with mock.patch.object(island_module, "time", clock):
                with island.paused():
                    pass
            while island.step():
                pass

    def test_a_wrong_metric_is_refused_and_named(self):
        def script(peer):
            peer.begin()
            peer.tell("train", step_count=10)
            self.assertEqual(peer.wait_for_close()[0]["error"]["reason"],
                             "WRONG_METRIC")

        for number, (metrics, text) in enumerate((
                ({"a b": 1}, "'a b'"), ({"": 1}, "''"), ({"x" * 65: 1}, "xx"),
                ({"x\n": 1}, "name"), ({3: 1}, "3 is"),
                ({"up": float("inf")}, "up is inf"),
                ({"m%d" % n: n for n in range(33)}, "m32"))):
            with self.subTest(text=text):
                self.socket = self.path("socket%d" % number)
                os.environ["ATOLL_SOCKET"] = self.socket
                with self.exchange(script), self.assertRaisesRegex(
                        atoll.Error, text), self.island() as island:
                    island.step(metrics=metrics)

    def test_a_step_with_nothing_due_does_not_touch_the_socket(self):
        def script(peer):
            peer.begin()
            peer.train(1000)
            peer.end()

        clock = [0.0]
        with self.exchange(script), mock.patch.object(
                island_module, "time",
                types.SimpleNamespace(monotonic=lambda: clock[0])):
            with self.island() as island:
                with mock.patch.object(island._client, "look") as look:
                    with mock.patch.object(island, "_poll",
                                           side_effect=AssertionError):
                        for _ in range(997):
                            self.assertTrue(island.step(loss=1.0))
                    with mock.patch.object(island, "_poll",
                                           return_value=[]) as poll:
                        clock[0] += 0.051
                        island.step()
                        island.step()
                        poll.assert_called_once()
                    look.assert_not_called()
                self.assertFalse(island.step())

    def test_progress_is_told_every_four_seconds(self):
        heard = []

        def script(peer):
            peer.begin()
            seq = peer.tell("train", step_count=100)
            peer.receive = lambda: heard.append(
                fake_exchange.json.loads(peer.sock.recv(65536))) or heard[-1]
            while "train" not in peer.receive():
                self.assertEqual(heard[-1]["seq"], str(seq))
            peer.end()

        clock = [0.0]
        with self.exchange(script), mock.patch.object(
                island_module, "time",
                types.SimpleNamespace(monotonic=lambda: clock[0])):
            with self.island() as island:
                for _ in range(100):
                    clock[0] += 0.125
                    island.step(loss=clock[0], tokens=2)
        self.assertEqual([m["progress"] for m in heard[:-1]], [
            {"step_count": "32", "token_count": "64", "loss": 4.0},
            {"step_count": "64", "token_count": "128", "loss": 8.0},
            {"step_count": "96", "token_count": "192", "loss": 12.0}])

    def test_progress_that_nothing_reads_leaves_room_for_the_answer(self):
        mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(other.close)
        mine.setblocking(False)  # A full socket would hang.
        connection = Connection(mine)
        self.addCleanup(connection.close)
        for step in range(5000):
            connection.send(1, "progress", {"step_count": step}, wait=False)
        connection.send(1, "train", {"step_count": 5000})
        packets = []
        while not packets or b'"progress"' in packets[-1]:
            packets.append(other.recv(65536, socket.MSG_DONTWAIT))
        self.assertIn(b'"train"', packets[-1])
        self.assertLess(1, len(packets))

    def test_an_interrupt_ends_a_train_at_the_next_look(self):
        def script(peer):
            peer.begin()
            seq = peer.tell("train", step_count=str(1 << 40))
            peer.tell("interrupt")
            self.assertGreater(int(peer.answer_to("train", seq)["step_count"]),
                               0)
            peer.tell("interrupt")  # Too late for that one: ignored.
            self.assertEqual(peer.train(2)["step_count"], "2")
            peer.end()

        with self.exchange(script), self.island() as island:
            while island.step():
                pass

    def test_a_forked_child_holds_no_socket_and_no_lock(self):
        def script(peer):
            peer.begin()
            peer.train(1)
            self.assertEqual(peer.wait_for_close(), [])

        ready, go = os.pipe()
        began, begin = os.pipe()
        with self.exchange(script):
            island = self.island()
            island.start()
            child = os.fork()
            if child == 0:
                os.close(go)
                os.write(begin, b".")  # It has let go of the lock.
                os.read(ready, 1)  # Lives until the test ends.
                os._exit(0)
            os.read(began, 1)
            island._client.finish(island._train,
                                  island._client.total(island._train))
            island._client.session.close()
        island._client.close()
        self.island()._client.close()  # The lock is free.
        os.close(go)
        os.waitpid(child, 0)
        for end in (ready, began, begin):
            os.close(end)


class NewsTest(IslandCase):

    def test_the_join_the_rounds_and_the_end_are_events(self):
        def script(peer):
            peer.begin()
            peer.train(1, version="3")
            peer.train(3, version="3", step="1")
            peer.train(1, version="4", step="4")
            peer.end(version="6")

        events = []
        with self.exchange(script), self.island(
                on_event=events.append) as island:
            for loss in (1.0, 2.0, 3.0, 4.0, 5.0):
                island.step(loss=loss)
        self.assertEqual([(e["event"], e.get("round"), e.get("loss"))
                          for e in events], [
                              ("joined", 3, None), ("committed", 4, 2.5),
                              ("committed", 6, 5.0), ("ended", None, None)])
        self.assertTrue(0 <= events[1]["training_share"] <= 1)
        self.assertGreaterEqual(events[1]["waited_seconds"], 0)

    def test_a_refusal_is_an_event(self):
        def script(peer):
            peer.receive()
            peer.tell("error", reason="FULL", message="no slot")

        events = []
        with self.exchange(script):
            with self.assertRaisesRegex(atoll.Error, "no slot"):
                self.island(on_event=events.append).start()
        self.assertEqual([(e["event"], e["reason"]) for e in events],
                         [("refused", "FULL")])

    def test_a_wait_tells_why_every_ten_seconds_and_has_an_end(self):
        log, now, events = self.path("log"), [100.0], []

        def write(*lines, mode="a"):
            with open(log, mode, encoding="utf-8") as file:
                file.writelines(line + "\n" for line in lines)

        news = news_module.News("spring", events.append, 60.0, log,
                                lambda: now[0])
        write("I1128 00:35:33.640758 x.cc:73] wait: 1 of 8",
              "round 0/6  step 0/30")
        for now[0] in (109.0, 110.0, 119.0, 120.0):
            news.look()
        self.assertEqual([(e["event"], e["why"], e["seconds"])
                          for e in events], [
                              ("waiting", "wait: 1 of 8", 10.0),
                              ("waiting", "wait: 1 of 8", 20.0)])
        events.clear()
        # Lines from before a wait are not its reason.
        write("I1128 00:35:34.640758 x.cc:574] contribution 3: 20 steps")
        news.begin()
        now[0] = 130.0
        news.look()
        write("I1128 00:35:35.640758 x.cc:90] the coordinator is away")
        now[0] = 140.0
        news.look()
        # A new exchange has begun the log anew.
        write("I1128 00:35:35.640758 x.cc:73] join", mode="w")
        now[0] = 150.0
        news.look()
        self.assertEqual([e["why"] for e in events], [
            "for the exchange, which has logged nothing since",
            "the coordinator is away", "join"])
        write("I1128 00:35:36.640758 x.cc:73] wait: 1 of 8")
        now[0] = 181.0
        with self.assertRaisesRegex(atoll.Error, "1 of 8"):
            news.look()

    def test_an_exchange_that_says_nothing_ends_the_wait(self):
        def script(peer):
            peer.begin()
            peer.train(1)
            peer.wait_for_close()

        with self.exchange(script), self.assertRaisesRegex(
                atoll.Error, "WAITED_TOO_LONG"):
            with self.island(wait_s_max=0.1) as island:
                island.step()


class EndTest(IslandCase):

    def test_a_cancelled_run_raises(self):
        def script(peer):
            peer.begin()
            peer.train(1)
            peer.end(complete=False, message="an operator cancelled it")

        with self.exchange(script):
            with self.assertRaisesRegex(atoll.Error, "operator") as caught:
                with self.island() as island:
                    island.step()
        self.assertEqual(caught.exception.code, "CANCELLED")

    def test_a_second_program_of_one_island_says_what_to_do(self):
        def script(peer):
            peer.begin()
            peer.train(1)
            peer.end(complete=False, reason="STALE_ISLAND_EPOCH",
                     message="island i has joined again since")

        with self.exchange(script), self.assertRaisesRegex(
                atoll.Error, "joined again.*\n.*island_id="):
            with self.island() as island:
                island.step()

    def test_an_end_during_a_train_ends_the_loop(self):
        def script(peer):
            peer.begin()
            peer.tell("train", step_count=str(1 << 40))
            peer.end()

        with self.exchange(script), self.island() as island:
            while island.step():
                pass

    def test_a_run_that_is_complete_before_the_first_step(self):
        def script(peer):
            peer.hello()
            peer.layout()
            peer.write(1, 2)
            peer.end()

        mine = {"w": np.zeros((2, 3), np.float32),
                "b": np.zeros(3, np.float32), "v": np.zeros(4, np.float32)}
        with self.exchange(script), self.island(arrays=mine) as island:
            self.assertTrue(island.ended)
            np.testing.assert_array_equal(mine["v"], [2] * 4)
            mine["v"] += 1  # A loop trains a step before it looks.
            self.assertFalse(island.step())
            np.testing.assert_array_equal(mine["v"], [2] * 4)
        with self.assertRaisesRegex(atoll.Error, "after the island is closed"):
            island.step()

    def test_a_complete_run_that_gives_no_parameters_is_an_error(self):
        def script(peer):
            peer.hello()
            peer.layout()
            peer.end()

        with self.exchange(script), self.assertRaisesRegex(
                atoll.Error, "NO_PARAMETERS"):
            self.island().start()

    def test_an_error_of_the_exchange_raises_with_all_its_parts(self):
        def script(peer):
            peer.begin()
            seq = peer.tell("train", step_count=1)
            peer.answer_to("train", seq)
            peer.tell("error", code="PERMISSION_DENIED",
                      reason="ISLAND_REMOVED", message="removed", hint="Ask.")

        with self.exchange(script):
            with self.assertRaises(atoll.Error) as caught:
                with self.island() as island:
                    island.step()
        error = caught.exception
        self.assertEqual((error.code, error.reason, error.message, error.hint),
                         ("PERMISSION_DENIED", "ISLAND_REMOVED", "removed",
                          "Ask."))

    def test_leaving_early_hands_in_what_is_done_and_serves_until_the_end(self):
        def script(peer):
            peer.begin()
            answer = peer.train(10)
            self.assertEqual(answer, {"step_count": "2", "token_count": "8",
                                      "loss": 1.0, "leave": True})
            peer.read()
            self.assertEqual(peer.train(5), {
                "step_count": "0", "token_count": "0", "leave": True})
            peer.end(complete=False)
            self.assertEqual(peer.wait_for_close(), [])

        with self.exchange(script), self.island() as island:
            island.step(loss=1.0, tokens=4)
            island.step(loss=1.0, tokens=4)

    def in_a_program(self, text):
        """The exit code of a program that has an island, and its answer."""
        answers = []

        def script(peer):
            peer.begin()
            answers.append(peer.train(1 << 40))
            peer.end(complete=False)

        if os.path.exists(self.socket):
            os.unlink(self.socket)
        with self.exchange(script):
            code = subprocess.run(
                [sys.executable, "-B", "-c", "import atoll, os, signal\n"
                 "island = atoll.Island('h:1', run=%r, work_dir=%r)\n" % (
                     fake_exchange.RUN, self.path("work")) + text],
                env={**os.environ, "PYTHONPATH": cases.PACKAGE},
                timeout=fake_exchange.PATIENCE_S, check=False).returncode
        return code, answers[0]

    def test_sigterm_hands_in_the_steps_and_leaves(self):
        code, answer = self.in_a_program(
            "with island:\n"
            "    island.step(tokens=1)\n"
            "    os.kill(os.getpid(), signal.SIGTERM)\n"
            "    while island.step(tokens=1):\n"
            "        pass\n")
        self.assertEqual(code, 143)
        self.assertTrue(answer["leave"])
        self.assertEqual(answer["step_count"], "2")

    def test_a_program_that_ends_hands_in_the_steps_and_leaves(self):
        for end, code in (("", 0), ("raise KeyError", 1)):
            self.assertEqual(self.in_a_program(
                "island.start()\nisland.step(tokens=7)\n" + end),
                (code, {"step_count": "1", "token_count": "7", "leave": True}))

    def test_an_exception_in_the_loop_is_told_to_the_exchange(self):
        def script(peer):
            peer.begin()
            seq = peer.tell("train", step_count=10)
            last, = peer.wait_for_close()
            self.assertEqual(last["seq"], str(seq))
            self.assertEqual(last["error"]["reason"], "TRAINER_FAILED")
            self.assertIn("no more memory", last["error"]["message"])

        with self.exchange(script):
            with self.assertRaises(MemoryError):
                with self.island() as island:
                    island.step()
                    raise MemoryError("no more memory")
            # The folder is free for another start.
            self.island()._client.close()

    def test_a_step_outside_of_the_block_is_refused(self):
        with self.assertRaisesRegex(atoll.Error, "outside"):
            self.island().step()


class ReconnectTest(IslandCase):

    def test_a_lost_train_is_forgotten_and_arrays_stay(self):
        def first(peer):
            peer.begin(1, 1)
            peer.tell("train", step=0, step_count=str(1 << 40))

        def second(peer):
            peer.begin(5, 6)
            self.assertEqual(peer.train(2, step=1 << 41), {
                "step_count": "2", "token_count": "2", "loss": 0.5})
            np.testing.assert_array_equal(peer.read()[1], [7] * 4)
            peer.end()

        with self.exchange(first, second), self.island() as island:
            view = island.arrays["v"]
            while island.clock < 1 << 41:
                self.assertTrue(island.step(loss=9.0, tokens=1))
            self.assertIs(island.arrays["v"], view)
            np.testing.assert_array_equal(view, [6] * 4)
            view += 1
            island.step(loss=0.5, tokens=1)
            self.assertFalse(island.step(loss=0.5, tokens=1))

    def test_the_connection_may_break_at_any_request(self):
        def after(count):
            def script(peer):
                moves = [peer.hello, peer.layout,
                         lambda: peer.ask("load", save_id=""),
                         lambda: peer.write(3, 4), lambda: peer.train(1),
                         lambda: peer.ask("save", save_id="s-1"), peer.read]
                for move in moves[:count]:
                    move()
            return script

        def last(peer):
            peer.begin(8, 9)
            peer.train(1)
            peer.end()

        scripts = [after(count) for count in range(8)]
        with self.exchange(*scripts, last), self.island() as island:
            while island.step():
                pass
            np.testing.assert_array_equal(island.arrays["v"], [9] * 4)

    def test_a_loader_goes_back_with_the_state(self):
        loader = Loader()

        def first(peer):
            peer.begin()
            peer.train(2)
            peer.ask("save", save_id="one")
            peer.train(3)

        def second(peer):
            peer.hello()
            peer.layout()
            peer.ask("load", save_id="one")
            peer.write(0, 0)
            peer.train(1, step=2)
            peer.end()

        seen = []
        with self.exchange(first, second), self.island(
                state={"loader": loader}) as island:
            while True:
                seen.append(loader.next())
                if not island.step():
                    break
        self.assertEqual(seen, [1, 2, 3, 4, 5, 3])

    def kept(self, last, saves=(), steps=3, **options):
        """Trains a round, saves, loses the exchange, and plays `last`.

        Returns the numbers that the loop has read, and the island.
        """
        def first(peer):
            peer.begin(1, 1, **options)
            peer.train(3, step=6, version="2", data_position="9", data_shard=1)
            for save_id in saves:
                peer.ask("save", save_id=save_id)

        loader, seen = Loader(), []
        with self.exchange(first, last), self.island(
                state={"loader": loader}) as island:
            while True:
                seen.append(loader.next())
                island.arrays["v"][...] += 1
                if not island.step(loss=seen[-1], tokens=2):
                    break
        self.assertEqual(seen, list(range(1, steps + 1)))
        return island

    TRAIN = {"step": "6", "version": "2", "lr_scale": 1.0, "data_shard": 1,
             "data_position": "9"}

    def ask_again(self, peer, **body):
        return peer.ask("train", step_count="3", kept_step_count="3",
                        **self.TRAIN, **body)

    def test_a_train_continues_where_the_exchange_was_lost(self):
        def first(peer):
            peer.begin(1, 1)
            peer.tell("train", step_count=str(1 << 40), **self.TRAIN)

        def second(peer):
            peer.hello()
            standing, = peer.kept["standings"]
            self.assertTrue(peer.kept["has_state"])
            count = int(standing.pop("step_count"))
            self.assertGreater(count, 0)
            self.assertEqual(standing, {"save_id": "", **self.TRAIN})
            peer.layout()
            peer.ask("load", save_id="", keep=True)
            answer = peer.ask("train", step_count=str(count + 2),
                              kept_step_count=str(count), **self.TRAIN)
            self.assertEqual(answer, {
                "step_count": str(count + 2), "token_count": str(2 * count + 4),
                "loss": (count + 3) / 2})
            np.testing.assert_array_equal(peer.read()[1], [count + 3] * 4)
            peer.end()

        loader, seen = Loader(), []
        with self.exchange(first, second), self.island(
                state={"loader": loader}) as island:
            while True:
                seen.append(loader.next())
                self.assertEqual(island.clock, 6 + len(seen) - 1)
                island.arrays["v"][...] += 1
                if not island.step(loss=seen[-1], tokens=2):
                    break
        self.assertEqual(seen, list(range(1, len(seen) + 1)))

    def test_a_train_that_was_answered_is_answered_again(self):
        def last(peer):
            peer.hello()
            self.assertEqual(peer.kept["standings"], [
                {"save_id": "", "step_count": "3", **self.TRAIN}])
            peer.layout()
            peer.ask("load", save_id="", keep=True)
            self.assertEqual(self.ask_again(peer), {
                "step_count": "3", "token_count": "6", "loss": 2.0})
            np.testing.assert_array_equal(peer.read()[1], [4] * 4)
            self.assertEqual(peer.ask("save", save_id="a"), {"save_id": "a"})
            peer.end()

        self.kept(last)

    def test_a_record_before_or_after_the_save_fits(self):
        def before(peer):
            peer.hello()
            self.assertEqual(peer.kept["standings"], [
                {"save_id": "a", "step_count": "0"},
                {"save_id": "", "step_count": "3", **self.TRAIN}])
            peer.layout()
            peer.ask("load", save_id="", keep=True)
            self.assertEqual(self.ask_again(peer)["step_count"], "3")
            np.testing.assert_array_equal(peer.read()[1], [4] * 4)
            peer.ask("save", save_id="a")
            self.assertIn("a", os.listdir(self.path("work", "states")))
            peer.end()

        def after(peer):
            peer.hello()
            peer.layout()
            peer.ask("load", save_id="a", keep=True)
            peer.write(0, 7)
            self.assertEqual(peer.train(1)["step_count"], "1")
            np.testing.assert_array_equal(peer.read()[1], [8] * 4)
            peer.end()

        self.kept(before, ["a"])
        self.socket = os.environ["ATOLL_SOCKET"] = self.path("other")
        os.rename(self.path("work"), self.path("done"))
        self.kept(after, ["a"], steps=4)

    def test_an_elastic_run_that_moved_on_keeps_the_state(self):
        def last(peer):
            peer.hello(strict=False)
            peer.layout()
            peer.ask("load", save_id="", keep=True)
            peer.write(0, 7)
            peer.train(2, step=60, version="20")
            np.testing.assert_array_equal(peer.read()[1], [9] * 4)
            peer.end()

        self.kept(last, steps=5, strict=False)

    def test_other_kept_steps_than_the_trainer_has_are_an_error(self):
        def last(peer):
            peer.hello()
            peer.layout()
            peer.ask("load", save_id="", keep=True)
            peer.tell("train", step_count="4", kept_step_count="2",
                      **self.TRAIN)
            self.assertIn("counts 2 kept steps, and here are 3",
                          peer.wait_for_close()[0]["error"]["message"])

        with self.assertRaisesRegex(atoll.Error, "kept steps"):
            self.kept(last)

    def test_a_loader_that_cannot_go_back_asks_for_a_new_start(self):
        class StatefulDataLoader(Loader):
            pass

        def first(peer):
            peer.begin()
            peer.train(1)
            peer.ask("save", save_id="a")
            peer.write(0, 0)
            peer.train(1)

        def second(peer):
            peer.hello()
            peer.layout()
            peer.tell("load", save_id="a")
            error = peer.wait_for_close()[0]["error"]
            self.assertEqual((error["code"], error["reason"]),
                             ("UNAVAILABLE", "CANNOT_REWIND"))

        with self.exchange(first, second), self.assertRaisesRegex(
                atoll.Error, "Start the program again"), self.island(
                    state={"loader": StatefulDataLoader()}) as island:
            while island.step():
                pass

    def test_another_layout_or_run_is_refused(self):
        def first(peer):
            peer.begin()
            peer.train(1)

        def other_layout(peer):
            peer.hello()
            peer.layout([{"w": [3, 2], "b": [3]}])
            file = peer.region(4)
            peer.tell("layout", [file], fragment=1, element_count=4, last=True,
                      tensors=[{"name": "v", "shape": [4]}])
            self.assertEqual(peer.wait_for_close()[0]["error"]["reason"],
                             "OTHER_LAYOUT")

        def other_run(peer):
            peer.hello(run_uid="f" * 32)
            self.assertEqual(peer.wait_for_close()[0]["error"]["reason"],
                             "OTHER_RUN")

        for number, second in enumerate([other_layout, other_run]):
            self.socket = self.path("socket%d" % number)
            os.environ["ATOLL_SOCKET"] = self.socket
            with self.exchange(first, second):
                with self.assertRaises(atoll.Error):
                    with self.island(
                            work_dir=self.path("w%d" % number)) as island:
                        while island.step():
                            pass


class SaveTest(IslandCase):

    def test_a_strict_run_saves_at_each_request(self):
        def script(peer):
            peer.begin()
            for name in ("a", "b"):
                self.assertEqual(peer.ask("save", save_id=name),
                                 {"save_id": name})
                self.assertIn(name, os.listdir(self.path("work", "states")))
            peer.end()

        with self.exchange(script), self.island():
            pass

    def test_only_a_save_in_the_background_copies_the_state(self):
        momentum, shared = {"value": np.zeros(4, np.float32)}, []

        def save(store, save_id, flat):
            shared.append(any(np.shares_memory(
                np.frombuffer(array.data, np.uint8), momentum["value"])
                              for array in flat[1].values()))

        for strict in (True, False):
            def script(peer):
                peer.begin(strict=strict)
                peer.tell("save", save_id="a")
                peer.receive()
                peer.end()

            with self.exchange(script), mock.patch.object(
                    store_module.Store, "save", save):
                with self.island(work_dir=self.path("work%d" % strict),
                                 state={"momentum": momentum}):
                    pass
            os.unlink(self.socket)
        self.assertEqual(shared, [True, False])

    def test_an_elastic_island_without_the_state_begins_anew(self):
        def script(peer):
            peer.hello(strict=False)
            peer.layout()
            peer.ask("load", save_id="of-other-ranks")
            peer.write(0, 0)
            peer.end()

        def strict(peer):
            peer.hello()
            peer.layout()
            peer.tell("load", save_id="of-other-ranks")
            self.assertEqual(peer.wait_for_close()[0]["error"]["reason"],
                             "NO_SUCH_STATE")

        with self.exchange(script), self.assertLogs("atoll", "WARNING") as logs:
            with self.island():
                pass
        self.assertIn("no state of-other-ranks", logs.output[0])
        self.socket = os.environ["ATOLL_SOCKET"] = self.path("other")
        with self.exchange(strict), self.assertRaisesRegex(
                atoll.Error, "NO_SUCH_STATE"):
            self.island().start()

    def elastic(self, *saves, save=store_module.Store.save, write_s=1e9):
        """Asks for saves: (id, time, whether one begins, the answer or None).

        None: an error. A write ends only after the answer to its request. It
        takes `write_s` seconds.
        """
        clock, gate = [0.0], threading.Event()

        def slow(*arguments):
            self.assertTrue(gate.wait(fake_exchange.PATIENCE_S))
            save(*arguments)

        def script(peer):
            peer.begin(strict=False)
            saver = island._client._trainer._saver
            for name, clock[0], begins, answer in saves:
                before = saver._thread
                if answer is None:
                    peer.tell("save", save_id=name)
                    last, = peer.wait_for_close()
                    self.assertEqual(last["error"]["reason"], "CANNOT_SAVE")
                    return
                self.assertEqual(peer.ask("save", save_id=name),
                                 {"save_id": answer})
                self.assertEqual(saver._thread is not before, begins)
                gate.set()
                saver._thread.join()
                gate.clear()
            # The exchange may have died before it recorded the last answer.
            peer.ask("load", save_id=saves[-2][3])
            self.kept = sorted(os.listdir(self.path("work", "states")))
            peer.end()

        with mock.patch.object(store_module.Store, "save", slow), \
                mock.patch.object(saver_module.Saver, "write_s", write_s), \
                mock.patch.object(trainer_module, "time",
                                  types.SimpleNamespace(
                                      monotonic=lambda: clock[0])):
            island = self.island()
            with self.exchange(script), island:
                pass

    def test_an_elastic_run_saves_every_ten_minutes_in_the_background(self):
        self.elastic(("a", 1, True, ""), ("b", 600, False, "a"),
                     ("c", 602, True, "a"), ("d", 603, False, "c"))
        self.assertEqual(self.kept, ["_initial", "a", "run.json"])

    def test_a_complete_run_leaves_no_state_and_a_cancelled_one_does(self):
        def script(peer):
            peer.begin()
            peer.ask("save", save_id="a")
            peer.end()

        with self.exchange(script), self.island():
            pass
        self.assertEqual(sorted(os.listdir(self.path("work", "states"))),
                         ["_initial", "run.json"])
        os.unlink(self.socket)

        def cancelled(peer):
            peer.begin()
            peer.ask("save", save_id="a")
            peer.end(complete=False)

        with self.exchange(cancelled), self.assertRaises(atoll.Error):
            self.island(work_dir=self.path("other")).start()
        self.assertEqual(sorted(os.listdir(self.path("other", "states"))),
                         ["_initial", "a", "run.json"])

    def test_an_elastic_run_saves_each_round_if_that_is_cheap(self):
        self.elastic(("a", 1, True, ""), ("b", 11, True, "a"),
                     ("c", 20, False, "b"), ("d", 31, True, "b"),
                     ("e", 50, True, "d"), write_s=0.49)

    def test_a_save_that_has_not_ended_is_not_cheap(self):
        self.elastic(("a", 1, True, ""), ("b", 100, False, "a"), write_s=None)

    def test_a_recorded_state_stays_when_saves_are_rare(self):
        # With rounds of more than ten minutes each request begins a save.
        self.elastic(("a", 1, True, ""), ("b", 700, True, "a"),
                     ("c", 1400, True, "b"), ("d", 2100, True, "c"))

    def test_a_save_in_the_background_that_fails_ends_the_next_request(self):
        def full(*_):
            raise atoll.Error("the disk is full", reason="CANNOT_SAVE")

        with self.assertRaisesRegex(atoll.Error, "disk is full"):
            self.elastic(("a", 1, True, ""), ("b", 2, False, None), save=full)

    def test_always_means_always(self):
        def script(peer):
            peer.begin(strict=False)
            for name in ("a", "b"):
                self.assertEqual(peer.ask("save", save_id=name),
                                 {"save_id": name})
            peer.end()

        with self.exchange(script), self.island(save="always"):
            pass

    def test_a_disk_that_is_full_is_an_error_of_that_request(self):
        def script(peer):
            peer.begin()
            seq = peer.tell("save", save_id="a")
            last, = peer.wait_for_close()
            self.assertEqual(last["seq"], str(seq))
            self.assertEqual(last["error"]["reason"], "CANNOT_SAVE")
            self.assertEqual(last["error"]["code"], "RESOURCE_EXHAUSTED")

        island = self.island()
        store = island._client._trainer._store
        begin = store.begin

        def full(*arguments):
            begin(*arguments)
            patch = mock.patch.object(
                os, "fsync", side_effect=OSError(28, "No space left"))
            patch.start()
            self.addCleanup(patch.stop)

        with self.exchange(script), mock.patch.object(store, "begin", full):
            with self.assertRaisesRegex(atoll.Error, "No space left"):
                island.start()

    def test_a_work_dir_stays_when_the_program_changes_its_own(self):
        def script(peer):
            peer.begin()
            peer.train(1)
            peer.ask("save", save_id="a")
            self.assertIn("a", os.listdir(self.path("here", "states")))
            peer.end()

        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        with self.exchange(script), self.island(work_dir="here") as island:
            os.chdir(before)
            island.step()
        self.assertNotIn("a", os.listdir(self.path("here", "states")))


class EvaluateTest(IslandCase):

    def test_an_exception_in_the_function_answers_that_request(self):
        def script(peer):
            peer.begin()
            seq = peer.tell("evaluate")
            last, = peer.wait_for_close()
            self.assertEqual(last["seq"], str(seq))
            self.assertIn("ZeroDivisionError", last["error"]["message"])

        with self.exchange(script), self.assertRaises(ZeroDivisionError):
            self.island(evaluate=lambda: 1 / 0).start()

    def test_the_function_sees_the_outer_parameters_and_moves_no_generator(self):
        def script(peer):
            peer.begin(1, 2)
            peer.train(1)
            peer.write(30, 40)
            self.assertEqual(peer.ask("evaluate", version="1"),
                             {"loss": 40.0, "token_count": "7"})
            peer.write(1, 2)
            peer.train(1)
            self.assertEqual(peer.ask("evaluate"),
                             {"loss": "NaN", "token_count": "1"})
            peer.end()

        with self.exchange(script), self.island() as island:

            @island.evaluate
            def evaluate():
                random.random()
                np.random.random()
                return float(island.arrays["v"][0]), 7

            before = random.getstate(), np.random.get_state()[2]
            self.assertTrue(island.step())
            self.assertEqual((random.getstate(), np.random.get_state()[2]),
                             before)
            island.evaluate(lambda: float("nan"))
            self.assertFalse(island.step())

    def test_without_a_function_no_token_counts(self):
        def script(peer):
            peer.begin()
            self.assertEqual(peer.ask("evaluate"), {"token_count": "0"})
            peer.end()

        with self.exchange(script), self.island():
            pass


if __name__ == "__main__":
    cases.main()
