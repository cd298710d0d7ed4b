"""Errors that a Spark user sees: one line each, without a Python stack."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext

from headrace.client import ClientError, ConnectionFailed


class SourceError(Exception):
    """An error that stops a query. Its text is one line that tells the user what to change."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors of the block into a :class:`SourceError` that Spark shows without a stack.

    Spark reports an error of a Python worker with ``traceback.format_exc()``. A traceback limit of
    0 leaves only its last line. The limit is set for the whole process, which ends with the error.

    :raises SourceError: the block raised a ``ClientError`` or a ``SourceError``, or found no memory
    """
    try:
        yield
    except (ClientError, SourceError, MemoryError) as error:
        sys.tracebacklimit = 0
        raise SourceError(describe(error)) from None
    except RuntimeError as error:
        if str(error) != "can't start new thread":
            raise
        sys.tracebacklimit = 0
        raise SourceError(describe(MemoryError())) from None


def describe(error: Exception) -> str:
    """Return the text of an error; for a failed connection and without memory what to change."""
    if isinstance(error, ConnectionFailed):
        return failed_connection(error)
    if isinstance(error, MemoryError):
        return (
            "the Python process has no memory left: raise spark.executor.pyspark.memory (1g for "
            "each of spark.executor.cores is enough for most), or the memory of the host"
        )
    return str(error)


def failed_connection(error: ConnectionFailed) -> str:
    """Return the text of an error, with what to change in the driver or in an executor."""
    if TaskContext.get() is None:
        return f"{error}: check that the brokers run, and the option kafka.bootstrap.servers"
    if "no broker answers" not in str(error):
        return str(error)  # it has been reached
    return (
        f"{error} (from {platform.node()}): executors connect to the brokers themselves, at the "
        "addresses that these advertise: correct kafka.bootstrap.servers and advertised.listeners "
        "(headrace serve --advertise), or the network"
    )
