"""``headrace dlq``: list, show and redrive the dead letters of share groups (KIP-1191)."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from typing import Any

from headrace.cli.client_options import client_options
from headrace.cli.errors import BadUsage
from headrace.cli.groups.options import (
    action_options,
    check_pattern,
    checked,
    chosen_words,
    is_given,
    timestamp_ms,
)
from headrace.cli.options import flag, number_option

from .defaults import DEFAULT_MAX_REDRIVES, DEFAULT_PREFIX, DEFAULT_SCAN, DEFAULT_SHOWN

ACTIONS = ("list", "show", "redrive")
_EPILOG = """\
examples:
  headrace dlq list
  headrace dlq show dlq.orders --reason rejected --max-messages 5
  headrace dlq redrive dlq.orders --source orders               # shows what would be done
  headrace dlq redrive dlq.orders --source orders --execute --rate 100
  headrace dlq redrive dlq.orders --key 4711 --execute
"""
_ONLY_WITH = {
    "prefix": ("list",),
    "scan": ("list",),
    **dict.fromkeys(
        (
            "source",
            "group",
            "reason",
            "key",
            "partition",
            "from-offset",
            "to-offset",
            "from-time",
            "to-time",
            "max-messages",
        ),
        ("show", "redrive"),
    ),
    **dict.fromkeys(
        ("dry-run", "execute", "rate", "max-redrives", "settle-skipped", "position-group"),
        ("redrive",),
    ),
}


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = (
        "List dead-letter queues, show their letters, and produce the records to their sources "
        "again."
    )
    parser.usage = "%(prog)s ACTION [QUEUE …] [options]"
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    action_options(parser, ACTIONS, metavar="ACTION QUEUE")
    flag(parser, "--json", "print JSON")
    client_options(parser)
    listing = parser.add_argument_group("list")
    listing.add_argument(
        "--prefix",
        help=f"topics whose name begins with PREFIX are queues, too (default: {DEFAULT_PREFIX})",
    )
    number_option(
        listing,
        "--scan",
        f"count the letters among the newest N records of a queue (default: {DEFAULT_SCAN})",
    )
    _filter_options(parser)
    redrive = parser.add_argument_group("redrive")
    flag(redrive, "--dry-run", "only show what --execute would do (the default)")
    flag(redrive, "--execute", "redrive the letters")
    number_option(redrive, "--rate", "at most N records per second")
    number_option(
        redrive,
        "--max-redrives",
        "skip a record that was redriven N times before, by the header headrace.redrive.count "
        f"(default: {DEFAULT_MAX_REDRIVES})",
    )
    flag(redrive, "--settle-skipped", "skipped letters count as done: no later redrive tries them")
    redrive.add_argument(
        "--position-group",
        metavar="GROUP",
        help=(
            "the group whose committed offsets keep what is done, also the transactional id "
            "(default: headrace-redrive-QUEUE)"
        ),
    )


def _filter_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("show, redrive: which letters")
    several: dict[str, Any] = {"action": "append", "default": []}
    group.add_argument(
        "--source", metavar="TOPIC", help="records of this topic; may be repeated", **several
    )
    group.add_argument(
        "--group", metavar="GROUP", help="letters of this share group; may be repeated", **several
    )
    group.add_argument(
        "--reason", metavar="REGEX", help="letters whose reason contains this; case is ignored"
    )
    group.add_argument("--key", metavar="TEXT", help="records with this key")
    group.add_argument(
        "--partition",
        type=int,
        metavar="N",
        help="letters in this partition of the queue; may be repeated",
        **several,
    )
    group.add_argument(
        "--from-offset", type=_offset, metavar="N", help="letters of the queue from this offset on"
    )
    group.add_argument("--to-offset", type=_offset, metavar="N", help="letters before this offset")
    group.add_argument(
        "--from-time",
        type=timestamp_ms,
        metavar="TIME",
        help="letters written from this time on: ISO 8601, or milliseconds since the epoch",
    )
    group.add_argument(
        "--to-time", type=timestamp_ms, metavar="TIME", help="letters written before this time"
    )
    number_option(
        group, "--max-messages", f"at most N letters (default: show {DEFAULT_SHOWN}, redrive all)"
    )


def _offset(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise BadUsage(f"'{text}' is not an offset")
    return int(text)


def check(options: Namespace) -> None:
    """Check the options together, and set ``options.action`` and ``options.queues``.

    :raises BadUsage: they contradict each other
    """
    options.queues = chosen_words(options, ACTIONS)
    for name, actions in _ONLY_WITH.items():
        if is_given(options, name) and options.action not in actions:
            raise BadUsage(f"--{name} is for {' and '.join(actions)}")
    if options.action != "list" and len(options.queues) != 1:
        raise BadUsage(f"{options.action} takes one queue")
    if options.dry_run and options.execute:
        raise BadUsage("--dry-run and --execute exclude each other")
    if options.position_group == "":
        raise BadUsage("--position-group takes the id of a group, which is not empty")
    check_pattern("--reason", options.reason)


run = checked(check, "headrace.cli.dlq.actions")
