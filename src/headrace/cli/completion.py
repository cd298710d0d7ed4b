"""``headrace completion``: scripts that let bash, zsh and fish complete commands.

A script is a few lines. It asks ``headrace completion words`` for what may stand at the cursor.
"""

from __future__ import annotations

import os
import re
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterable

from .client_options import call_options, on_cluster
from .clients import Cluster, configs, groups
from .commands import COMMANDS, load
from .contexts import read_contexts
from .nouns import Verb, command
from .options import arg

_TIMEOUT_S = "1"
_BASH = """\
_headrace() {
  local line="${COMP_LINE:0:$COMP_POINT}"
  COMPREPLY=($(HEADRACE_LINE="$line" headrace completion words 2> /dev/null))
}
complete -o default -F _headrace headrace
"""
_FISH = """\
complete -c headrace -a '(HEADRACE_LINE=(commandline -cp) headrace completion words 2> /dev/null)'
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
def run(options: Namespace) -> None:
    """Print the script."""
    if options.shell in _SCRIPTS:
        print(_SCRIPTS[options.shell], end="")
        return
    *before, typed = os.environ.get("HEADRACE_LINE", "").split(" ")
    for word in _words(list(filter(None, before[1:]))):
        if word.startswith(typed):
            print(word)


def _words(before: list[str]) -> list[str]:
    """Return the words that may follow those of a command."""
    if not before:
        return list(COMMANDS)
    name, second = (*before, "")[:2]
    if name not in COMMANDS:
        return []
    verb = load(name)
    if not isinstance(verb, Verb):
        if second not in verb.verbs:
            return list(verb.verbs)
        verb = verb.verbs[second]
    return _arguments(verb, before)


def _arguments(verb: Verb, before: list[str]) -> list[str]:
    """Return what the option that the words end with may have, or all options and arguments."""
    parser = ArgumentParser()
    verb.declare(parser)
    offered: list[str] = []
    for action in parser._actions:
        values = list(map(str, action.choices or ())) or _names(str(action.metavar), before)
        if before[-1] in action.option_strings and values:
            return values
        if action.help is not SUPPRESS:
            offered += action.option_strings or values
    return offered


def _names(metavar: str, before: list[str]) -> list[str]:
    """Return the names of what an argument stands for; none if the cluster does not answer at once.

    Only those that a shell takes as they are: whoever names a group chooses any characters.
    """

    async def ask(cluster: Cluster) -> Iterable[str]:
        if metavar in ("TOPIC", "QUEUE"):
            return await cluster.all_topics()
        if metavar == "GROUP":
            return [group.group_id for group in (await groups.list_groups(cluster)).groups]
        kind, name = ("group", before[2]) if before[0] == "groups" else before[2:4]
        config_type = configs.ConfigType[kind.upper().replace("-", "_")]
        (answer,) = (await configs.describe_configs(cluster, config_type, [name])).values()
        return [] if isinstance(answer, Exception) else [config.name for config in answer]

    if metavar == "NAME" and before[0] == "configs":
        metavar = "".join(before[2:3]).upper()  # TOPIC, GROUP, or nothing that is known
    if metavar not in ("TOPIC", "QUEUE", "GROUP", "CONFIG", "CONFIG=VALUE", "CONTEXT"):
        return []
    try:
        if metavar == "CONTEXT":
            names: Iterable[str] = read_contexts().named
        else:
            parser = ArgumentParser(add_help=False, exit_on_error=False)
            call_options(parser)
            options, _ = parser.parse_known_args([*before, "--timeout", _TIMEOUT_S])
            names = on_cluster(options, ask)
    except (Exception, SystemExit):  # there is nobody to tell
        return []
    return [name for name in names if re.fullmatch(r"[\w.-]+", name, re.ASCII)]
