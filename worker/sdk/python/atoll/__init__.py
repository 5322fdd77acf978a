"""Atoll's SDK: a training loop of your own joins a run as an island.

`attach` joins a run with a loop of PyTorch as it is, and `Island` with any loop.
`create_run` makes a run, `get_run` shows one, `fetch` loads its parameters, and
`Data` reads its data. `Error` is what all raise; `RunEnded` ends an attached
loop. Needs NumPy. A program that trains with PyTorch imports torch itself.
`atoll.hf` is for `transformers`.
"""

from . import schedule
from .attach import attach
from .data import Data
from .errors import Error, RunEnded
from .fetch import fetch
from .island import Island
from .join import Joined, join
from .run import create_run, get_run
from .sampler import ShardSampler

__all__ = ["Data", "Error", "Island", "Joined", "RunEnded", "ShardSampler",
           "attach", "create_run", "fetch", "get_run", "join", "schedule"]
__version__ = "0.1.0"
