"""The address space of a Python worker, which ``spark.executor.pyspark.memory`` limits.

What allocators reserve counts, whether it is used or not. By default that is most of one GiB:
mimalloc, Arrow's, reserves up to a GiB at once, and glibc 64 MiB for each thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
from functools import cache

import pyarrow as pa

_M_ARENA_MAX = -8
_ARENAS = 2


@cache
def spare() -> None:
    """Have the allocators of a process with a limit reserve little."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    pa.set_memory_pool(pa.system_memory_pool())
    with contextlib.suppress(OSError, AttributeError):  # another C library has no arenas
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
