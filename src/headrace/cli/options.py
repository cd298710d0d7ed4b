"""The options of the commands, and the reading of their values."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DEFAULT_DATA_DIR = Path("headrace-data")
"""Where a broker keeps its state when it is told nothing, in the working directory."""


class Address(NamedTuple):
    """A host, without brackets if it is an IPv6 address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


DEFAULT_LISTEN = Address("127.0.0.1", 9092)


def serve_options(parser: ArgumentParser) -> None:
    """Declare the options of ``headrace serve``."""
    parser.add_argument(
        "--listen",
        action="append",
        type=address,
        metavar="HOST:PORT",
        help=(
            f"where to listen, may be repeated; port 0 picks a free one (default: {DEFAULT_LISTEN})"
        ),
    )
    parser.add_argument(
        "--advertise",
        action="append",
        type=address,
        metavar="HOST:PORT",
        help=(
            "what clients are told to connect to, once for all or once for each --listen "
            "(default: where it listens)"
        ),
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help=f"where state is kept (default: {DEFAULT_DATA_DIR})",
    )
    where.add_argument(
        "--ephemeral",
        action="store_true",
        help="keep state in a temporary directory, and drop it at the end",
    )
    parser.add_argument(
        "-c",
        dest="configs",
        action="append",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="a broker config under Kafka's name, may be repeated",
    )
    parser.add_argument(
        "--config",
        dest="config_file",
        type=Path,
        metavar="FILE",
        help="a file of KEY=VALUE lines; -c wins over it",
    )
    parser.add_argument(
        "--metrics-port",
        type=port_number,
        metavar="PORT",
        help=(
            "serve metrics for Prometheus there, on the host of the first --listen; 0 picks a "
            "free port"
        ),
    )


def address(text: str) -> Address:
    """``HOST:PORT``, or ``[HOST]:PORT`` for an IPv6 address."""
    host, separator, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not separator or not bare or (":" in bare and bare == host):
        raise ArgumentTypeError(f"{text!r} is not of the form HOST:PORT")
    return Address(bare, port_number(port))


def port_number(text: str) -> int:
    """A TCP port; 0 for any that is free."""
    if not re.fullmatch("[0-9]{1,5}", text) or int(text) > 65535:
        raise ArgumentTypeError(f"{text!r} is not a port: 0 to 65535")
    return int(text)


def positive_seconds(text: str) -> float:
    """A number of seconds above 0, as in ``0.5``."""
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text) or not float(text):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return float(text)


def setting(text: str) -> tuple[str, str]:
    """``KEY=VALUE``."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key.strip(), value.strip()


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])+)\s*[=:\s]?\s*(?P<value>.*)", re.DOTALL)


def properties(text: str) -> dict[str, str]:
    """What a Java properties file says: ``key=value`` lines, comments, lines that go on after a
    backslash, escapes.

    :raises ValueError: for a line that has no key, or a broken ``\\u`` escape
    """
    found = {}
    for line in _logical_lines(text):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"no key in {line!r}")
        found[_unescaped(match["key"])] = _unescaped(match["value"]).rstrip()
    return found


def _logical_lines(text: str) -> Iterator[str]:
    whole = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not whole and (not line or line[0] in "#!"):
            continue
        whole += line
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1]
        else:
            yield whole
            whole = ""
    if whole:
        yield whole


def _unescaped(text: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] == "u":
            if len(escape) < 5:
                raise ValueError(f"a broken escape in {text!r}")
            return chr(int(escape[1:], 16))
        return _ESCAPES.get(escape, escape)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", replacement, text, flags=re.DOTALL)
