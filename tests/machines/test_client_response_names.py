"""Topic names in the responses of a broker: illegal ones never reach a caller."""

from __future__ import annotations

import asyncio

import pytest

from headrace.client.cluster import Cluster
from headrace.client.connection import _SUPPORTED
from headrace.client.errors import ConnectionFailed
from headrace.client.frames import IllegalTopicName, check_topic_names, decode_response
from headrace.protocol.api import MetadataRequest, OffsetDeleteRequest
from headrace.protocol.schema import Message, schema, schema_of
from tests.attacks.hostile_broker import BASE, TOPIC_ID, HostileBroker
from tests.kio_messages import response_type
from tests.protocol.shapes import Case, Shape
from tests.support import story

METADATA = 3
ODD = {"dots", "long", "control characters"}
TOPICS = {
    "Fetch": {"responses.topic"},
    "ListOffsets": {"topics.name"},
    "Metadata": {"topics.name"},
    "OffsetCommit": {"topics.name"},
    "OffsetFetch": {"groups.topics.name"},
    "CreateTopics": {"topics.name"},
    "DeleteTopics": {"responses.name"},
    "DeleteRecords": {"topics.name"},
    "DescribeLogDirs": {"results.topics.name"},
    "CreatePartitions": {"results.name"},
    "OffsetDelete": {"topics.name"},
    "DescribeTransactions": {"transaction_states.topics.topic"},
    "DescribeTopicPartitions": {"topics.name", "next_cursor.topic_name"},
    "ConsumerGroupDescribe": {
        "groups.members.assignment.topic_partitions.topic_name",
        "groups.members.target_assignment.topic_partitions.topic_name",
    },
    "ShareGroupDescribe": {"groups.members.assignment.topic_partitions.topic_name"},
    "DescribeShareGroupOffsets": {"groups.topics.topic_name"},
    "AlterShareGroupOffsets": {"responses.topic_name"},
    "DeleteShareGroupOffsets": {"responses.topic_name"},
}
"""The fields with names of topics that exist. Members of groups may subscribe to any name."""


def supported(api: str) -> tuple[int, int]:
    return _SUPPORTED[f"{api}Request"]


def is_refused(case: Case, request: Message) -> bool:
    response_to = schema_of("request", case.api_key).message_type()
    response = decode_response(response_to, case.version, memoryview(bytes(4) + case.body))
    try:
        check_topic_names(request, case.version, response)
    except IllegalTopicName:
        return True
    return False


def cases(api: str, version: int) -> list[Case]:
    key = schema(f"{api}Request").key
    base = {**BASE, "port": 1, "next_cursor": None}
    shape = Shape(key, version, TOPIC_ID, response_type(key, version), base)
    strings = {field.path for field in shape.fields() if field.kind == "string" and not field.many}
    return [case for case in shape.cases() if case.path in strings and case.variant in ODD]


@pytest.mark.parametrize("api", [name.removesuffix("Request") for name in _SUPPORTED])
def test_an_illegal_name_is_refused_in_every_response(api: str) -> None:
    for version in {*supported(api)}:
        refused = {case.path for case in cases(api, version) if is_refused(case, MetadataRequest())}
        is_by_id = api == "Fetch" and version > 12
        assert refused == (set() if is_by_id else TOPICS.get(api, set())), version


def test_a_name_of_the_request_may_come_back() -> None:
    """Such as with an error code: the user has given it."""
    topics = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name) for name in ("t", "..")]
    dots = next(case for case in cases("OffsetDelete", 0) if case.variant == "dots")
    assert is_refused(dots, MetadataRequest())
    assert not is_refused(dots, OffsetDeleteRequest(topics=topics))


@story
async def test_the_names_of_a_hostile_broker_reach_no_caller() -> None:
    async def renaming(api_key: int, version: int, writer: asyncio.StreamWriter) -> bytes:
        shape = broker.shape(api_key, version)
        bodies = (case for case in shape.cases() if case.path == "topics.name")
        return next(case.body for case in bodies if case.variant == "control characters")

    broker = HostileBroker(METADATA, renaming)
    async with broker, Cluster(broker.bootstrap_servers) as cluster:
        with pytest.raises(ConnectionFailed) as refused:
            await cluster.metadata(None)
    assert r"cannot be used: it names an illegal topic: 'a\n\x1b[2J\x00' contains" in str(
        refused.value
    )
