"""Topic names in the responses of a broker: illegal ones never reach a caller."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from kio.schema.types import TopicName
from kio.serial import entity_reader

from headrace.client.cluster import Cluster
from headrace.client.connection import _SUPPORTED
from headrace.client.errors import ConnectionFailed
from headrace.client.messages import IllegalTopicName, check_topic_names
from headrace.protocol.message_types import response_type
from tests.attacks.hostile_broker import BASE, TOPIC_ID, HostileBroker
from tests.protocol.shapes import Case, Shape
from tests.support import story

METADATA = 3
ODD = {"dots", "long", "control characters"}
TOPICS = {
    "fetch": {"responses.topic"},
    "list_offsets": {"topics.name"},
    "metadata": {"topics.name"},
    "offset_commit": {"topics.name"},
    "offset_fetch": {"groups.topics.name"},
    "create_topics": {"topics.name"},
    "delete_topics": {"responses.name"},
    "delete_records": {"topics.name"},
    "describe_log_dirs": {"results.topics.name"},
    "create_partitions": {"results.name"},
    "offset_delete": {"topics.name"},
    "describe_transactions": {"transaction_states.topics.topic"},
    "describe_topic_partitions": {"topics.name", "next_cursor.topic_name"},
    "consumer_group_describe": {
        "groups.members.assignment.topic_partitions.topic_name",
        "groups.members.target_assignment.topic_partitions.topic_name",
    },
    "share_group_describe": {"groups.members.assignment.topic_partitions.topic_name"},
    "describe_share_group_offsets": {"groups.topics.topic_name"},
    "alter_share_group_offsets": {"responses.topic_name"},
    "delete_share_group_offsets": {"responses.topic_name"},
}
"""The fields with names of topics that exist. Members of groups may subscribe to any name."""


@dataclasses.dataclass
class Nothing:
    """A request that names no topic."""


@dataclasses.dataclass
class Asking:
    """A topic that a request names."""

    name: TopicName


@dataclasses.dataclass
class AskingForMany:
    """A request that names topics."""

    topics: tuple[Asking, ...]


def response_of(case: Case) -> Any:
    kind = response_type(case.api_key, case.version)
    frame = memoryview(bytes(4) + case.body)
    _, header_size = entity_reader(kind.__header_schema__)(frame, 0)
    response, _ = entity_reader(kind)(frame, header_size)
    return response


def is_refused(response: Any, request: Any) -> bool:
    try:
        check_topic_names(request, response)
    except IllegalTopicName:
        return True
    return False


def cases(api: str, version: int) -> list[Case]:
    kind = response_type(_SUPPORTED[api][0], version)
    base = {**BASE, "port": 1, "next_cursor": None}
    shape = Shape(_SUPPORTED[api][0], version, TOPIC_ID, kind, base)
    strings = {field.path for field in shape.fields() if field.kind == "string" and not field.many}
    return [case for case in shape.cases() if case.path in strings and case.variant in ODD]


@pytest.mark.parametrize("api", _SUPPORTED)
def test_an_illegal_name_is_refused_in_every_response(api: str) -> None:
    for version in {*_SUPPORTED[api][1:]}:
        refused = {
            case.path for case in cases(api, version) if is_refused(response_of(case), Nothing())
        }
        is_by_id = api == "fetch" and version > 12
        assert refused == (set() if is_by_id else TOPICS.get(api, set())), version


def test_a_name_of_the_request_may_come_back() -> None:
    """Such as with an error code: the user has given it."""
    request = AskingForMany((Asking(TopicName("t")), Asking(TopicName(".."))))
    dots = next(case for case in cases("offset_delete", 0) if case.variant == "dots")
    assert is_refused(response_of(dots), Nothing())
    assert not is_refused(response_of(dots), request)


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
