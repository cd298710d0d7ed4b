"""Templates of OffsetCommit requests. Their answers are tested in tests/conformance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace import Broker
from headrace.handlers import commit_templates
from headrace.handlers.commit_templates import CommitTemplate
from headrace.net.session import MAX_COMMIT_TEMPLATES
from headrace.protocol.errors import ErrorCode
from headrace.protocol.request_templates import RequestTemplates
from headrace.protocol.time_slices import run_now
from tests.clients.confluent import create_topic
from tests.wire_client import Connection, connection

pytestmark = pytest.mark.broker

OFFSET_COMMIT, VERSION = 8, 9


def fields(
    offset: int, group_id: str = "g", metadata: str | None = "", partitions: int = 2
) -> dict[str, Any]:
    """Return the fields of a request that commits one offset in partitions of a topic."""
    one = {"committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": metadata}
    topic = {
        "name": "t",
        "partitions": [{"partition_index": index} | one for index in range(partitions)],
    }
    who = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    return {"group_id": group_id, "topics": [topic]} | who


def commit(client: Connection, *said: Any, **also: Any) -> set[int]:
    """Commit what :func:`fields` returns; return the set of error codes."""
    (topic,) = client.ask(OFFSET_COMMIT, VERSION, **fields(*said, **also)).topics
    assert [one.partition_index for one in topic.partitions] == list(range(len(topic.partitions)))
    return {int(one.error_code) for one in topic.partitions}


@pytest.fixture
def client() -> Iterator[Connection]:
    with Broker() as broker:
        create_topic(broker.bootstrap_servers, "t", 300)
        with connection(broker.bootstrap_servers) as opened:
            yield opened


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each request of a connection but the first: whether it was served by template."""
    found: list[bool] = []
    try_serve = RequestTemplates.try_serve

    def counted(templates: RequestTemplates, frame: memoryview) -> object:
        answer: object = try_serve(templates, frame)
        found.append(answer is not None)
        assert len(templates) <= MAX_COMMIT_TEMPLATES
        return answer

    monkeypatch.setattr(RequestTemplates, "try_serve", counted)
    return found


def test_what_is_remembered(client: Connection, served: list[bool]) -> None:
    for offset in range(4):
        assert commit(client, offset) == {ErrorCode.NONE}
    assert served == [True] * 3
    del served[:]
    for _ in range(2):
        assert commit(client, 1, metadata="m") == {ErrorCode.NONE}
        assert commit(client, 1, partitions=65) == {ErrorCode.NONE}
    assert served == [False] * 4, "metadata, and very many partitions"
    del served[:]
    assert commit(client, 1) == commit(client, 1, metadata=None) == {ErrorCode.NONE}
    assert served == [True, False], "null in the place of empty metadata"
    del served[:]
    assert commit(client, 1, partitions=64) == commit(client, 2, partitions=64) == {ErrorCode.NONE}
    assert served == [False, True]


def test_a_long_name_is_not_remembered(client: Connection, served: list[bool]) -> None:
    for length in (900, 1100):
        del served[:]
        assert commit(client, 1, "g" * length) == commit(client, 2, "g" * length) == {0}
        assert served[-1] == (length == 900)


def test_it_is_limited(client: Connection, served: list[bool]) -> None:
    for number in (*range(MAX_COMMIT_TEMPLATES + 1), 0, 0):
        assert commit(client, 1, f"g-{number}") == {ErrorCode.NONE}
    assert served == [False] * (MAX_COMMIT_TEMPLATES + 1) + [True]


def test_a_failure_is_answered_and_the_connection_lives_on(
    client: Connection, served: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commit(client, 1) == {ErrorCode.NONE}
    with monkeypatch.context() as patched:
        patched.setattr(commit_templates, "make", lambda *_: 1 // 0)
        assert commit(client, 2) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert commit(client, 3) == {ErrorCode.NONE}
    assert served == [True, True]


def test_a_topic_that_is_deleted_before_the_turn_ends_gets_no_offsets(
    client: Connection, served: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commit(client, 1) == {ErrorCode.NONE}
    try_serve, left = CommitTemplate.try_serve, []

    def deleting(template: CommitTemplate, frame: memoryview, correlation_id: bytes) -> object:
        answer, call = try_serve(template, frame, correlation_id), template._call
        run_now(call.topic_deletions.delete([call.catalog.topics["t"]]))
        left.append(call.groups.offsets.committed)
        return answer

    monkeypatch.setattr(CommitTemplate, "try_serve", deleting)
    assert commit(client, 2) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert served == [True]
    assert left[0].of_group("g") == {}


def test_a_client_that_goes_away_harms_nobody(client: Connection) -> None:
    host, port = client.socket.getpeername()
    with connection(f"{host}:{port}") as other:
        assert commit(other, 1, "other") == {ErrorCode.NONE}
        for offset in range(10):
            other.send_message(OFFSET_COMMIT, VERSION, **fields(offset, "other"))
        other.reset()
    assert commit(client, 1) == commit(client, 2) == {ErrorCode.NONE}
