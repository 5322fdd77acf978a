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
      digest: Of the first HASHED_COUNT indices, or of all in a shorter pass;
        empty: not known yet.
    """

    def __init__(self, is_on: bool = True):
        """`is_on`: False watches and reports nothing."""
        self.digest = ""
        self._is_on = is_on
        self._watched: list[Any] = []

    def watch(self, loader: Any) -> None:
        """Watches the innermost sampler of a torch DataLoader, if it has one.

        A DataLoader refuses another sampler, so the sampler's class changes
        until the digest is known. A sampler that is no object of a class
        written in Python is not watched, and a ShardSampler tells by itself.
        """
        if not self._is_on or self.digest or not hasattr(loader, "dataset"):
            return
        sampler = _sampler_of(loader)
        if (sampler is not None and not isinstance(sampler, _Watched) and
                not hasattr(sampler, "tells_indices") and
                _change_class(sampler, _Watched, self, loader.dataset)):
            self._watched.append(sampler)

    def report(self, given: str) -> str:
        """`given`, a ShardSampler's digest, or the one that was seen."""
        return (given or self.digest) if self._is_on else ""

    def end(self) -> None:
        """Watches no longer."""
        for sampler in self._watched:
            sampler.__class__ = type(sampler).__bases__[1]
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

    def follow(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for item in iterator:
            self.add(item)
            yield item
        self.end()


class _Watched:
    """A base of a sampler's class."""

    _atoll_watch: tuple[IndexWatch, Any]

    def __iter__(self) -> Iterator[Any]:
        seen = _Pass(*self._atoll_watch)
        iterator = super().__iter__()  # type: ignore[misc]
        # torchdata's loader saves the position of an iterator that has a state.
        if hasattr(iterator, "state_dict"):
            _change_class(iterator, _WatchedIterator, seen)
            return iterator
        return seen.follow(iterator)


class _WatchedIterator:
    """A base of the class of a sampler's iterator."""

    _atoll_watch: tuple[_Pass]

    def __next__(self) -> Any:
        try:
            item = super().__next__()  # type: ignore[misc]
        except StopIteration:
            self._atoll_watch[0].end()
            raise
        self._atoll_watch[0].add(item)
        return item


def _change_class(thing: Any, base: type, *watch: Any) -> bool:
    kind = type(thing)
    try:
        thing.__class__ = type(kind.__name__, (base, kind),
                               {"_atoll_watch": watch})
    except TypeError:
        return False  # A class of another language, or with __slots__.
    return True


def _sampler_of(loader: Any) -> Any:
    """The sampler that chooses single samples; None: there is none."""
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
