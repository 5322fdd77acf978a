#!/usr/bin/python3
"""An exchange that the island starts, finds, and starts again."""

import os
import signal
import socket
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402
import fake_exchange  # noqa: E402
from fake_exchange import FakeExchange  # noqa: E402

import atoll  # noqa: E402
from atoll import _exchange  # noqa: E402
from atoll.errors import ConnectionLost  # noqa: E402

# Stands in for the program `atoll`: plays the newest line of the file `plan`.
_PROGRAM = '''#!/usr/bin/python3 -B
import os, signal, sys
sys.path.insert(0, %(testing)r)
import fake_exchange
folder = %(folder)r
with open(os.path.join(folder, "calls"), "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
with open(os.path.join(folder, "pid"), "w") as file:
    file.write(str(os.getpid()))
with open(os.path.join(folder, "plan")) as file:
    words = file.read().split("\\n")
with open(os.path.join(folder, "plan"), "w") as file:
    file.write("\\n".join(words[1:]))
word = words[0]
print("hello from the exchange:", word, flush=True)
if word == "killed":
    os.kill(os.getpid(), 9)
if word.startswith("exit"):
    sys.exit(int(word[4:]))
path = sys.argv[sys.argv.index("--trainer") + 1].removeprefix("unix:")
os.chdir(os.path.dirname(path))  # The path may be too long for a socket.
path = os.path.basename(path)
if os.path.exists(path):
    os.unlink(path)

def script(peer):
    if word == "away":
        peer.receive()
        os._exit(6)
    if word in ("final", "nothing"):
        peer.hello()
        peer.layout()
        if word == "final":
            peer.write(3, 4)
        return peer.end()
    if word in ("place", "removed"):
        if word == "removed":
            peer.receive()
            peer.tell("error", reason="ISLAND_REMOVED", message="it was removed")
        else:
            peer.place()
        peer.wait_for_close()
        while True:
            signal.pause()  # As an exchange that waits for another trainer.
    peer.begin(1, 2)
    if word == "endless":
        peer.train(1 << 40)
    peer.train(5)
    if word == "die":
        os.kill(os.getpid(), 9)
    peer.end()

with fake_exchange.FakeExchange(path, script):
    pass
'''


class ExchangeCase(cases.FolderCase):

    def setUp(self):
        super().setUp()
        program = self.path("atoll")
        with open(program, "w", encoding="utf-8") as file:
            file.write(_PROGRAM % {
                "testing": os.path.dirname(fake_exchange.__file__),
                "folder": self.folder})
        os.chmod(program, 0o755)
        os.environ["ATOLL_BINARY"] = program

    def plan(self, *words):
        with open(self.path("plan"), "w", encoding="utf-8") as file:
            file.write("\n".join(words))

    def calls(self):
        with open(self.path("calls"), encoding="utf-8") as file:
            return file.read().splitlines()

    def island(self, **options):
        options.setdefault("work_dir", self.path("w"))
        return atoll.Island("10.0.0.7:7400", run=fake_exchange.RUN, **options)

    def loop(self, **options):
        with self.island(**options) as island:
            while island.step():
                pass
            return island


class StartTest(ExchangeCase):

    def test_it_is_started_with_its_flags_and_ends_with_the_run(self):
        self.plan("whole")
        island = self.loop(island_id="kitchen")
        self.assertEqual(self.calls(), [
            "join 10.0.0.7:7400 --run spring --island-id kitchen --dir "
            "%s/exchange --trainer unix:%s/trainer.sock" %
            (self.path("w"), self.path("w"))])
        with self.assertRaises(ProcessLookupError):
            with open(self.path("pid"), encoding="utf-8") as file:
                os.kill(int(file.read()), 0)
        self.assertFalse(island.step())

    def test_an_island_that_has_ended_keeps_no_region(self):
        def regions():
            with open("/proc/self/maps", encoding="utf-8") as file:
                return file.read().count("memfd:region")

        before = regions()
        self.plan("whole")
        with self.island() as island:
            self.assertGreater(regions(), before)
            while island.step():
                pass
        self.assertLessEqual(regions(), before)

    def check_ended(self):
        with open(self.path("pid"), encoding="utf-8") as file:
            with self.assertRaises(ProcessLookupError):
                os.kill(int(file.read()), 0)

    def test_a_place_that_is_refused_or_closed_ends_it(self):
        def join():
            return atoll.join("10.0.0.7:7400", run=fake_exchange.RUN,
                              work_dir=self.path("w"))

        self.plan("removed")
        with self.assertRaisesRegex(atoll.Error, "it was removed"):
            join()
        self.check_ended()
        self.plan("place")
        joined = join()
        self.assertEqual(joined.shard, 1)
        joined.close()
        self.check_ended()

    def test_its_output_goes_to_its_log(self):
        self.plan("whole")
        self.loop()
        with open(self.path("w", "exchange.log"), encoding="utf-8") as file:
            self.assertIn("hello from the exchange: whole", file.read())

    def log_after(self, old):
        """The log, and the one before it, once `old` was too long."""
        with open(self.path("w", "exchange.log"), "wb") as file:
            file.write(old.ljust(_exchange._LOG_BYTES_MAX + 1, b"x"))
        self.plan("whole")
        self.loop()
        logs = []
        for name in ("exchange.log", "exchange.log.1"):
            with open(self.path("w", name), "rb") as file:
                logs.append(file.read(20))
        return logs

    def test_a_long_log_becomes_the_one_before_and_replaces_only_a_log(self):
        os.mkdir(self.path("w"))
        ours = b"--- /bin/atoll join h:1\n"
        for number in (b"a", b"b"):
            new, before = self.log_after(ours + number)
            self.assertTrue(new.startswith(b"--- "))
            self.assertEqual(before, ours[:20])
        with open(self.path("w", "exchange.log.1"), "wb") as file:
            file.write(b"years of work")
        self.assertEqual(self.log_after(ours)[1], b"years of work")
        with open(self.path("w", "exchange.log.1"), "wb") as file:
            file.write(ours)
        self.assertEqual(self.log_after(b"a diary")[0][:7], b"a diary")

    def test_it_is_found_on_the_path(self):
        del os.environ["ATOLL_BINARY"]
        os.environ["PATH"] = "%s:%s" % (self.folder, os.environ["PATH"])
        self.plan("whole")
        self.loop()

    def test_without_a_program_the_error_names_the_variable(self):
        os.environ["ATOLL_BINARY"] = self.path("nothing")
        with self.assertRaisesRegex(atoll.Error, "ATOLL_BINARY"):
            self.loop()

    def test_its_end_at_the_start_raises_with_its_last_lines(self):
        self.plan("exit8")
        with self.assertRaisesRegex(atoll.Error,
                                    "hello from the exchange: exit8"):
            self.loop()
        self.assertEqual(len(self.calls()), 1)

    def test_its_end_before_it_knows_the_run_raises_at_once(self):
        self.plan("away")  # It cannot reach the coordinator.
        with self.assertRaisesRegex(atoll.Error, "exit code 6"):
            self.loop()
        self.assertEqual(len(self.calls()), 1)

    def test_a_run_that_was_complete_before_gives_its_parameters(self):
        self.plan("final")
        with self.island() as island:
            self.assertTrue(island.ended)
            island.arrays["v"][...] += 5  # A step that the loop trains.
            self.assertFalse(island.step())
            self.assertEqual(island.arrays["v"].tolist(), [4] * 4)

    def test_the_block_is_not_entered_without_the_runs_parameters(self):
        for word in ("exit0", "nothing"):
            self.plan(word)
            with self.assertRaisesRegex(atoll.Error, "NO_PARAMETERS"):
                with self.island():
                    self.fail("entered")

    def test_one_that_already_listens_is_not_started_again(self):
        os.mkdir(self.path("w"))

        def script(peer):
            peer.begin()
            peer.train(1)
            peer.end()

        with FakeExchange(self.path("w", "trainer.sock"), script):
            self.loop()
        self.assertFalse(os.path.exists(self.path("calls")))

    def test_a_socket_that_nothing_listens_at_is_replaced(self):
        os.mkdir(self.path("w"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
            dead.bind(self.path("w", "trainer.sock"))
        self.plan("whole")
        self.loop()

    def test_a_work_dir_may_have_a_long_path(self):
        self.plan("whole")
        self.loop(work_dir=self.path("x" * 120))

    def test_a_socket_with_a_long_name_is_refused(self):
        os.environ["ATOLL_SOCKET"] = self.path("x" * 120)
        with self.assertRaisesRegex(atoll.Error, "PATH_TOO_LONG"):
            atoll.Island("h:1", run="spring", work_dir=self.path("w"))


class RestartTest(ExchangeCase):

    def test_one_that_dies_between_two_steps_is_started_again(self):
        self.plan("die", "die", "whole")
        self.loop()
        self.assertEqual(len(self.calls()), 3)

    def test_one_that_is_killed_during_a_train_is_started_again(self):
        self.plan("endless", "whole")
        with self.island() as island:
            self.assertTrue(island.step())
            with open(self.path("pid"), encoding="utf-8") as file:
                os.kill(int(file.read()), signal.SIGKILL)
            while island.step():
                # The next loss begins to count anew.
                self.assertFalse(island._client.patience.is_waiting)
        self.assertEqual(len(self.calls()), 2)

    def test_another_island_of_the_work_dir_joins_again(self):
        self.plan("endless", "whole")
        first = self.island()
        first.start()
        self.assertTrue(first.step())
        self.loop()
        self.assertTrue(first.ended)
        self.assertFalse(first.step())
        self.assertEqual(len(self.calls()), 2)

    def test_a_failure_that_may_pass_is_tried_again(self):
        self.plan("die", "exit6", "exit12", "killed", "exit1", "whole")
        self.loop()
        self.assertEqual(len(self.calls()), 6)

    def test_a_failure_that_will_not_pass_is_raised(self):
        self.plan("die", "exit7")
        with self.assertRaisesRegex(atoll.Error, "exit code 7"):
            self.loop()
        self.assertEqual(len(self.calls()), 2)

    def test_the_run_may_end_while_it_is_away(self):
        self.plan("die", "final")
        self.assertTrue(self.loop().ended)


class PatienceTest(unittest.TestCase):

    def test_waits_grow_and_end(self):
        now, waits = [0.0], []

        def sleep(duration):
            waits.append(duration)
            now[0] += duration

        patience = _exchange.Patience(60.0, lambda: now[0], sleep)
        self.assertFalse(patience.is_waiting)
        with self.assertRaisesRegex(atoll.Error, "EXCHANGE_AWAY.*\n.*log"):
            while True:
                patience.failed(ConnectionLost("refused"))
                self.assertTrue(patience.is_waiting)
        self.assertEqual(waits[:4], [0.05, 0.1, 0.2, 0.4])
        self.assertEqual(max(waits), 5.0)
        self.assertLess(60, now[0])
        self.assertLess(now[0], 70)

    def test_a_success_begins_anew(self):
        now, waits = [0.0], []
        patience = _exchange.Patience(60.0, lambda: now[0], waits.append)
        patience.failed(ConnectionLost("x"))
        now[0] = 59
        patience.failed(ConnectionLost("x"))
        patience.succeeded()
        now[0] = 61
        patience.failed(ConnectionLost("x"))
        self.assertEqual(waits, [0.05, 0.1, 0.05])


if __name__ == "__main__":
    cases.main()
