"""The commands of ``headrace``. To add one, add it to :data:`SECTIONS` and write its module.

The module of a command with verbs has a ``NOUN``, that of another one a ``run``: see
:mod:`headrace.cli.nouns`. What runs returns the exit status, and raises
:class:`~headrace.cli.errors.Failure` with one line for the user. A module is imported only when its
command is called, so that no command pays for the imports of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .nouns import Noun, Verb


SECTIONS: Mapping[str, Mapping[str, str]] = {
    "broker": {
        "serve": "run a broker",
        "backup": "copy the data directory of a running or stopped broker",
        "restore": "copy a backup to a new data directory",
        "verify": "verify all batches of a data directory",
        "recover": "rebuild the lost catalog of a data directory",
    },
    "tasks": {
        "worker": "run the tasks of an app",
    },
    "progress": {
        "lag": "show the lag of groups of all types, or report past lag and rates",
        "why": "say why a group is slow",
        "top": "show groups with lag and rates, live",
        "ui": "serve a page with groups, topics, records and actions",
        "exporter": "serve the lag of all groups as metrics for Prometheus",
        "keda-scaler": "scale workers by lag: an external scaler for KEDA",
    },
    "records": {
        "produce": "produce lines, JSON objects or files to a topic",
        "consume": "print the records of topics",
        "dlq": "list, show and redrive dead letters",
        "perf": "measure the throughput of a share group",
    },
    "cluster": {
        "topics": "list, describe, create, alter and delete topics",
        "groups": "list, describe, reset, set and delete groups of all types",
        "configs": "describe and alter configs of topics, brokers, groups",
        "acls": "add, list and remove ACLs",
        "quotas": "list, set and remove client quotas",
        "users": "list, add and delete the users of SCRAM",
    },
    "shell": {
        "context": "name clusters, and choose one for all commands",
        "completion": "print a completion script for bash, zsh or fish",
    },
}
"""Title → command name → one line for the help, in the order of the help."""

COMMANDS: Mapping[str, str] = {
    name: summary for section in SECTIONS.values() for name, summary in section.items()
}
"""Command name → one line for the help."""
_MODULES = {
    "worker": "worker.command",
    "ui": "ui.command",
    "exporter": "exporter.command",
    "keda-scaler": "keda.command",
    "produce": "console.produce",
    "consume": "console.consume",
}
"""Command name → its module below :mod:`headrace.cli`, if that has another name."""


def load(name: str) -> Verb | Noun:
    """Import the module of the command ``name``, a key of :data:`COMMANDS`.

    :returns: its noun, or the command without verbs
    """
    module = import_module(f".{_MODULES.get(name, name)}", __package__)
    noun: Verb | Noun = getattr(module, "NOUN", None) or module.run
    return noun
