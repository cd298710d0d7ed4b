"""The command ``headrace``: reads the command line and calls the module of the subcommand.

Exit status: 0; 1 for a failure; 2 for bad usage. Both come with one line on stderr.
"""

from __future__ import annotations

import gc
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any, NoReturn

from headrace import __version__

from .errors import Failure
from .options import serve_options


class _Parser(ArgumentParser):
    """An argument parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> ArgumentParser:
    parser = _Parser(prog="headrace", description="Work queues and visible progress for Kafka-protocol streams.")
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    serve_options(commands.add_parser("serve", help="run a broker", description="Run a Kafka-protocol broker."))
    return parser


def _serve(options: Any) -> int:
    # kio imports hypothesis where it finds it, for the sake of its own tests. That would take a fifth of the time that
    # a broker has to start, and leave a directory of hypothesis's behind.
    hidden = "hypothesis" not in sys.modules
    if hidden:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
    # What is imported here stays for good: the collector need not look for garbage in it, now or ever.
    gc.disable()
    try:
        from . import serve
    finally:
        gc.freeze()
        gc.enable()
        if hidden:
            del sys.modules["hypothesis"]
    return serve.run(options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default the process's own.

    :returns: the exit status
    """
    parser = _parser()
    try:
        options: Any = parser.parse_args(arguments)
    except SystemExit as end:  # argparse has said what there is to say
        return int(end.code or 0)
    try:
        return _serve(options)
    except Failure as failure:
        print(f"headrace {options.command}: {failure}", file=sys.stderr)
        return failure.status
    except KeyboardInterrupt:  # before the command could take care of it
        return 130
