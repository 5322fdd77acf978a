"""The digest of the first samples that a data loader chooses.

Only their numbers count, never the data. Equal numbers of two islands are the
same samples if both read one data set: this module cannot see that.
"""

from __future__ import annotations

import hashlib
import json
import operator
from typing import Any, Iterable, Iterator

HASHED_COUNT = 256


def digest_of(indices: Iterable[int]) -> str:
    return hashlib.sha256(json.dumps(list(indices)).encode()).hexdigest()


class IndexWatch:
    """Watches samplers until one has chosen its first indices.

    Attributes:
      digest: That of the first HASHED_COUNT indices, or of all in a shorter
        pass; empty: not known yet.
    """

    def __init__(self, is_on: bool = True):
        """`is_on`: False watches and reports nothing."""
        self.digest = ""
        self._is_on = is_on
        self._watched: list[tuple[Any, type]] = []

    def watch(self, loader: Any) -> None:
        """Watches the innermost sampler of a torch DataLoader, if it has one.

        A DataLoader refuses another sampler, so the sampler's class changes
        until the digest is known. A sampler that is no object of a class
        written in Python is not watched, and a ShardSampler tells by itself.
        """
        if not self._is_on or self.digest or not hasattr(loader, "dataset"):
            return
        sampler, dataset = _sampler_of(loader), loader.dataset
        if sampler is None or hasattr(sampler, "tells_indices"):
            return
        kind = type(sampler)

        def iterate(sampler: Any) -> Iterator[Any]:
            return _Pass(self, dataset).follow(kind.__iter__(sampler))

        if _change_class(sampler, __iter__=iterate, tells_indices=True):
            self._watched.append((sampler, kind))

    def report(self, given: str) -> str:
        """`given`, a ShardSampler's digest, or the one that was seen."""
        return (given or self.digest) if self._is_on else ""

    def end(self) -> None:
        """Gives the samplers their classes back."""
        for sampler, kind in self._watched:
            sampler.__class__ = kind
        self._watched.clear()


class _Pass:
    """The indices of one iteration of a sampler."""

    def __init__(self, watch: IndexWatch, dataset: Any):
        self._watch = watch
        self._dataset = dataset
        self._seen: list[int] = []

    def add(self, item: Any) -> None:
        """`item`: an index, or a batch of them."""
        if self._watch.digest:
            return
        try:
            for index in item if isinstance(item, (list, tuple)) else (item,):
                self._seen.append(_whole_index(self._dataset, index))
        except (TypeError, IndexError):
            self._watch.end()  # An IterableDataset has no indices.
            return
        if len(self._seen) >= HASHED_COUNT:
            self.end()

    def end(self) -> None:
        if self._seen and not self._watch.digest:
            self._watch.digest = digest_of(self._seen[:HASHED_COUNT])
            self._watch.end()

    def follow(self, iterator: Any) -> Iterator[Any]:
        # torchdata's loader saves the position of an iterator with a state.
        if not hasattr(iterator, "state_dict"):
            return self._follow(iterator)
        kind = type(iterator)

        def advance(iterator: Any) -> Any:
            try:
                item = kind.__next__(iterator)
            except StopIteration:
                self.end()
                raise
            self.add(item)
            return item

        _change_class(iterator, __next__=advance)
        return iterator

    def _follow(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for item in iterator:
            self.add(item)
            yield item
        self.end()


def _change_class(thing: Any, **members: Any) -> bool:
    """Gives `thing` a class that differs by `members`, if it can."""
    kind = type(thing)
    try:
        # As the only base: a second one would have another layout.
        thing.__class__ = type(kind.__name__, (kind,), members)
    except TypeError:
        return False  # A class of another language, or with __slots__.
    return True


def _sampler_of(loader: Any) -> Any:
    """The sampler that chooses single samples, or None."""
    thing = loader
    for _ in range(8):
        inner = getattr(thing, "batch_sampler", None)
        if inner is None:
            inner = getattr(thing, "sampler", None)
        if inner is None:
            break
        thing = inner
    return None if thing is loader else thing


def _whole_index(dataset: Any, index: Any) -> int:
    """The index in the data set of which `dataset` may be a Subset."""
    index = operator.index(index)
    while hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
        index = operator.index(dataset.indices[index])
        dataset = dataset.dataset
    return index
