"""``headrace consumer-groups``: list, describe, reset and delete consumer groups (KIP-88, KIP-496,
KIP-848).

Takes the options of Kafka's ``kafka-consumer-groups`` and prints its columns. This module declares
and checks the options; :mod:`headrace.cli.consumer_groups.actions` and
:mod:`headrace.cli.consumer_groups.offsets` execute the actions.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from headrace.cli.errors import BadUsage, Failure
from headrace.cli.groups.options import (
    at_most_one,
    check_delete,
    check_delete_offsets,
    check_describe,
    choose_action,
    describe_options,
    duration,
    group_options,
    is_given,
    known_words,
    reset_options,
    topic_and_partitions,
)
from headrace.cli.options import file_option, flag
from headrace.cli.tables import as_json
from headrace.groups.consumer.regex import InvalidRegex, Regex

ACTIONS = ("list", "describe", "reset-offsets", "delete-offsets", "delete")
VALIDATE = "validate-regex"
STATES = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Stable",
    "Empty",
    "Dead",
)
TYPES = ("Classic", "Consumer")
_TARGETS = (
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "shift-by",
    "from-file",
    "to-current",
    "to-offset",
)
_ONLY_WITH = {
    "members": ("describe",),
    "offsets": ("describe",),
    "verbose": ("describe",),
    "state": ("describe", "list"),
    "type": ("list",),
    "group": ("describe", "reset-offsets", "delete-offsets", "delete"),
    "all-groups": ("describe", "reset-offsets", "delete"),
    "topic": ("reset-offsets", "delete-offsets"),
    **dict.fromkeys(("all-topics", "dry-run", "execute", "export", *_TARGETS), ("reset-offsets",)),
}

_EPILOG = """\
examples:
  headrace consumer-groups list --state --type
  headrace consumer-groups describe billing
  headrace consumer-groups describe billing --members --verbose
  headrace consumer-groups reset-offsets billing --topic orders --to-earliest --dry-run
  headrace consumer-groups reset-offsets billing --topic orders:0,3 --by-duration PT1H --execute
  headrace consumer-groups reset-offsets billing --all-topics --to-current --export > billing.csv
  headrace consumer-groups reset-offsets billing --from-file billing.csv --execute
  headrace consumer-groups delete-offsets billing --topic orders:0,1
  headrace consumer-groups delete billing --bootstrap-server broker:9092
  headrace consumer-groups validate-regex 'orders-[a-z]+'

The options of Kafka's own tool work too: --describe --group billing.
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "List, describe, reset and delete consumer groups."
    parser.epilog = _EPILOG
    group_options(parser, ACTIONS, "all consumer groups: for describe, reset-offsets and delete")
    listing = describe_options(
        parser,
        STATES,
        offsets="committed offset and lag of each partition (default)",
        verbose="add epochs and assignments",
    )
    listing.add_argument(
        "--type",
        nargs="?",
        const="",
        metavar="TYPE,…",
        help="with list: the types of the groups, or only groups of these types: Classic, Consumer",
    )
    listing.add_argument(
        f"--{VALIDATE}",
        metavar="REGEX",
        help="check a regular expression for subscriptions of consumer groups",
    )
    resetting = reset_options(
        parser,
        topic="a topic, or some of its partitions as TOPIC:0,1,2; may be repeated",
        all_topics="all partitions with a committed offset",
        dry_run="only print the new offsets (default)",
    )
    flag(resetting, "--to-current", "to the committed offset, or else to the end")
    resetting.add_argument(
        "--to-offset", type=int, metavar="N", help="to this offset, or the nearest in the log"
    )
    resetting.add_argument(
        "--shift-by", type=int, metavar="N", help="forward by N records; backward if negative"
    )
    resetting.add_argument(
        "--by-duration",
        type=duration,
        metavar="DURATION",
        help="to the first record of the last DURATION, such as P1DT12H",
    )
    file_option(resetting, "--from-file", "to the offsets in a file of --export")
    flag(resetting, "--export", "print CSV: [group,]topic,partition,offset")


def run(options: Namespace) -> int:
    """Execute the command.

    :returns: the exit status
    :raises Failure: it failed, wholly or in part, or the options are wrong
    """
    regex = _to_validate(options)
    if regex is not None:
        return _validate(regex, json=options.json)
    check(options)
    if options.action == "reset-offsets" and not (
        options.execute or options.dry_run or options.export
    ):
        print("Nothing is reset without --execute.", file=sys.stderr)
    from .actions import execute  # loads librdkafka, which is not needed to reject bad usage

    return execute(options)


def _to_validate(options: Namespace) -> str | None:
    """Return the regular expression to check; None for the other actions."""
    given: list[str] = [] if options.validate_regex is None else [options.validate_regex]
    words = list(options.words)
    if not given and words[:1] == [VALIDATE]:
        given, words = words[1:2], words[2:]
        if not given:
            raise BadUsage(f"Option [{VALIDATE}] takes a regular expression")
    if given and (words or options.actions):
        raise BadUsage(
            f"Command must include exactly one action: {', '.join((*ACTIONS, VALIDATE))}; "
            f"see --help"
        )
    return given[0] if given else None


def _validate(regex: str, *, json: bool) -> int:
    """Check a regular expression without asking a broker.

    :raises Failure: it is invalid
    """
    wrong: str | None = None
    try:
        Regex(regex)
    except InvalidRegex as error:
        wrong = str(error)
    if json:
        print(as_json([{"regex": regex, "valid": wrong is None, "error": wrong}]))
    if wrong is not None:
        raise Failure(f"The regular expression `{regex}` is invalid: {wrong}.")
    if not json:
        print(f"The regular expression `{regex}` is valid.")
    return 0


def check(options: Namespace) -> None:
    """Check the options together, and set those that the action needs.

    :raises BadUsage: they contradict each other
    """
    choose_action(options, (*ACTIONS, VALIDATE), _ONLY_WITH)
    if options.action == "list":
        options.states = known_words(options.state or "", STATES, "state")
        options.types = known_words(options.type or "", TYPES, "types")
    elif options.action == "describe":
        check_describe(options)
    elif options.action == "reset-offsets":
        _check_reset(options)
    elif options.action == "delete":
        check_delete(options)
    else:
        check_delete_offsets(options)
    options.scope = [topic_and_partitions(text) for text in options.topic]


def _check_reset(options: Namespace) -> None:
    if options.dry_run and options.execute:
        raise BadUsage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options.group and not options.all_groups:
        raise BadUsage("Option [reset-offsets] takes one of these options: [all-groups], [group]")
    if at_most_one(options, _TARGETS) is None:
        named = ", ".join(f"[{name}]" for name in _TARGETS)
        raise BadUsage(f"Option [reset-offsets] takes one of these options: {named}")
    scopes = [name for name in ("all-topics", "topic") if is_given(options, name)]
    if options.from_file is not None and scopes:
        raise BadUsage(
            f'Option "[from-file]" can\'t be used with option "[{scopes[0]}]": the file '
            f"says which topics"
        )
    if options.from_file is None and not scopes:
        raise BadUsage("One of the reset scopes should be defined: --all-topics, --topic.")
    if options.export and options.json:
        raise BadUsage('Option "[export]" can\'t be used with option "[json]"')
