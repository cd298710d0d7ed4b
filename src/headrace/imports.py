"""Imports: packages of extras, and modules that stay."""

from __future__ import annotations

import gc
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
def never_collected() -> Iterator[None]:
    """Collect no garbage meanwhile, and exempt from it what is made: the process never frees it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
