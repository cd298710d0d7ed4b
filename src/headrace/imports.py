"""Imports that leave out what only tests of libraries need."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_hypothesis() -> Iterator[None]:
    """Hide hypothesis from modules that are imported meanwhile, unless it has been imported.

    kio imports it if it is installed: that takes 0.4 s of CPU time in each process, and creates a
    directory.
    """
    hidden = "hypothesis" not in sys.modules
    if hidden:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["hypothesis"]
