"""The SCRAM users of a broker: rows of the catalog's ``configs``."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.security.scram import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    SALT_BYTES,
    Credential,
    Mechanism,
    make_credential,
    salt_password,
)
from headrace.topics.catalog import Catalog

SCRAM = "scram"
"""The kind of the rows: user name, mechanism, Kafka's text of a credential."""

_MADE_UP = {
    mechanism: Credential(bytes(SALT_BYTES), key, key, MIN_ITERATIONS).text()
    for mechanism in MECHANISMS.values()
    for key in (mechanism.digest(b""),)
}
"""The texts of credentials that nobody has."""
_NEW_USER = re.compile(r"(?P<mechanism>[A-Za-z0-9-]+)=\[(?P<fields>.*)\]", re.DOTALL)
_BETWEEN_FIELDS = re.compile(r",(?=\s*(?:name|password|iterations)=)", re.ASCII)
"""A comma in front of a known name. Others are of a password."""


class InvalidUser(ValueError):
    """A user that cannot be added. The message has no password."""


@dataclass(frozen=True, slots=True)
class NewUser:
    """A user to add when a broker starts."""

    name: str
    password: str = field(repr=False)
    mechanism: Mechanism = MECHANISMS["SCRAM-SHA-512"]
    iterations: int = MIN_ITERATIONS

    @classmethod
    def parse(cls, text: str) -> NewUser:
        """Parse ``SCRAM-SHA-512=[name=NAME,password=PASSWORD,iterations=N]``, as Kafka's storage
        tool does. A password may have commas.

        :raises InvalidUser: when it is something else
        """
        match = _NEW_USER.fullmatch(text.strip())
        mechanism = None if match is None else MECHANISMS.get(match["mechanism"].upper())
        if match is None or mechanism is None:
            raise InvalidUser(
                f"expected MECHANISM=[name=NAME,password=PASSWORD], with {' or '.join(MECHANISMS)}"
            )
        pairs = (part.partition("=") for part in _BETWEEN_FIELDS.split(match["fields"]))
        fields = {name.strip(): value for name, _, value in pairs}
        iterations = fields.get("iterations", str(MIN_ITERATIONS))
        if not fields.get("name") or not fields.get("password"):
            raise InvalidUser("a user needs name and password")
        if not iterations.isdecimal() or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise InvalidUser(f"iterations are from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
        return cls(fields["name"], fields["password"], mechanism, int(iterations))


def add_users(catalog: Catalog, users: Iterable[NewUser]) -> list[str]:
    """Add users, except those that have a credential for the mechanism already; return the names of
    those that were added. This takes milliseconds for each.

    :raises CatalogError: when the database fails
    """
    added = []
    for user in users:
        if find_credential(catalog, user.mechanism, user.name) is not None:
            continue
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salt_password(user.mechanism, user.password, salt, user.iterations)
        credential = make_credential(user.mechanism, salted, salt, user.iterations)
        store(catalog, {user.name: (user.mechanism, credential)})
        added.append(user.name)
    return added


def find_credential(catalog: Catalog, mechanism: Mechanism, name: str) -> Credential | None:
    """Return the credential of a user; None for an unknown one, which takes as long."""
    text = catalog.configs(SCRAM, name).get(mechanism.name)
    credential = Credential.parse(text or _MADE_UP[mechanism])
    return None if text is None else credential


def users_by_iterations(catalog: Catalog, mechanism: Mechanism) -> Mapping[int, int]:
    """Return the number of users by the iterations of their credentials."""
    texts = (catalog.configs(SCRAM, name).get(mechanism.name) for name in catalog.configured(SCRAM))
    return Counter(int(text.rpartition("=")[2]) for text in texts if text is not None)


def credentials_of(catalog: Catalog, name: str) -> Mapping[Mechanism, Credential]:
    """Return all credentials of a user by mechanism; empty for an unknown user."""
    stored = catalog.configs(SCRAM, name)
    return {
        mechanism: Credential.parse(stored[mechanism.name])
        for mechanism in MECHANISMS.values()
        if mechanism.name in stored
    }


def store(catalog: Catalog, changes: Mapping[str, tuple[Mechanism, Credential | None]]) -> None:
    """Store a credential of each of some users in one transaction.

    :param changes: the mechanism and the credential by user name; None deletes it
    :raises CatalogError: when the database fails; then nothing has changed
    """
    if changes:
        catalog.alter_configs(
            {
                (SCRAM, name): {mechanism.name: None if credential is None else credential.text()}
                for name, (mechanism, credential) in changes.items()
            }
        )
