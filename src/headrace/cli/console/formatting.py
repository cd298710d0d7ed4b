"""The options and the output of commands that print records."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from headrace.cli.options import file_option, flag, properties_file, setting

from .message_formatter import MessageFormatter


def formatter_options(parser: ArgumentParser) -> None:
    """Declare how records are printed."""
    flag(parser, "--json", "print one JSON object for each record")
    flag(
        parser,
        "--raw",
        "print the bytes of records as they are also on a terminal, which they may control",
    )
    parser.add_argument(
        "--formatter-property",
        "--property",
        action="append",
        default=[],
        type=setting_as_is,
        metavar="NAME=VALUE",
        help="print.timestamp, print.partition, print.offset, print.delivery, print.epoch, "
        "print.headers, print.key, "
        "print.value (true or false), key.separator, headers.separator, line.separator, "
        "null.literal, "
        "key.deserializer, value.deserializer, headers.deserializer; may be repeated",
    )
    file_option(parser, "--formatter-config", "a properties file of --formatter-property")
    parser.add_argument(
        "--key-deserializer",
        metavar="CLASS",
        help="such as LongDeserializer (default: the bytes as they are)",
    )
    parser.add_argument("--value-deserializer", metavar="CLASS", help="likewise for values")


def setting_as_is(text: str) -> tuple[str, str]:
    """Parse ``NAME=VALUE``, keeping blanks of the value: a separator may be one."""
    name, _ = setting(text)
    return name, text.partition("=")[2]


def message_formatter(options: Namespace) -> MessageFormatter:
    """Return the formatter that the options describe.

    :raises BadUsage: a property is unknown, or the file cannot be read
    """
    chosen: dict[str, str] = {}
    if options.formatter_config is not None:
        chosen = properties_file(options.formatter_config)
    chosen.update(options.formatter_property)
    for part in ("key", "value"):
        if (deserializer := getattr(options, f"{part}_deserializer")) is not None:
            chosen[f"{part}.deserializer"] = deserializer
    return MessageFormatter(chosen, for_terminal=sys.stdout.isatty() and not options.raw)


def write_out(data: bytes) -> None:
    """Write to stdout, and flush.

    :raises BrokenPipeError: the reader of the output has ended
    """
    rest = memoryview(data)
    while rest:  # with PYTHONUNBUFFERED a write may be partial
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()
