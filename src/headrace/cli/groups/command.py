"""``headrace groups``: list the groups of all types, as Kafka's ``kafka-groups`` does."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter

from headrace.cli.errors import BadUsage
from headrace.cli.options import flag

from .options import (
    GROUP_TYPES,
    at_most_one,
    checked,
    choose_action,
    common_options,
    known_words,
)

ACTIONS = ("list",)
_KINDS = ("consumer", "share", "streams")
_EPILOG = """\
examples:
  headrace groups list
  headrace groups list --share
  headrace groups list --group-type classic --protocol connect
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "List the groups of all types."
    parser.usage = "%(prog)s list [options]"
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    common_options(parser, ACTIONS, metavar="ACTION")
    parser.add_argument(
        "--group-type", metavar="TYPE", help=f"only groups of this type: {', '.join(GROUP_TYPES)}"
    )
    parser.add_argument(
        "--protocol",
        metavar="PROTOCOL",
        help="only groups of this protocol, such as consumer or connect",
    )
    flag(
        parser,
        "--consumer",
        "only consumer groups, including classic ones and groups with committed offsets only",
    )
    flag(parser, "--share", "only share groups")
    flag(parser, "--streams", "only streams groups")


def check(options: Namespace) -> None:
    """Check the options together, and set ``options.types``: empty for all types.

    :raises BadUsage: they contradict each other
    """
    options.group, options.all_groups = [], False
    choose_action(options, ACTIONS, {})
    if options.group:
        raise BadUsage(f"'{options.group[0]}' is not an option: see headrace groups --help")
    kind = at_most_one(options, _KINDS)
    if kind is not None:
        at_most_one(options, (kind, "group-type"))
        at_most_one(options, (kind, "protocol"))
    options.types = known_words(options.group_type or "", GROUP_TYPES, "types")
    if options.share or options.streams:
        options.types = [str(kind).capitalize()]


run = checked(check, "headrace.cli.groups.listing")
