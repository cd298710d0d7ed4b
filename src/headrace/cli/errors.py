"""How a command ends when it cannot do what it was asked."""

from __future__ import annotations


class Failure(Exception):
    """The command failed; the message is one line for the user."""

    status = 1


class BadUsage(Failure):
    """The command was called wrongly."""

    status = 2
