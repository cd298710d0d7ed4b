"""The process of a Python worker, in which Spark runs the tasks of a source or a sink, one after
the other.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import socket
import stat
from functools import cache
from itertools import count

import pyarrow as pa

_M_ARENA_MAX = -8
_ARENAS = 2
_FIRST_TASKS = 2
_tasks = count()


def prepare() -> None:
    """Make a worker cheaper, for this task and for those after it. Called before its data arrive.

    After each task Spark has all objects searched for cycles: that takes 30 to 45 ms with those of
    the modules that a source imports, which stay. So they are left out: what the first task finds,
    and what it has imported.
    """
    _acknowledge_what_has_arrived()
    _spare_address_space()
    if next(_tasks) < _FIRST_TASKS:
        gc.freeze()


def _acknowledge_what_has_arrived() -> None:
    """Have Spark send the rest of a task now.

    It sends a task in several small writes, and its socket holds each back until those before are
    acknowledged (Nagle's algorithm). Linux delays that by 40 ms, to send it along with an answer.
    """
    connection = _connection_to_spark()
    if connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


@cache
def _connection_to_spark() -> socket.socket | None:
    """Return the first TCP connection of this process, which from now on holds nothing back: the
    end of a task, a small write, would wait for 40 ms, too.

    None where Spark uses Unix sockets, and on a system without ``TCP_QUICKACK``.
    """
    is_local = os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() == "true"
    if is_local or not hasattr(socket, "TCP_QUICKACK"):
        return None
    for descriptor in sorted(map(int, os.listdir("/proc/self/fd"))):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                connection = socket.socket(fileno=os.dup(descriptor))
                connection.getpeername()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection
    return None


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
