"""Commands whose first word is an action, which Kafka's tools take as an option: ``list`` and
``--list``.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Sequence

from .errors import BadUsage


def action_options(parser: ArgumentParser, actions: Sequence[str], operands: str = "") -> None:
    """Declare the actions.

    :param operands: the word for what may follow the action, such as "TOPIC"
    """
    parser.add_argument(
        "words",
        nargs="*",
        metavar=f"ACTION {operands}".rstrip(),
        help=f"the action is one of {', '.join(actions)}",
    )
    for action in actions:
        parser.add_argument(
            f"--{action}", dest="actions", action="append_const", const=action, help=SUPPRESS
        )


def chosen_action(options: Namespace, actions: Sequence[str]) -> tuple[str, list[str]]:
    """Return the action of a command line, and the words after it.

    :raises BadUsage: there is none, or more than one
    """
    words, chosen = list(options.words), list(options.actions or ())
    if not chosen and words and words[0] in actions:
        chosen.append(words.pop(0))
    if len(chosen) != 1:
        named = ", ".join(actions)
        if not chosen and words:
            raise BadUsage(f"'{words[0]}' is not an action: {named}; see --help")
        raise BadUsage(f"Command must include exactly one action: {named}; see --help")
    return chosen[0], words
