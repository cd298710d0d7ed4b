"""`headrace why` against a broker."""

from __future__ import annotations

import re
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from headrace.admin import AdminClient
from headrace.blocking import ShareConsumer
from tests.clients.confluent import (
    PATIENCE_S,
    consumer,
    create_topic,
    produce,
    share_from_earliest,
    take,
)
from tests.clients.conftest import Run, objects
from tests.support import unique, wait_until

COMMAND = "why"


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    name = create_topic(bootstrap_servers, unique("orders"), partitions=2)
    produce(bootstrap_servers, name, [b"x"] * 9, partition=0)
    return name


def explained(run: Run, group_id: str, over_s: float = 0.5) -> dict[str, Any]:
    (told,) = objects(run(group_id, "--over", str(over_s), "-o", "json"))
    return told


def test_the_holder_of_a_stuck_partition_is_named(
    run: Run, bootstrap_servers: str, topic: str, group_id: str, target: str
) -> None:
    share_from_earliest(bootstrap_servers, group_id)
    conf = {"bootstrap.servers": bootstrap_servers, "group.id": group_id, "client.id": "resizer-2"}
    with ShareConsumer(conf, [topic]) as member:
        held: list[Any] = []
        while not held:
            held = member.poll(max_records=9, timeout=1.0)
        member.accept(held[:4])
        wait_until(lambda: explained(run, group_id)["lag"] == 5, PATIENCE_S, "the accepted records")
        (stuck, *_) = explained(run, group_id)["reasons"]
        assert stuck.startswith(f"Nothing was finished for 0.5 s in {topic}-0 (resizer-2")
        if target == "headrace":
            assert "resizer-2 holds 5 records, locked " in stuck
        paragraph = " ".join(run(group_id, "--over", "0.5"))
        assert paragraph.startswith(f"Share group '{group_id}' (stable, 1 member) has 5 records to")
        assert "and 0.0 come. Nothing was finished for 0.5 s in" in paragraph


def test_records_in_flight_explain_a_share_group(
    run: Run, bootstrap_servers: str, topic: str, group_id: str, target: str
) -> None:
    if target == "kafka":
        pytest.skip("only headrace's broker tells what is in flight")
    share_from_earliest(
        bootstrap_servers,
        group_id,
        share_partition_max_record_locks="100",
        share_record_lock_duration_ms="1000",
    )
    produce(bootstrap_servers, topic, [b"x"] * 200, partition=0)
    conf = {"bootstrap.servers": bootstrap_servers, "group.id": group_id}
    with ShareConsumer(conf, [topic]) as member:
        held: list[Any] = []
        while len(held) < 100:
            held += member.poll(timeout=1.0)
        member.release(held[1:3], delay=60)
        reasons = explained(run, group_id)["reasons"]
    assert any(told.startswith("2 records were released, due in 5") for told in reasons), reasons
    assert any(
        told.startswith(f"As many as may be are in flight in {topic}-0, 100 records (share.part")
        for told in reasons
    ), reasons


def test_the_reason_of_the_newest_dead_letter_is_told(
    run: Run, bootstrap_servers: str, topic: str, group_id: str, target: str
) -> None:
    allowed = {"errors_deadletterqueue_group_enable": "true"}
    queue = create_topic(bootstrap_servers, unique("dlq.orders"), 2, **allowed)
    configs = {"errors_deadletterqueue_topic_name": queue}
    share_from_earliest(bootstrap_servers, group_id, **configs)
    conf = {"bootstrap.servers": bootstrap_servers, "group.id": group_id}
    with ShareConsumer(conf, [topic]) as member:
        records: list[Any] = []
        while len(records) < 9:
            records += member.poll(timeout=1.0)
        member.accept(records[1:])
        member.reject(records[0], reason="no such item")

        def told() -> list[str]:
            return list(explained(run, group_id)["reasons"])

        (reason,) = wait_until(told, PATIENCE_S, "the letter")
    why = "Offset rejected by client" + (": no such item" if target == "headrace" else "")
    assert re.fullmatch(rf"Last dead-lettered, .* ago: {topic}-0 offset 0: {why}\.", reason)


def test_a_group_without_members_and_one_that_has_finished(
    run: Run, bootstrap_servers: str, topic: str, group_id: str
) -> None:
    starts = [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 0)]
    with AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2}) as client:
        for future in client.alter_share_group_offsets(group_id, starts).values():
            future.result(PATIENCE_S)
        wait_until(lambda: explained(run, group_id)["lag"] == 6, PATIENCE_S, "the start offsets")
        assert explained(run, group_id)["reasons"] == ["It has no members: start a consumer."]
        for future in client.alter_share_group_offsets(
            group_id, [TopicPartition(topic, 0, 9)]
        ).values():
            future.result(PATIENCE_S)
    wait_until(lambda: explained(run, group_id)["lag"] == 0, PATIENCE_S, "the end")
    assert " ".join(run(group_id, "--over", "0.5")).endswith("come. Nothing is wrong.")


def test_members_of_a_consumer_group_without_partitions(
    run: Run, bootstrap_servers: str, topic: str, group_id: str
) -> None:
    with (
        consumer(bootstrap_servers, group_id, client_id="a", enable_auto_commit=False) as first,
        consumer(bootstrap_servers, group_id, client_id="b") as second,
        consumer(bootstrap_servers, group_id, client_id="c") as third,
    ):
        for member in (first, second, third):
            member.subscribe([topic])

        def idle() -> bool:
            for member in (first, second, third):
                member.poll(0.1)
            told = explained(run, group_id, 0.1)["reasons"]
            return "Without a partition: 1 of 3 members; partitions: 2." in told

        wait_until(idle, PATIENCE_S, "an assignment")


def test_a_consumer_group_that_stands_still(
    run: Run, bootstrap_servers: str, topic: str, group_id: str
) -> None:
    with consumer(
        bootstrap_servers, group_id, client_id="billing-1", enable_auto_commit=False
    ) as member:
        member.subscribe([topic])
        message = take(member, 1)[0]
        member.commit(message, asynchronous=False)
        told = explained(run, group_id)
        assert told["reasons"] == [f"Nothing was finished for 0.5 s in {topic}-0 (billing-1)."]
        assert told["lag"] == 8


def test_a_group_that_does_not_exist_is_one_line(run: Run) -> None:
    (line,) = run("no-such-group", status=1)
    assert line == "headrace why: group 'no-such-group' does not exist: correct its id or type"
