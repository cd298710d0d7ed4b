"""``headrace streams-groups``: list, describe and delete streams groups (KIP-1071).

Takes the options of Kafka's ``kafka-streams-groups`` and prints its columns. This module declares
and checks the options; :mod:`headrace.cli.streams_groups.actions` executes them.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from headrace.cli.groups.options import (
    check_delete,
    check_describe,
    checked,
    choose_action,
    describe_options,
    group_options,
    known_words,
)

ACTIONS = ("list", "describe", "delete")
STATES = ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead")
_ONLY_WITH = {
    "members": ("describe",),
    "offsets": ("describe",),
    "verbose": ("describe",),
    "state": ("describe", "list"),
    "group": ("describe", "delete"),
    "all-groups": ("describe", "delete"),
}

_EPILOG = """\
examples:
  headrace streams-groups list --state
  headrace streams-groups describe word-count
  headrace streams-groups describe word-count --members --verbose
  headrace streams-groups delete word-count --bootstrap-server broker:9092

The options of Kafka's own tool work too: --describe --group word-count.
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "List, describe and delete groups of Kafka Streams applications."
    parser.epilog = _EPILOG
    group_options(parser, ACTIONS, "all streams groups: for describe and delete")
    describe_options(
        parser,
        STATES,
        offsets="the lag of each partition that the application reads (default)",
        verbose="add offsets and epochs",
    )


def check(options: Namespace) -> None:
    """Check the options together, and set those that the action needs.

    :raises BadUsage: they contradict each other
    """
    choose_action(options, ACTIONS, _ONLY_WITH)
    if options.action == "list":
        options.states = known_words(options.state or "", STATES, "state")
    elif options.action == "describe":
        check_describe(options)
    else:
        check_delete(options)


run = checked(check, "headrace.cli.streams_groups.actions")
