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
    choose_action,
    date_and_time,
    group_options,
    known_words,
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
  headrace share-groups reset-offsets packers --topic orders:0,3 \
      --to-datetime 2026-11-20T08:00:00+01:00 --execute
  headrace share-groups delete-offsets packers --topic orders
  headrace share-groups delete packers --bootstrap-server broker:9092

Kafka's own way of saying it works too: --describe --group packers.
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "List, describe, reset and delete share groups."
    parser.epilog = _EPILOG
    group_options(parser, ACTIONS, "all share groups: to describe or delete")
    describing = parser.add_argument_group("describe")
    describing.add_argument(
        "--offsets", action="store_true", help="start offset and lag of each partition (default)"
    )
    describing.add_argument(
        "--members", action="store_true", help="the members and what they are assigned"
    )
    describing.add_argument(
        "--state",
        nargs="?",
        const="",
        metavar="STATE,…",
        help=(
            "the state of the group; with list: of all groups, or only groups in one of Empty, "
            "Stable, Dead"
        ),
    )
    describing.add_argument("--verbose", action="store_true", help="with epochs")
    resetting = parser.add_argument_group("reset-offsets, delete-offsets")
    resetting.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="a topic; to reset also TOPIC:0,1,2 for partitions",
    )
    resetting.add_argument(
        "--all-topics", action="store_true", help="all topics that the group knows"
    )
    resetting.add_argument("--to-earliest", action="store_true", help="to the first record")
    resetting.add_argument("--to-latest", action="store_true", help="to the end")
    resetting.add_argument(
        "--to-datetime",
        type=date_and_time,
        metavar="TIME",
        help="to the first record from then on; UTC if it does not say",
    )
    resetting.add_argument("--dry-run", action="store_true", help="only show what would be reset")
    resetting.add_argument("--execute", action="store_true", help="do it")


def run(options: Namespace) -> int:
    """Do what the options say.

    :returns: the exit status
    :raises Failure: it cannot be done, or not all of it
    """
    check(options)
    from . import actions  # loads librdkafka, which is not needed to reject bad usage

    actions.act(options)
    return 0


def check(options: Namespace) -> None:
    """Make sense of the options together.

    :raises BadUsage: they do not go together
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
