"""Requests with one field of an odd shape, for every API and version: an answer or a closed
connection, and no error in the broker.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from uuid import UUID

import pytest
from kio.serial.errors import OutOfBoundValue

from headrace import Broker
from headrace.handlers import APIS
from headrace.log_lines import LIMITER
from tests.protocol.shapes import NULL, Case, Shape
from tests.wire_client import Connection, connection, decode, frame, request_header

pytestmark = pytest.mark.broker

CORRELATION_ID = 5
WAITS_S, ANSWERED_S = 0.3, 20
"""A request that may wait counts as waiting after this time; others have to be answered in time."""

ONE_PARTITION = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
}

INVALID_REQUEST = 42
MAY_WAIT = {0, 1, 11, 14, 78}
"""Fetches wait for records, members of a group for others; Produce may have no answer."""

_NODES = ("subtopologies.nodes", "global_stores.source", "global_stores.processor")
NULL_IS_ANSWERED = {
    *(
        ("streams_group_topology_description_update", f"topology_description.{path}")
        for path in (
            "subtopologies",
            "subtopologies.nodes",
            "global_stores",
            *(
                f"{node}.{array}"
                for node in _NODES
                for array in ("source_topics", "stores", "successors")
            ),
        )
    ),
    ("fetch", "topics"),
    ("fetch", "topics.partitions"),
    ("fetch", "forgotten_topics_data"),
    ("fetch", "forgotten_topics_data.partitions"),
    ("offset_fetch", "topics.partition_indexes"),
    ("offset_fetch", "groups.topics.partition_indexes"),
    ("join_group", "protocols"),
    ("leave_group", "members"),
    ("sync_group", "assignments"),
    ("list_groups", "states_filter"),
    ("list_groups", "types_filter"),
    ("create_topics", "topics.configs"),
    ("create_topics", "topics.assignments"),
    ("create_topics", "topics.assignments.broker_ids"),
    ("add_partitions_to_txn", "transactions"),
    ("add_partitions_to_txn", "transactions.topics"),
    ("add_partitions_to_txn", "transactions.topics.partitions"),
    ("alter_configs", "resources.configs"),
    ("alter_replica_log_dirs", "dirs.topics.partitions"),
    ("describe_log_dirs", "topics.partitions"),
    ("create_partitions", "topics.assignments.broker_ids"),
    ("incremental_alter_configs", "resources.configs"),
    ("elect_leaders", "topic_partitions.partitions"),
    ("alter_partition_reassignments", "topics"),
    ("alter_partition_reassignments", "topics.partitions"),
    ("list_partition_reassignments", "topics.partition_indexes"),
    ("describe_quorum", "topics"),
    ("describe_quorum", "topics.partitions"),
    ("update_features", "feature_updates"),
    ("offset_delete", "topics"),
    ("offset_delete", "topics.partitions"),
    ("describe_client_quotas", "components"),
    ("alter_client_quotas", "entries.entity"),
    ("alter_client_quotas", "entries.ops"),
    ("list_transactions", "producer_id_filters"),
    ("list_transactions", "state_filters"),
    ("alter_user_scram_credentials", "deletions"),
    ("alter_user_scram_credentials", "upsertions"),
    ("consumer_group_heartbeat", "topic_partitions.partitions"),
    ("list_config_resources", "resource_types"),
    ("share_fetch", "forgotten_topics_data"),
    ("share_fetch", "forgotten_topics_data.partitions"),
    ("share_fetch", "topics"),
    ("share_fetch", "topics.partitions"),
    ("share_fetch", "topics.partitions.acknowledgement_batches"),
    ("share_fetch", "topics.partitions.acknowledgement_batches.acknowledge_types"),
    ("share_acknowledge", "topics"),
    ("share_acknowledge", "topics.partitions"),
    ("share_acknowledge", "topics.partitions.acknowledgement_batches"),
    ("share_acknowledge", "topics.partitions.acknowledgement_batches.acknowledge_types"),
    ("write_share_group_state", "topics.partitions.state_batches"),
    ("streams_group_heartbeat", "active_tasks.partitions"),
    ("streams_group_heartbeat", "standby_tasks.partitions"),
    ("streams_group_heartbeat", "warmup_tasks.partitions"),
    ("streams_group_heartbeat", "topology.subtopologies"),
    ("streams_group_heartbeat", "topology.subtopologies.source_topics"),
    ("streams_group_heartbeat", "topology.subtopologies.source_topic_regex"),
    ("streams_group_heartbeat", "topology.subtopologies.state_changelog_topics"),
    ("streams_group_heartbeat", "topology.subtopologies.state_changelog_topics.topic_configs"),
    ("streams_group_heartbeat", "topology.subtopologies.repartition_sink_topics"),
    ("streams_group_heartbeat", "topology.subtopologies.repartition_source_topics"),
    ("streams_group_heartbeat", "topology.subtopologies.repartition_source_topics.topic_configs"),
    ("streams_group_heartbeat", "topology.subtopologies.copartition_groups"),
    ("streams_group_heartbeat", "topology.subtopologies.copartition_groups.source_topics"),
    ("streams_group_heartbeat", "topology.subtopologies.copartition_groups.source_topic_regex"),
    (
        "streams_group_heartbeat",
        "topology.subtopologies.copartition_groups.repartition_source_topics",
    ),
    ("describe_share_group_offsets", "groups.topics.partitions"),
    ("alter_share_group_offsets", "topics"),
    ("alter_share_group_offsets", "topics.partitions"),
    ("delete_share_group_offsets", "topics"),
}
"""Arrays whose null is answered with INVALID_REQUEST, in versions with a place for it. The others
close the connection.
"""


ACLS = (29, 30, 31)
"""Requests with types and operations, of which 0 is unknown: it closes the connection."""


class Errors(logging.Handler):
    """A handler that keeps the lines of errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class Target:
    """A broker that gets odd requests, and what came of them."""

    def __init__(self, broker: Broker, topic_id: UUID, errors: Errors) -> None:
        self.broker, self.topic_id, self.errors = broker, topic_id, errors
        self._client: Connection | None = None

    def send(self, case: Case) -> bytes | str:
        """Send a request; return the response, "closed", or "waits"."""
        if self._client is None:
            self._client = Connection(self.broker.bootstrap_servers)
        self._client.socket.settimeout(WAITS_S if case.api_key in MAY_WAIT else ANSWERED_S)
        LIMITER.clear()
        self.errors.lines.clear()
        header = request_header(case.api_key, case.version, CORRELATION_ID)
        self._client.send(frame(header + case.body))
        try:
            response = self._client.receive()
        except TimeoutError:
            response, came = None, "waits"
        else:
            came = "closed"
        if response is not None:
            return response
        self._client.close()
        self._client = None
        return came

    def is_alive(self) -> bool:
        """Return whether another client is served."""
        with connection(self.broker.bootstrap_servers) as other:
            return bool(other.api_versions())


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    errors = Errors()
    logging.getLogger().addHandler(errors)
    configs = {"group.initial.rebalance.delay.ms": 0, "unstable.api.versions.enable": True}
    with Broker(config={**configs, **ONE_PARTITION}) as broker:
        with connection(broker.bootstrap_servers) as client:
            topic_id = client.create_topic("t", 2)
            assert client.produce("t", Shape(0, 9, topic_id)._base["records"]) == (0, 0)
        yield Target(broker, topic_id, errors)
    logging.getLogger().removeHandler(errors)


@pytest.mark.parametrize("api_key", APIS, ids=[api.name for api in APIS.values()])
def test_an_odd_field_is_answered_or_closes_the_connection(target: Target, api_key: int) -> None:
    api = APIS[api_key]
    for version in range(api.lowest, api.highest + 1):
        for case in Shape(api_key, version, target.topic_id).cases():
            came = target.send(case)
            assert target.errors.lines == [], f"{case}: {came!r}"
            assert came != "waits" or api_key in MAY_WAIT, case
            if isinstance(came, bytes):
                with contextlib.suppress(OutOfBoundValue):  # kio refuses a timestamp of -1
                    decode(api_key, version, came)
            if case.variant == "valid" and api_key not in ACLS:
                assert came != "closed", case
    assert target.is_alive()


@pytest.mark.parametrize("api_key", APIS, ids=[api.name for api in APIS.values()])
def test_a_null_array_is_an_invalid_request(target: Target, api_key: int) -> None:
    api, answered = APIS[api_key], set()
    for version in range(api.lowest, api.highest + 1):
        shape = Shape(api_key, version, target.topic_id)
        arrays = {
            field.path
            for field in shape.fields()
            if field.many and not field.nullable and field.tag is None
        }
        for case in shape.cases():
            if case.variant != NULL or case.path not in arrays:
                continue
            came = target.send(case)
            if isinstance(came, bytes):
                assert codes(decode(api_key, version, came)) == {INVALID_REQUEST}, case
                answered.add((api.name, case.path))
            else:
                assert came == "closed", case
    assert answered == {(name, path) for name, path in NULL_IS_ANSWERED if name == api.name}


def codes(message: object) -> set[int]:
    """Return the error codes in a response."""
    found: set[int] = set()
    pending = [message]
    while pending:
        one = pending.pop()
        if isinstance(one, tuple):
            pending += one
        elif hasattr(one, "__dataclass_fields__"):
            for name in one.__dataclass_fields__:
                value = getattr(one, name)
                if name in ("error_code", "partition_error_code"):
                    found.add(int(value))
                else:
                    pending.append(value)
    return found


@pytest.mark.parametrize("acks", [0, 1])
def test_a_null_array_is_never_answered_to_a_client_that_wants_no_answer(
    target: Target, acks: int
) -> None:
    """One topic has partitions, and another one null instead."""
    shape = Shape(0, 9, target.topic_id)
    (topics,) = (field for field in shape.fields() if field.path == "topic_data")
    one = shape._one(topics, None, None)
    null = b"\2u\0\0"  # the topic "u" with null partitions
    body = shape.body("topic_data", lambda field: b"\3" + one + null)
    acks_at = body.index(b"\xff\xff")
    body = body[:acks_at] + acks.to_bytes(2, "big") + body[acks_at + 2 :]
    came = target.send(Case(0, 9, "topic_data", "one and null", False, body))
    if acks == 0:
        assert came == "closed"
    else:
        assert isinstance(came, bytes)
        assert codes(decode(0, 9, came)) == {INVALID_REQUEST}
    assert target.errors.lines == []
