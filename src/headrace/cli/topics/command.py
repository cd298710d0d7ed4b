"""``headrace topics``: list, describe, create, alter, delete topics, as ``kafka-topics`` does."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter

from headrace.cli.client_options import call_options
from headrace.cli.errors import BadUsage
from headrace.cli.groups.options import (
    MAX_PARTITION,
    action_options,
    check_pattern,
    checked,
    chosen_words,
)
from headrace.cli.options import flag, repeated_option, setting

_MAX_REPLICAS = (1 << 15) - 1
ACTIONS = ("list", "describe", "create", "alter", "delete")
_ONLY_WITH = {
    "partitions": ("create", "alter"),
    "replication_factor": ("create",),
    "replica_assignment": ("create", "alter"),
    "config": ("create",),
    "if_exists": ("alter", "delete", "describe"),
    "if_not_exists": ("create",),
    "exclude_internal": ("list", "describe"),
    "topics_with_overrides": ("describe",),
    "under_replicated_partitions": ("describe",),
    "unavailable_partitions": ("describe",),
    "topic_id": ("describe",),
    "dry_run": ("create", "alter", "delete"),
}
_EPILOG = """\
examples:
  headrace topics list
  headrace topics create orders --partitions 12 --config retention.ms=86400000
  headrace topics describe 'orders.*'
  headrace topics alter orders --partitions 24
  headrace topics delete 'test-.*' --dry-run

TOPIC is a name. For list, describe, alter and delete it may be a regular expression of whole names,
unless a topic has this very name. The options of Kafka's tool work too: --describe --topic orders.
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "List, describe, create, alter and delete topics."
    parser.usage = "%(prog)s ACTION [TOPIC …] [options]"
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    action_options(parser, ACTIONS, metavar="ACTION TOPIC")
    repeated_option(parser, "--topic", "TOPIC", "a topic; may be repeated")
    parser.add_argument("--topic-id", metavar="ID", help="describe the topic with this id")
    parser.add_argument(
        "--partitions", type=int, metavar="N", help="number of partitions (default: the broker's)"
    )
    parser.add_argument(
        "--replication-factor", type=int, metavar="N", help="replicas (default: the broker's)"
    )
    parser.add_argument(
        "--replica-assignment",
        type=replica_assignment,
        metavar="A:B,…",
        help="the brokers of each partition, such as 1:2,2:3",
    )
    repeated_option(
        parser, "--config", "NAME=VALUE", "a config of the new topic; may be repeated", setting
    )
    flag(parser, "--if-exists", "do nothing if there is no topic")
    flag(parser, "--if-not-exists", "do nothing if it exists")
    flag(parser, "--exclude-internal", "without the internal topics")
    flag(
        parser,
        "--topics-with-overrides",
        "describe only topics with configs of their own, without their partitions",
    )
    flag(
        parser,
        "--under-replicated-partitions",
        "describe only partitions with fewer replicas in sync than they have",
    )
    flag(parser, "--unavailable-partitions", "describe only partitions without a leader")
    flag(parser, "--dry-run", "check what would be changed, and change nothing")
    flag(parser, "--json", "print a JSON array of objects")
    call_options(parser)


def replica_assignment(text: str) -> list[list[int]]:
    """Parse ``1:2,2:3``.

    :raises ArgumentTypeError: it has another form
    """
    if not re.fullmatch(r"\d{1,9}(:\d{1,9})*(,\d{1,9}(:\d{1,9})*)*", text):
        raise ArgumentTypeError(f"{text!r} is not of the form BROKER:BROKER,BROKER:BROKER")
    return [[int(one) for one in partition.split(":")] for partition in text.split(",")]


def check(options: Namespace) -> None:
    """Check the options together, and set ``options.action`` and ``options.topics``.

    :raises BadUsage: they contradict each other
    """
    words = chosen_words(options, ACTIONS)
    options.topics = list(dict.fromkeys([*options.topic, *words]))
    for name, allowed in _ONLY_WITH.items():
        if getattr(options, name) and options.action not in allowed:
            shown = name.replace("_", "-")
            raise BadUsage(f'Option "[{shown}]" can\'t be used with option "[{options.action}]"')
    if options.action in ("create", "alter", "delete") and not options.topics:
        raise BadUsage(f"Option [{options.action}] takes a topic: {options.action} TOPIC")
    if options.topic_id is not None and options.topics:
        raise BadUsage("Only one of --topic and --topic-id can be used")
    if options.action == "create" and options.replica_assignment:
        if options.partitions or options.replication_factor:
            raise BadUsage(
                "--replica-assignment says the number of partitions and replicas: leave out "
                "--partitions and --replication-factor"
            )
        if len({len(one) for one in options.replica_assignment}) > 1:
            raise BadUsage("--replica-assignment: all partitions take the same number of brokers")
    if options.action == "alter" and options.partitions is None:
        raise BadUsage("alter takes --partitions; change configs with headrace configs alter")
    for name, most in (("partitions", MAX_PARTITION), ("replication_factor", _MAX_REPLICAS)):
        value = getattr(options, name)
        if value is not None and not 1 <= value <= most:
            raise BadUsage(f"--{name.replace('_', '-')} takes a number from 1 to {most}")
    if options.action != "create":
        for topic in options.topics:
            check_pattern(f"'{topic}'", topic)


run = checked(check, "headrace.cli.topics.actions")
