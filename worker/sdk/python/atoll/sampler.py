"""A sampler for torch's DataLoader: the samples of an island's data shard."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sized

import numpy as np

from . import _indices, _torch
from .errors import Error
from .join import Joined


class ShardSampler:
    """Indices of the samples of an island, in another order each epoch.

        sampler = atoll.ShardSampler(dataset, joined)
        loader = StatefulDataLoader(dataset, batch_size=16, sampler=sampler)
        for epoch in range(10):
            sampler.set_epoch(epoch)
            for batch in loader:
                ...

    Sample i is of the data shard i % joined.shard_count, whatever the seed. So
    islands with different data shards share no sample, and neither do replicas
    of one island. A shard without an island is read by none: create_run's
    data={"data_shard_count": ...} should be the number of islands. All replicas
    have the same number of samples: those that are left over differ by epoch.

    As a part of torchdata's StatefulDataLoader it continues where a save was.
    """

    tells_indices = True  # Its digest, or on purpose nothing.

    def __init__(self, dataset: Sized | int, joined: Joined, *,
                 num_replicas: int | None = None, rank: int | None = None,
                 shuffle: bool = True, seed: int = 0,
                 report_indices: bool = True):
        """Args:
          dataset: The dataset, or its length.
          joined: The island's place.
          num_replicas, rank: The data-parallel replicas of the island, and this
            one's number, as in DistributedSampler. Default: all ranks of
            torch.distributed.
          shuffle: False: in rising order, the same in each epoch.
          seed: The same on all ranks of the island.
          report_indices: The digest of the first 256 indices goes to the
            coordinator, which warns of islands with the same one. False: it
            does not, as for private data.

        Error INVALID_ARGUMENT: an argument is wrong, or the shard has fewer
        samples than replicas.
        """
        length = dataset if isinstance(dataset, int) else len(dataset)
        if num_replicas is None and rank is None and _torch.has_ranks():
            world = _torch.loaded().distributed
            num_replicas, rank = world.get_world_size(), world.get_rank()
        self._replicas = 1 if num_replicas is None else num_replicas
        self._rank = 0 if rank is None else rank
        if not 0 <= self._rank < self._replicas:
            raise Error("rank is %d of %d replicas" %
                        (self._rank, self._replicas), code="INVALID_ARGUMENT",
                        hint="Give both num_replicas and rank.")
        if seed < 0:
            raise Error("seed is %d" % seed, code="INVALID_ARGUMENT",
                        hint="Give 0 or more.")
        self._indices = range(joined.shard, length, joined.shard_count)
        self._shuffle = shuffle
        self._seed = [seed, joined.shard]
        self.epoch = 0
        self._begin = self._position = 0
        if len(self) == 0:
            raise Error("data shard %d of %d has %d of the %d samples, too few "
                        "for %d replicas" %
                        (joined.shard, joined.shard_count, len(self._indices),
                         length, self._replicas), code="INVALID_ARGUMENT")
        if report_indices:
            joined.index_digest = _indices.digest_of(
                self._order()[:_indices.HASHED_COUNT].tolist())

    def __len__(self) -> int:
        """Samples of an epoch, of one replica."""
        return len(self._indices) // self._replicas

    def _order(self) -> np.ndarray:
        """This replica's indices of the epoch."""
        count = len(self._indices)
        order = (np.random.default_rng([*self._seed, self.epoch])
                 .permutation(count) if self._shuffle else np.arange(count))
        mine = order[self._rank::self._replicas][:len(self)]
        return self._indices.start + self._indices.step * mine

    def __iter__(self) -> Iterator[int]:
        self._position, self._begin = self._begin, 0
        for index in self._order()[self._position:].tolist():
            self._position += 1
            yield index
        self._position = 0

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is of this epoch, from its begin if it is new."""
        if epoch != self.epoch:
            self.epoch = epoch
            self._begin = self._position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "position": self._position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.epoch = int(state["epoch"])
        self._begin = self._position = int(state["position"])
