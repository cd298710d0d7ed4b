"""The commands of ``headrace``. To add one, add a line to :data:`COMMANDS` and write its module.

The module of ``share-groups`` is ``cli/share_groups.py``, that of ``perf produce``
``cli/perf_produce.py``. It has ``declare(parser)``, which adds the options to an
``ArgumentParser``, and ``run(options)``, which takes the parsed ones, returns the exit status and
raises :class:`~headrace.cli.errors.Failure` with one line for the user. It is imported only when
its command is called. Options that several commands share are in
:mod:`headrace.cli.client_options`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

COMMANDS: Mapping[str, str] = {
    "serve": "run a broker",
    "share-groups": "list, describe, reset and delete share groups",
    "consumer-groups": "list, describe, reset and delete consumer groups",
    "groups": "list the groups of all types",
    "lag show": "show how far the groups of all types are",
    "console-share-consumer": "show the records of a topic as a member of a share group",
    "lag history": "show how groups got on: rates, lag, stalls, and the consumers they need",
    "perf produce": "measure how fast records are written",
    "perf share-consume": "measure how fast a share group reads",
}
"""Name → what it is for, in the order of the help."""


class Command(Protocol):
    """What the module of a command has."""

    def declare(self, parser: ArgumentParser) -> None:
        """Add the command's options and its description."""

    def run(self, options: Namespace) -> int:
        """Do it; returns the exit status."""


def load(name: str) -> Command:
    """The module of a command of :data:`COMMANDS`."""
    return cast(Command, import_module(f"{__package__}.{name.replace('-', '_').replace(' ', '_')}"))
