"""Imports: names that are imported on first use, packages of extras, and modules that stay."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def on_use(package: str, table: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose names are imported when they are first used.

    :param table: a line for each module: its name in the package, and the names to take from it
    """
    homes = {
        name: module
        for module, *names in map(str.split, table.strip().splitlines())
        for name in names
    }

    def attribute(name: str) -> Any:
        if name in homes:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return attribute


class MissingPackage(ImportError):
    """A package of one of headrace's extras that is not installed. The message is one line."""


def require(package: str, extra: str) -> None:
    """Check that a package of one of headrace's extras is installed.

    :raises MissingPackage: it is not
    """
    if find_spec(package) is None:
        raise MissingPackage(
            f"{package} is not installed: pip install '.[{extra}]' (a clone) or 'headrace[{extra}]'"
        )


@contextmanager
def never_collected() -> Iterator[None]:
    """Collect no garbage meanwhile, and exempt from it what is made: the process never frees it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
