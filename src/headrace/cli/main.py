"""The command ``headrace``: parse the command line and call the module of the subcommand.

Exit status: 0; 1 for a failure; 2 for bad usage. Both print one line on stderr.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from headrace import __version__
from headrace.imports import never_collected
from headrace.patterns import meant

from .commands import COMMANDS, SECTIONS, load
from .errors import BadUsage, Failure, as_failure, one_line_error
from .tables import one_line, tell

if TYPE_CHECKING:
    from .nouns import Verb

_HELP = ("-h", "--help")


class _Parser(ArgumentParser):
    """An argument parser that reports an error on one line, and takes ``-1h`` for a value."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog=prog)
        self._negative_number_matcher = re.compile(r"^-\.?\d")
        self.add_argument("--version", action="version", version=f"headrace {__version__}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Leave names after ``--`` to the second pass of ``parse_intermixed_args``, which has a
        namespace: the first one would drop the ``--``.
        """
        end = len(args) if namespace or "--" not in args else args.index("--")
        options, extras = super().parse_known_args(args[:end], namespace)
        return options, [*extras, *args[end:]]

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")


def command_of(words: Sequence[str]) -> tuple[str, Verb, Sequence[str]]:
    """Return the name of the command that a command line names, the command, and its arguments.

    :raises BadUsage: it names none
    :raises SystemExit: a help was printed
    """
    first, second = (*words[:2], "", "")[:2]
    if first not in COMMANDS:
        _explain("", first, COMMANDS)
    from .nouns import Verb  # not for a help, nor for bad usage: it imports the options

    with never_collected():
        noun = load(first)
    if isinstance(noun, Verb):
        return first, noun, words[1:]
    is_option = not second or second.startswith("-")
    is_no_verb = is_option or (second not in noun.verbs and not meant(second, noun.verbs))
    if noun.default and is_no_verb and second not in _HELP:
        second, words = noun.default, [first, noun.default, *words[1:]]
    if second not in noun.verbs:
        _explain(first, second, {name: verb.summary for name, verb in noun.verbs.items()})
    return f"{first} {second}", noun.verbs[second], words[2:]


def _explain(first: str, word: str, names: Mapping[str, str]) -> NoReturn:
    """Print the help of a noun or of ``headrace``, or reject a word.

    :param first: the noun; empty for ``headrace``
    :param word: the word that should be a verb or a command, or an option
    :param names: the verbs or commands → what they do
    """
    prog, kind = f"headrace {first}".rstrip(), "verb" if first else "command"
    if not word or word.startswith("-"):
        parser = _Parser(prog)
        parser.usage = f"{prog} {kind.upper()} [options]"
        parser.formatter_class = RawDescriptionHelpFormatter
        if first:
            summary = COMMANDS[first]
            parser.description = f"{summary[0].upper()}{summary[1:]}."
        else:
            parser.description = "Work queues and visible progress for Kafka-protocol streams."
        sections = {"verbs": names} if first else SECTIONS
        width = max(map(len, names)) + 2
        parser.epilog = "\n\n".join(
            "\n".join([f"{title}:", *(f"  {name:{width}}{names[name]}" for name in some)])
            for title, some in sections.items()
        )
        parser.parse_args([word or "--help"])
        parser.error(f"{word} stands before the {kind}")
    subject = f"{first} has no verb" if first else "no command"
    hint = meant(word, names) or f"it is one of {', '.join(names)}"
    raise BadUsage(f"{subject} '{word}': {hint}")


def parsed(name: str, command: Verb, arguments: Sequence[str]) -> Namespace:
    """Return the options of a command.

    :param arguments: the words after the command's name
    :raises SystemExit: they are wrong; a message is on stderr
    """
    parser = _Parser(f"headrace {name}")
    command.declare(parser)
    options = parser.parse_intermixed_args(arguments)
    for word in arguments:
        is_utf8 = word.encode(errors="ignore").decode() == word
        if not is_utf8 and not os.path.lexists(word):
            parser.error(f"{word!a} is not UTF-8")  # librdkafka would crash
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    :param arguments: the words after ``headrace``; None for those of this process
    :returns: the exit status
    """
    if arguments is None:
        os.umask(0o077)  # files of commands have records, or what was done with them
        _open_streams()
    prog = "headrace"
    try:
        name, command, words = command_of(sys.argv[1:] if arguments is None else list(arguments))
        prog = f"headrace {name}"
        status = command.execute(parsed(name, command, words)) or 0
        sys.stdout.flush()
        return status
    except SystemExit as end:  # argparse has printed its message
        return int(end.code or 0)
    except BrokenPipeError:  # the reader of the output has ended, such as `head`
        _drop_output()
        return 1
    except OSError as error:  # such as a full disk
        _drop_output()
        tell(f"{prog}: {one_line_error(error)}")
        return 1
    except KeyboardInterrupt:  # before the command handled the signal
        return 130
    except Exception as error:
        failure = error if isinstance(error, Failure) else as_failure(error)
        if failure is None:
            raise
        tell(f"{prog}: {failure}")
        return failure.status


def _open_streams() -> None:
    """Open the standard streams that the caller has closed, as empty ones."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def _drop_output() -> None:
    """Drop what is left of the output, which Python would write at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
