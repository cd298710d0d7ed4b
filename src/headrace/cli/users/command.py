"""``headrace users``: list, add and delete the users of SCRAM (KIP-554)."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter

from headrace.cli.errors import BadUsage
from headrace.cli.groups.options import checked, chosen_words, common_options
from headrace.cli.options import file_option
from headrace.cli.secret_files import secret_file
from headrace.security.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS

ACTIONS = ("list", "add", "delete")
DEFAULT_MECHANISM = "SCRAM-SHA-512"
_EPILOG = """\
examples:
  headrace users list --command-config admin.properties
  headrace users add alice --command-config admin.properties
  headrace users add alice --password-file secret.txt --mechanism SCRAM-SHA-256
  headrace users delete alice --command-config admin.properties

add asks for the password, or reads the first line of its input. It also changes a password.
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "List, add and delete the users that log in with SCRAM."
    parser.usage = "%(prog)s ACTION [USER …] [options]"
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    common_options(parser, ACTIONS, metavar="ACTION USER")
    parser.add_argument(
        "--mechanism",
        choices=tuple(MECHANISMS),
        help=(
            f"with add: {DEFAULT_MECHANISM} by default; with delete: all mechanisms of the user by "
            "default"
        ),
    )
    parser.add_argument(
        "--iterations",
        type=int,
        default=MIN_ITERATIONS,
        metavar="N",
        help=f"with add: {MIN_ITERATIONS} to {MAX_ITERATIONS} (default: {MIN_ITERATIONS})",
    )
    file_option(parser, "--password-file", "with add: a file whose first line is the password")


def check(options: Namespace) -> None:
    """Check the options together, and set ``options.action`` and ``options.users``.

    :raises BadUsage: they contradict each other
    """
    options.users = users = chosen_words(options, ACTIONS)
    if options.action == "add" and len(users) != 1:
        raise BadUsage("add needs one user")
    if options.action == "add":
        options.mechanism = options.mechanism or DEFAULT_MECHANISM
    if options.action == "delete" and not users:
        raise BadUsage("delete needs a user")
    if len(set(users)) < len(users) or "" in users:
        raise BadUsage("give the name of each user once")
    if not MIN_ITERATIONS <= options.iterations <= MAX_ITERATIONS:
        raise BadUsage(f"--iterations is from {MIN_ITERATIONS} to {MAX_ITERATIONS}")


def _prepare(options: Namespace) -> None:
    check(options)
    if options.action == "add":
        options.password = _password(options)


run = checked(_prepare, "headrace.cli.users.actions")


def _password(options: Namespace) -> str:
    if options.password_file is not None:
        try:
            text = secret_file(options.password_file).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise BadUsage(f"cannot read {options.password_file}: {error}") from error
        password: str = text.split("\n", 1)[0].rstrip("\r")
    elif sys.stdin.isatty():
        password = getpass.getpass(f"password of {options.users[0]}: ")
        if password != getpass.getpass("the same again: "):
            raise BadUsage("the passwords differ")
    else:
        try:
            password = sys.stdin.readline().rstrip("\r\n")
            password.encode()
        except UnicodeError:
            raise BadUsage("the password is not UTF-8") from None
    if not password:
        raise BadUsage("the password is empty")
    return password
