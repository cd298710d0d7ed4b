"""The error of backup and restore."""

from __future__ import annotations

import os


class BackupError(Exception):
    """A backup or restore that failed and has left nothing. The message is one line for users."""


def text_of(error: OSError) -> str:
    """Return the text of an error of the operating system, with the path if it has one."""
    text = os.strerror(error.errno) if error.errno else str(error)
    return f"{text}: {error.filename}" if error.filename is not None else text
