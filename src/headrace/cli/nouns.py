"""Commands: nouns such as ``groups`` with verbs, each with its own help, and commands of one word.

A command is declared beside the function that runs it::

    @command("verify all batches", arg("--topic"), examples="headrace verify")
    def run(options: Namespace) -> int: ...

So is a verb; that of a cluster gets the values of its options as keyword arguments::

    NOUN = Noun()

    @NOUN.cluster_verb(
        "list", "list topics", arg("patterns", nargs="*"), examples="headrace topics list"
    )
    async def list_topics(cluster: Cluster, output: Output, patterns: Sequence[str]) -> None: ...
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from textwrap import fill
from typing import Any, TypeVar

from headrace.positions import position
from headrace.times import duration_ms, time_ms

from .client_options import call_options, on_cluster
from .options import (
    DEFAULT_DATA_DIR,
    Address,
    page_address,
    pattern,
    positive_number,
    positive_seconds,
    setting,
)
from .output import Output, output_option

F = TypeVar("F", bound=Callable[..., object])
Execute = Callable[[Namespace], int | None]
Declaration = Callable[[Any], object]
"""Adds arguments to a parser, or to a group of one."""
_CALL_OPTIONS = (
    *("bootstrap_server", "command_config", "context", "timeout"),
    *("output", "make_output", "dry_run", "yes"),
)


_TYPES: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys(("FILE", "DIR", "BACKUP"), Path),
    **dict.fromkeys(("KEY=VALUE", "NAME=VALUE", "CONFIG=VALUE"), setting),
    "N": positive_number,
    "SECONDS": positive_seconds,
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
    """Return the declaration of an option that takes seconds above 0."""
    return arg(name, "SECONDS", f"{help_text} (default: {default:g})", default=default)


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


DRY_RUN = switch("--dry-run", "print what would be changed, and change nothing")
YES = switch("--yes", "do not ask")


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of a noun, or a command without verbs.

    :param summary: what it does, for the help
    :param examples: command lines, one a line
    :param function: what runs; see :class:`Noun`
    :param execute: takes the options; returns the exit status, None for 0
    """

    function: Callable[..., object]
    summary: str
    declarations: Sequence[Declaration]
    examples: str
    execute: Execute

    def declare(self, parser: ArgumentParser) -> None:
        """Add the verb's options and its help."""
        parser.description = fill(f"{self.summary[0].upper()}{self.summary[1:]}.")
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.epilog = "examples:\n  " + self.examples.strip().replace("\n", "\n  ")
        for declaration in self.declarations:
            declaration(parser)

    def run(self, options: Namespace) -> int:
        """Execute the verb.

        :returns: the exit status
        """
        return self.execute(options) or 0


def command(summary: str, *declarations: Declaration, examples: str) -> Callable[[Execute], Verb]:
    """Decorate ``function(options) -> int | None``, which becomes a command without verbs."""
    return lambda function: Verb(function, summary, declarations, examples, function)


class Noun:
    """A command with verbs.

    :param default: the verb of a command line that names none
    """

    def __init__(self, default: str | None = None, **verbs: Verb) -> None:
        self.default = default
        self.verbs = verbs

    def verb(
        self, name: str, summary: str, *declarations: Declaration, examples: str
    ) -> Callable[[Execute], Execute]:
        """Decorate ``function(options) -> int | None``."""

        def add(function: Execute) -> Execute:
            self.verbs[name] = command(summary, *declarations, examples=examples)(function)
            return function

        return add

    def cluster_verb(
        self, name: str, summary: str, *declarations: Declaration, examples: str
    ) -> Callable[[F], F]:
        """Decorate ``async function(cluster, output, *, option, …)``, which asks a cluster.

        The options of the connection and of the output are declared, too. The output knows
        :data:`DRY_RUN` and :data:`YES`, if they are.
        """

        def add(function: F) -> F:
            def execute(options: Namespace) -> None:
                values = {
                    name: value
                    for name, value in vars(options).items()
                    if name not in _CALL_OPTIONS
                }

                output = getattr(options, "make_output", Output)(
                    options.output,
                    dry_run=getattr(options, "dry_run", False),
                    yes=getattr(options, "yes", False),
                )

                def work(cluster: object) -> Awaitable[object]:
                    awaitable: Any = function(cluster, output, **values)
                    return awaitable

                on_cluster(options, work)

            with_calls = (*declarations, output_option, call_options)
            self.verbs[name] = Verb(function, summary, with_calls, examples, execute)
            return function

        return add


class Lazy:
    """A module that is imported when an attribute of it is used.

    Clients take 0.2 s to import, which a help and bad usage should not take. Use it as
    ``else`` of an ``if TYPE_CHECKING`` that imports the module.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
