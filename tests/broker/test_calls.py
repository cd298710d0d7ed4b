"""What a call gives its handler: permissions, and turns for loops over many items."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.handlers import APIS, api_08_offset_commit
from headrace.net import call as calls
from headrace.net.access_control import UNLIMITED
from headrace.net.call import Call, Client, serve
from headrace.net.listeners import Listener
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.errors import ErrorCode
from headrace.protocol.frames import request_header
from headrace.security.acls import Acl, PatternType, Permission, ResourceType
from headrace.security.principal import ANONYMOUS
from tests.handler_client import message_of
from tests.wire_client import request_header as header_bytes

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ITEMS = 300
HOST = "127.0.0.1"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose clients may do nothing."""
    broker = Broker(Config({"authorizer.class.name": AUTHORIZER, "log.dirs": str(tmp_path)}))
    yield broker
    broker.close()


@pytest.fixture
def open_broker(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """The broker, whose clients may do all."""
    assert broker.access_control is not None
    monkeypatch.setattr(broker.access_control, "access_of", lambda *_: UNLIMITED)
    return broker


def served(broker: Broker, api_key: int, version: int, **fields: Any) -> Any:
    """Return the response to a request of a client without permissions."""
    api = APIS[api_key]
    assert broker.access_control is not None
    access = broker.access_control.access_of(ANONYMOUS, HOST)
    client = Client(HOST, 1, Listener(HOST, 9092), access=access)
    tags = b"\0" if api.request.is_flexible(version) else b""
    body = message_of(api.request.message_type, **fields).encoded(version)
    frame = memoryview(header_bytes(api_key, version, 1) + tags + body)
    call = Call(broker, api, client, version, "client")
    _, response = asyncio.run(serve(call, frame, request_header(frame)))
    return response


@pytest.fixture
def turns(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that grows with each turn of others: each slice is over at once."""
    taken: list[None] = []

    async def others() -> None:
        taken.append(None)

    monkeypatch.setattr(calls, "SLICE_S", 0.0)
    monkeypatch.setattr(broker.slices, "next", others)
    return taken


NAMES = [f"t{number}" for number in range(ITEMS)]
PARTITIONS = [{"partition_index": number} for number in range(ITEMS)]


@pytest.mark.parametrize(
    ("api_key", "version", "fields"),
    [
        (2, 11, {"topics": [{"name": name} for name in NAMES]}),
        (2, 11, {"topics": [{"name": "t", "partitions": PARTITIONS}]}),
        (19, 7, {"topics": [{"name": name} for name in NAMES]}),
        (42, 2, {"groups_names": NAMES}),
        (8, 9, {"group_id": "g", "topics": [{"name": "t", "partitions": PARTITIONS}]}),
    ],
    ids=["refused-items", "refused-parts", "items-named-once", "names", "refused-as-a-whole"],
)
def test_a_request_with_many_items_that_are_refused_lets_others_in(
    broker: Broker, turns: list[None], api_key: int, version: int, fields: dict[str, Any]
) -> None:
    served(broker, api_key, version, **fields)
    assert len(turns) >= ITEMS


@pytest.mark.parametrize(
    ("version", "code"),
    [(9, ErrorCode.TOPIC_AUTHORIZATION_FAILED), (10, ErrorCode.UNKNOWN_TOPIC_ID)],
)
@pytest.mark.parametrize("api_key", [8, 9])
def test_an_empty_name_is_a_name(
    broker: Broker, api_key: int, version: int, code: ErrorCode
) -> None:
    """It is no topic id, of which an unknown one is left to the handler."""
    assert broker.access_control is not None
    groups = [
        Acl(
            ResourceType.GROUP,
            "*",
            PatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            operation,
            Permission.ALLOW,
        )
        for operation in (Operation.READ, Operation.DESCRIBE)
    ]
    broker.access_control.create(groups)
    if api_key == 8:
        topics = [{"name": "", "partitions": [{"partition_index": 0}]}]
        response = served(broker, 8, version, group_id="g", topics=topics)
    else:
        topic = {"name": "", "partition_indexes": [0]}
        response = served(broker, 9, version, groups=[{"group_id": "g", "topics": [topic]}])
        (response,) = response.groups
    ((answer,),) = (topic.partitions for topic in response.topics)
    assert answer.error_code == code


@pytest.mark.parametrize(
    ("api_key", "version", "fields"),
    [
        (
            49,
            1,
            {
                "entries": [
                    {"entity": [{"entity_type": "user", "entity_name": name}], "ops": []}
                    for name in NAMES
                ]
            },
        ),
        (51, 0, {"deletions": [{"name": name, "mechanism": 1} for name in NAMES]}),
        (75, 0, {"topics": [{"name": name} for name in NAMES], "response_partition_limit": 2000}),
    ],
    ids=["quotas", "scram", "topics"],
)
def test_a_request_with_many_items_lets_others_in(
    open_broker: Broker, turns: list[None], api_key: int, version: int, fields: dict[str, Any]
) -> None:
    served(open_broker, api_key, version, **fields)
    assert len(turns) >= ITEMS


def test_many_offsets_are_committed_in_portions(
    open_broker: Broker, turns: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_08_offset_commit, "COMMITS_AT_ONCE", 100)
    open_broker.catalog.create_topic("t", ITEMS - 1)
    topics = [
        {"name": "t", "partitions": PARTITIONS[:1]},
        {"name": "t", "partitions": PARTITIONS},
        {"name": "u", "partitions": []},
    ]
    commit = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": topics}
    answers = served(open_broker, 8, 9, **commit).topics
    assert len(turns) >= ITEMS / 100
    assert [topic.name for topic in answers] == ["t", "t", "u"]
    codes = [partition.error_code for partition in answers[1].partitions]
    assert codes == [0] * (ITEMS - 1) + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    committed = open_broker.coordinators.group_runtime.coordinator.offsets.committed.of_group("g")
    assert len(committed["t"]) == ITEMS - 1
