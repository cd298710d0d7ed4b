"""``headrace completion``: scripts that let bash, zsh and fish complete commands.

A script is a few lines. It asks ``headrace completion words`` for what may stand at the cursor.
"""

from __future__ import annotations

import os
from argparse import SUPPRESS, ArgumentParser, Namespace

from .commands import COMMANDS, load
from .nouns import Verb, arg, command

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


@command(
    "print a completion script. bash: source <(headrace completion bash); zsh: source <(headrace "
    "completion zsh); fish: headrace completion fish | source",
    arg(
        "shell",
        choices=(*_SCRIPTS, "words"),
        help="the shell; words: what may stand at the end of HEADRACE_LINE",
    ),
    examples="headrace completion bash",
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
    if not before:
        return list(COMMANDS)
    name, second = (*before, "")[:2]
    if name not in COMMANDS:
        return []
    noun = load(name)
    if isinstance(noun, Verb):
        return _arguments(noun, before)
    if second not in noun.verbs:
        return list(noun.verbs)
    return _arguments(noun.verbs[second], before)


def _arguments(verb: Verb, before: list[str]) -> list[str]:
    """Return the choices of the option that the words end with, or all options and choices."""
    parser = ArgumentParser()
    verb.declare(parser)
    offered: list[str] = []
    for action in parser._actions:
        choices = list(map(str, action.choices or ()))
        if before[-1] in action.option_strings and choices:
            return choices
        if action.help is not SUPPRESS:
            offered += action.option_strings or choices
    return offered
