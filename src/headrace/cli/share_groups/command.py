"""``headrace share-groups``: list, describe, reset and delete share groups (KIP-932, KIP-1226).

Takes the options of Kafka's ``kafka-share-groups`` and prints its columns. This module declares and
checks the options; :mod:`headrace.cli.share_groups.actions` executes them.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from headrace.cli.errors import BadUsage
from headrace.cli.groups.options import (
    at_most_one,
    check_delete,
    check_delete_offsets,
    check_describe,
    checked,
    choose_action,
    describe_options,
    group_options,
    known_words,
    reset_options,
    topic_and_partitions,
)

ACTIONS = ("list", "describe", "reset-offsets", "delete-offsets", "delete")
STATES = ("Empty", "Stable", "Dead")
_TARGETS = ("to-datetime", "to-earliest", "to-latest")
_ONLY_WITH = {
    "members": ("describe",),
    "offsets": ("describe",),
    "verbose": ("describe",),
    "state": ("describe", "list"),
    "group": ("describe", "reset-offsets", "delete-offsets", "delete"),
    "all-groups": ("describe", "delete"),
    "topic": ("reset-offsets", "delete-offsets"),
    "all-topics": ("reset-offsets",),
    "dry-run": ("reset-offsets",),
    "execute": ("reset-offsets",),
    **dict.fromkeys(_TARGETS, ("reset-offsets",)),
}

_EPILOG = """\
examples:
  headrace share-groups list --state
  headrace share-groups describe packers
  headrace share-groups describe packers --members --verbose
  headrace share-groups reset-offsets packers --topic orders --to-earliest --dry-run
  headrace share-groups reset-offsets packers --topic orders:0,3 \\
      --to-datetime 2026-11-20T08:00:00+01:00 --execute
  headrace share-groups delete-offsets packers --topic orders
  headrace share-groups delete packers --bootstrap-server broker:9092

The options of Kafka's own tool work too: --describe --group packers.
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "List, describe, reset and delete share groups."
    parser.epilog = _EPILOG
    group_options(parser, ACTIONS, "all share groups: for describe and delete")
    describe_options(
        parser,
        STATES,
        offsets="start offset and lag of each partition (default)",
        verbose="add epochs",
    )
    reset_options(
        parser,
        topic="a topic, or to reset some of its partitions TOPIC:0,1,2; may be repeated",
        all_topics="all topics of the group",
        dry_run="only print the new start offsets",
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
    elif options.action == "reset-offsets":
        _check_reset(options)
    elif options.action == "delete":
        check_delete(options)
    else:
        check_delete_offsets(options)
        options.topic = list(dict.fromkeys(options.topic))


run = checked(check, "headrace.cli.share_groups.actions")


def _check_reset(options: Namespace) -> None:
    if options.dry_run and options.execute:
        raise BadUsage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options.dry_run and not options.execute:
        raise BadUsage("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if len(options.group) != 1:
        raise BadUsage("Option [reset-offsets] takes the option: [group], once")
    if at_most_one(options, _TARGETS) is None:
        named = ", ".join(f"[{name}]" for name in _TARGETS)
        raise BadUsage(f"Option [reset-offsets] takes one of these options: {named}")
    if not options.topic and not options.all_topics:
        raise BadUsage("Option [reset-offsets] takes one of these options: [all-topics], [topic]")
    options.scope = [topic_and_partitions(text) for text in options.topic]
