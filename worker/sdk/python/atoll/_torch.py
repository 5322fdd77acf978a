"""Knowledge of PyTorch, which this package never imports by itself.

A program that uses torch has imported it; `loaded()` finds it.
"""

from __future__ import annotations

import sys
from typing import Any

from . import _safetensors
from .errors import Error

# torch's name of a dtype: the name in a file.
_DTYPES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16",
           "int32": "I32", "int64": "I64", "float16": "F16",
           "bfloat16": "BF16", "float32": "F32", "float64": "F64",
           "complex64": "C64",
           "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}


def loaded() -> Any:
    """The module torch, or None if the program does not use it."""
    return sys.modules.get("torch")


def is_tensor(value: Any) -> bool:
    torch = loaded()
    return torch is not None and isinstance(value, torch.Tensor)


def has_ranks() -> bool:
    """The program has started torch.distributed."""
    torch = loaded()
    return (torch is not None and torch.distributed.is_available() and
            torch.distributed.is_initialized())


def is_in_backward() -> bool:
    """The caller is a hook of autograd."""
    task = getattr(loaded()._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def found_inf(optimizer: Any) -> bool:
    """In a hook after a step: mixed precision has made it change nothing.

    GradScaler calls only a fused optimizer for a step that it skips.
    """
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(float(found))


def is_of_distributed(error: RuntimeError) -> bool:
    """torch.distributed has raised `error`, for another rank has ended."""
    return (isinstance(error, loaded().distributed.DistError) if has_ranks()
            else False) or "third_party/gloo" in str(error)


def reshard(model: Any) -> None:
    """Drops the whole parameters that FSDP2 may have left after a forward.

    They are copies, which do not change with the sharded ones.
    """
    for module in model.modules():
        if callable(getattr(module, "reshard", None)):
            module.reshard()


def refuse_unusual(value: Any, name: str, may_be_meta: bool = False) -> None:
    """Error UNSUPPORTED_TENSOR: a tensor that is not plain and strided."""
    torch = loaded()
    if value.is_meta and not may_be_meta:
        raise Error("%s is on the meta device and has no values" % name,
                    reason="UNSUPPORTED_TENSOR", code="UNIMPLEMENTED",
                    hint="Give it values first, as model.to_empty(device=...) "
                    "and a load of a state_dict do.")
    if (hasattr(value, "device_mesh") or value.layout is not torch.strided or
            value.is_quantized):
        raise Error("%s is a %s of a kind that is not supported" %
                    (name, type(value).__name__), reason="UNSUPPORTED_TENSOR",
                    code="UNIMPLEMENTED",
                    hint="Use plain tensors on one device. Create a run "
                    "before its model is sharded.")


def to_array(tensor: Any, name: str, copies: bool = True
             ) -> _safetensors.Array:
    """A tensor's elements on the host; without `copies` maybe its memory."""
    torch = loaded()
    refuse_unusual(tensor, name)
    dtype = _DTYPES.get(str(tensor.dtype).removeprefix("torch."))
    if dtype is None:
        raise Error("%s has the dtype %s, which cannot be saved" %
                    (name, tensor.dtype), reason="UNSUPPORTED_TENSOR",
                    code="UNIMPLEMENTED")
    # A copy owns contiguous memory, whatever the tensor was a view of.
    plain = tensor.detach().resolve_conj().resolve_neg()
    host = plain.to("cpu", copy=copies).contiguous()
    flat = host.reshape(-1).view(torch.uint8).numpy()
    return _safetensors.Array(dtype, tuple(tensor.shape), flat.data)


def from_array(array: _safetensors.Array) -> Any:
    """A tensor on the host that owns the array's memory."""
    torch = loaded()
    if torch is None:
        raise Error("the state holds tensors, and torch is not imported",
                    reason="NO_TORCH", code="FAILED_PRECONDITION",
                    hint="Import torch before the island starts.")
    dtype = getattr(torch, {v: k for k, v in _DTYPES.items()}[array.dtype])
    if not array.data:
        return torch.empty(array.shape, dtype=dtype)
    flat = torch.frombuffer(array.data, dtype=torch.uint8)
    return flat.view(dtype).reshape(array.shape)


def get_random_state() -> dict[str, Any] | None:
    """The states of torch's global generators; None without torch."""
    torch = loaded()
    if torch is None:
        return None
    state: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: dict[str, Any]) -> None:
    torch = loaded()
    torch.set_rng_state(state["cpu"])
    if "cuda" in state:
        torch.cuda.set_rng_state_all(state["cuda"])
