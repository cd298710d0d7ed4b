"""The SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.protocol.api import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from headrace.security import scram
from headrace.security.scram_users import MECHANISM_NUMBERS

from .cluster import Cluster
from .errors import ClientError, check_answer, refused

SCRAM_SHA_256, SCRAM_SHA_512 = 1, 2
"""Kafka's numbers of the mechanisms."""
MECHANISMS = {mechanism.name: mechanism.number for mechanism in scram.MECHANISMS.values()}
DEFAULT_ITERATIONS = scram.MIN_ITERATIONS


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The credential of a user for one mechanism, without secrets.

    :param mechanism: a number of :data:`MECHANISMS`
    """

    mechanism: int
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A password to set. Only its salted hash is sent.

    :param mechanism: a number of :data:`MECHANISMS`
    """

    user: str
    mechanism: int
    password: bytes = field(repr=False)
    iterations: int = DEFAULT_ITERATIONS


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A credential to delete.

    :param mechanism: a number of :data:`MECHANISMS`
    """

    user: str
    mechanism: int


async def describe_users(
    cluster: Cluster, names: Iterable[str] = ()
) -> dict[str, tuple[ScramCredential, ...] | ClientError]:
    """Return the SCRAM credentials of users (DescribeUserScramCredentials).

    :param names: the users; all if it is empty
    :returns: user → credentials, or the error: RESOURCE_NOT_FOUND for a user without any
    :raises ClientError: the broker refuses the request or does not answer
    """
    needs = "DESCRIBE on the cluster"
    users = [DescribeUserScramCredentialsRequest.UserName(name) for name in names]
    response = await cluster.ask(DescribeUserScramCredentialsRequest(users or None))
    check_answer("describing users", response, needs)
    return {
        result.user: refused(f"describing user '{result.user}'", result, needs)
        or tuple(
            ScramCredential(info.mechanism, info.iterations) for info in result.credential_infos
        )
        for result in response.results
    }


async def alter_users(
    cluster: Cluster, changes: Sequence[ScramUpsertion | ScramDeletion]
) -> dict[str, ClientError | None]:
    """Set and delete SCRAM credentials (AlterUserScramCredentials).

    :returns: user → None if all changes of this user were made, or the error
    :raises ClientError: no broker answers
    """
    deletions, upsertions = [], []
    for change in changes:
        if isinstance(change, ScramDeletion):
            deletions.append(
                AlterUserScramCredentialsRequest.ScramCredentialDeletion(
                    change.user, change.mechanism
                )
            )
            continue
        salt, iterations = secrets.token_bytes(scram.SALT_BYTES), change.iterations
        salted_password = hashlib.pbkdf2_hmac(
            MECHANISM_NUMBERS[change.mechanism].hash_name, change.password, salt, iterations
        )
        upsertions.append(
            AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                change.user, change.mechanism, iterations, salt, salted_password
            )
        )
    response = await cluster.ask(AlterUserScramCredentialsRequest(deletions, upsertions))
    return {
        result.user: refused(f"altering user '{result.user}'", result, "ALTER on the cluster")
        for result in response.results
    }
