"""The lines that successful changes leave in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.handlers import APIS
from headrace.net import audit
from headrace.net.call import Call, Client
from headrace.net.listeners import Listener
from tests.handler_client import ask
from tests.stories.share_stage import Stage, on_stage

CLIENT = Client("127.0.0.1", 1, Listener("", 0))
ACL = {"principal": "User:bob", "host": "*", "operation": 3, "permission_type": 3}
ON_ORDERS = {"resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3}
FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": "orders",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
USER = {"name": "bob", "mechanism": 2}
SCRAM = {**USER, "iterations": 4096, "salt": b"salt", "salted_password": b"s3cret" * 10}
PARTITIONS = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 0}]}]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    broker = Broker(Config({"authorizer.class.name": authorizer}), tmp_path)
    yield broker
    broker.close()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, "headrace.authorizer")

    def take() -> list[str]:
        messages = [one.getMessage() for one in caplog.records if one.name == "headrace.authorizer"]
        assert {one.levelno for one in caplog.records} <= {logging.INFO}
        caplog.clear()
        return messages

    return take


def done(what: str, api: str, detail: str = "") -> str:
    detail = detail and f": {detail}"
    return f"Principal User:ANONYMOUS has done {what} from host 127.0.0.1 for {api}{detail}"


def alter_orders(value: str, **operation: int) -> dict[str, Any]:
    configs = [{"name": "retention.ms", "value": value, **operation}]
    return {"resource_type": 2, "resource_name": "orders", "configs": configs}


def quota(remove: bool) -> dict[str, Any]:
    ops = [{"key": "consumer_byte_rate", "value": 1000.0, "remove": remove}]
    return {"entity": [{"entity_type": "user", "entity_name": "bob"}], "ops": ops}


def topic(name: str, partitions: int = 2) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": (),
        "configs": (),
    }


def test_each_change_of_a_broker(broker: Broker, lines: Callable[[], list[str]]) -> None:
    async def changes() -> None:
        await ask(broker, 19, topics=[topic("orders")], validate_only=True)
        assert lines() == []
        await ask(broker, 19, topics=[topic("orders"), topic("?")])
        assert lines() == [done("CREATE on TOPIC orders", "create_topics", "2 partitions")]
        await ask(broker, 37, topics=[{"name": "orders", "count": 3, "assignments": None}])
        assert lines() == [done("ALTER on TOPIC orders", "create_partitions", "3 partitions")]
        await ask(broker, 44, resources=[alter_orders("4711000", config_operation=0)])
        altered = done("ALTER_CONFIGS on TOPIC orders", "incremental_alter_configs", "retention.ms")
        assert lines() == [altered]
        await ask(broker, 44, resources=[alter_orders("no number", config_operation=0)])
        assert lines() == []
        await ask(broker, 33, resources=[alter_orders("4712000")])
        assert lines() == [done("ALTER_CONFIGS on TOPIC orders", "alter_configs", "retention.ms")]
        await ask(broker, 21, topics=PARTITIONS)
        detail = "records of partition 0 before 0"
        assert lines() == [done("DELETE on TOPIC orders", "delete_records", detail)]
        await ask(broker, 30, creations=[{**ACL, **ON_ORDERS}])
        detail = "ALLOW READ for User:bob from * on LITERAL TOPIC orders"
        on_cluster = "ALTER on CLUSTER kafka-cluster"
        assert lines() == [done(on_cluster, "create_acls", f"added {detail}")]
        await ask(broker, 31, filters=[FILTER])
        assert lines() == [done(on_cluster, "delete_acls", f"removed {detail}")]
        await ask(broker, 49, entries=[quota(False)], validate_only=False)
        await ask(broker, 49, entries=[quota(True)], validate_only=False)
        assert lines() == [
            done(f"ALTER_CONFIGS on CLUSTER {part}", "alter_client_quotas", detail)
            for part in ["kafka-cluster"]
            for detail in (
                "user bob: consumer_byte_rate=1000",
                "user bob: consumer_byte_rate removed",
            )
        ]
        await ask(broker, 51, deletions=(), upsertions=[SCRAM])
        await ask(broker, 51, deletions=[USER], upsertions=())
        await ask(broker, 51, deletions=[USER], upsertions=())  # it is gone
        assert lines() == [
            done("ALTER on USER bob", "alter_user_scram_credentials", f"SCRAM-SHA-512 {verb}")
            for verb in ("set", "deleted")
        ]
        await ask(broker, 20, topics=[{"name": "orders", "topic_id": None}])
        assert lines() == [done("DELETE on TOPIC orders", "delete_topics")]

    asyncio.run(changes())


def test_a_topic_that_a_client_creates_by_its_name(
    broker: Broker, lines: Callable[[], list[str]]
) -> None:
    asked = [{"name": "orders", "topic_id": None}]

    async def metadata() -> None:
        for _ in range(2):
            await ask(broker, 3, topics=asked, allow_auto_topic_creation=True)

    asyncio.run(metadata())
    assert lines() == [done("CREATE on TOPIC orders", "metadata")]


def test_changes_of_groups(broker: Broker, lines: Callable[[], list[str]]) -> None:
    """Those that are refused have no line."""
    offset = {"committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    partitions = [{"partition_index": 0}, {"partition_index": 1}]
    starts = [{"partition_index": 0, "start_offset": 7}, {"partition_index": 1, "start_offset": 8}]
    committed = {"name": "t", "partitions": [{"partition_index": 0, **offset}]}
    member = {"generation_id_or_member_epoch": -1, "member_id": ""}

    async def change(api_key: int, **request: Any) -> list[str]:
        await ask(broker, api_key, **request)
        return lines()

    async def changes() -> None:
        await ask(broker, 19, topics=[topic("t", 1)])
        await ask(broker, 8, 9, group_id="g", topics=[committed], **member)
        lines()
        deletion = [{"name": "t", "partitions": partitions}]
        deleted = done("DELETE on GROUP g", "offset_delete", "offset of t-0")
        assert await change(47, group_id="g", topics=deletion) == [deleted]
        assert await change(47, group_id="h", topics=deletion) == []
        deleted = done("DELETE on GROUP g", "delete_groups")
        assert await change(42, groups_names=["g", "h"]) == [deleted]
        altered = done("ALTER on GROUP s", "alter_share_group_offsets", "start of t-0 at 7")
        alteration = [{"topic_name": "t", "partitions": starts}]
        assert await change(91, group_id="s", topics=alteration) == [altered]
        deletion = [{"topic_name": "t"}, {"topic_name": "u"}]
        deleted = done("DELETE on GROUP s", "delete_share_group_offsets", "offsets of t")
        assert await change(92, group_id="s", topics=deletion) == [deleted]
        assert await change(92, group_id="s", topics=deletion) == []

    asyncio.run(changes())


@on_stage()
async def test_records_that_are_released(stage: Stage, lines: Callable[[], list[str]]) -> None:
    """Each range that a member holds has a line."""
    stage.produce(10)
    await stage.member("m").fetch()
    ranges = [
        {"topic_name": "t", "partition_index": 0, "first_offset": first, "last_offset": first + 1}
        for first in (6, 20)
    ]
    await ask(stage.broker, 91, group_id="g", releases=ranges)
    detail = "released 6 to 7 of t-0"
    assert lines() == [done("ALTER on GROUP g", "alter_share_group_offsets", detail)]


def test_quotas_of_an_entity_that_is_named_twice(
    broker: Broker, lines: Callable[[], list[str]]
) -> None:
    """The first changes are made, and the answer is an error."""
    part = {"entity_type": "user", "entity_name": "eve"}
    twice = {**quota(False), "entity": [part, {**part, "entity_name": "bob"}]}

    async def alter() -> None:
        await ask(broker, 49, entries=[quota(False), quota(True)], validate_only=False)
        await ask(broker, 49, entries=[twice], validate_only=False)

    asyncio.run(alter())
    assert lines() == [
        done("ALTER_CONFIGS on CLUSTER kafka-cluster", "alter_client_quotas", f"user bob: {detail}")
        for detail in (
            "consumer_byte_rate=1000",
            "consumer_byte_rate=1000",
        )
    ]


def test_an_answer_stays_when_its_line_fails(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(call: Call, request: object) -> str:
        call.changes = (None,)  # type: ignore[assignment]
        return "no response"

    audited = audit.audited(handle)
    assert asyncio.run(audited(Call(broker, APIS[42], CLIENT, 0, ""), None)) == "no response"
    assert "cannot be told" in caplog.text


def test_names_are_escaped_and_no_value_is_logged(
    broker: Broker, lines: Callable[[], list[str]]
) -> None:
    name = "a\nPrincipal User:root\x1b]0;"
    asyncio.run(ask(broker, 51, upsertions=[{**SCRAM, "name": name}]))
    (line,) = lines()
    assert "a\\nPrincipal User:root\\x1b]0;" in line
    assert "s3cret" not in line


def test_a_request_about_many_resources_has_few_lines(
    broker: Broker, lines: Callable[[], list[str]]
) -> None:
    creations = [{**ACL, **ON_ORDERS, "principal": f"User:{n}"} for n in range(audit.MAX_LINES + 5)]
    asyncio.run(ask(broker, 30, creations=creations))
    found = lines()
    assert len(found) == audit.MAX_LINES + 1
    more = "Principal User:ANONYMOUS has made 5 more changes from host 127.0.0.1 for create_acls"
    assert found[-1] == more


def test_a_client_that_has_gone_is_told(broker: Broker, lines: Callable[[], list[str]]) -> None:
    """Its change may be made without it."""

    async def handle(call: Call, request: object) -> None:
        await asyncio.sleep(60)

    audited_handle = audit.audited(handle)

    async def cancelled() -> None:
        call = Call(broker, APIS[42], CLIENT, 0, "")
        task = asyncio.ensure_future(audited_handle(call, None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert lines() == [
        "Principal User:ANONYMOUS has sent delete_groups from host 127.0.0.1 and gone: it may be "
        "done"
    ]


def test_all_requests_that_administrators_make_are_logged() -> None:
    """Only those of members, producers and brokers are not."""
    logged = {key for key, api in APIS.items() if api.is_audited}
    words = ("create", "delete", "alter")
    named = {api.key for api in APIS.values() if any(word in api.name for word in words)}
    not_served = {34, 45}  # replicas, and reassignments: there is one broker
    assert named - logged - not_served == {86}  # the state of a share group, by a broker
