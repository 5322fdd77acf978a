"""The digest of the parameters that a model has and the run has not.

Islands with other frozen parameters, such as a LoRA's base of another seed,
would train to each other's loss. Buffers have no part in it: islands may have
their own.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Mapping, Sequence

from . import _shards, _torch
from .errors import Error

_CHUNK_BYTES = 16 << 20


def digest_of(name: str, tensor: Any) -> str | None:
    """SHA-256 (hex) of a parameter: name, shape, dtype and values.

    Collective for a DTensor, over its mesh: the digest does not depend on how
    it is split. None: this rank has no part of it.

    Error UNSUPPORTED_TENSOR: its values cannot be read.
    """
    torch = _torch.loaded()
    try:
        if _shards.is_sharded(tensor):
            if tensor.device_mesh.get_coordinate() is None:
                return None
            tensor = tensor.full_tensor()
        shape = [name, list(tensor.shape), str(tensor.dtype)]
        digest = hashlib.sha256(json.dumps(shape).encode())
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        for begin in range(0, len(flat), _CHUNK_BYTES):
            digest.update(flat[begin:begin + _CHUNK_BYTES].cpu().numpy())
    except (RuntimeError, TypeError) as error:
        if _torch.has_ranks() and _torch.is_of_distributed(error):
            raise  # Another rank has ended.
        raise Error("%s is frozen, and has no values to compare with other "
                    "islands: %.200s" % (name, error),
                    reason="UNSUPPORTED_TENSOR", code="UNIMPLEMENTED",
                    hint="check_frozen=False leaves the comparison "
                    "out.") from error
    return digest.hexdigest()


def combine(ranks: Sequence[Mapping[str, str]]) -> str:
    """The digest of all ranks' parameters; empty: no parameter is frozen.

    Error UNEQUAL_RANKS: two ranks have other values of one parameter.
    """
    merged: dict[str, str] = {}
    for rank, digests in enumerate(ranks):
        for name, digest in digests.items():
            if merged.setdefault(name, digest) != digest:
                raise Error("rank %d has other values of the frozen %s than a "
                            "rank before it" % (rank, name),
                            reason="UNEQUAL_RANKS", code="FAILED_PRECONDITION",
                            hint="Load the same checkpoint on all ranks.")
    if not merged:
        return ""
    return hashlib.sha256(json.dumps(sorted(merged.items())).encode()
                          ).hexdigest()
