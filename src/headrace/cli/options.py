"""Functions that declare options and parse their values, and the options of ``headrace serve``."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.patterns import InvalidPattern, compiled
from headrace.properties import properties

from .errors import BadUsage
from .secret_files import warn_of_readers

if TYPE_CHECKING:
    from argparse import _ActionsContainer


_SECRET = re.compile(r"password|secret|jaas|\.token$|\.key$|ssl\.key\.pem")
"""Keys of a properties file whose values are for nobody else."""
MAX_PARTITION = (1 << 31) - 1
GROUP_TYPES = ("classic", "consumer", "share", "streams")
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


def flag(parser: _ActionsContainer, name: str, help_text: str) -> None:
    """Declare an option without a value; its value is True if it is given, else False."""
    parser.add_argument(name, action="store_true", help=help_text)


def file_option(parser: _ActionsContainer, name: str, help_text: str) -> None:
    """Declare an option that takes the path of a file."""
    parser.add_argument(name, type=Path, metavar="FILE", help=help_text)


def repeated_option(parser: _ActionsContainer, name: str, metavar: str, help_text: str) -> None:
    """Declare an option that may be given several times; its value is a list."""
    parser.add_argument(name, action="append", default=[], metavar=metavar, help=help_text)


def seconds_option(parser: _ActionsContainer, name: str, help_text: str, default: float) -> None:
    """Declare an option that takes a number of seconds above 0. The help names the default."""
    help_text += f" (default: {default:g})"
    parser.add_argument(
        name, type=positive_seconds, default=default, metavar="SECONDS", help=help_text
    )


def data_dir_option(parser: ArgumentParser, help_text: str) -> None:
    """Declare ``--data-dir`` of the commands that work on a data directory, with its default."""
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        default=DEFAULT_DATA_DIR,
        help=f"{help_text} (default: %(default)s)",
    )


def serve_options(parser: ArgumentParser) -> None:
    """Declare the options of ``headrace serve``."""
    parser.add_argument(
        "--listen",
        action="append",
        type=listen_address,
        metavar="[NAME://]HOST:PORT",
        help=(
            "address to listen on, with PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, or a name of "
            "listener.security.protocol.map; may be repeated; port 0: free port (default: "
            f"the config listeners, beside which it must not stand, or {DEFAULT_LISTEN})"
        ),
    )
    parser.add_argument(
        "--advertise",
        action="append",
        type=address,
        metavar="HOST:PORT",
        help=(
            "address that clients connect to; once, or once for each --listen "
            "(default: the address of --listen)"
        ),
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help=f"directory of the broker's state (default: log.dirs, or {DEFAULT_DATA_DIR})",
    )
    flag(where, "--ephemeral", "keep the state in a temporary directory, deleted at the end")
    parser.add_argument(
        "-c",
        dest="configs",
        action="append",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="a broker config under Kafka's name; may be repeated",
    )
    parser.add_argument(
        "--config",
        dest="config_file",
        type=Path,
        metavar="FILE",
        help="a file of KEY=VALUE lines; -c takes precedence",
    )
    file_option(
        parser,
        "--add-scram-file",
        "a file of lines MECHANISM=[name=NAME,password=PASSWORD]: users to add for SCRAM-SHA-256 "
        "or SCRAM-SHA-512, unless they exist; - reads standard input",
    )
    parser.add_argument(
        "--metrics-port",
        type=port_number,
        metavar="PORT",
        help=("port of the metrics for Prometheus; 0: a free port"),
    )
    parser.add_argument(
        "--metrics-host",
        type=host_name,
        metavar="HOST",
        default=DEFAULT_LISTEN.host,
        help="host to serve the metrics on (default: %(default)s)",
    )
    file_option(
        parser,
        "--metrics-tls",
        "serve the metrics over HTTPS, with the private key and certificates of a PEM file",
    )
    file_option(
        parser,
        "--metrics-users",
        "a file of NAME:PASSWORD lines: who may read the metrics (default: everybody)",
    )
    allow_host_option(parser, "the metrics and the page are asked for")


def allow_host_option(parser: _ActionsContainer, what: str) -> None:
    """Declare the further names under which a port is served."""
    help_text = f"another name of this machine under which {what}; may be repeated"
    repeated_option(parser, "--allow-host", "NAME", help_text)


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
    if not text.isascii() or not text.isdigit() or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def positive_seconds(text: str) -> float:
    """Parse a number of seconds above 0, such as ``0.5``.

    :raises ArgumentTypeError: it is not one
    """
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text) or not float(text):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return float(text)


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


def group_types(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of types of groups, in upper or lower case.

    :raises ArgumentTypeError: a type is unknown
    """
    types = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if not types or not set(types) <= set(GROUP_TYPES):
        raise ArgumentTypeError(f"{text!r} is not a list of types: {', '.join(GROUP_TYPES)}")
    return types


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
        found = properties(data.decode("utf-8-sig"))
    except OSError as error:
        raise BadUsage(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadUsage(f"cannot read {path}: line {line} is not UTF-8") from error
    except ValueError as error:
        raise BadUsage(f"cannot read {path}: {error}") from error
    if any(_SECRET.search(key) for key in found):
        warn_of_readers(path)
    return found
