"""What a test asks of the broker that it has started."""

from __future__ import annotations

import asyncio

import pytest

import headrace
from headrace.blocking import ShareConsumer
from headrace.client import ClientError


def test_a_queue_is_followed_to_its_end() -> None:
    with headrace.Broker() as broker:
        broker.create_topic("orders", 3, config={"max.message.bytes": "1000"})
        with pytest.raises(ClientError, match="exists"):
            broker.create_topic("orders")
        broker.produce("orders", [f"order {number}" for number in range(20)])
        read = broker.records("orders")
        assert {record.value for record in read} == {b"order %d" % n for n in range(20)}
        assert read == sorted(read, key=lambda record: (record.partition, record.offset))
        assert broker.lag("packers") is None
        broker.share_group("packers")
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "packers"}
        with ShareConsumer(conf, ["orders"]) as queue:
            done = 0
            while done < 19:
                records = queue.poll(max_records=19 - done, timeout=10)
                queue.accept(records)
                done += len(records)
            assert broker.lag("packers") == 1
            with pytest.raises(TimeoutError, match="is 1 after"):
                broker.wait_until_drained("packers", timeout=0.1)
            queue.accept(queue.poll(timeout=10))
        broker.wait_until_drained("packers")


def test_an_event_loop_may_ask_too() -> None:
    async def ask(broker: headrace.Broker) -> int:
        return len(broker.records("orders"))

    with headrace.Broker() as broker:
        broker.produce("orders", [b"x"])
        assert asyncio.run(ask(broker)) == 1
        with pytest.raises(ClientError, match="missing"):
            broker.records("missing")


def test_a_secured_broker_answers_its_administrator(headrace_secure_broker: object) -> None:
    broker = headrace_secure_broker
    assert isinstance(broker, headrace.Broker)
    broker.create_topic("orders")
    broker.produce("orders", [b"x"])
    assert [record.value for record in broker.records("orders")] == [b"x"]
