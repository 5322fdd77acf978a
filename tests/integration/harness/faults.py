"""What a run says of its faults, and what lies on disks meanwhile."""

import json
import os

import grpc

from harness import cluster as cluster_module
from harness import wait

# Held open by a process; no data.
_LOCKS = ("LOCK", "lock")


def _paths(directory):
    for path, _, names in os.walk(directory):
        for name in names:
            if name not in _LOCKS:
                yield os.path.join(path, name)


def tree(directory):
    """{relative path: bytes} of all files but locks."""
    found = {}
    for path in _paths(directory):
        with open(path, "rb") as file:
            found[os.path.relpath(path, directory)] = file.read()
    return found


def sizes(directory):
    """{relative path: bytes of the file} of all files but locks."""
    return {os.path.relpath(path, directory): os.path.getsize(path)
            for path in _paths(directory)}


def shown(cluster, run_id="run"):
    """What `atoll run show -o json` prints."""
    return json.loads(cluster.run_cli("run", "show", run_id, "-o", "json",
                                      check=0).stdout)["data"]


def wait_fault(cluster, *codes, run_id="run"):
    """Waits until the run has a fault with one of these codes; returns it."""

    def faulty():
        cluster.check_alive()
        if not cluster.run_state(run_id).run.HasField("fault"):
            return None
        fault = shown(cluster, run_id)["run"].get("fault")
        return fault if fault and fault["code"] in codes else None

    fault = wait.until("the run has a fault of %s" % (codes,), faulty)
    assert fault["expected"] and any(c.isdigit() for c in fault["found"]), fault
    assert fault["expected"] != fault["found"], fault
    assert fault["next_command"].startswith("atoll "), fault
    return fault


def wait_gone(cluster, run_id="run"):
    """Resumes the run if it is paused; waits until it goes on without a
    fault."""

    def goes_on():
        cluster.check_alive()
        run = cluster.run_state(run_id).run
        if run.state == cluster_module.PAUSED:
            try:
                cluster.runs.ResumeRun(run_id=run_id)
            except grpc.RpcError as error:
                # It has not heard of the repair yet.
                assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, (
                    error)
        return not run.HasField("fault") and run.state in (
            cluster_module.ACTIVE, cluster_module.COMPLETED)

    wait.until("run %s goes on" % run_id, goes_on)
