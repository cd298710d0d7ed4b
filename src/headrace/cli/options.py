"""Options: functions that parse their values, and declarations of them, for argparse."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headrace.patterns import InvalidPattern, compiled
from headrace.positions import position
from headrace.properties import properties
from headrace.times import duration_ms, time_ms

from .errors import BadUsage
from .secret_files import warn_of_readers

_SECRET = re.compile(r"password|secret|jaas|\.token$|\.key$|ssl\.key\.pem")
"""Keys of a properties file whose values are for nobody else."""
MAX_PARTITION = (1 << 31) - 1
GROUP_TYPES = ("classic", "consumer", "share", "streams")
_GROUP_STATES = (
    *("assigning", "completingrebalance", "dead", "empty", "notready"),
    *("preparingrebalance", "reconciling", "stable", "unknown"),
)
DEFAULT_DATA_DIR = Path("headrace-data")
"""The default data directory, relative to the working directory."""


class Address(NamedTuple):
    """A host and a port. An IPv6 address has no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


DEFAULT_LISTEN = Address("127.0.0.1", 9092)
DEFAULT_LISTENER = "PLAINTEXT"


class ListenAddress(NamedTuple):
    """The value of ``--listen``: the name of a listener, in upper case, and its address."""

    name: str
    at: Address


def address(text: str) -> Address:
    """Parse ``HOST:PORT``, or ``[HOST]:PORT`` for an IPv6 address.

    :raises ArgumentTypeError: it is neither, or no host can have this name
    """
    host, separator, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not separator or not bare or (":" in bare and bare == host):
        raise ArgumentTypeError(f"{text!r} is not of the form HOST:PORT")
    return Address(host_name(bare), port_number(port))


def host_name(text: str) -> str:
    """Return the name or the address of a host.

    :raises ArgumentTypeError: no host can have this name
    """
    try:
        text.encode("idna")
    except UnicodeError:
        raise ArgumentTypeError(f"{text!r} is not the name of a host") from None
    return text


def page_address(text: str) -> Address:
    """Parse ``HOST:PORT``, or ``:PORT`` for all addresses.

    :raises ArgumentTypeError: it is neither
    """
    try:
        return address(f"0.0.0.0{text}" if text.startswith(":") else text)
    except ArgumentTypeError:
        raise ArgumentTypeError(f"{text!r} is not of the form HOST:PORT or :PORT") from None


def listen_address(text: str) -> ListenAddress:
    """Parse ``[NAME://]HOST:PORT``; without a name, it is PLAINTEXT.

    :raises ArgumentTypeError: it has another form
    """
    name, separator, rest = text.rpartition("://")
    if separator and not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ArgumentTypeError(f"{text!r} is not of the form NAME://HOST:PORT")
    return ListenAddress(name.upper() or DEFAULT_LISTENER, address(rest))


def port_number(text: str) -> int:
    """Parse a TCP port; 0 means any free port.

    :raises ArgumentTypeError: it is not one
    """
    if not re.fullmatch("[0-9]{1,5}", text) or int(text) > 65535:
        raise ArgumentTypeError(f"{text!r} is not a port: 0 to 65535")
    return int(text)


def positive_number(text: str) -> int:
    """Parse a whole number above 0.

    :raises ArgumentTypeError: it is not one
    """
    if not re.fullmatch("[0-9]+", text) or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def duration_s(text: str) -> float:
    """Parse a duration: return its seconds.

    :raises ArgumentTypeError: it is not one
    """
    return duration_ms(text) / 1000


def number_up_to(most: int) -> Callable[[str], int]:
    """Return a function that parses a number from 1 to ``most``, for argparse."""

    def parse(text: str) -> int:
        number = positive_number(text)
        if number > most:
            raise ArgumentTypeError(f"{text!r} is more than {most}")
        return number

    return parse


def pattern(text: str) -> str:
    """Check a regular expression of whole names.

    :raises ArgumentTypeError: it is malformed
    """
    try:
        compiled(text)
    except InvalidPattern as error:
        raise ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None
    return text


def comma_separated(text: str) -> tuple[str, ...]:
    """Parse a list of names, each of which counts once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def some_of(kind: str, names: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of a comma-separated list of some names, in upper or lower case.

    It raises ``ArgumentTypeError`` if a name is unknown.

    :param kind: what they are: ``types``
    """

    def some(text: str) -> tuple[str, ...]:
        chosen = comma_separated(text.lower())
        if not chosen or not set(chosen) <= set(names):
            raise ArgumentTypeError(f"{text!r} is not a list of {kind}: {', '.join(names)}")
        return chosen

    return some


def topic_and_partitions(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Parse ``TOPIC`` or ``TOPIC:0,1,2``.

    :returns: the topic and its partition numbers; None for all partitions
    :raises ArgumentTypeError: it is neither
    """
    topic, colon, numbers = text.partition(":")
    if topic and not colon:
        return topic, None
    if not topic or not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", numbers):
        raise ArgumentTypeError(f"{text!r} is not of the form TOPIC or TOPIC:0,1,2")
    return topic, tuple(sorted(set(map(int, numbers.split(",")))))


def setting(text: str) -> tuple[str, str]:
    """Parse ``KEY=VALUE``, without surrounding blanks.

    :raises ArgumentTypeError: it is not one
    """
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key.strip(), value.strip()


def properties_file(path: Path) -> dict[str, str]:
    """Read a Java properties file.

    :raises BadUsage: it cannot be read. The text names a line, and no value: it may be a password
    """
    try:
        data = path.read_bytes()
        configs = properties(data.decode("utf-8-sig"))
    except OSError as error:
        raise BadUsage(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadUsage(f"cannot read {path}: line {line} is not UTF-8") from error
    except ValueError as error:
        raise BadUsage(f"cannot read {path}: {error}") from error
    if any(_SECRET.search(key) for key in configs):
        warn_of_readers(path)
    return configs


# Declarations -------------------------------------------------------------------------------------

Declaration = Callable[[Any], object]
"""Adds arguments to a parser, or to a group of one."""

_TYPES: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys(("FILE", "DIR", "BACKUP"), Path),
    **dict.fromkeys(("KEY=VALUE", "NAME=VALUE", "CONFIG=VALUE"), setting),
    **dict.fromkeys(("N", "BYTES"), positive_number),
    "HOST": host_name,
    "HOST:PORT": address,
    "[NAME://]HOST:PORT": listen_address,
    "PORT": port_number,
    "TYPE,…": some_of("types", GROUP_TYPES),
    "STATE,…": some_of("states", _GROUP_STATES),
    "TASK,…": comma_separated,
    "DURATION": duration_ms,
    "TIME": time_ms,
    "POSITION": position,
    "REGEX": pattern,
}
"""What a help calls a value → the function that parses it, unless an argument has its own."""


def arg(
    names: str, metavar: str | None = None, help: str | None = None, **settings: Any
) -> Declaration:
    """Return the declaration of one argument.

    :param names: one, or two with a blank between them: ``-p --partition``
    :param metavar: what the help calls its value: see :data:`_TYPES`
    :param settings: further parameters of ``add_argument``
    """
    if metavar is not None:
        settings = {"metavar": metavar, "type": _TYPES.get(metavar), **settings}
    return lambda parser: parser.add_argument(*names.split(), help=help, **settings)


def switch(name: str, help_text: str) -> Declaration:
    """Return the declaration of an option without a value: True if it is given."""
    return arg(name, action="store_true", help=help_text)


def section(title: str, *declarations: Declaration) -> Declaration:
    """Return the declaration of arguments that a help shows below a title."""

    return _group(lambda parser: parser.add_argument_group(title), declarations)


def one_of(*declarations: Declaration, required: bool = False) -> Declaration:
    """Return the declaration of arguments that exclude each other."""
    return _group(
        lambda parser: parser.add_mutually_exclusive_group(required=required), declarations
    )


def _group(
    group_of: Callable[[ArgumentParser], Any], declarations: Sequence[Declaration]
) -> Declaration:
    def declare(parser: ArgumentParser) -> None:
        group = group_of(parser)
        for declaration in declarations:
            declaration(group)

    return declare


def repeatable(name: str, metavar: str, help_text: str, **settings: Any) -> Declaration:
    """Return the declaration of an option that may be given several times: a list."""
    help_text += "; may be repeated"
    return arg(name, metavar, help_text, action="append", default=[], **settings)


def seconds_option(name: str, help_text: str, default: float) -> Declaration:
    """Return the declaration of an option that takes a duration. Its value is in seconds."""
    help_text = f"{help_text} (default: {default:g}s)"
    return arg(name, "DURATION", help_text, type=duration_s, default=default)


def listen_option(default: Address, what: str) -> Declaration:
    """Return the declaration of ``--listen`` of a command that serves ``what``."""
    help_text = (
        f"address to serve {what} on; :PORT: all addresses, port 0: a free port "
        f"(default: {default})"
    )
    return arg("--listen", "[HOST]:PORT", help_text, type=page_address, default=default)


def allow_host_option(what: str) -> Declaration:
    """Return the declaration of further names under which a port is served."""
    return repeatable("--allow-host", "NAME", f"another name of this machine under which {what}")


def data_dir_option(help_text: str) -> Declaration:
    """Return the declaration of ``--data-dir`` of commands that work on a data directory."""
    return arg("--data-dir", "DIR", f"{help_text} (default: %(default)s)", default=DEFAULT_DATA_DIR)


TYPES = arg(
    "--type",
    "TYPE,…",
    f"only groups of these types: {', '.join(GROUP_TYPES)}",
    dest="types",
    default=(),
)
DRY_RUN = switch("--dry-run", "print what would be changed, and change nothing")
YES = switch("--yes", "do not ask")
