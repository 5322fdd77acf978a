"""Tensors of any floating-point dtype as the f32 values of a run."""

from __future__ import annotations

from typing import Any

from . import _torch
from .errors import Error


def moved(name: str, how: str) -> Error:
    return Error("%s %s" % (name, how), reason="PARAMETER_MOVED",
                 code="FAILED_PRECONDITION",
                 hint="Change the model first, then make the optimizer and the "
                 "Island.")


class Values:
    """Reads and writes tensors, and knows what each write has rounded off.

    A write to bf16 rounds. A tensor that nothing has changed since reads as
    what was written, to the bit; one that has moved by d reads as that plus d.

      v  what is written, f32
      t  the tensor after that: v, rounded to its dtype
      v - t  exact in f32, as t is v without its last bits
    """

    def __init__(self) -> None:
        self._off: dict[str, Any] = {}     # v - t by name, if t is lossy.
        self._dtypes: dict[str, Any] = {}  # Those of t at a write.

    def write(self, name: str, tensor: Any, values: Any) -> None:
        """Copies `values`, f32, to the tensor."""
        torch = _torch.loaded()
        tensor.copy_(values)
        self._dtypes[name] = tensor.dtype
        if tensor.dtype in (torch.float32, torch.float64):
            self._off.pop(name, None)
        else:
            self._off[name] = values.cpu() - tensor.to("cpu", torch.float32)

    def read(self, name: str, tensor: Any) -> Any:
        """The tensor's values, in f32 or wider.

        They are written back. Otherwise a restart, which writes them, would
        train on with other bits than this process.

        Error PARAMETER_MOVED: it has another dtype than at the write, and not
        a wider one.
        """
        torch = _torch.loaded()
        before = self._dtypes.get(name, tensor.dtype)
        if tensor.dtype != before and (torch.finfo(tensor.dtype).bits <=
                                       torch.finfo(before).bits):
            raise moved(name, "was %s when the run's values were written, and "
                        "is %s" % (before, tensor.dtype))
        if name not in self._off:
            return tensor
        wide = (torch.float64 if tensor.dtype == torch.float64 else
                torch.float32)
        values = (tensor.to("cpu", wide) + self._off[name]).float()
        self.write(name, tensor, values)
        return values
