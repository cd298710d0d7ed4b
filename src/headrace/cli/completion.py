"""``headrace completion``: print a script that completes commands and options in a shell."""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator
from typing import NamedTuple

from .commands import COMMANDS, Command, load
from .nouns import Noun

SHELLS = ("bash", "zsh", "fish")


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = (
        "Print a completion script. bash: source <(headrace completion bash); zsh: source "
        "<(headrace completion zsh); fish: headrace completion fish | source."
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")


class Words(NamedTuple):
    """The words that complete a command.

    :param summary: what the command does
    :param options: option → help
    :param values: option → its choices, and the actions under ""
    """

    summary: str
    options: dict[str, str]
    values: dict[str, tuple[str, ...]]


def run(options: Namespace) -> int:
    """Execute the command.

    :returns: the exit status
    """
    commands = dict(_commands())
    script = _fish(commands) if options.shell == "fish" else _bash(commands)
    if options.shell == "zsh":
        script = "autoload -U +X bashcompinit && bashcompinit\n" + script
    sys.stdout.write(script)
    return 0


def _commands() -> Iterator[tuple[str, Words]]:
    for name in COMMANDS:
        command = load(name)
        if isinstance(command, Noun):
            for word, verb in command.verbs.items():
                yield f"{name} {word}", _words(verb, verb.summary)
        else:
            yield name, _words(command, COMMANDS[name].summary)


def _words(command: Command, summary: str) -> Words:
    parser = ArgumentParser()
    command.declare(parser)
    words = Words(summary, {}, {"": ()})
    for action in parser._actions:
        if action.help is SUPPRESS:
            continue
        for option in action.option_strings:
            words.options[option] = str(action.help or "").partition(" (default")[0]
            if action.choices is not None:
                words.values[option] = tuple(map(str, action.choices))
        if not action.option_strings and action.choices is not None:
            words.values[""] = tuple(map(str, action.choices))
    return words


def _bash(commands: dict[str, Words]) -> str:
    """Return a script for bash: tables of words, and a function that looks them up."""
    firsts = " ".join(dict.fromkeys(name.split()[0] for name in commands))
    families = sorted({name.split()[0] for name in commands if " " in name})
    lines = [
        "_headrace() {",
        "  local cur prev command options values",
        "  cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} COMPREPLY=()",
        "  command=${COMP_WORDS[1]}",
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f'    COMPREPLY=($(compgen -W "{firsts}" -- "$cur")); return',
        "  fi",
    ]
    for family in families:
        seconds = " ".join(name.split()[1] for name in commands if name.startswith(f"{family} "))
        lines += [
            f'  if [ "$command" = {family} ]; then',
            '    if [ "$COMP_CWORD" -eq 2 ]; then',
            f'      COMPREPLY=($(compgen -W "{seconds}" -- "$cur")); return',
            "    fi",
            '    command="$command ${COMP_WORDS[2]}"',
            "  fi",
        ]
    lines.append('  case "$command $prev" in')
    for name, words in commands.items():
        for option, choices in words.values.items():
            if option:
                lines.append(f'    "{name} {option}") values="{" ".join(choices)}" ;;')
    lines += ["  esac", '  case "$command" in']
    for name, words in commands.items():
        offered = " ".join([*words.values[""], *words.options])
        lines.append(f'    "{name}") options="{offered}" ;;')
    return "\n".join(
        [
            *lines,
            "  esac",
            '  if [ -n "$values" ]; then COMPREPLY=($(compgen -W "$values" -- "$cur"))',
            '  else COMPREPLY=($(compgen -W "$options" -- "$cur")); fi',
            "}",
            "complete -o default -F _headrace headrace",
            "",
        ]
    )


def _fish(commands: dict[str, Words]) -> str:
    lines = ["complete -c headrace -f -n __fish_use_subcommand"]
    firsts: dict[str, str] = {}
    for name in commands:
        first = name.partition(" ")[0]
        firsts[first] = COMMANDS[first].summary if first in COMMANDS else ""
    for first, summary in firsts.items():
        described = _described(summary)
        lines.append(f"complete -c headrace -n __fish_use_subcommand -a {first} {described}")
    for name, words in commands.items():
        first, _, second = name.partition(" ")
        seen = f"__fish_seen_subcommand_from {first}"
        if second:
            unseen = f"{seen}; and not __fish_seen_subcommand_from {second}"
            described = _described(words.summary)
            lines.append(f"complete -c headrace -f -n '{unseen}' -a {second} {described}")
            seen += f"; and __fish_seen_subcommand_from {second}"
        lines += _fish_options(seen, words)
    return "\n".join([*lines, ""])


def _fish_options(seen: str, words: Words) -> Iterator[str]:
    if words.values[""]:
        yield f"complete -c headrace -n '{seen}' -a '{' '.join(words.values[''])}'"
    for option, meaning in words.options.items():
        kind = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
        choices = words.values.get(option)
        more = f"-x -a '{' '.join(choices)}'" if choices else ""
        yield f"complete -c headrace -n '{seen}' {kind} {more} {_described(meaning)}"


def _described(meaning: str) -> str:
    text = meaning.replace("\\", "\\\\").replace("'", "\\'").replace("%%", "%")
    return f"-d '{text}'" if text else ""
