"""Loads a run's parameters from its servers."""

from __future__ import annotations

import glob
import os
import tempfile
from typing import Any, Mapping

import numpy as np

from . import _module, _safetensors, _torch
from ._parameters import check_layout
from .errors import Error
from .run import _atoll


def fetch(run_id: str, model: Any = None, *,
          arrays: Mapping[str, np.ndarray] | None = None,
          coordinator: str | None = None, buffers: str = "local",
          names: Any = None) -> None:
    """Loads the run's newest parameters; of a complete run, the final ones.

    It is `atoll run export`, which is an operator's: it joins no run.

    Args:
      run_id: The run's id.
      model: A torch module, whose parameters are replaced.
      arrays: Or {name: writable array}.
      coordinator: HOST:PORT; default: ATOLL_COORDINATOR, or this machine.
      buffers, names: As in Island.

    Error OTHER_LAYOUT: the run has other tensors; nothing has changed. Or the
    error of `atoll run export`, with its code, reason and hint.
    """
    if (model is None) == (arrays is None):
        raise Error("give model or arrays", code="INVALID_ARGUMENT")
    flags = ["--coordinator", coordinator] if coordinator else []
    with tempfile.TemporaryDirectory(prefix="atoll-fetch-") as folder:
        _atoll("run", "export", run_id, "--output", folder, *flags)
        theirs: dict[str, np.ndarray] = {}
        for path in sorted(glob.glob(os.path.join(glob.escape(folder),
                                                  "*.safetensors"))):
            with open(path, "rb") as file:
                found, _ = _safetensors.read(file)
            theirs.update((name, np.frombuffer(a.data, "<f4").reshape(a.shape))
                          for name, a in found.items())
    mine: Mapping[str, Any] = arrays if arrays is not None else (
        _module.shared_tensors(model, buffers, names, theirs))
    check_layout({name: tuple(value.shape) for name, value in mine.items()},
                 theirs)
    for name, value in mine.items():
        values = theirs[name].reshape(tuple(value.shape))
        if isinstance(value, np.ndarray):
            value[...] = values
        else:
            value.data.copy_(_torch.loaded().from_numpy(values))
