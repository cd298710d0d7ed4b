"""The file descriptors of commands that serve."""

from __future__ import annotations

import contextlib
import resource


def allow_all_descriptors() -> None:
    """Use as many file descriptors as the process may have, as the JVM does."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS refuses its own limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
