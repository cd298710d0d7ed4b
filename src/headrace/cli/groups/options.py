"""The options that the commands on groups share: action, groups, topics, partitions, times."""

from __future__ import annotations

import re
from argparse import (
    SUPPRESS,
    ArgumentParser,
    ArgumentTypeError,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING

from headrace.cli.client_options import call_options
from headrace.cli.errors import BadUsage
from headrace.cli.options import flag, repeated_option
from headrace.epoch import since_epoch_ms
from headrace.patterns import InvalidPattern, compiled

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d+)D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?(?:(?P<seconds>[-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
)
_UNITS = ("days", "hours", "minutes", "seconds")
MAX_PARTITION = (1 << 31) - 1
GROUP_TYPES = ("Classic", "Consumer", "Share", "Streams")


def checked(check: Callable[[Namespace], None], actions: str) -> Callable[[Namespace], int]:
    """Return the ``run`` function of a command.

    :param check: checks the options together
    :param actions: name of a module whose ``execute`` executes the action. It loads a client, which
        is not needed to reject bad usage
    """

    def run(options: Namespace) -> int:
        """Execute the command.

        :returns: the exit status
        :raises Failure: it failed, wholly or in part, or the options are wrong
        """
        check(options)
        status: int = import_module(actions).execute(options)
        return status

    return run


def group_options(parser: ArgumentParser, actions: Sequence[str], all_groups: str) -> None:
    """Declare the options of a command on named groups.

    :param actions: names such as ``list``, also accepted as ``--list``
    :param all_groups: the help of ``--all-groups``
    """
    parser.usage = "%(prog)s ACTION [GROUP …] [options]"
    parser.formatter_class = RawDescriptionHelpFormatter
    repeated_option(parser, "--group", "GROUP", "a group; may be repeated")
    flag(parser, "--all-groups", all_groups)
    common_options(parser, actions, metavar="ACTION GROUP")


def common_options(parser: ArgumentParser, actions: Sequence[str], *, metavar: str) -> None:
    """Declare the actions, the output and the connection.

    :param metavar: the action and the words after it, for the help
    """
    action_options(parser, actions, metavar=metavar)
    flag(parser, "--json", "print a JSON array of objects")
    call_options(parser)


def action_options(parser: ArgumentParser, actions: Sequence[str], *, metavar: str) -> None:
    """Declare the action, and the words after it.

    :param metavar: the action and the words after it, for the help
    """
    *others, last = actions
    named = f"{', '.join(others)} or {last}" if others else last
    parser.add_argument("words", nargs="*", metavar=metavar, help=f"the action: {named}")
    for action in actions:
        parser.add_argument(
            f"--{action}", dest="actions", action="append_const", const=action, help=SUPPRESS
        )


def describe_options(
    parser: ArgumentParser, states: Sequence[str], *, offsets: str, verbose: str
) -> _ArgumentGroup:
    """Declare the options of ``list`` and ``describe``.

    :param states: the states that ``list --state`` accepts
    :param offsets: the help of ``--offsets``
    :param verbose: the help of ``--verbose``
    :returns: the group of options, for further ones
    """
    group = parser.add_argument_group("list, describe")
    flag(group, "--offsets", offsets)
    flag(group, "--members", "the members and their assignments")
    group.add_argument(
        "--state",
        nargs="?",
        const="",
        metavar="STATE,…",
        help=(
            "the state of the group; with list: of all groups, or only groups in these states: "
            f"{', '.join(states)}"
        ),
    )
    flag(group, "--verbose", verbose)
    return group


def reset_options(
    parser: ArgumentParser, *, topic: str, all_topics: str, dry_run: str
) -> _ArgumentGroup:
    """Declare the options of ``reset-offsets`` and ``delete-offsets``.

    :param topic: the help of ``--topic``
    :param all_topics: the help of ``--all-topics``
    :param dry_run: the help of ``--dry-run``
    :returns: the group of options, for further ones
    """
    group = parser.add_argument_group("reset-offsets, delete-offsets")
    repeated_option(group, "--topic", "TOPIC", topic)
    flag(group, "--all-topics", all_topics)
    flag(group, "--to-earliest", "to the first record of the log")
    flag(group, "--to-latest", "to the end of the log")
    group.add_argument(
        "--to-datetime",
        type=date_and_time,
        metavar="TIME",
        help="to the first record from this time on; UTC unless it has an offset",
    )
    flag(group, "--dry-run", dry_run)
    flag(group, "--execute", "set the new offsets")
    return group


def chosen_words(options: Namespace, actions: Sequence[str]) -> list[str]:
    """Set ``options.action``; return the words after it.

    :raises BadUsage: there is not one action
    """
    words, chosen = list(options.words), list(options.actions or ())
    if not chosen and words and words[0] in actions:
        chosen.append(words.pop(0))
    if len(chosen) != 1:
        named = ", ".join(actions)
        if not chosen and words:
            raise BadUsage(f"'{words[0]}' is not an action: {named}; see --help")
        raise BadUsage(f"Command must include exactly one action: {named}; see --help")
    (options.action,) = chosen
    return words


def choose_action(
    options: Namespace, actions: Sequence[str], only_with: Mapping[str, Collection[str]]
) -> None:
    """Set ``options.action``, and complete ``options.group`` by the groups among the words.

    :param only_with: option → the actions that accept it
    :raises BadUsage: the options contradict each other
    """
    options.group += chosen_words(options, actions)
    if not options.actions and options.action == "describe" and options.state:
        options.group.append(options.state)  # `describe --state packers`
        options.state = ""
    for name, allowed in only_with.items():
        if is_given(options, name) and options.action not in allowed:
            raise BadUsage(f'Option "[{name}]" can\'t be used with option "[{options.action}]"')
    if options.group and options.all_groups:
        raise BadUsage('Option "[group]" can\'t be used with option "[all-groups]"')
    options.group = list(dict.fromkeys(options.group))
    if "" in options.group:
        raise BadUsage("Option [group] takes the id of a group, which is not empty")


def is_given(options: Namespace, name: str) -> bool:
    """Return whether the option ``--name`` was given."""
    value = getattr(options, name.replace("-", "_"))
    return value is not None and value is not False and value != []


def at_most_one(options: Namespace, names: Sequence[str]) -> str | None:
    """Return the one option given of several that exclude each other, or None.

    :raises BadUsage: more than one was given
    """
    given = [name for name in names if is_given(options, name)]
    if len(given) > 1:
        raise BadUsage(f'Option "[{given[0]}]" can\'t be used with option "[{given[1]}]"')
    return given[0] if given else None


def check_describe(options: Namespace) -> None:
    """Check the options of ``describe``.

    :raises BadUsage: they contradict each other
    """
    if not options.group and not options.all_groups:
        raise BadUsage("Option [describe] takes one of these options: [all-groups], [group]")
    if sum([options.members, options.offsets, options.state is not None]) > 1:
        raise BadUsage(
            "Option [describe] takes at most one of these options: [members], [offsets], [state]"
        )
    if options.state:
        raise BadUsage("Option [describe] does not take a value for [state]")


def check_delete(options: Namespace) -> None:
    """Check the options of ``delete``.

    :raises BadUsage: no group is given
    """
    if not options.group and not options.all_groups:
        raise BadUsage("Option [delete] takes the options [group] or [all-groups]")


def check_delete_offsets(options: Namespace) -> None:
    """Check the options of ``delete-offsets``.

    :raises BadUsage: there is not one group, or no topic
    """
    if len(options.group) != 1 or not options.topic or "" in options.topic:
        raise BadUsage(
            "Option [delete-offsets] takes the following options: [group], [topic]; the group once"
        )


def known_words(text: str, known: Sequence[str], what: str) -> list[str]:
    """Return the words of a comma-separated list, spelled as in ``known``. Case is ignored.

    :param what: the plural name of the list, for error texts
    :raises BadUsage: a word is not in ``known``
    """
    spelled = {word.lower(): word for word in known}
    wanted = [part.strip().lower() for part in text.split(",") if part.strip()]
    if not set(wanted) <= set(spelled):
        raise BadUsage(
            f"Invalid {what} list '{text}'. Valid {what.rstrip('s')}s are: {', '.join(known)}"
        )
    return [spelled[word] for word in wanted]


def group_types(text: str | None) -> tuple[str, ...]:
    """Return the types of a comma-separated list in lower case; all types if it is empty or None.

    :raises BadUsage: a type is unknown
    """
    chosen = known_words(text or "", GROUP_TYPES, "types") or GROUP_TYPES
    return tuple(one.lower() for one in chosen)


def check_pattern(name: str, pattern: str | None) -> None:
    """Check a regular expression, if there is one.

    :param name: of the option, for the error text
    :raises BadUsage: it is malformed
    """
    try:
        if pattern:
            compiled(pattern)
    except InvalidPattern as error:
        raise BadUsage(f"{name} is not a regular expression: {error}") from error


def topic_and_partitions(text: str) -> tuple[str, list[int] | None]:
    """Parse ``TOPIC`` or ``TOPIC:0,1,2``.

    :returns: the topic and its partition numbers; None for all partitions
    :raises BadUsage: it is neither
    """
    topic, colon, numbers = text.partition(":")
    if topic and not colon:
        return topic, None
    try:
        partitions = sorted({int(number) for number in numbers.split(",")})
    except ValueError:
        partitions = []
    if not topic or not partitions or partitions[0] < 0 or partitions[-1] > MAX_PARTITION:
        raise BadUsage(
            f"Option [topic] takes TOPIC or TOPIC:0,1,2 with numbers of partitions, not '{text}'"
        )
    return topic, partitions


def date_and_time(text: str) -> datetime:
    """Parse an ISO 8601 time; without an offset it is UTC, as in Kafka's tools.

    :raises ArgumentTypeError: it is not one
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(
            f"'{text}' is not of the form YYYY-MM-DDThh:mm:ss.sss, with +hh:mm or Z or neither"
        ) from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def timestamp_ms(text: str) -> int:
    """Parse a time: ISO 8601, or milliseconds since the epoch.

    :raises ArgumentTypeError: it is neither
    """
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    try:
        return since_epoch_ms(date_and_time(text))
    except ArgumentTypeError:
        raise ArgumentTypeError(
            f"'{text}' is neither milliseconds nor of the form YYYY-MM-DDThh:mm:ss"
        ) from None


def duration(text: str) -> timedelta:
    """Parse a duration as Kafka's tools do, such as ``P2DT3H4M5.5S``.

    :raises ArgumentTypeError: it is not one, or too long
    """
    found = _DURATION.fullmatch(text)
    parts = {unit: found[unit] for unit in _UNITS if found[unit]} if found is not None else {}
    if found is None or not parts or (found["time"] and found["time"].upper() == "T"):
        raise ArgumentTypeError(f"'{text}' is not of the form PnDTnHnMnS, as in P1DT12H or PT30M")
    try:
        length = timedelta(
            **{unit: float(number.replace(",", ".")) for unit, number in parts.items()}
        )
    except OverflowError:
        raise ArgumentTypeError(f"'{text}' is too long") from None
    return -length if found["sign"] == "-" else length
