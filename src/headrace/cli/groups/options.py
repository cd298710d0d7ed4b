"""Options of commands without verbs."""

from __future__ import annotations

import re
from argparse import (
    SUPPRESS,
    ArgumentParser,
    ArgumentTypeError,
    Namespace,
)
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module

from headrace.cli.errors import BadUsage
from headrace.epoch import since_epoch_ms
from headrace.patterns import InvalidPattern, compiled

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


def is_given(options: Namespace, name: str) -> bool:
    """Return whether the option ``--name`` was given."""
    value = getattr(options, name.replace("-", "_"))
    return value is not None and value is not False and value != []


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
