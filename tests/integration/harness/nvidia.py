"""NVIDIA's libraries, if the programs under test have CUDA. They are larger than
all else, and the machine gives them. The caller has deploy/artifacts in its
search path."""

import debian
from harness import processes


def libraries():
    """{name: path} of those that the programs under test need."""
    needed = debian.libraries_of([processes.binary(processes.CLI)])
    return {name: path for name, path in needed.items()
            if name.startswith(("libcublas", "libnccl"))}
