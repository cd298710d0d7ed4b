"""The commands of ``headrace``. To add one, add an entry to :data:`COMMANDS` and write its module.

The module of a command with verbs has a ``NOUN``, that of another one a ``run``: see
:mod:`headrace.cli.nouns`. What runs returns the exit status, and raises
:class:`~headrace.cli.errors.Failure` with one line for the user. A module is imported only when its
command is called, so that no command pays for the imports of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .nouns import Noun, Verb


class Entry(NamedTuple):
    """A command as the help lists it.

    :param module: its module, relative to :mod:`headrace.cli`
    :param summary: one line for the help
    """

    module: str
    summary: str


SECTIONS: Mapping[str, Mapping[str, Entry]] = {
    "broker": {
        "serve": Entry(".serve", "run a broker"),
        "backup": Entry(".backup", "copy the data directory of a running or stopped broker"),
        "restore": Entry(".restore", "copy a backup to a new data directory"),
        "verify": Entry(".verify", "verify all batches of a data directory"),
        "recover": Entry(".recover", "rebuild the lost catalog of a data directory"),
    },
    "tasks": {
        "worker": Entry(".worker.command", "run the tasks of an app"),
    },
    "progress": {
        "lag": Entry(".lag", "show the lag of groups of all types, or report past lag and rates"),
        "why": Entry(".why", "say why a group is slow"),
        "top": Entry(".top", "show groups with lag and rates, live"),
        "ui": Entry(".ui.command", "serve a page with groups, topics, records and actions"),
        "exporter": Entry(
            ".exporter.command", "serve the lag of all groups as metrics for Prometheus"
        ),
        "keda-scaler": Entry(".keda.command", "scale workers by lag: an external scaler for KEDA"),
    },
    "records": {
        "produce": Entry(".console.produce", "produce lines, JSON objects or files to a topic"),
        "consume": Entry(".console.consume", "print the records of topics"),
        "dlq": Entry(".dlq", "list, show and redrive dead letters"),
        "perf": Entry(".perf", "measure the throughput of a share group"),
    },
    "cluster": {
        "topics": Entry(".topics", "list, describe, create, alter and delete topics"),
        "groups": Entry(".groups", "list, describe, reset, set and delete groups of all types"),
        "configs": Entry(".configs", "describe and alter configs of topics, brokers, groups"),
        "acls": Entry(".acls", "add, list and remove ACLs"),
        "quotas": Entry(".quotas", "list, set and remove client quotas"),
        "users": Entry(".users", "list, add and delete the users of SCRAM"),
    },
    "shell": {
        "context": Entry(".context", "name clusters, and choose one for all commands"),
        "completion": Entry(".completion", "print a completion script for bash, zsh or fish"),
    },
}
"""Title → command name → entry, in the order of the help."""

COMMANDS: Mapping[str, Entry] = {
    name: entry for section in SECTIONS.values() for name, entry in section.items()
}
"""Command name → entry."""


def load(name: str) -> Verb | Noun:
    """Import the module of the command ``name``, a key of :data:`COMMANDS`.

    :returns: its noun, or the command without verbs
    """
    module = import_module(COMMANDS[name].module, __package__)
    noun: Verb | Noun = getattr(module, "NOUN", None) or module.run
    return noun
