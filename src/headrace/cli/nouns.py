"""Commands of two words: a noun such as ``groups``, and its verbs, each with its own help.

A verb is declared beside the function that runs it, which gets the values of its options as
keyword arguments::

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
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.imports import without_hypothesis

from .client_options import call_options
from .output import Output, output_option

if TYPE_CHECKING:
    from argparse import _ActionsContainer

F = TypeVar("F", bound=Callable[..., object])
Declaration = Callable[[Any], object]
"""Adds arguments to a parser, or to a group of one."""
_CALL_OPTIONS = ("bootstrap_server", "command_config", "timeout", "output")


def arg(*names: str, **settings: Any) -> Declaration:
    """Return the declaration of one argument; the parameters are those of ``add_argument``."""
    return lambda parser: parser.add_argument(*names, **settings)


def switch(name: str, help_text: str) -> Declaration:
    """Return the declaration of an option without a value: True if it is given."""
    return arg(name, action="store_true", help=help_text)


def one_of(*declarations: Declaration, required: bool = False) -> Declaration:
    """Return the declaration of arguments that exclude each other."""

    def declare(parser: _ActionsContainer) -> None:
        group = parser.add_mutually_exclusive_group(required=required)
        for declaration in declarations:
            declaration(group)

    return declare


DRY_RUN = switch("--dry-run", "print what would be changed, and change nothing")
YES = switch("--yes", "do not ask")


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of a noun; it has the interface of a command's module.

    :param summary: what it does, for the help
    :param examples: command lines, one a line
    :param function: what runs; see :class:`Noun`
    :param execute: takes the values of the options; returns the exit status, None for 0
    """

    function: Callable[..., object]
    summary: str
    declarations: Sequence[Declaration]
    examples: str
    execute: Callable[[dict[str, Any]], int | None]

    def declare(self, parser: ArgumentParser) -> None:
        """Add the verb's options and its help."""
        parser.description = f"{self.summary[0].upper()}{self.summary[1:]}."
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.epilog = "examples:\n  " + self.examples.strip().replace("\n", "\n  ")
        for declaration in self.declarations:
            declaration(parser)

    def run(self, options: Namespace) -> int:
        """Execute the verb.

        :returns: the exit status
        """
        return self.execute(dict(vars(options))) or 0


class Noun:
    """A command with verbs."""

    def __init__(self) -> None:
        self.verbs: dict[str, Verb] = {}

    def verb(
        self, name: str, summary: str, *declarations: Declaration, examples: str
    ) -> Callable[[F], F]:
        """Decorate ``function(*, option, …) -> int | None``."""

        def add(function: F) -> F:
            def execute(values: dict[str, Any]) -> int | None:
                status = function(**values)
                return status if isinstance(status, int) else None

            self.verbs[name] = Verb(function, summary, declarations, examples, execute)
            return function

        return add

    def cluster_verb(
        self, name: str, summary: str, *declarations: Declaration, examples: str
    ) -> Callable[[F], F]:
        """Decorate ``async function(cluster, output, *, option, …)``, which asks a cluster.

        The options of the connection and of the output are declared, too.
        """

        def add(function: F) -> F:
            def execute(values: dict[str, Any]) -> None:
                call = Namespace(**{key: values.pop(key) for key in _CALL_OPTIONS})
                from .cluster_run import on_cluster

                def work(cluster: object) -> Awaitable[object]:
                    awaitable: Any = function(cluster, Output(call.output), **values)
                    return awaitable

                on_cluster(call, work)

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
        with without_hypothesis():
            return getattr(import_module(self._name), attribute)
