#!/usr/bin/python3
"""What several ranks of an island agree on, without torch."""

import itertools
import os
import sys
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402

import numpy as np  # noqa: E402

import atoll  # noqa: E402
from atoll import _mesh_parameters  # noqa: E402
from atoll import _shards  # noqa: E402
from atoll import _state  # noqa: E402
from atoll import _steps  # noqa: E402
from atoll import _store  # noqa: E402
from atoll import _trainer  # noqa: E402
from atoll._mesh_parameters import Holding, Part  # noqa: E402
from atoll._ranks import Alone  # noqa: E402


def placement(dim=None, factor=None, partial=False):
    """A Placement of torch: replicate, shard or strided shard."""
    fields = {} if dim is None else {"dim": dim}
    if factor is not None:
        fields["split_factor"] = factor
    return types.SimpleNamespace(
        is_replicate=lambda: dim is None and not partial,
        is_partial=lambda: partial, **fields)


def chunk(array, count, index, axis):
    """Part `index` of torch.chunk(array, count, axis)."""
    size = -(-array.shape[axis] // count)
    return np.take(array, range(min(index * size, array.shape[axis]),
                                min((index + 1) * size, array.shape[axis])),
                   axis)


class FakeTensor:
    """A DTensor that holds `part` of the shape on this rank."""

    def __init__(self, shape, sizes, coordinate, placements, part):
        self.shape = shape
        self.placements = placements
        self.device_mesh = types.SimpleNamespace(
            ndim=len(sizes), size=lambda dim: sizes[dim],
            get_coordinate=lambda: coordinate)
        self._part = part

    def to_local(self):
        return types.SimpleNamespace(
            detach=lambda: types.SimpleNamespace(shape=self._part.shape))


class BoxTest(cases.FolderCase):

    def check(self, shape, sizes, placements, order):
        """`order`: mesh dimensions in the order in which they split."""
        whole = np.arange(np.prod(shape)).reshape(shape)
        for coordinate in itertools.product(*map(range, sizes)):
            part = whole
            for dim in order:
                part = chunk(part, sizes[dim], coordinate[dim],
                             placements[dim].dim)
            box = _shards.box_of(FakeTensor(shape, sizes, coordinate,
                                            placements, part), "w")
            np.testing.assert_array_equal(
                whole[tuple(slice(*of) for of in box)], part)

    def test_boxes_are_what_torch_puts_on_a_rank(self):
        for size in range(1, 9):
            shape = (size, 5)
            self.check(shape, (3,), [placement(0)], [0])
            self.check(shape, (2, 3), [placement(0), placement(1)], [0, 1])
            self.check(shape, (2, 3), [placement(0), placement(0)], [0, 1])
            self.check(shape, (2, 2), [placement(), placement(1)], [1])
            # fully_shard of what tensor parallelism has split.
            self.check(shape, (3, 2), [placement(0, 2), placement(0)], [1, 0])
            self.check(shape, (2, 2, 2), [placement(), placement(0, 2),
                                          placement(0)], [2, 1])
            self.check(shape, (2, 3, 2), [placement(0, 6), placement(0),
                                          placement(0)], [1, 2, 0])

    def test_other_placements_are_refused(self):
        part = np.zeros((2, 5))
        for placements in ([placement(partial=True), placement()],
                           [placement(0, 3), placement(0)]):
            tensor = FakeTensor((4, 5), (2, 2), (0, 0), placements, part)
            with self.assertRaisesRegex(atoll.Error, "w has the placements"):
                _shards.box_of(tensor, "w")

    def test_a_part_of_another_size_is_refused(self):
        tensor = FakeTensor((4, 5), (2,), (0,), [placement(0)],
                            np.zeros((3, 5)))
        with self.assertRaisesRegex(atoll.Error, "UNSUPPORTED_TENSOR"):
            _shards.box_of(tensor, "w")

    def test_a_mesh_without_this_rank_has_no_box(self):
        self.assertIsNone(_shards.box_of(
            FakeTensor((4,), (2,), None, [placement(0)], None), "w"))


def holding(*box, shape=(4,), is_buffer=False):
    return Holding(shape, box, is_buffer)


class PartsTest(cases.FolderCase):

    def test_owners_of_replicas_are_spread_over_the_near_ranks(self):
        holdings = {rank: holding((0, 4)) for rank in range(4)}
        for index in range(6):
            self.assertEqual(
                _mesh_parameters.parts_of("w", index, holdings, [0, 1, 3]),
                [Part("w", ((0, 4),), ((0, 1, 3)[index % 3],),
                      ((0, 1, 3)[index % 3], 2))])

    def test_the_first_replica_of_a_buffer_owns_it(self):
        holdings = {rank: holding((0, 4), is_buffer=True) for rank in range(2)}
        part, = _mesh_parameters.parts_of("w", 1, holdings, [0, 1])
        self.assertEqual(part.readers, (0,))

    def test_a_far_part_is_sent_to_a_near_rank(self):
        holdings = {0: holding((0, 3)), 2: holding((3, 4)),
                    3: holding((3, 4))}
        self.assertEqual(
            _mesh_parameters.parts_of("w", 0, holdings, [0, 1]),
            [Part("w", ((0, 3),), (0,), (0,)),
             Part("w", ((3, 4),), (2, 0), (0, 2, 3))])

    def test_an_empty_part_is_left_out(self):
        holdings = {0: holding((0, 4)), 1: holding((4, 4))}
        self.assertEqual(len(_mesh_parameters.parts_of("w", 0, holdings,
                                                       [0, 1])), 1)

    def test_parts_that_lack_elements_or_overlap_are_refused(self):
        for box in ((3, 4), (1, 4)):
            with self.assertRaisesRegex(atoll.Error, "of the 4 elements of w"):
                _mesh_parameters.parts_of("w", 0, {
                    0: holding((0, 2)), 1: holding(box)}, [0, 1])


def sums(steps=2, tokens=0, loss=None, **metrics):
    return _steps.Sums(steps, tokens, loss, metrics)


class TotalTest(cases.FolderCase):

    def test_tokens_are_those_of_replicas_and_means_are_weighted(self):
        total = _steps.total_of([
            sums(tokens=1, loss=3.0, a=(2.0, 1.0)), sums(tokens=1),
            sums(tokens=3, loss=5.0, a=(12.0, 3.0)), sums(tokens=3, b=(1, 2))
        ], [0, 2])
        self.assertEqual(total, _steps.Total(
            2, 4, (3 * 1 + 5 * 3) / 4, {"a": 3.5, "b": 0.5}))

    def test_the_only_loss_is_told_to_the_bit(self):
        self.assertEqual(_steps.total_of([
            sums(tokens=3), sums(tokens=3, loss=0.1)], [0]).loss, 0.1)

    def test_losses_without_tokens_weigh_the_same(self):
        self.assertEqual(_steps.total_of([
            sums(loss=1.0), sums(loss=4.0)], [0, 1]).loss, 2.5)

    def test_a_rank_with_other_steps_is_named(self):
        with self.assertRaisesRegex(atoll.Error, "rank 1 has trained 3 steps"):
            _steps.total_of([sums(), sums(steps=3)], [0, 1])


class SaveTest(cases.FolderCase):

    def test_the_answer_is_the_newest_save_that_all_ranks_have(self):
        class Two(Alone):

            def together(self, work):
                return [work(), (others, 0.0)]

        store = _store.Store(self.folder, 0)
        self.addCleanup(store.close)
        store.begin("spring", "0" * 32, "kitchen")
        state = _state.State({})
        trainer = _trainer.Trainer(Two(), None, state, store, True, None)
        for save_id, others, answer in (("a", [], ""), ("b", ["a"], "a"),
                                        ("c", ["a", "c"], "c")):
            self.assertEqual(trainer.save(save_id, strict=False), answer)
        # The record may still name "a".
        self.assertEqual(store.saved(), ["a", "b", "c"])


if __name__ == "__main__":
    cases.main()
