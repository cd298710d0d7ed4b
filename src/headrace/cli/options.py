"""Values of options: functions that parse them, for argparse."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headrace.patterns import InvalidPattern, compiled
from headrace.properties import properties

from .errors import BadUsage
from .secret_files import warn_of_readers

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
