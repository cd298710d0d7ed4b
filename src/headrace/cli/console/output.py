"""How records are printed: by a format of kcat, or as JSON."""

from __future__ import annotations

import re
import select
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.cli.options import arg, switch
from headrace.cli.tables import json_line, terminal_text

from .json_records import record_fields

if TYPE_CHECKING:
    from headrace.client.records import Record

_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0"}
_FIELDS: Mapping[bytes, Callable[[Record], bytes]] = {
    b"s": lambda record: b"null" if record.value is None else bytes(record.value),
    b"S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
    b"k": lambda record: b"null" if record.key is None else record.key,
    b"K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
    b"h": lambda record: b",".join(
        name.encode(errors="replace") + b"=" + (b"null" if content is None else content)
        for name, content in record.headers
    ),
    b"t": lambda record: record.topic.encode(),
    b"p": lambda record: b"%d" % record.partition,
    b"o": lambda record: b"%d" % record.offset,
    b"T": lambda record: b"%d" % record.timestamp_ms,
    b"d": lambda record: b"%d" % record.delivery_count,
    b"%": lambda record: b"%",
}


def unescaped(text: str) -> bytes:
    r"""Return a text with ``\n``, ``\t``, ``\xNN`` and so on replaced."""
    return _ESCAPE.sub(
        lambda escape: (
            bytes([int(escape[1], 16)]) if escape[1] else _ESCAPES.get(escape[2], escape[2])
        ),
        text.encode(errors="surrogateescape"),
    )


def record_format(text: str) -> Callable[[Record], bytes]:
    """Return the function that formats a record.

    :raises ArgumentTypeError: a field does not exist
    """
    parts = re.split(rb"%(.?)", unescaped(text), flags=re.DOTALL)
    for field in parts[1::2]:
        if field not in _FIELDS:
            fields = " ".join(f"%{name.decode()}" for name in _FIELDS)
            raise ArgumentTypeError(f"%{field.decode(errors='replace')} is no field: {fields}")
    return lambda record: b"".join(
        _FIELDS[part](record) if number % 2 else part for number, part in enumerate(parts)
    )


OUTPUT_OPTIONS = (
    arg(
        "-f --format",
        "FORMAT",
        "%%s value, %%k key, %%h headers, %%t topic, %%p partition, %%o offset, %%T timestamp "
        "in ms, %%d deliveries to a share group, %%S and %%K sizes, \\n, \\t, \\xNN; "
        "null for none (default: %%s\\n)",
        type=record_format,
    ),
    arg(
        "-o --output",
        choices=("text", "json", "jsonl"),
        default="text",
        help="json: an array of objects; jsonl: an object a line",
    ),
    switch("--parse-json", "in JSON, a value that is JSON is no string"),
    switch(
        "--raw",
        "print the bytes of records as they are also on a terminal, which they may control",
    ),
)
"""How records are printed."""


@dataclass(slots=True)
class RecordOutput:
    """Records on stdout.

    :param form: text, json or jsonl
    :param line: formats a record as text
    :param parse: in JSON, a value that is JSON is what it means
    :param for_terminal: escape what is not printable
    """

    form: str
    line: Callable[[Record], bytes]
    parse: bool
    for_terminal: bool
    _between: bytes = b"["

    def write(self, records: Sequence[Record]) -> None:
        """Print records, and flush.

        :raises BrokenPipeError: the reader of the output has ended
        """
        _write_out(b"".join(map(self._shown, records)))

    def check_reader(self) -> None:
        """Notice that nobody reads the output any more, before there is a record to print.

        :raises BrokenPipeError: the reader of the output has ended
        """
        poll = select.poll()
        try:
            poll.register(sys.stdout.fileno(), 0)  # POLLERR is always told
        except OSError:  # in a program that has put something else in its place
            return
        if any(event & select.POLLERR for _, event in poll.poll(0)):
            raise BrokenPipeError

    def close(self) -> None:
        """End the output."""
        if self.form == "json":
            _write_out(self._between.removesuffix(b",\n ") + b"]\n")

    def _shown(self, record: Record) -> bytes:
        if self.form == "text":
            line = self.line(record)
            if self.for_terminal:
                line = terminal_text(line.decode(errors="backslashreplace")).encode()
            return line
        line = json_line(record_fields(record, parse=self.parse)).encode()
        if self.form == "jsonl":
            return line + b"\n"
        between, self._between = self._between, b",\n "
        return between + line


def _write_out(data: bytes) -> None:
    rest = memoryview(data)
    while rest:  # with PYTHONUNBUFFERED a write may be partial
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()
