"""The file descriptors of the process, divided among logs and connections."""

from __future__ import annotations

import resource
import sys
from typing import NamedTuple

_OTHER_DESCRIPTORS = 96
_MAX_SEGMENT_FILES = 8192


class DescriptorBudget(NamedTuple):
    """The file descriptors of the process.

    :ivar files: segment files that are open at a time
    :ivar connections: connections of clients at a time. Further ones are refused
    """

    files: int
    connections: int


def descriptor_budget(limit: int | None = None) -> DescriptorBudget:
    """Divide the file descriptors of the process among logs and connections.

    Up to 96, but at most half, are left for the catalog, the listeners, indexes, directories,
    compaction and metrics. Logs get half of the rest, up to 8,192, and connections the other half.

    :param limit: the limit of the process; by default the present one (``ulimit -n``)
    """
    if limit is None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return DescriptorBudget(_MAX_SEGMENT_FILES, sys.maxsize)
    rest = limit - min(_OTHER_DESCRIPTORS, limit // 2)
    files = min(_MAX_SEGMENT_FILES, rest // 2)
    return DescriptorBudget(files, rest - files)
