"""Imports: packages of extras, what only tests of libraries need, and modules that stay."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec


class MissingPackage(ImportError):
    """A package of one of headrace's extras that is not installed. The message is one line."""


def require(package: str, extra: str) -> None:
    """Check that a package of one of headrace's extras is installed.

    :raises MissingPackage: it is not
    """
    if find_spec(package) is None:
        raise MissingPackage(
            f"{package} is not installed: pip install 'headrace[{extra}]', in a clone '.[{extra}]'"
        )


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


@contextmanager
def never_collected() -> Iterator[None]:
    """Exempt what is imported meanwhile from garbage collection: the process never frees it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
