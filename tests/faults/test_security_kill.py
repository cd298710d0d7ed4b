"""kill -9 while users, ACLs and quotas are created and deleted: each change is there as a whole or
not at all, and every acknowledged one is there.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.net.client_quotas import KIND
from headrace.net.scram_users import find_credential
from headrace.security.acls import Acl
from headrace.security.quota_entities import PRODUCE, USER
from headrace.security.scram import MECHANISMS, MIN_ITERATIONS
from headrace.topics.catalog import Catalog
from tests.support import HeadraceProcess
from tests.wire_client import Connection

pytestmark = [pytest.mark.broker, pytest.mark.slow]

CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ROUNDS, TOGETHER = int(os.environ.get("HEADRACE_TEST_KILLS", "3")), 5
READ, ALLOW, TOPIC, LITERAL = 3, 3, 2, 3
CREATE_ACLS, DELETE_ACLS, ALTER_QUOTAS, ALTER_USERS = 30, 31, 49, 51
SCRAM = MECHANISMS["SCRAM-SHA-256"]
KEY = bytes(range(32))
QUOTA = 1e9


def names(number: int) -> list[str]:
    """Return the topics, or users, of one request."""
    return [f"n-{number}-{index}" for index in range(TOGETHER)]


def check(results: Any) -> None:
    """Check the results of a request that was answered.

    :raises ValueError: when one is an error
    """
    codes = [one.error_code for one in results]
    if codes != [0] * TOGETHER:
        raise ValueError(f"a request is answered with {codes}")


def create_acls(connection: Connection, number: int) -> None:
    creations = [
        {
            "resource_type": TOPIC,
            "resource_name": name,
            "resource_pattern_type": LITERAL,
            "principal": "User:bob",
            "host": "*",
            "operation": READ,
            "permission_type": ALLOW,
        }
        for name in names(number)
    ]
    check(connection.ask(CREATE_ACLS, 3, creations=creations).results)


def delete_acls(connection: Connection, number: int) -> None:
    filters = [
        {
            "resource_type_filter": TOPIC,
            "resource_name_filter": name,
            "pattern_type_filter": LITERAL,
            "principal_filter": None,
            "host_filter": None,
            "operation": READ,
            "permission_type": ALLOW,
        }
        for name in names(number)
    ]
    check(connection.ask(DELETE_ACLS, 3, filters=filters).filter_results)


def has_acl(catalog: Catalog, name: str) -> bool:
    return Acl(TOPIC, name, LITERAL, "User:bob", "*", READ, ALLOW) in catalog.acls


def create_users(connection: Connection, number: int) -> None:
    upsertions = [
        {
            "name": name,
            "mechanism": SCRAM.number,
            "iterations": MIN_ITERATIONS,
            "salt": KEY,
            "salted_password": KEY,
        }
        for name in names(number)
    ]
    check(connection.ask(ALTER_USERS, 0, deletions=[], upsertions=upsertions).results)


def delete_users(connection: Connection, number: int) -> None:
    deletions = [{"name": name, "mechanism": SCRAM.number} for name in names(number)]
    check(connection.ask(ALTER_USERS, 0, deletions=deletions, upsertions=[]).results)


def has_user(catalog: Catalog, name: str) -> bool:
    found = find_credential(catalog, SCRAM, name)
    return found is not None and found.salt == KEY


def create_quotas(connection: Connection, number: int) -> None:
    alter_quotas(connection, number, QUOTA, remove=False)


def delete_quotas(connection: Connection, number: int) -> None:
    alter_quotas(connection, number, 0.0, remove=True)


def alter_quotas(connection: Connection, number: int, value: float, *, remove: bool) -> None:
    entries = [
        {
            "entity": [{"entity_type": USER, "entity_name": name}],
            "ops": [{"key": PRODUCE, "value": value, "remove": remove}],
        }
        for name in names(number)
    ]
    check(connection.ask(ALTER_QUOTAS, 1, entries=entries, validate_only=False).entries)


def has_quota(catalog: Catalog, name: str) -> bool:
    found = catalog.configs(KIND, json.dumps({USER: name})).get(PRODUCE)
    return found is not None and float(found) == QUOTA


class Kind(NamedTuple):
    """A kind of changes."""

    create: Callable[[Connection, int], None]
    delete: Callable[[Connection, int], None]
    has: Callable[[Catalog, str], bool]


KINDS = {
    "ACLs": Kind(create_acls, delete_acls, has_acl),
    "users": Kind(create_users, delete_users, has_user),
    "quotas": Kind(create_quotas, delete_quotas, has_quota),
}


class Ledger:
    """The requests that were answered, and the one that was not.

    :ivar unsure: the number of the request under way
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._numbers = 0
        self.there: set[int] = set()
        self.unsure = 0

    def change(self, connection: Connection) -> None:
        """Create until the connection breaks, and delete a third of that.

        :raises AssertionError: when it breaks; or OSError
        """
        while True:
            self._numbers += 1
            number = self.unsure = self._numbers
            self._kind.create(connection, number)
            self.there.add(number)
            if number % 3 == 0 and number - 1 in self.there:
                self.unsure = number - 1
                self._kind.delete(connection, self.unsure)
                self.there.discard(self.unsure)

    def compare(self, catalog: Catalog) -> None:
        """Compare with the catalog, which decides about the request under way."""
        found = {
            number: {self._kind.has(catalog, name) for name in names(number)}
            for number in range(1, self._numbers + 1)
        }
        assert all(len(one) == 1 for one in found.values()), "a part of a request"
        there = {number for number, one in found.items() if True in one}
        assert there - {self.unsure} == self.there - {self.unsure}
        self.there = there


@pytest.mark.parametrize("kind", KINDS)
def test_acknowledged_changes_survive_a_kill(tmp_path: Path, kind: str) -> None:
    rng = random.Random(7)
    ledger = Ledger(KINDS[kind])
    for _ in range(ROUNDS):
        server = HeadraceProcess(tmp_path, CONFIGS)
        server.start()
        connection = Connection(server.bootstrap_servers)
        killer = threading.Timer(rng.uniform(0.05, 0.4), server.kill)
        killer.start()
        with pytest.raises((AssertionError, OSError)):
            ledger.change(connection)
        killer.join()
        connection.close()
        catalog = Catalog(tmp_path / "headrace.db")
        ledger.compare(catalog)
        catalog.close()
    assert ledger.there
