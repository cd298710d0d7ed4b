"""The process of a Python worker, in which Spark runs the tasks of a source or a sink, one after
the other.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import resource
from functools import cache
from itertools import count

import pyarrow as pa

_M_ARENA_MAX = -8
_ARENAS = 2
_FIRST_TASKS = 2
_tasks = count()


def prepare() -> None:
    """Make a worker cheaper, for this task and for those after it.

    After each task Spark has all objects searched for cycles: that takes 30 to 45 ms with those of
    the modules that a source imports, which stay. So they are left out: what the first task finds,
    and what it has imported.
    """
    _spare_address_space()
    if next(_tasks) < _FIRST_TASKS:
        gc.freeze()


@cache
def _spare_address_space() -> None:
    """Have the allocators of a process with a limit reserve little.

    ``spark.executor.pyspark.memory`` limits its address space. What allocators reserve counts,
    whether it is used or not. By default that is most of one GiB: mimalloc, Arrow's, reserves up to
    a GiB at once, and glibc 64 MiB for each thread.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    pa.set_memory_pool(pa.system_memory_pool())
    with contextlib.suppress(OSError, AttributeError):  # another C library has no arenas
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
