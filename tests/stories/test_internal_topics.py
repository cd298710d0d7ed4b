"""Internal topics: the same table of names decides wherever a request meets one of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.groups.record_schemas import encode
from headrace.groups.records import CommittedOffset, OffsetCommit
from headrace.transactions.records import State, Transaction, TransactionRecord
from headrace.transactions.records import encode as encode_transaction
from tests.wire_client import Connection, batch, connection

INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
CONFIGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
NONE, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST, INVALID_RECORD = 0, 17, 42, 87
ADMIN = "__admin_client"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[headrace.Broker]:
    with headrace.Broker(tmp_path / "data", CONFIGS) as started:
        yield started


@pytest.fixture
def client(broker: headrace.Broker) -> Iterator[Connection]:
    with connection(broker.bootstrap_servers) as opened:
        yield opened


def create(client: Connection, name: str, configs: dict[str, str] | None = None) -> Any:
    asked = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }
    response = client.ask(19, 7, topics=[asked], timeout=5000)
    return response.topics[0].error_code


def init_producer_id(client: Connection, transactional_id: str) -> tuple[Any, int, int]:
    response = client.ask(22, 4, transactional_id=transactional_id, transaction_timeout=60_000)
    return response.error_code, response.producer_id, response.producer_epoch


def describe(client: Connection, name: str) -> dict[str, str]:
    resource = {"resource_type": 2, "resource_name": name, "configuration_keys": None}
    response = client.ask(32, 4, resources=[resource])
    return {config.name: config.value for config in response.results[0].configs}


@pytest.mark.parametrize("name", INTERNAL)
def test_a_client_creates_the_internal_topic_itself(client: Connection, name: str) -> None:
    assert create(client, name) == NONE
    (topic,) = client.ask(3, 12, topics=None, allow_auto_topic_creation=False).topics
    assert (topic.name, topic.is_internal) == (name, True)
    assert describe(client, name)["cleanup.policy"] == (
        "delete" if name == "__share_group_state" else "compact"
    )
    deleted = client.ask(20, 6, topics=[{"name": name}], timeout=5000)
    assert deleted.responses[0].error_code == INVALID_REQUEST
    grown = client.ask(
        37, 3, topics=[{"name": name, "count": 7, "assignments": None}], timeout=5000
    )
    assert grown.results[0].error_code == INVALID_REQUEST
    start = {"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}
    truncated = client.ask(21, 2, topics=[start], timeout=5000)
    assert truncated.topics[0].partitions[0].error_code == INVALID_TOPIC_EXCEPTION
    assert client.produce(name, batch([b"v"], key=b"k")) == (INVALID_TOPIC_EXCEPTION, -1)


@pytest.mark.parametrize("name", INTERNAL)
def test_an_unknown_internal_topic_is_described_as_internal(client: Connection, name: str) -> None:
    (topic,) = client.ask(
        3,
        12,
        topics=[{"topic_id": uuid.UUID(int=0), "name": name}],
        allow_auto_topic_creation=False,
    ).topics
    assert (topic.error_code, topic.is_internal) == (3, True)


@pytest.mark.parametrize("name", INTERNAL)
def test_removing_a_config_brings_back_the_internal_one(client: Connection, name: str) -> None:
    create(client, name)
    before = describe(client, name)
    asked = {"resource_type": 2, "resource_name": name}
    altered = client.ask(33, 2, resources=[asked])
    assert altered.responses[0].error_code == NONE
    after = describe(client, name)
    for key in ("cleanup.policy", "retention.ms", "unclean.leader.election.enable"):
        assert after[key] == before[key], key


def test_transactions_outlive_a_restart_in_a_topic_that_a_client_created(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with (
        headrace.Broker(data_dir, CONFIGS) as broker,
        connection(broker.bootstrap_servers) as client,
    ):
        assert create(client, "__transaction_state") == NONE
        code, producer_id, epoch = init_producer_id(client, "payments")
        assert (code, epoch) == (NONE, 0)
    with (
        headrace.Broker(data_dir, CONFIGS) as broker,
        connection(broker.bootstrap_servers) as client,
    ):
        assert init_producer_id(client, "payments") == (NONE, producer_id, 1)


OFFSET_KEY, OFFSET_VALUE = encode(OffsetCommit("g", "t", 0, CommittedOffset(5, -1, "", 0)))
TRANSACTION_KEY, TRANSACTION_VALUE = encode_transaction(
    TransactionRecord("payments", Transaction(7, 3, 60_000, State.EMPTY, 0))
)
GARBAGE = {
    "__consumer_offsets": OFFSET_KEY,
    "__transaction_state": TRANSACTION_KEY,
    "__share_group_state": b"\0\0" + b"\0\x01g" + bytes(16) + bytes(4),
}


@pytest.mark.parametrize("name", INTERNAL)
def test_the_admin_client_writes_what_the_coordinator_reads(
    broker: headrace.Broker, name: str
) -> None:
    with connection(broker.bootstrap_servers, client_id=ADMIN) as admin:
        create(admin, name)
        assert admin.produce(name, batch([b"\0"], key=GARBAGE[name])) == (INVALID_RECORD, -1)
        assert admin.produce(name, batch([b"\0"], key=b"k")) == (INVALID_RECORD, -1)
        assert admin.produce(name, batch([b"\0"])) == (INVALID_RECORD, -1)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("__consumer_offsets", OFFSET_KEY, OFFSET_VALUE),
        ("__transaction_state", TRANSACTION_KEY, TRANSACTION_VALUE),
    ],
)
def test_the_admin_client_writes_records_of_the_coordinator(
    broker: headrace.Broker, name: str, key: bytes, value: bytes
) -> None:
    with connection(broker.bootstrap_servers, client_id=ADMIN) as admin:
        create(admin, name)
        assert admin.produce(name, batch([value], key=key)) == (NONE, 0)
        assert admin.produce(name, batch([value, b"\0"], key=key)) == (INVALID_RECORD, -1)
