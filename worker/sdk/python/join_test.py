#!/usr/bin/python3
"""A place in the run before there is a model, and the sampler that uses it."""

import itertools
import os
import random
import sys
import threading
import types
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402
import fake_exchange  # noqa: E402
from fake_exchange import FakeExchange  # noqa: E402

import atoll  # noqa: E402
from atoll import _frozen  # noqa: E402
from atoll import _indices  # noqa: E402
from atoll import _trainer  # noqa: E402


def place(shard=1, shard_count=3):
    """What a sampler reads of a Joined."""
    return types.SimpleNamespace(shard=shard, shard_count=shard_count,
                                 index_digest="")


class Sampler:
    """As torch's RandomSampler, or `numbers` in their order."""

    def __init__(self, seed, numbers=range(400)):
        self.seed, self.numbers = seed, numbers

    def __iter__(self):
        numbers = list(self.numbers)
        if self.seed is not None:
            random.Random(self.seed).shuffle(numbers)
        yield from numbers


class StatefulSampler(Sampler):
    """Its iterators have a state, as those of torchdata."""

    class Iterator:

        def __init__(self, numbers):
            self.numbers = numbers

        def __iter__(self):
            return self

        def __next__(self):
            return next(self.numbers)

        def state_dict(self):
            return {}

    def __iter__(self):
        return self.Iterator(super().__iter__())


class BatchSampler:

    def __init__(self, sampler, size):
        self.sampler, self.size = sampler, size

    def __iter__(self):
        numbers = iter(self.sampler)
        while batch := list(itertools.islice(numbers, self.size)):
            yield batch


class Loader:
    """As torch's DataLoader."""

    def __init__(self, seed=None, sampler=None, dataset=range(400)):
        self.dataset = dataset
        self.sampler = Sampler(seed) if sampler is None else sampler
        self.batch_sampler = BatchSampler(self.sampler, 100)

    def __iter__(self):
        return iter(self.batch_sampler)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class JoinTest(cases.FolderCase):

    def setUp(self):
        super().setUp()
        self.socket = self.path("socket")
        os.environ["ATOLL_SOCKET"] = self.socket
        self.events = []

    def exchange(self, *scripts):
        return FakeExchange(self.socket, *scripts)

    def join(self, **options):
        return atoll.join("nobody:1", run=fake_exchange.RUN,
                          work_dir=self.path("work"),
                          on_event=self.events.append, **options)

    def test_the_place_comes_before_the_model_and_the_island_keeps_it(self):
        has_model = threading.Event()

        def script(peer):
            peer.place(slot=4, data_shard=1, data_shard_count=3)
            self.assertTrue(has_model.wait(fake_exchange.PATIENCE_S))
            peer.begin(1.0, 2.0, seq="2")
            answer = peer.train(2)
            self.assertEqual(answer["step_count"], "2")
            self.assertNotIn("index_digest", answer)
            peer.end()

        with self.exchange(script):
            joined = self.join()
            self.assertEqual((joined.index, joined.shard, joined.shard_count),
                             (4, 1, 3))
            has_model.set()
            island = atoll.Island(joined=joined)
            self.assertEqual(island.data_shard, 1)
            with island:
                self.assertEqual(float(island.arrays["w"][0, 0]), 1.0)
                while island.step(loss=1.0, tokens=1):
                    pass
        kinds = [event["event"] for event in self.events]
        self.assertEqual(kinds[:2], ["placed", "joined"])
        self.assertEqual(self.events[0]["shard"], 1)
        with self.assertRaisesRegex(atoll.Error, "has an island"):
            atoll.Island(joined=joined)

    def test_a_lost_exchange_is_found_again_without_the_place(self):
        lost = threading.Event()

        def first(peer):
            peer.place()

        def second(peer):
            lost.set()
            peer.begin()
            peer.end()

        def other_run(peer):
            peer.hello(run_uid="f" * 32)
            peer.wait_for_close()

        with self.exchange(first, second):
            joined = self.join()
            with atoll.Island(joined=joined) as island:
                self.assertTrue(island.ended)
        self.assertTrue(lost.is_set())
        os.unlink(self.socket)
        with self.exchange(first, other_run):
            joined = self.join()
            with self.assertRaisesRegex(atoll.Error, "OTHER_RUN"):
                atoll.Island(joined=joined).start()

    def test_a_refused_join_raises_with_all_its_parts(self):
        def script(peer):
            self.assertEqual(peer.receive(),
                             {"seq": "1", "join": {"version": 1}})
            peer.tell("error", code="PERMISSION_DENIED",
                      reason="ISLAND_REMOVED", message="it was removed")
            self.assertEqual(peer.wait_for_close(), [])

        with self.exchange(script):
            with self.assertRaises(atoll.Error) as raised:
                self.join()
        self.assertEqual(raised.exception.reason, "ISLAND_REMOVED")
        self.assertEqual(raised.exception.code, "PERMISSION_DENIED")
        self.assertEqual([e["event"] for e in self.events], ["refused"])

    def test_another_version_or_kind_is_refused(self):
        for answer, expected in (
                ({"join": {"version": 2}}, "OTHER_VERSION"),
                ({"hello": {"version": 1}}, "UNREADABLE_MESSAGE")):
            def script(peer, answer=answer):
                peer.receive()
                peer.send({"seq": "1", **answer})
                peer.wait_for_close()

            with self.exchange(script):
                with self.assertRaisesRegex(atoll.Error, expected):
                    self.join()
            os.unlink(self.socket)

    def test_a_place_without_an_island_is_given_up(self):
        def script(peer):
            peer.place()
            self.assertEqual(peer.wait_for_close(), [])

        def cell_again(peer):
            peer.place(data_shard=2)
            self.assertEqual(peer.wait_for_close(), [])

        with self.exchange(script, cell_again):
            first = self.join()
            second = self.join()  # As a notebook's cell that runs again.
            self.assertEqual(second.shard, 2)
            second.close()
            self.assertEqual(first.index, 4)

    def test_a_place_has_the_address_and_the_rest(self):
        def script(peer):
            peer.place()
            peer.wait_for_close()

        with self.exchange(script):
            joined = self.join()
            for wrong in ({"run": "other"}, {"island_id": "a"},
                          {"work_dir": self.path("b")}, {"on_event": print}):
                with self.assertRaisesRegex(atoll.Error, "atoll.join only"):
                    atoll.Island(joined=joined, **wrong)
            joined.close()
        island = atoll.Island("nobody:1", run="spring",
                              work_dir=self.path("other"))
        with self.assertRaisesRegex(atoll.Error, "atoll.join gives it before"):
            island.data_shard  # pylint: disable=pointless-statement
        island.close()
        with self.assertRaisesRegex(atoll.Error, "or joined"):
            atoll.Island(run="spring")

    def test_the_sampler_tells_a_digest_unless_data_is_private(self):
        digests = []
        for private in (False, True):
            def script(peer):
                peer.place()
                peer.begin(seq="2")
                digests.append(peer.train(1).get("index_digest"))
                peer.end()

            with self.exchange(script):
                joined = self.join()
                atoll.ShardSampler(1000, joined, report_indices=not private)
                with atoll.Island(joined=joined) as island:
                    while island.step(loss=1.0, tokens=1):
                        pass
            os.unlink(self.socket)
        self.assertRegex(digests[0], "^[0-9a-f]{64}$")
        self.assertIsNone(digests[1])

    def test_the_numbers_of_an_ordinary_loader_are_told(self):
        def digest(loader, in_state=False, **options):
            def script(peer):
                peer.begin()
                for _ in range(4):
                    told.append(peer.train(1).get("index_digest", ""))
                peer.end()

            told = []
            with self.exchange(script):
                with atoll.Island(
                        "nobody:1", run=fake_exchange.RUN,
                        work_dir=self.path("work-%s" % in_state), **options,
                        state={"loader": loader} if in_state else {}) as island:
                    batches = loader if in_state else island.batches(loader)
                    for _ in batches:
                        if not island.step(loss=1.0, tokens=1):
                            break
            os.unlink(self.socket)
            return told

        first = digest(Loader(seed=5))
        # Two batches of 100 have less than 256 numbers.
        self.assertEqual(first[:2], ["", ""])
        self.assertRegex(first[2], "^[0-9a-f]{64}$")
        self.assertEqual(first[3], first[2])
        self.assertEqual(digest(Loader(seed=5)), first)
        self.assertEqual(digest(Loader(seed=5), in_state=True), first)
        self.assertNotEqual(digest(Loader(seed=6)), first)
        self.assertEqual(digest(Loader(seed=5), report_indices=False),
                         [""] * 4)
        self.assertEqual(digest(Loader(seed=5), in_state=True,
                                report_indices=False), [""] * 4)

    def test_the_hello_tells_the_digest_of_what_is_frozen(self):
        def script(expected, peer):
            self.assertEqual(peer.receive(), {"seq": "1", "hello": {
                "version": 1, "weight_unit": "any", **expected}})
            peer.tell("error", message="stop")
            peer.wait_for_close()

        digest = _frozen.combine([{"base.weight": "ab"}])
        for options, expected in (({}, {"frozen_digest": digest}),
                                  ({"check_frozen": False}, {})):
            with self.exchange(lambda peer, e=expected: script(e, peer)), \
                    mock.patch.object(_trainer.Trainer, "_on_frozen",
                                      lambda self: {"base.weight": "ab"}):
                island = atoll.Island("nobody:1", run=fake_exchange.RUN,
                                      work_dir=self.path("work"), **options)
                with self.assertRaises(atoll.Error):
                    island.start()
            os.unlink(self.socket)


class FrozenTest(cases.unittest.TestCase):

    def test_the_digest_is_of_all_ranks_in_any_order(self):
        whole = _frozen.combine([{"a": "1", "b": "2"}])
        self.assertRegex(whole, "^[0-9a-f]{64}$")
        self.assertEqual(_frozen.combine([{"b": "2"}, {"a": "1", "b": "2"}]),
                         whole)
        self.assertNotEqual(_frozen.combine([{"a": "2", "b": "1"}]), whole)
        self.assertEqual(_frozen.combine([{}, {}]), "")

    def test_ranks_with_other_values_are_an_error(self):
        with self.assertRaisesRegex(atoll.Error, "rank 1 .* frozen a "):
            _frozen.combine([{"a": "1"}, {"a": "2"}])


class IndexWatchTest(cases.unittest.TestCase):

    def digest(self, loader, **options):
        watch = _indices.IndexWatch(**options)
        kind = type(loader.sampler)
        watch.watch(loader)
        watch.watch(loader)
        read = [number for batch in loader for number in batch]
        self.assertEqual(read, [number for batch in loader for number in batch])
        if watch.digest:
            self.assertIs(type(loader.sampler), kind)
        return watch.digest, read

    def test_a_sampler_is_as_before(self):
        digest, read = self.digest(Loader(5))
        unwatched = Loader(5)
        self.assertEqual(read, [n for batch in unwatched for n in batch])
        self.assertEqual(digest, _indices.digest_of(read[:256]))
        self.assertEqual(self.digest(Loader(sampler=StatefulSampler(5))),
                         (digest, read))
        self.assertEqual(self.digest(Loader(5), is_on=False), ("", read))

    def test_a_short_pass_counts_as_a_whole(self):
        for kind in (Sampler, StatefulSampler):
            digest, read = self.digest(Loader(sampler=kind(5, range(30))))
            self.assertEqual(digest, _indices.digest_of(read))

    def test_an_iterator_keeps_its_state_s_methods(self):
        loader = Loader(sampler=StatefulSampler(5))
        watch = _indices.IndexWatch()
        watch.watch(loader)
        self.assertIsInstance(iter(loader.sampler), StatefulSampler.Iterator)
        self.assertEqual(iter(loader.sampler).state_dict(), {})

    def test_a_subset_counts_by_the_numbers_of_the_whole(self):
        def subset(begin):
            whole = types.SimpleNamespace(dataset=range(900),
                                          indices=range(begin, begin + 500))
            return types.SimpleNamespace(dataset=whole, indices=range(400))

        first, _ = self.digest(Loader(5, dataset=subset(0)))
        self.assertEqual(first, self.digest(Loader(5))[0])
        self.assertNotEqual(first, self.digest(Loader(5, dataset=subset(9)))[0])

    def test_what_has_no_numbers_is_left_alone(self):
        for sampler in (Sampler(None, [None] * 300), Sampler(None, "abc"),
                        list(range(300))):
            self.assertEqual(self.digest(Loader(sampler=sampler))[0], "")
        sharded = atoll.ShardSampler(900, place(), report_indices=False)
        self.assertEqual(self.digest(Loader(sampler=sharded))[0], "")
        watch = _indices.IndexWatch()
        watch.watch(Sampler(5))  # No loader.
        watch.watch([1, 2])


class ShardSamplerTest(cases.unittest.TestCase):

    def test_shards_and_replicas_share_no_sample(self):
        seen = []
        for shard in range(3):
            for rank in range(2):
                # The seeds of islands may differ.
                sampler = atoll.ShardSampler(
                    range(100), place(shard), seed=shard, num_replicas=2,
                    rank=rank)
                mine = list(sampler)
                self.assertEqual(len(mine), len(sampler))
                self.assertEqual({index % 3 for index in mine}, {shard})
                seen += mine
        self.assertEqual(len(seen), len(set(seen)))
        self.assertEqual(len(seen), 17 * 2 + 16 * 4)

    def test_epochs_have_other_orders_and_the_same_samples(self):
        sampler = atoll.ShardSampler(90, place(), seed=5)
        first = list(sampler)
        self.assertEqual(list(sampler), first)
        sampler.set_epoch(1)
        second = list(sampler)
        self.assertNotEqual(second, first)
        self.assertEqual(sorted(second), sorted(first))
        self.assertNotEqual(first, sorted(first))
        self.assertNotEqual(list(atoll.ShardSampler(90, place(), seed=6)),
                            first)
        rising = atoll.ShardSampler(90, place(), shuffle=False)
        self.assertEqual(list(rising), sorted(first))

    def test_what_is_left_over_differs_by_epoch(self):
        sampler = atoll.ShardSampler(10, place(0, 1), num_replicas=3, rank=0)
        others = [atoll.ShardSampler(10, place(0, 1), num_replicas=3, rank=r)
                  for r in (1, 2)]
        left = set()
        for epoch in range(20):
            read = set()
            for one in (sampler, *others):
                one.set_epoch(epoch)
                read |= set(one)
            self.assertEqual(len(read), 9)
            left |= set(range(10)) - read
        self.assertGreater(len(left), 1)

    def test_a_state_continues_within_the_epoch(self):
        sampler = atoll.ShardSampler(90, place(), seed=5)
        sampler.set_epoch(3)
        whole = list(sampler)
        walk = iter(sampler)
        begin = [next(walk) for _ in range(7)]
        state = sampler.state_dict()
        other = atoll.ShardSampler(90, place(), seed=5)
        other.load_state_dict(state)
        self.assertEqual(other.state_dict(), state)
        other.set_epoch(3)  # As a loop does that starts again.
        self.assertEqual(begin + list(other), whole)
        self.assertEqual(list(other), whole)  # The next one is whole.
        other.load_state_dict(state)
        other.set_epoch(4)
        self.assertEqual(len(list(other)), len(whole))
        # A loop that was left begins anew.
        next(iter(other))
        self.assertEqual(len(list(other)), len(whole))

    def test_equal_digests_are_of_equal_orders(self):
        def digest(at, **options):
            atoll.ShardSampler(5000, at, **options)
            return at.index_digest

        self.assertEqual(digest(place()), digest(place()))
        self.assertNotEqual(digest(place(0)), digest(place(1)))
        self.assertNotEqual(digest(place(), seed=1), digest(place(), seed=2))
        self.assertEqual(digest(place(), report_indices=False), "")

    def test_wrong_arguments_are_named(self):
        for length, options, expected in (
                (100, {"seed": -1}, "seed is -1"),
                (100, {"num_replicas": 2, "rank": 2}, "rank is 2 of 2"),
                (100, {"rank": 1}, "rank is 1 of 1"),
                (1, {}, "data shard 1 of 3 has 0 of the 1 samples"),
                (5, {"num_replicas": 4, "rank": 0}, "too few for 4")):
            with self.assertRaisesRegex(atoll.Error, expected):
                atoll.ShardSampler(length, place(), **options)


if __name__ == "__main__":
    cases.main()
