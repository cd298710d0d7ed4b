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
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from textwrap import fill
from typing import Any, TypeVar

from .client_options import call_options, on_cluster
from .options import Declaration
from .output import Output, output_option

F = TypeVar("F", bound=Callable[..., Awaitable[object]])
Execute = Callable[[Namespace], int | None]
_CALL_OPTIONS = ("bootstrap_server", "command_config", "context", "timeout")


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of a noun, or a command without verbs.

    :param summary: what it does, for the help
    :param examples: command lines, one a line
    :param execute: takes the options; returns the exit status, None for 0
    """

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


def command(summary: str, *declarations: Declaration, examples: str) -> Callable[[Execute], Verb]:
    """Decorate ``function(options) -> int | None``, which becomes a command without verbs."""
    return lambda function: Verb(summary, declarations, examples, function)


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
            @wraps(function)
            def execute(options: Namespace) -> None:
                values = {**vars(options)}
                output = values.pop("make_output", Output)(
                    values.pop("output"),
                    dry_run=values.pop("dry_run", False),
                    yes=values.pop("yes", False),
                )
                for name in _CALL_OPTIONS:
                    del values[name]
                on_cluster(options, lambda cluster: function(cluster, output, **values))

            with_calls = (*declarations, output_option, call_options)
            self.verbs[name] = Verb(summary, with_calls, examples, execute)
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
