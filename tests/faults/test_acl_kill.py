"""kill -9 while ACLs are created and deleted: each change is there as a whole or not at all, and
every acknowledged one is there.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from headrace.broker.catalog import Catalog
from headrace.security.acls import Acl
from tests.support import HeadraceProcess
from tests.wire_client import Connection

pytestmark = [pytest.mark.broker, pytest.mark.slow]

CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ROUNDS, TOGETHER = 6, 5
READ, ALLOW, TOPIC, LITERAL = 3, 3, 2, 3


def names(number: int) -> list[str]:
    """Return the topics of one request."""
    return [f"t-{number}-{index}" for index in range(TOGETHER)]


def create(connection: Connection, number: int) -> None:
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
    connection.ask(30, 3, creations=creations)


def delete(connection: Connection, number: int) -> None:
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
    connection.ask(31, 3, filters=filters)


def test_acknowledged_acls_survive_a_kill(tmp_path: Path) -> None:
    rng = random.Random(7)
    created: set[int] = set()
    deleted: set[int] = set()
    number = 0
    for _ in range(ROUNDS):
        server = HeadraceProcess(tmp_path, CONFIGS)
        server.start()
        connection = Connection(server.bootstrap_servers)
        killer = threading.Timer(rng.uniform(0.05, 0.4), server.kill)
        killer.start()
        unsure: set[int] = set()
        try:
            while True:
                number += 1
                unsure = {number}
                create(connection, number)
                created.add(number)
                if number % 3 == 0:
                    unsure = {number - 1}
                    delete(connection, number - 1)
                    deleted.add(number - 1)
        except (AssertionError, ConnectionError, OSError):
            connection.close()
        killer.join()
        catalog = Catalog(tmp_path / "headrace.db")
        found = {
            one: [
                Acl(TOPIC, name, LITERAL, "User:bob", "*", READ, ALLOW) in catalog.acls
                for name in names(one)
            ]
            for one in range(1, number + 1)
        }
        catalog.close()
        assert all(len(set(there)) == 1 for there in found.values()), "a part of a request"
        here = {one for one, there in found.items() if there[0]}
        assert here - unsure == created - deleted - unsure
        created, deleted = set(here), set()
