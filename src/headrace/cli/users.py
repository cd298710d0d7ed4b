"""``headrace users``: list, add and delete the users of SCRAM (KIP-554)."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.protocol.errors import ErrorCode
from headrace.security.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS

from .clients import Cluster, errors, security
from .errors import BadUsage, one_line_error
from .nouns import Noun
from .options import DRY_RUN, YES, arg, number_up_to
from .output import Output, interruptible
from .secret_files import secret_file

NOUN = Noun()
_DEFAULT_MECHANISM = "SCRAM-SHA-512"


@NOUN.cluster_verb(
    "list",
    "list users with their mechanisms",
    arg("names", "USER", "users (default: all)", nargs="*"),
    examples="headrace users list --command-config admin.properties",
)
async def list_users(cluster: Cluster, output: Output, *, names: Sequence[str]) -> None:
    """Print users, with the mechanisms and iterations of their credentials.

    :raises Failure: some do not exist
    """
    credentials, problems = await _credentials(cluster, names)
    output.rows(
        [
            {
                "user": name,
                "mechanism": _mechanism(credential.mechanism),
                "iteration_count": credential.iterations,
            }
            for name in sorted(credentials)
            for credential in credentials[name]
        ],
        nothing="there are no users",
        problems=problems,
    )


async def _credentials(
    cluster: Cluster, names: Sequence[str]
) -> tuple[dict[str, tuple[security.ScramCredential, ...]], list[str]]:
    """Return the credentials of users, and problems with some of them."""
    credentials, problems = {}, []
    for name, answer in (await security.describe_users(cluster, dict.fromkeys(names))).items():
        if not isinstance(answer, errors.ClientError):
            credentials[name] = answer
        elif errors.has_code(answer, ErrorCode.RESOURCE_NOT_FOUND):
            problems.append(f"user '{name}' does not exist")
        else:
            problems.append(str(answer))
    return credentials, problems


def _mechanism(number: int) -> str:
    return {code: name for name, code in security.MECHANISMS.items()}.get(number, f"{number}")


@NOUN.cluster_verb(
    "add",
    "add a user, or change its password: asks for it, or reads the first line of its input",
    arg("name", "USER", "name of the user"),
    arg(
        "--mechanism",
        choices=tuple(MECHANISMS),
        default=_DEFAULT_MECHANISM,
        help=f"(default: {_DEFAULT_MECHANISM})",
    ),
    arg(
        "--iterations",
        "N",
        f"{MIN_ITERATIONS} to {MAX_ITERATIONS} (default: {MIN_ITERATIONS})",
        type=number_up_to(MAX_ITERATIONS),
        default=MIN_ITERATIONS,
    ),
    arg("--password-file", "FILE", "a file whose first line is the password"),
    examples="headrace users add alice --command-config admin.properties\n"
    "headrace users add alice --password-file secret.txt --mechanism SCRAM-SHA-256",
)
async def add_user(
    cluster: Cluster,
    output: Output,
    *,
    name: str,
    mechanism: str,
    iterations: int,
    password_file: Path | None,
) -> None:
    """Set the password of a user.

    :raises Failure: the broker refuses
    """
    password = _password(name, password_file).encode()
    change = security.ScramUpsertion(name, security.MECHANISMS[mechanism], password, iterations)
    outcomes = await security.alter_users(cluster, [change])
    rows = [{"user": name, "mechanism": mechanism, "result": "added"}]
    output.rows(rows if outcomes[name] is None else (), problems=filter(None, outcomes.values()))


def _password(name: str, file: Path | None) -> str:
    """Return a password from a file, a terminal or the input.

    :raises BadUsage: there is none
    """
    try:
        if file is not None:
            password = secret_file(file).decode().split("\n", 1)[0].rstrip("\r")
        elif sys.stdin.isatty():
            with interruptible():
                password = getpass.getpass(f"password of {name}: ")
                if password != getpass.getpass("the same again: "):
                    raise BadUsage("the passwords differ")
        else:
            password = sys.stdin.readline().rstrip("\r\n")
            password.encode()
    except EOFError:  # Ctrl-D
        password = ""
    except UnicodeError:
        raise BadUsage("the password is not UTF-8") from None
    except OSError as error:
        raise BadUsage(f"cannot read the password: {one_line_error(error)}") from error
    if not password:
        raise BadUsage("the password is empty")
    return password


@NOUN.cluster_verb(
    "delete",
    "delete users, or only their credentials of one mechanism",
    arg("names", "USER", "users", nargs="+"),
    arg("--mechanism", choices=tuple(MECHANISMS), help="(default: all of the user)"),
    DRY_RUN,
    YES,
    examples="headrace users delete alice --command-config admin.properties",
)
async def delete_users(
    cluster: Cluster, output: Output, *, names: Sequence[str], mechanism: str | None
) -> None:
    """Delete credentials of users.

    :raises Failure: some are not deleted
    """
    credentials, problems = await _credentials(cluster, names)
    deletions = [
        security.ScramDeletion(name, credential.mechanism)
        for name, of_user in credentials.items()
        for credential in of_user
        if mechanism in (None, _mechanism(credential.mechanism))
    ]
    without = credentials.keys() - {deletion.user for deletion in deletions}
    problems += [f"user '{name}' has no credential of {mechanism}" for name in sorted(without)]

    async def execute() -> errors.Outcomes[security.ScramDeletion]:
        outcomes: errors.Outcomes[security.ScramDeletion] = {}
        for code in security.MECHANISMS.values():  # a request may change a user once
            changes = {change.user: change for change in deletions if change.mechanism == code}
            if changes:
                answers = await security.alter_users(cluster, list(changes.values()))
                outcomes |= {changes[name]: answer for name, answer in answers.items()}
        return outcomes

    await output.change(
        {
            change: {
                "user": change.user,
                "mechanism": _mechanism(change.mechanism),
                "result": "deleted",
            }
            for change in deletions
        },
        execute,
        "Delete the credentials of these users?",
        problems=problems,
    )
