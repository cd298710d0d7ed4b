"""Failures of commands, with their exit statuses."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterable

from headrace.imports import MissingPackage


class Failure(Exception):
    """A failed command. The message is one line for the user."""

    status = 1


class BadUsage(Failure):
    """A command line that is wrong."""

    status = 2


def one_line_error(error: BaseException) -> str:
    """Return :func:`headrace.client.errors.error_line` of an error."""
    from headrace.client.errors import error_line  # slow to import, and rarely needed

    return error_line(error)


def as_failure(error: Exception) -> Failure | None:
    """Return the failure for an error of :mod:`headrace.client`, a package of an extra, or the text
    of an option; None for any other error.
    """
    from headrace.client.errors import ClientError, UnsupportedSetting

    if isinstance(error, (UnsupportedSetting, ArgumentTypeError)):
        return BadUsage(str(error))
    return Failure(str(error)) if isinstance(error, (ClientError, MissingPackage)) else None


def fail_with(reasons: Iterable[str]) -> None:
    """Raise a failure that names all reasons, each once; do nothing if there are none.

    :raises Failure: there is a reason
    """
    distinct = list(dict.fromkeys(reasons))
    if distinct:
        raise Failure("; ".join([*(reason.rstrip(".") for reason in distinct[:-1]), distinct[-1]]))
