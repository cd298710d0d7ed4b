"""Changes of SCRAM users: which of a request are valid (KIP-554)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headrace.errors import ErrorCode, Refusal

from .scram import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    Credential,
    Mechanism,
    make_credential,
)

MECHANISM_NUMBERS: Mapping[int, Mechanism] = {one.number: one for one in MECHANISMS.values()}
_TWICE = Refusal(
    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
)


class Deletion(NamedTuple):
    """A credential to delete.

    :ivar mechanism: its number
    """

    name: str
    mechanism: int


class Upsertion(NamedTuple):
    """A credential to create or replace.

    :ivar mechanism: its number
    """

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion({self.name!r}, {self.mechanism})"  # for logs and tracebacks

    def credential(self) -> Credential:
        """Return the credential."""
        mechanism = MECHANISM_NUMBERS[self.mechanism]
        return make_credential(mechanism, self.salted_password, self.salt, self.iterations)


Change = Deletion | Upsertion


def plan(
    changes: Sequence[Change], exists: Callable[[str, Mechanism], bool]
) -> Mapping[str, Change | Refusal]:
    """Return the valid change, or the error, of each user.

    A user with an invalid change, or with several changes, is not changed at all; errors come
    first, as in Kafka.

    :param exists: returns whether a user has a credential for a mechanism
    """
    refused: dict[str, Refusal] = {}
    planned: dict[str, Change] = {}
    for change in changes:
        if change.name in refused:
            continue
        refusal = _TWICE if change.name in planned else _check(change, exists)
        if refusal is None:
            planned[change.name] = change
        else:
            planned.pop(change.name, None)
            refused[change.name] = refusal
    return {**refused, **planned}


def _check(change: Change, exists: Callable[[str, Mechanism], bool]) -> Refusal | None:
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    mechanism = MECHANISM_NUMBERS.get(change.mechanism)
    if not change.name:
        return Refusal(unacceptable, "Username must not be empty")
    if mechanism is None:
        return Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, Deletion):
        if exists(change.name, mechanism):
            return None
        return Refusal(
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )
    if change.iterations < MIN_ITERATIONS:
        return Refusal(unacceptable, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        return Refusal(unacceptable, "Too many iterations")
    return None
