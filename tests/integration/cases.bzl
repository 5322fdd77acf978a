"""Tests written in Python with the machine's interpreter."""

PROGRAMS = [
    "//cli:atoll",
    "//coordinator:atoll-coordinator",
    "//server:atoll-server",
]

def cases_test(name, size = "large", programs = PROGRAMS, data = [], **kwargs):
    """<name>.py as a test that reports its cases one by one.

    Args:
      name: the test; its script is <name>.py.
      size: Bazel's test size: how long it may take.
      programs: binaries that it starts.
      data: files of the tree that it reads.
      **kwargs: for the sh_test, e.g. shard_count.
    """
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tests/integration:run_cases.sh"],
        args = ["$(location %s.py)" % name],
        data = [name + ".py", "//tests/integration:harness"] + programs + data,
        **kwargs
    )
