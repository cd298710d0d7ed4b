"""Failures of commands, with their exit statuses."""

from __future__ import annotations


class Failure(Exception):
    """A failed command. The message is one line for the user."""

    status = 1


class BadUsage(Failure):
    """A command line that is wrong."""

    status = 2
