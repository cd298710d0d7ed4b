"""ACLs on a running broker: they hold at once, for templates and sessions too, and survive a
restart; refusals are logged.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.log_lines import LIMITER
from headrace.security.acls import Acl
from headrace.topics.catalog import Catalog, CatalogError
from tests.support import wait_until
from tests.wire_client import Connection, batch

pytestmark = pytest.mark.broker

CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_bob="x" user_eve="x";'
    ),
}
OK, TOPIC_DENIED, GROUP_DENIED = 0, 29, 30
INVALID_CONFIG, INVALID_REQUEST = 40, 42
READ, WRITE, DESCRIBE, ALTER, ALTER_CONFIGS = 3, 4, 8, 7, 11
TOPIC, GROUP, CLUSTER = 2, 3, 4
DENY, ALLOW = 2, 3


class Secured:
    """A broker with an administrator and users."""

    def __init__(self, broker: headrace.Broker) -> None:
        self.broker = broker
        self.admin = Connection(broker.bootstrap_servers)
        self._open = [self.admin]

    def log_in(self, user: str = "bob") -> Connection:
        connection = Connection(self.broker.listeners["SASL_PLAINTEXT"])
        self._open.append(connection)
        assert connection.ask(17, 1, mechanism="PLAIN").error_code == OK
        assert connection.ask(36, 1, auth_bytes=f"\0{user}\0x".encode()).error_code == OK
        return connection

    def change(self, api_key: int, resource: tuple[int, str], operation: int, **more: Any) -> None:
        resource_type, name = resource
        entry = {
            "principal": "User:bob",
            "host": "*",
            "operation": operation,
            "permission_type": ALLOW,
            **more,
        }
        if api_key == 30:
            acl = {"resource_type": resource_type, "resource_name": name, **entry}
            answer = self.admin.ask(30, 3, creations=[{**acl, "resource_pattern_type": 3}])
            assert [one.error_code for one in answer.results] == [OK]
            return
        condition = {
            "resource_type_filter": resource_type,
            "resource_name_filter": name,
            "pattern_type_filter": 3,
            "principal_filter": entry["principal"],
            "host_filter": None,
            "operation": operation,
            "permission_type": entry["permission_type"],
        }
        answer = self.admin.ask(31, 3, filters=[condition])
        assert [len(one.matching_acls) for one in answer.filter_results] == [1]

    def grant(self, resource: tuple[int, str], operation: int, **more: Any) -> None:
        self.change(30, resource, operation, **more)

    def revoke(self, resource: tuple[int, str], operation: int, **more: Any) -> None:
        self.change(31, resource, operation, **more)

    def close(self) -> None:
        for connection in self._open:
            connection.close()


@pytest.fixture
def secured() -> Iterator[Secured]:
    with headrace.Broker(config=CONFIGS) as broker:
        made = Secured(broker)
        made.admin.create_topic("orders")
        yield made
        made.close()


def produce(connection: Connection) -> int:
    return connection.produce("orders", batch([b"x"]))[0]


def produce_with_template(connection: Connection) -> int:
    """Produce with version 9, of which there are templates."""
    answer = connection.ask(
        0,
        9,
        transactional_id=None,
        acks=-1,
        timeout=1000,
        topic_data=[{"name": "orders", "partition_data": [{"index": 0, "records": batch([b"x"])}]}],
    )
    ((partition,),) = (topic.partition_responses for topic in answer.responses)
    return int(partition.error_code)


def commit(connection: Connection) -> int:
    offset = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    answer = connection.ask(
        8,
        9,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": "orders", "partitions": [offset]}],
    )
    ((partition,),) = (topic.partitions for topic in answer.topics)
    return int(partition.error_code)


def test_templates_of_produce_end_with_a_change_of_acls(secured: Secured) -> None:
    bob = secured.log_in()
    assert [produce_with_template(bob) for _ in range(3)] == [TOPIC_DENIED] * 3
    secured.grant((TOPIC, "orders"), WRITE)
    assert [produce_with_template(bob) for _ in range(3)] == [OK] * 3
    secured.grant((TOPIC, "orders"), WRITE, permission_type=DENY)
    assert [produce_with_template(bob) for _ in range(3)] == [TOPIC_DENIED] * 3
    secured.revoke((TOPIC, "orders"), WRITE, permission_type=DENY)
    assert [produce_with_template(bob) for _ in range(3)] == [OK] * 3
    secured.revoke((TOPIC, "orders"), WRITE)
    assert [produce_with_template(bob) for _ in range(3)] == [TOPIC_DENIED] * 3


def test_templates_of_commits_end_with_a_change_of_acls(secured: Secured) -> None:
    bob = secured.log_in()
    secured.admin.ask(10, 3, key="g", key_type=0)
    secured.grant((TOPIC, "orders"), READ)
    assert [commit(bob) for _ in range(3)] == [GROUP_DENIED] * 3
    secured.grant((GROUP, "g"), READ)
    assert [commit(bob) for _ in range(3)] == [OK] * 3
    secured.revoke((TOPIC, "orders"), READ)
    assert [commit(bob) for _ in range(3)] == [TOPIC_DENIED] * 3
    secured.grant((TOPIC, "orders"), READ)
    secured.revoke((GROUP, "g"), READ)
    assert [commit(bob) for _ in range(3)] == [GROUP_DENIED] * 3


def test_users_on_one_broker_do_not_share_decisions(secured: Secured) -> None:
    secured.grant((TOPIC, "orders"), WRITE)
    bob, eve = secured.log_in("bob"), secured.log_in("eve")
    assert [produce(one) for one in (bob, eve, bob, eve)] == [OK, TOPIC_DENIED, OK, TOPIC_DENIED]


def test_an_unacknowledged_produce_closes_the_connection(secured: Secured) -> None:
    bob = secured.log_in()
    bob.send_message(
        0,
        9,
        transactional_id=None,
        acks=0,
        timeout=1000,
        topic_data=[{"name": "orders", "partition_data": [{"index": 0, "records": batch([b"x"])}]}],
    )
    assert bob.receive() is None


def test_a_fetch_session_ends_to_read_a_topic_that_is_revoked(secured: Secured) -> None:
    bob = secured.log_in()
    secured.grant((TOPIC, "orders"), READ)
    assert produce(secured.admin) == OK
    asked = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1000,
        "isolation_level": 0,
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
    topics = [{"topic": "orders", "partitions": [partition]}]
    first = bob.ask(1, 12, session_id=0, session_epoch=0, topics=topics, **asked)
    assert [one.error_code for topic in first.responses for one in topic.partitions] == [OK]
    secured.revoke((TOPIC, "orders"), READ)
    second = bob.ask(1, 12, session_id=first.session_id, session_epoch=1, topics=[], **asked)
    codes = [one.error_code for topic in second.responses for one in topic.partitions]
    assert codes == [TOPIC_DENIED]


def test_names_of_hidden_topics_do_not_tell_whether_they_exist(secured: Secured) -> None:
    bob = secured.log_in()
    for name in ("orders", "missing"):
        answer = bob.ask(
            3,
            9,
            topics=[{"name": name}],
            allow_auto_topic_creation=True,
            include_topic_authorized_operations=False,
            include_cluster_authorized_operations=False,
        )
        assert [(one.error_code, one.partitions) for one in answer.topics] == [(TOPIC_DENIED, ())]
    assert "missing" not in {
        one.name
        for one in secured.admin.ask(
            3,
            9,
            topics=None,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
            include_cluster_authorized_operations=False,
        ).topics
    }


def test_a_regular_expression_matches_what_the_member_may_see(secured: Secured) -> None:
    topic_id = secured.admin.create_topic("orders-2")
    secured.admin.create_topic("orders-hidden")
    secured.admin.ask(10, 3, key="g", key_type=0)
    secured.grant((GROUP, "g"), READ)
    secured.grant((TOPIC, "orders-2"), DESCRIBE)
    bob = secured.log_in()

    def heartbeat(epoch: int, regex: str | None) -> Any:
        answer = bob.ask(
            68,
            1,
            group_id="g",
            member_id="2b5f0d5c-9d40-4e4c-a1a5-5ff5a2e5d3c0",
            member_epoch=epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=60_000 if regex else -1,
            subscribed_topic_names=[] if regex else None,
            subscribed_topic_regex=regex,
            server_assignor=None,
            topic_partitions=[] if regex else None,
        )
        assert answer.error_code == OK, answer
        return answer

    joined = heartbeat(0, "orders.*")
    assert [one.topic_id for one in joined.assignment.topic_partitions] == [topic_id]
    secured.grant((TOPIC, "orders"), DESCRIBE)
    epoch = joined.member_epoch

    def more() -> bool:
        nonlocal epoch
        answer = heartbeat(epoch, None)
        epoch = answer.member_epoch
        return answer.assignment is not None and len(answer.assignment.topic_partitions) == 2

    wait_until(more, 30, "a new assignment")


def test_refusals_are_logged_once_a_second_and_escaped(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    bob = secured.log_in()
    LIMITER.clear()
    caplog.clear()
    with caplog.at_level(logging.INFO, "headrace.authorizer"):
        for _ in range(20):
            assert produce(bob) == TOPIC_DENIED
        answer = bob.ask(12, 3, group_id="g\nh", generation_id=1, member_id="m")
        assert answer.error_code == GROUP_DENIED
    lines = [one.getMessage() for one in caplog.records if one.name == "headrace.authorizer"]
    assert lines[0] == (
        "Principal User:bob is denied WRITE on TOPIC orders from host 127.0.0.1 for produce"
    )
    assert len(lines) <= 2
    assert not any("\n" in line for line in lines)


def test_grants_are_logged_at_debug(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    secured.grant((TOPIC, "orders"), WRITE)
    bob = secured.log_in()
    with caplog.at_level(logging.DEBUG, "headrace.authorizer"):
        assert produce(bob) == OK
    lines = [one.getMessage() for one in caplog.records if one.name == "headrace.authorizer"]
    assert (
        "Principal User:bob is allowed WRITE on TOPIC orders from host 127.0.0.1 for produce"
        in lines
    )


def test_acls_survive_a_restart(tmp_path: Path) -> None:
    with headrace.Broker(tmp_path, config=CONFIGS) as broker:
        secured = Secured(broker)
        secured.admin.create_topic("orders")
        secured.grant((TOPIC, "orders"), WRITE)
        secured.grant((TOPIC, "orders"), READ)
        secured.revoke((TOPIC, "orders"), READ)
        secured.close()
    with headrace.Broker(tmp_path, config=CONFIGS) as broker:
        secured = Secured(broker)
        assert produce(secured.log_in()) == OK
        assert produce(secured.log_in("eve")) == TOPIC_DENIED
        secured.close()
    with headrace.Broker(tmp_path) as broker:  # without an authorizer they have no effect
        assert produce(Connection(broker.bootstrap_servers)) == OK


def test_a_damaged_acl_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "headrace.db"
    catalog = Catalog(path)
    catalog.add_acls([Acl(TOPIC, "orders", 3, "User:bob", "*", READ, ALLOW)])
    catalog.close()
    with sqlite3.connect(path) as database:
        statement = "UPDATE entries SET key = replace(key, ?, ?) WHERE kind = 'acl'"
        database.execute(statement, (f"{ALLOW}]", f"{DENY}]"))
    database.close()
    with pytest.raises(CatalogError, match="an entry of acl has a wrong checksum"):
        Catalog(path)


@pytest.mark.parametrize(
    ("api_key", "version", "more"), [(33, 2, {}), (44, 1, {"config_operation": 0})]
)
def test_changes_of_configs_are_answered_in_their_order(
    secured: Secured, api_key: int, version: int, more: dict[str, int]
) -> None:
    """Malformed changes are refused before permissions are checked, invalid values after."""
    secured.grant((TOPIC, "orders"), ALTER_CONFIGS)
    changes = [
        ("missing", [("retention.ms", "1")]),
        ("orders", [("retention.ms", "many")]),
        ("null", [("retention.ms", None)]),
        ("hidden", [("retention.ms", "1")]),
        ("doubled", [("retention.ms", "1"), ("retention.ms", "2")]),
    ]
    resources = [
        {
            "resource_type": TOPIC,
            "resource_name": name,
            "configs": [{"name": one, "value": value, **more} for one, value in some],
        }
        for name, some in changes
    ]
    answer = secured.log_in().ask(api_key, version, resources=resources, validate_only=True)
    assert [(one.resource_name, one.error_code) for one in answer.responses] == [
        ("missing", TOPIC_DENIED),
        ("orders", INVALID_CONFIG),
        ("null", INVALID_REQUEST),
        ("hidden", TOPIC_DENIED),
        ("doubled", INVALID_REQUEST),
    ]
