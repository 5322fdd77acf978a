"""The trainer's parameters as NumPy arrays, and what every kind must offer."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Protocol

import numpy as np

from ._regions import Regions
from .errors import Error


class Parameters(Protocol):
    """Moves parameters between the trainer and the regions."""

    def bind(self, regions: Regions) -> None:
        """Takes the regions of a new connection.

        Error OTHER_LAYOUT: they do not fit.
        """

    def read(self, fragments: Iterable[int]) -> None:
        """Puts the trainer's values into the regions of these fragments."""

    def write(self, fragments: Iterable[int]) -> None:
        """Takes the values in the regions of these fragments."""

    def are_finite(self) -> bool:
        """This rank's parameters have no NaN and no infinity."""

    def frozen(self) -> Mapping[str, str]:
        """{name: digest} of parameters that are not in the run."""
        return {}

    def shards(self) -> Mapping[str, Any]:
        """A DTensor of each kind: {_shards.describe(tensor): tensor}."""
        return {}


def check_layout(mine: Mapping[str, tuple[int, ...]],
                 views: Mapping[str, np.ndarray]) -> None:
    """Error OTHER_LAYOUT: the run has other names or shapes than the trainer.

    A scalar has the shape [] here, and [1] in a run.
    """
    missing = sorted(set(views) - set(mine))
    unknown = sorted(set(mine) - set(views))
    if missing or unknown:
        raise Error(
            "the trainer lacks the run's tensors %s; the run lacks the "
            "trainer's %s" % (missing[:5], unknown[:5]),
            reason="OTHER_LAYOUT", code="FAILED_PRECONDITION",
            hint="Use the model that the run was created with.")
    for name, shape in mine.items():
        if (shape or (1,)) != (views[name].shape or (1,)):
            raise Error("%s has the shape %s here and %s in the run" %
                        (name, list(shape), list(views[name].shape)),
                        reason="OTHER_LAYOUT", code="FAILED_PRECONDITION",
                        hint="Use the model that the run was created with.")


class ArrayParameters(Parameters):
    """NumPy arrays, copied at each read and write.

    The regions themselves would be shared with forked children.

    Attributes:
      arrays: {name: float32 array}: the trainer's own, or made by `bind`.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray] | None):
        """Error INVALID_ARGUMENT: not all are writable and float32."""
        self.arrays = dict(arrays or {})
        self._is_given = arrays is not None
        for name, array in self.arrays.items():
            kind: Any = getattr(array, "dtype", type(array).__name__)
            if (not isinstance(array, np.ndarray) or
                    array.dtype != np.float32 or not array.flags.writeable):
                raise Error("arrays[%r] is no writable float32 array: %s" %
                            (name, kind), code="INVALID_ARGUMENT")

    def bind(self, regions: Regions) -> None:
        views = regions.all_views()
        if not self._is_given:
            self.arrays = {name: np.zeros_like(view)
                           for name, view in views.items()}
            self._is_given = True
        check_layout({name: array.shape for name, array in self.arrays.items()},
                     views)
        self._regions = regions

    def read(self, fragments: Iterable[int]) -> None:
        for fragment in fragments:
            for name, view in self._regions.views(fragment).items():
                view[...] = self.arrays[name].reshape(view.shape)

    def write(self, fragments: Iterable[int]) -> None:
        for fragment in fragments:
            for name, view in self._regions.views(fragment).items():
                array = self.arrays[name]
                array[...] = view.reshape(array.shape)

    def are_finite(self) -> bool:
        return all(np.isfinite(array).all() for array in self.arrays.values())
