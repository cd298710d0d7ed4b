"""``headrace completion``: scripts that let bash, zsh and fish complete commands.

A script is a few lines. It asks ``headrace completion words`` for what may stand at the cursor.
"""

from __future__ import annotations

import os
from argparse import SUPPRESS, ArgumentParser, Namespace

from .commands import COMMANDS, Command, load
from .nouns import Noun

_BASH = """\
_headrace() {
  local line="${COMP_LINE:0:$COMP_POINT}"
  COMPREPLY=($(HEADRACE_LINE="$line" headrace completion words))
}
complete -o default -F _headrace headrace
"""
_FISH = """\
complete -c headrace -a '(HEADRACE_LINE=(commandline -cp) headrace completion words)'
"""
_SCRIPTS = {
    "bash": _BASH,
    "zsh": "autoload -U +X bashcompinit && bashcompinit\n" + _BASH,
    "fish": _FISH,
}


def declare(parser: ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.description = (
        "Print a completion script. bash: source <(headrace completion bash); zsh: "
        "source <(headrace completion zsh); fish: headrace completion fish | source."
    )
    parser.add_argument(
        "shell",
        choices=(*_SCRIPTS, "words"),
        help="the shell; words: what may stand at the end of HEADRACE_LINE",
    )


def run(options: Namespace) -> int:
    """Print the script.

    :returns: the exit status
    """
    if options.shell in _SCRIPTS:
        print(_SCRIPTS[options.shell], end="")
        return 0
    *before, typed = os.environ.get("HEADRACE_LINE", "").split(" ")
    for word in _words(list(filter(None, before[1:]))):
        if word.startswith(typed):
            print(word)
    return 0


def _words(before: list[str]) -> list[str]:
    """Return the words that may follow those of a command."""
    firsts = dict.fromkeys(name.partition(" ")[0] for name in COMMANDS)
    if not before:
        return list(firsts)
    first, second = (*before, "")[:2]
    name = first if first in COMMANDS else f"{first} {second}"
    if name not in COMMANDS:
        return [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{first} ")]
    command = load(name)
    if isinstance(command, Noun):
        if second not in command.verbs:
            return list(command.verbs)
        command = command.verbs[second]
    return _arguments(command, before)


def _arguments(command: Command, before: list[str]) -> list[str]:
    """Return the choices of the option that the words end with, or all options and choices."""
    parser = ArgumentParser()
    command.declare(parser)
    offered: list[str] = []
    for action in parser._actions:
        choices = list(map(str, action.choices or ()))
        if before[-1] in action.option_strings and choices:
            return choices
        if action.help is not SUPPRESS:
            offered += action.option_strings or choices
    return offered
