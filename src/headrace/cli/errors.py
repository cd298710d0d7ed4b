"""Failures of commands, with their exit statuses."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec


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
    """Return the failure for an error of :mod:`headrace.client`; None for any other error."""
    from headrace.client.errors import ClientError, UnsupportedSetting

    if isinstance(error, UnsupportedSetting):
        return BadUsage(str(error))
    return Failure(str(error)) if isinstance(error, ClientError) else None


def require(package: str, extra: str) -> None:
    """Check that a package of one of headrace's extras is installed.

    :raises Failure: it is not
    """
    if find_spec(package) is None:
        raise Failure(f"{package} is not installed: pip install 'headrace[{extra}]'")


def fail_with(reasons: Iterable[str]) -> None:
    """Raise a failure that names all reasons, each once; do nothing if there are none.

    :raises Failure: there is a reason
    """
    distinct = list(dict.fromkeys(reasons))
    if distinct:
        raise Failure("; ".join([*(reason.rstrip(".") for reason in distinct[:-1]), distinct[-1]]))
