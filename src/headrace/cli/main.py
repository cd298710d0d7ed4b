"""The command ``headrace``: parse the command line and call the module of the subcommand.

Exit status: 0; 1 for a failure; 2 for bad usage. Both print one line on stderr.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from typing import NoReturn

from headrace import __version__
from headrace.imports import without_hypothesis

from .commands import COMMANDS, Command, load
from .errors import Failure, one_line_error
from .tables import one_line


class _Parser(ArgumentParser):
    """An argument parser that reports an error on one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")


def _parser(family: str) -> ArgumentParser:
    """Return the parser of everything up to the name of a command.

    :param family: the first word of two-word commands, if it was given; else empty
    """
    parser = _Parser(
        prog=f"headrace {family}".rstrip(),
        description=None
        if family
        else "Work queues and visible progress for Kafka-protocol streams.",
    )
    _version_option(parser)
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True
    )
    for name, entry in COMMANDS.items():
        if not family or _family(name) == family:
            commands.add_parser(name.removeprefix(family).lstrip(), help=entry.summary)
    return parser


def _version_option(parser: ArgumentParser) -> None:
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")


def _family(name: str) -> str:
    return name.partition(" ")[0]


def _load(name: str) -> Command:
    # Imported objects live as long as the process: exempt them from garbage collection.
    gc.disable()
    try:
        with without_hypothesis():
            return load(name)
    finally:
        gc.freeze()
        gc.enable()


def parsed(name: str, command: Command, arguments: Sequence[str]) -> Namespace:
    """Return the options of a command.

    :param arguments: the words after the command's name
    :raises SystemExit: they are wrong; a message is on stderr
    """
    parser = _Parser(prog=f"headrace {name}")
    command.declare(parser)
    _version_option(parser)
    options = parser.parse_intermixed_args(arguments)
    for text in _texts(list(vars(options).values())):
        if not _is_utf8(text) and not os.path.lexists(text):
            parser.error(f"{text!a} is not UTF-8")  # librdkafka would crash
    return options


def _texts(value: object) -> Iterator[str]:
    """Yield the strings of an option's value, such as the name and value of each NAME=VALUE."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)


def _is_utf8(argument: str) -> bool:
    return argument.encode(errors="ignore").decode() == argument


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    :param arguments: the words after ``headrace``; None for those of this process
    :returns: the exit status
    """
    if arguments is None:
        os.umask(0o077)  # files of commands have records, or what was done with them
    words = sys.argv[1:] if arguments is None else list(arguments)
    name = next((name for name in COMMANDS if words[: len(name.split())] == name.split()), None)
    try:
        if name is None:
            family = words[0] if words and words[0] in map(_family, COMMANDS) else ""
            _parser(family).parse_args(words[1:] if family else words)
            return 0
        command = _load(name)
        status = command.run(parsed(name, command, words[len(name.split()) :]))
        sys.stdout.flush()
        return status
    except SystemExit as end:  # argparse has printed its message
        return int(end.code or 0)
    except Failure as failure:
        print(f"headrace {name}: {one_line(str(failure))}", file=sys.stderr)
        return failure.status
    except BrokenPipeError:  # the reader of the output has ended, such as `head`
        _drop_output()
        return 1
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _drop_output()
        print(f"headrace {name}: {one_line_error(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before the command handled the signal
        return 130


def _drop_output() -> None:
    """Drop what is left of the output, which Python would write at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
