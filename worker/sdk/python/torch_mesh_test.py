#!/usr/bin/env python3
"""Islands of several ranks: VENV/bin/python worker/sdk/python/torch_mesh_test.py

By hand, as torch_test.py. Ranks are processes on this machine, over gloo.
"""

import os
import multiprocessing
import shutil
import signal
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402
import fake_exchange  # noqa: E402
import mesh_trainer  # noqa: E402
from fake_exchange import Gone, Peer  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

# In another order than the model's.
LAYOUT = [{"second.weight": [3, 6], "first.bias": [6], "scale": [3]},
          {"first.weight": [6, 5], "second.bias": [3]}]
SIZES = [sum(fake_exchange.size(shape) for shape in fragment.values())
         for fragment in LAYOUT]
STEPS = 3
# Ranks are forked, as an import of torch takes seconds.
_PROCESSES = multiprocessing.get_context("fork")


def split(regions):
    """{name: array} of the regions' values."""
    tensors = {}
    for region, fragment in zip(regions, LAYOUT):
        begin = 0
        for name, shape in fragment.items():
            end = begin + fake_exchange.size(shape)
            tensors[name] = region[begin:end].reshape(shape).copy()
            begin = end
    return tensors


class Reference:
    """The whole model in one process, which sees the data of all replicas."""

    def __init__(self, kind):
        self.replicas = mesh_trainer.KINDS[kind]["dp"]
        self.net = mesh_trainer.Net()
        self.optimizer = mesh_trainer.make_optimizer(self.net.parameters())
        self.generators = [torch.Generator().manual_seed(100 + replica)
                           for replica in range(self.replicas)]
        self.step = 0

    def set(self, regions):
        values = {n: torch.from_numpy(v) for n, v in split(regions).items()}
        self.net.load_state_dict(values)

    def train(self, step_count):
        """Returns the mean of the steps' losses."""
        losses = []
        for _ in range(step_count):
            for replica in range(self.replicas):
                x, y = mesh_trainer.batch(replica, self.step,
                                          self.generators[replica])
                loss = torch.nn.functional.mse_loss(self.net(x), y)
                (loss / self.replicas).backward()
                losses.append(loss.item())
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
        return np.mean(losses)

    def values(self):
        return {n: p.detach().numpy() for n, p in self.net.named_parameters()}


class Exchange:
    """A strict run with one island: its record names a save."""

    def __init__(self, drop_after=None, keeps=False):
        self._keeps = keeps  # The ranks continue after the steps they have kept.
        generator = np.random.default_rng(4)
        self.record = ("", 0, [generator.standard_normal(size).astype("f4")
                               for size in SIZES])
        self.losses = {}
        self._left = drop_after  # Requests until the connection is dropped.
        self._save_count = 0

    def _ask(self, peer, kind, **body):
        answer = peer.ask(kind, **body)
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise Gone("dropped")
        return answer

    def serve(self, peer):
        peer.hello(len(LAYOUT))
        peer.layout(LAYOUT)
        save_id, version, weights = self.record
        kept = {of["save_id"]: int(of["step_count"])
                for of in peer.kept.get("standings", ()) if self._keeps}
        self._ask(peer, "load", save_id=save_id, keep=save_id in kept)
        steps = kept.get(save_id, 0)
        while version < 3:
            if not steps:
                for region, values in zip(peer.regions, weights):
                    region[:] = values
                self._ask(peer, "write", fragments=[0, 1])
            answer = self._ask(peer, "train", step=version * STEPS,
                               step_count=STEPS, version=version,
                               kept_step_count=steps)
            steps = 0
            assert self.losses.setdefault(
                version, answer["loss"]) == answer["loss"], (version, answer)
            self._ask(peer, "read", fragments=[0, 1])
            weights = [(before + region) / np.float32(2) for before, region
                       in zip(weights, peer.regions)]
            version += 1
            self._save_count += 1
            save_id = "save-%d" % self._save_count
            assert self._ask(peer, "save", save_id=save_id) == {
                "save_id": save_id}
            self.record = (save_id, version, weights)
        peer.end()

    @property
    def result(self):
        return [w.tobytes() for w in self.record[2]], self.losses


class LeavingPeer(Peer):
    """An exchange's end to which a trainer may say that another one comes."""

    def receive(self):
        message = super().receive()
        if message is None or "error" not in message:
            return message
        assert message["error"]["reason"] == "RANK_LOST", message
        return None


class MeshCase(cases.FolderCase):

    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)
        self.ranks = []
        self.addCleanup(self.kill_ranks)
        self.listen()

    def listen(self):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(self.listener.close)
        self.listener.settimeout(3 * fake_exchange.PATIENCE_S)
        self.listener.bind(self.path("socket"))
        self.listener.listen(4)

    def start(self, kind, **settings):
        """Starts all ranks, as torchrun does."""
        size = int(np.prod(list(mesh_trainer.KINDS[kind].values())))
        if os.path.exists(self.path("meeting")):
            os.unlink(self.path("meeting"))
        settings["ATOLL_SOCKET"] = self.path("socket")
        self.ranks = [_PROCESSES.Process(target=mesh_trainer.main, args=(
            kind, rank, size, self.folder, settings)) for rank in range(size)]
        for rank in self.ranks:
            rank.start()

    def kill_ranks(self):
        """Ends the ranks that are left, as torchrun does after a death."""
        for rank in self.ranks:
            rank.kill()
            rank.join()
        self.ranks = []

    def peer(self, kind=Peer):
        sock, _ = self.listener.accept()
        self.addCleanup(sock.close)
        sock.settimeout(3 * fake_exchange.PATIENCE_S)
        return kind(sock)

    def finish(self):
        """Every rank ends by itself. Returns the codes, and what each said."""
        found = []
        for number, rank in enumerate(self.ranks):
            rank.join(fake_exchange.PATIENCE_S)
            with open(self.path("output-%d" % number),
                      encoding="utf-8") as file:
                found.append((rank.exitcode, file.read()))
        return found

    def assert_close(self, got, wanted):
        self.assertEqual(set(got), set(wanted))
        for name, value in wanted.items():
            np.testing.assert_allclose(got[name], value, 2e-5, 2e-6, name)


class ValuesTest(MeshCase):

    def play(self, kind, **settings):
        """Three rounds; PyTorch on one process has the same values."""
        generator = np.random.default_rng(cases.random().getrandbits(32))
        reference = Reference(kind)

        def random():
            return [generator.standard_normal(s).astype("f4") for s in SIZES]

        self.start(kind, **settings)
        peer = self.peer()
        peer.hello(len(LAYOUT))
        peer.layout(LAYOUT)
        peer.ask("load", save_id="")
        values = random()
        for version in range(3):
            peer.write(*values)
            reference.set(values)
            # The exchange reads what it wrote, to the bit.
            for region in peer.regions:
                region[:] = np.nan
            for got, wanted in zip(peer.read(), values):
                np.testing.assert_array_equal(got, wanted)
            answer = peer.train(STEPS, step=STEPS * version)
            loss = reference.train(STEPS)
            self.assertEqual(answer["token_count"], str(
                STEPS * mesh_trainer.BATCH * reference.replicas))
            self.assertAlmostEqual(answer["loss"], loss, delta=1e-4 * loss)
            self.assertEqual(answer["metrics"],
                             {"replica": (reference.replicas - 1) / 2})
            self.assert_close(split(peer.read()), reference.values())
            values = random()
            if kind != "pp":
                peer.write(*values)  # An evaluation, of other values.
                reference.set(values)
                with torch.no_grad():
                    loss = reference.net(torch.ones(2, 5)).sum().item()
                answer = peer.ask("evaluate")
                self.assertAlmostEqual(answer["loss"], loss,
                                       delta=1e-4 * abs(loss) + 1e-4)
                self.assertEqual(answer["token_count"],
                                 str(2 * reference.replicas))
                values = random()
        peer.write(*values)
        peer.end()
        for code, text in self.finish():
            self.assertEqual(code, 0, text)
        wanted = split(values)
        for rank in range(len(self.ranks)):
            with np.load(self.path("rank-%d.npz" % rank)) as found:
                found = dict(found)
            self.assertEqual(found.pop("metric:replica"),
                             (reference.replicas - 1) / 2)
            names = (set(wanted) if kind != "pp" else
                     {"first.weight", "first.bias"} if rank == 0 else
                     {"second.weight", "second.bias", "scale"})
            self.assertEqual(set(found), names)
            for name, array in found.items():
                np.testing.assert_array_equal(array, wanted[name])

    def test_bf16_reads_as_it_was_written_and_replicas_stay_equal(self):
        generator = np.random.default_rng(cases.random().getrandbits(32))
        for kind, far in (("ddp", ""), ("ddp", "1"), ("fsdp", "1")):
            self.start(kind, FAR=far, DTYPE="bfloat16")
            peer = self.peer()
            peer.hello(len(LAYOUT))
            peer.layout(LAYOUT)
            peer.ask("load", save_id="")
            written = [generator.standard_normal(s).astype("f4")
                       for s in SIZES]
            peer.write(*written)
            for got, wanted in zip(peer.read(), written):
                np.testing.assert_array_equal(got, wanted)
            peer.train(1)
            moved = peer.read()
            self.assertTrue(any((a != b).any()
                                for a, b in zip(moved, written)))
            for got, wanted in zip(peer.read(), moved):
                np.testing.assert_array_equal(got, wanted)
            peer.end()
            for code, text in self.finish():
                self.assertEqual(code, 0, text)
            for rank in (0, 1):
                with np.load(self.path("rank-%d.npz" % rank)) as found:
                    for name, value in split(moved).items():
                        np.testing.assert_array_equal(
                            found[name], torch.from_numpy(value).to(
                                torch.bfloat16).float().numpy())
            shutil.rmtree(self.path("work"))

    def test_ddp(self):
        self.play("ddp")

    def test_fsdp(self):
        self.play("fsdp")

    def test_tp(self):
        self.play("tp")

    def test_fsdp_and_tp(self):
        self.play("fsdp_tp")

    def test_pp(self):
        self.play("pp")

    def test_ranks_on_other_nodes(self):
        self.play("ddp", FAR="1")

    def test_shards_on_other_nodes(self):
        self.play("fsdp_tp", FAR="2,3")


class DeathTest(MeshCase):

    def run_to_the_end(self, die="", drop_after=None, kind="fsdp",
                       keeps=False):
        """Returns the exchange. All ranks start again when one has died."""
        for folder in ("work", "meeting"):
            shutil.rmtree(self.path(folder), ignore_errors=True)
        exchange = Exchange(drop_after, keeps)
        self.start(kind, DIE=die or "-1 none 0")
        for life in range(3):
            peer = self.peer(LeavingPeer)
            try:
                exchange.serve(peer)
                break
            except Gone as gone:
                peer.close()
                if str(gone) == "dropped":
                    continue
                victim = self.ranks[int(die.split()[0])]
                victim.join(fake_exchange.PATIENCE_S)
                self.assertEqual(victim.exitcode, -signal.SIGKILL)
                self.kill_ranks()
                self.start(kind)
        self.assertEqual(life, 1 if die or drop_after else 0)
        for code, text in self.finish():
            self.assertEqual(code, 0, text)
        return exchange.result

    def test_deaths_change_no_bit(self):
        undisturbed = self.run_to_the_end()
        for die in ("0 step 5", "1 step 5", "1 rename 4", "0 fsync 8"):
            with self.subTest(die=die):
                self.assertEqual(self.run_to_the_end(die), undisturbed)

    def test_a_lost_exchange_changes_no_bit(self):
        undisturbed = self.run_to_the_end()
        for drop_after in (2, 3, 7):  # A write, a train, the next train.
            for keeps in (False, True):
                with self.subTest(drop_after=drop_after, keeps=keeps):
                    self.assertEqual(self.run_to_the_end(
                        drop_after=drop_after, keeps=keeps), undisturbed)


class ErrorTest(MeshCase):

    def begin(self, kind="ddp", layout=None, **settings):
        self.start(kind, **settings)
        peer = self.peer()
        peer.hello(len(LAYOUT))
        peer.layout(layout or LAYOUT)
        peer.ask("load", save_id="")
        peer.write(*[1.0 for _ in LAYOUT])
        return peer

    def test_an_exception_on_a_rank_is_told_with_its_rank(self):
        for victim in (0, 1):
            with self.subTest(victim=victim):
                peer = self.begin(DIE="%d raise 2" % victim)
                peer.tell("train", step_count=10)
                error = peer.wait_for_close()[-1]["error"]
                self.assertIn("ValueError: this rank raises", error["message"])
                self.assertEqual(error["message"].startswith("rank 1: "),
                                 victim == 1)
                self.assertEqual(error["reason"], "TRAINER_FAILED")
                texts = self.finish()
                self.assertIn("ValueError: this rank raises",
                              texts[victim][1])
                for code, text in texts:
                    self.assertEqual(code, 1, text)
                self.kill_ranks()

    def test_ranks_that_leave_together_hand_in_their_steps(self):
        peer = self.begin(LEAVE="0,1 2")
        answer = peer.train(10)
        self.assertEqual((answer["step_count"], answer["token_count"],
                          answer["leave"]), ("2", "16", True))
        peer.read()
        self.assertEqual(peer.train(5), {"step_count": "0", "token_count": "0",
                                         "leave": True})
        peer.end(complete=False)
        for code, text in self.finish():
            self.assertEqual(code, 0, text)

    def test_a_killed_follower_lets_another_trainer_come(self):
        peer = self.begin(DIE="1 step 2")
        peer.tell("train", step_count=10)
        error = peer.wait_for_close()[-1]["error"]
        self.assertEqual((error["code"], error["reason"]),
                         ("UNAVAILABLE", "RANK_LOST"))

    def test_tensors_that_no_rank_has_are_named(self):
        self.start("pp")
        peer = self.peer()
        peer.hello(1)
        with self.assertRaises(AssertionError):
            peer.layout([{**LAYOUT[0], **LAYOUT[1], "third.weight": [4, 2]}])
        for code, text in self.finish():
            self.assertEqual(code, 1)
            self.assertIn("lacks the run's tensors ['third.weight']", text)

    def test_a_digest_of_frozen_parameters_does_not_depend_on_the_split(self):
        digests = {}
        for kind, base in (("ddp", "1"), ("fsdp", "1"), ("fsdp_tp", "1"),
                           ("fsdp", "2")):
            self.start(kind, BASE=base)
            peer = self.peer()
            peer.hello(1)
            digests[kind, base] = peer.frozen_digest
            peer.tell("error", message="stop")
            self.finish()
            shutil.rmtree(self.path("work"), ignore_errors=True)
        self.assertRegex(digests["ddp", "1"], "^[0-9a-f]{64}$")
        self.assertEqual(digests["fsdp", "1"], digests["ddp", "1"])
        self.assertEqual(digests["fsdp_tp", "1"], digests["ddp", "1"])
        self.assertNotEqual(digests["fsdp", "2"], digests["fsdp", "1"])

    def test_all_ranks_have_the_place_that_rank_0_was_given(self):
        self.start("fsdp", JOIN="1")
        peer = self.peer()
        peer.place(slot=4, data_shard=2)
        peer.hello(len(LAYOUT), seq="2")
        peer.layout(LAYOUT)
        peer.ask("load", save_id="")
        peer.write(0.5, 0.5)
        peer.train(1)
        peer.end()
        for code, text in self.finish():
            self.assertEqual(code, 0, text)
            self.assertIn("joined 4 2 3", text)

    def test_a_refused_join_ends_all_ranks(self):
        self.start("fsdp", JOIN="1")
        peer = self.peer()
        peer.receive()
        peer.tell("error", code="PERMISSION_DENIED", reason="ISLAND_REMOVED",
                  message="it was removed")
        for code, text in self.finish():
            self.assertEqual(code, 1)
            self.assertIn("it was removed", text)

    def test_a_strict_run_refuses_another_number_of_ranks(self):
        peer = self.begin("fsdp")
        peer.train(1)
        peer.end()
        self.finish()
        self.start("fsdp_tp")
        peer = self.peer()
        peer.hello(len(LAYOUT))
        self.assertEqual(peer.wait_for_close()[0]["error"]["reason"],
                         "OTHER_RANKS")
        for code, text in self.finish():
            self.assertEqual(code, 1)
            self.assertRegex(text, "Start as many ranks as before")

    def test_an_elastic_run_takes_another_number_of_ranks(self):
        peer = self.begin("fsdp")
        peer.train(1)
        peer.ask("save", save_id="of-two")
        peer.end()
        self.finish()
        self.start("fsdp_tp")
        peer = self.peer()
        peer.hello(len(LAYOUT), strict=False)
        peer.layout(LAYOUT)
        peer.ask("load", save_id="of-two")
        peer.write(*[0.25] * len(LAYOUT))
        peer.train(1)
        peer.ask("save", save_id="of-four")
        peer.end()
        texts = self.finish()
        for code, text in texts:
            self.assertEqual(code, 0, text)
        self.assertIn("begin anew", texts[0][1])


if __name__ == "__main__":
    cases.main()
