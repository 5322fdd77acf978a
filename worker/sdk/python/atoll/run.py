"""Creates a run for trainers of your own."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import tempfile
import time
from typing import Any, Collection, Mapping, Sequence

import numpy as np

from . import _layout, _news, _safetensors, _toml
from ._exchange import find_binary
from .errors import Error

_COMMAND_S_MAX = 3600.0
_TELL_S = 10.0  # Between two lines of a wait.


def create_run(run_id: str, model: Any = None, *,
               arrays: Mapping[str, Any] | None = None,
               preset: str = "diloco", coordinator: str | None = None,
               server_count: int = 1, fragments: int = 1,
               buffers: str | Collection[str] = "local", names: Any = None,
               first_values: Mapping[str, tuple[str, float]] | None = None,
               import_values: bool | None = None,
               sequence_length: int | None = None,
               **tables: Any) -> dict[str, Any]:
    """Creates a run, unless it exists; the same call again changes nothing.

        atoll.create_run("spring", model, coordinator="HOST:7400",
                         schedule={"round_count": 100, "inner_step_count": 50})

    The run begins with the values of `model` or `arrays`: the call waits for
    the servers that take them, five minutes without progress at most, and logs
    that it waits. A second call with other values is refused.

    Args:
      run_id: The run's id, [a-z0-9-]{1,63}.
      model: A torch module; its trained parameters are the run's tensors, tied
        ones once. On a meta device it has no values: a formula then gives them.
      arrays: Or {name: array}.
      preset: A preset of `atoll`, whose values hold where `tables` has none.
      coordinator: HOST:PORT; default: ATOLL_COORDINATOR, or this machine.
      server_count: Parameter servers that hold the run.
      fragments: Parts of the model that synchronize one at a time.
      buffers: As in Island: "average" makes them tensors of the run. With
        `arrays`: the names of those that no optimizer steps. The run's outer
        optimizer does not step them either: each becomes the mean of the
        islands' values. Needs exchange "f32" up and down, and no async run.
      names: As in Island.
      first_values: Formulas instead of the values: {tensor: ("normal", standard
        deviation) or ("constant", value)}. If one is left out, a tensor of equal
        elements keeps their value, another matrix gets normal values with a
        variance of 1 / inputs, another vector 0; on a meta device a vector
        named weight gets 1, one named bias 0.
      import_values: False: formulas, also without `first_values`.
      sequence_length: Most tokens that one of the inner.batch_size samples of a
        step counts for, in a run that weighs by tokens.
      **tables: Tables and keys of the run file: schedule={...}, inner, outer,
        exchange, data, evaluation, durability="process", ...
        weight_unit is "tokens", "samples" (needs inner.batch_size) or "steps":
        what `Island.step` counts for an island's weight. Default: "steps", or
        "tokens" with sequence_length or schedule.token_count.

    Returns the run, as proto/atoll/v1/run.proto describes it in JSON.

    Error: code ALREADY_EXISTS, if the id has another content; what the command
    `atoll run create` refuses, with its code, reason and hint.
    """
    if (model is None) == (arrays is None):
        raise Error("give model or arrays", code="INVALID_ARGUMENT")
    tensors = (_layout.of_arrays(arrays, buffers) if arrays is not None else
               _layout.of_module(model, buffers, names))
    if import_values is None:
        import_values = first_values is None and any(
            t.values is not None for t in tensors.values())
    elif import_values and first_values is not None:
        raise Error("first_values has no effect with import_values",
                    code="INVALID_ARGUMENT")
    layout = _layout.tensors_json(tensors, fragments, first_values)
    file = {"preset": preset, "weight_unit": _weight_unit(
        run_id, sequence_length, tables), **tables}
    file["model"] = {"architecture": "external"}
    if sequence_length is not None:
        file["model"]["sequence_length"] = sequence_length
    file["data"] = {"format": "external", **tables.get("data", {})}
    flags = ["--coordinator", coordinator] if coordinator else []
    with tempfile.TemporaryDirectory(prefix="atoll-run-") as folder:
        if import_values:
            file["init"] = {**tables.get("init", {}),
                            "model": _write_values(folder, tensors)}
        run_file = os.path.join(folder, "run.toml")
        tensors_file = os.path.join(folder, "tensors.json")
        _write(run_file, _toml.dumps(file))
        _write(tensors_file, json.dumps(layout))
        try:
            data = _atoll("run", "create", run_file, "--run-id", run_id,
                          "--tensors", tensors_file, "--servers",
                          str(server_count), *flags)
        except Error as error:
            error.message = error.message.replace(run_file, "the run's file")
            raise
        if import_values:
            _atoll("run", "import", run_id, "--model", file["init"]["model"],
                   *flags)
    run = data.get("run", data)
    _tell_islands(run_id, run.get("spec", {}))
    return run


def _tell_islands(run_id: str, spec: Mapping[str, Any]) -> None:
    """Logs what a preset may have decided."""
    schedule = spec.get("schedule", {})
    islands = int(schedule.get("island_count_min", 0))
    shards = int(spec.get("data", {}).get("data_shard_count", 0))
    if not islands or not shards:
        return
    _news.show()
    log = logging.getLogger("atoll")
    log.info("run %s: begins with %d islands (schedule's island_count_min) and "
             "has %s rounds of %s steps", run_id, islands,
             schedule.get("round_count", "?"),
             schedule.get("inner_step_count", "?"))
    if shards > islands:
        log.warning("run %s: has %d data shards (data's data_shard_count), and "
                    "begins with %d islands: a ShardSampler reads no sample of "
                    "a shard that has no island", run_id, shards, islands)


def _weight_unit(run_id: str, sequence_length: int | None,
                 tables: Mapping[str, Any]) -> str:
    """The default of weight_unit, which it logs."""
    counts_tokens = (sequence_length is not None or
                     "token_count" in tables.get("schedule", {}))
    unit = "tokens" if counts_tokens else "steps"
    if "weight_unit" not in tables:
        _news.show()
        logging.getLogger("atoll").info(
            'run %s: weight_unit is "%s": an island weighs as many %s as it '
            "has trained", run_id, unit, unit)
    return unit


def get_run(run_id: str, coordinator: str | None = None) -> dict[str, Any]:
    """A run, as proto/atoll/v1/run.proto describes it in JSON.

    Its ["spec"] is what Data, `schedule` and `hf` take. It lacks the tensors.

    Error NOT_FOUND: there is no such run.
    """
    flags = ["--coordinator", coordinator] if coordinator else []
    return _atoll("run", "show", run_id, *flags)["run"]


def _write_values(folder: str, tensors: Mapping[str, _layout.Tensor]) -> str:
    """Writes the tensors' values for an import; returns their folder."""
    for name, tensor in tensors.items():
        if tensor.values is None:
            raise Error("%s has no values on a meta device" % name,
                        code="INVALID_ARGUMENT", hint="Give the model's "
                        "values, or import_values=False.")
    path = os.path.join(folder, "values")
    os.mkdir(path)
    with open(os.path.join(path, "model.safetensors"), "wb") as file:
        _safetensors.write(file, {
            name: _safetensors.Array("F32", t.shape or (1,),
                                     np.ascontiguousarray(t.values).data)
            for name, t in tensors.items()})
    return path


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _atoll(*arguments: str) -> dict[str, Any]:
    """Runs `atoll ... -o json`; returns its data, or raises its error."""
    with tempfile.TemporaryFile() as errors, subprocess.Popen(
            [find_binary(), *arguments, "-o", "json"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=errors) as child:
        try:
            output = _wait(child, errors, arguments)
        except BaseException:
            child.kill()
            raise
        said = _end_of(errors)
    try:
        envelope = json.loads(output)
        if envelope["status"] == "ok":
            return envelope["data"]
        error = envelope["error"]
        raise Error(error.get("message", ""), reason=error.get("reason", ""),
                    hint=error.get("hint", ""),
                    code=error.get("code", "UNKNOWN"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Error("atoll %s ended with exit code %d: %s" %
                    (" ".join(arguments[:2]), child.returncode, said),
                    reason="COMMAND_FAILED", code="UNKNOWN") from None


def _wait(child: subprocess.Popen[bytes], errors: Any,
          arguments: Sequence[str]) -> bytes:
    """The command's output. Logs why it waits, such as for servers."""
    begin, command = time.monotonic(), " ".join(arguments[:2])
    while True:
        try:
            return child.communicate(timeout=_TELL_S)[0]
        except subprocess.TimeoutExpired:
            seconds = time.monotonic() - begin
        if seconds >= _COMMAND_S_MAX:
            raise Error("atoll %s takes more than %.0f s" %
                        (command, _COMMAND_S_MAX), code="DEADLINE_EXCEEDED")
        _news.show()
        logging.getLogger("atoll").info(
            "`atoll %s` waits, %.0f s so far: %s", command, seconds,
            (_end_of(errors).splitlines() or ["it does not say why"])[-1])


def _end_of(errors: Any) -> str:
    """The end of what the command says to people."""
    # The command writes where the position is, so it must not move.
    size = os.fstat(errors.fileno()).st_size
    return os.pread(errors.fileno(), 500, max(0, size - 500)).decode(
        "utf-8", "replace")
