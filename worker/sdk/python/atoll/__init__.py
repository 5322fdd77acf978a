"""Atoll's SDK: a training loop of your own joins a run as an island.

`Island` joins, `create_run` makes a run, `Error` is what both raise. Needs
NumPy. A program that trains with PyTorch imports torch itself.
"""

from .errors import Error
from .island import Island
from .run import create_run

__all__ = ["Error", "Island", "create_run"]
__version__ = "0.1.0"
