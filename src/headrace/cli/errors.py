"""Failures of commands, with their exit statuses."""

from __future__ import annotations

import os


class Failure(Exception):
    """A failed command. The message is one line for the user."""

    status = 1


class BadUsage(Failure):
    """A command line that is wrong."""

    status = 2


def one_line_error(error: BaseException) -> str:
    """Return the text of an error on one line, without the number of an OSError."""
    text = str(error)
    if isinstance(error, OSError) and error.errno is not None:
        is_lookup_error = error.errno < 0
        text = str(error.strerror) if is_lookup_error else os.strerror(error.errno)
        if error.filename is not None:
            text += f": {error.filename}"
    return " ".join(text.split())
