"""``headrace share-groups``: list, describe, reset and delete share groups (KIP-932, KIP-1226).

It takes the options of Kafka's ``kafka-share-groups`` and prints its columns. What it does with them is in
:mod:`headrace.cli.share_group_actions`; here is how they are declared and what goes with what.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from datetime import UTC, datetime

from headrace import __version__

from .client_options import client_options
from .errors import BadUsage

ACTIONS = ("list", "describe", "reset-offsets", "delete-offsets", "delete")
STATES = ("Empty", "Stable", "Dead")
_DESCRIPTIONS = ("members", "offsets", "state")
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
  headrace share-groups reset-offsets packers --topic orders:0,3 --to-datetime 2026-11-20T08:00:00+01:00 --execute
  headrace share-groups delete-offsets packers --topic orders
  headrace share-groups delete packers --bootstrap-server broker:9092

Kafka's own way of saying it works too: --describe --group packers.
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "List, describe, reset and delete share groups."
    parser.usage = "%(prog)s ACTION [GROUP …] [options]"
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.add_argument("words", nargs="*", metavar="ACTION GROUP", help=f"the action is one of {', '.join(ACTIONS)}")
    for action in ACTIONS:
        parser.add_argument(f"--{action}", dest="actions", action="append_const", const=action, help=SUPPRESS)
    parser.add_argument("--group", action="append", default=[], metavar="GROUP", help="a group; may be repeated")
    parser.add_argument("--all-groups", action="store_true", help="all share groups: to describe or delete")
    parser.add_argument("--json", action="store_true", help="print JSON, an array of objects")
    parser.add_argument("--timeout", type=int, default=30_000, metavar="MS", help="how long to try (default: 30000)")
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    client_options(parser)
    describing = parser.add_argument_group("describe")
    describing.add_argument("--offsets", action="store_true", help="start offset and lag of each partition (default)")
    describing.add_argument("--members", action="store_true", help="the members and what they are assigned")
    describing.add_argument(
        "--state",
        nargs="?",
        const="",
        metavar="STATE,…",
        help="the state of the group; with list: of all groups, or only groups in one of Empty, Stable, Dead",
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
    resetting.add_argument("--all-topics", action="store_true", help="all topics that the group knows")
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
    from . import share_group_actions  # which needs a client, and this needs none to complain

    share_group_actions.act(options)
    return 0


def check(options: Namespace) -> None:
    """Make sense of the options together: afterwards ``options.action`` is set and ``options.group`` complete.

    :raises BadUsage: they do not go together
    """
    words, actions = list(options.words), list(options.actions or ())
    if not actions and words and words[0] in ACTIONS:
        actions.append(words.pop(0))
        if actions == ["describe"] and options.state:  # `describe --state packers`
            words.append(options.state)
            options.state = ""
    if len(actions) != 1:
        named = ", ".join(ACTIONS)
        if not actions and words:
            raise BadUsage(f"'{words[0]}' is not an action: {named}; see headrace share-groups --help")
        raise BadUsage(f"Command must include exactly one action: {named}; see headrace share-groups --help")
    (options.action,) = actions
    options.group += words
    given = {name: getattr(options, name.replace("-", "_")) not in (None, False, []) for name in _ONLY_WITH}
    for name, allowed in _ONLY_WITH.items():
        if given[name] and options.action not in allowed:
            raise BadUsage(f'Option "[{name}]" can\'t be used with option "[{options.action}]"')
    if options.timeout <= 0:
        raise BadUsage("Option [timeout] takes a number of milliseconds above 0")
    _check_groups(options)
    {"list": _check_list, "describe": _check_describe, "reset-offsets": _check_reset}.get(
        options.action, _check_deletion
    )(options)


def _check_groups(options: Namespace) -> None:
    if options.group and options.all_groups:
        raise BadUsage('Option "[group]" can\'t be used with option "[all-groups]"')
    options.group = list(dict.fromkeys(options.group))
    if "" in options.group:
        raise BadUsage("Option [group] takes the id of a group, which is not empty")


def _check_list(options: Namespace) -> None:
    wanted = [part.strip().capitalize() for part in (options.state or "").split(",") if part.strip()]
    if not set(wanted) <= set(STATES):
        raise BadUsage(f"Invalid state list '{options.state}'. Valid states are: {', '.join(STATES)}")
    options.states = wanted


def _check_describe(options: Namespace) -> None:
    if not options.group and not options.all_groups:
        raise BadUsage("Option [describe] takes one of these options: [all-groups], [group]")
    chosen = [options.members, options.offsets, options.state is not None]
    if sum(chosen) > 1:
        named = ", ".join(f"[{name}]" for name in _DESCRIPTIONS)
        raise BadUsage(f"Option [describe] takes at most one of these options: {named}")
    if options.state:
        raise BadUsage("Option [describe] does not take a value for [state]")


def _check_reset(options: Namespace) -> None:
    if options.dry_run and options.execute:
        raise BadUsage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options.dry_run and not options.execute:
        raise BadUsage("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if len(options.group) != 1:
        raise BadUsage("Option [reset-offsets] takes the option: [group], once")
    targets = [name for name in _TARGETS if getattr(options, name.replace("-", "_"))]
    if not targets:
        named = ", ".join(f"[{name}]" for name in _TARGETS)
        raise BadUsage(f"Option [reset-offsets] takes one of these options: {named}")
    if len(targets) > 1:
        raise BadUsage(f'Option "[{targets[0]}]" can\'t be used with option "[{targets[1]}]"')
    if not options.topic and not options.all_topics:
        raise BadUsage("Option [reset-offsets] takes one of these options: [all-topics], [topic]")
    options.scope = [topic_and_partitions(text) for text in options.topic]


def _check_deletion(options: Namespace) -> None:
    if options.action == "delete":
        if not options.group and not options.all_groups:
            raise BadUsage("Option [delete] takes the options [group] or [all-groups]")
        return
    if len(options.group) != 1 or not options.topic:
        raise BadUsage("Option [delete-offsets] takes the following options: [group], [topic]; the group once")
    options.topic = list(dict.fromkeys(options.topic))


def topic_and_partitions(text: str) -> tuple[str, list[int] | None]:
    """``TOPIC`` (None: all its partitions) or ``TOPIC:0,1,2``.

    :raises BadUsage: it is neither
    """
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    try:
        partitions = sorted({int(number) for number in numbers.split(",")})
    except ValueError:
        partitions = []
    if not topic or not partitions or partitions[0] < 0:
        raise BadUsage(f"Option [topic] takes TOPIC or TOPIC:0,1,2 with numbers of partitions, not '{text}'")
    return topic, partitions


def date_and_time(text: str) -> datetime:
    """A point in time in ISO 8601; without an offset it is UTC, as in Kafka's tools."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(
            f"'{text}' is not of the form YYYY-MM-DDThh:mm:ss.sss, with +hh:mm or Z or neither"
        ) from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)
