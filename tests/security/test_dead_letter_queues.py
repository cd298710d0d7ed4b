"""Who writes to a dead-letter queue of a cluster with an authorizer."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from headrace import ShareConsumer
from headrace.admin import AdminClient
from headrace.client.dead_letters.letters import LetterFilter
from headrace.client.dead_letters.redrive import Redrive, RedriveOptions
from headrace.protocol import dead_letters
from headrace.secure_broker import SecureBroker
from tests.clients.confluent import PATIENCE_S
from tests.support import wait_until

QUEUE = "dlq.orders"


def writing_of(config: dict[str, Any]) -> Any:
    """Return a function that writes a record, and returns the name of the error or None."""
    producer = Producer({**config, "log_level": 0, "message.timeout.ms": 20_000})

    def write(topic: str, value: bytes | None, **more: Any) -> str | None:
        errors: list[str | None] = []
        producer.produce(
            topic, value, on_delivery=lambda e, _: errors.append(e and e.name()), **more
        )
        assert producer.flush(PATIENCE_S) == 0
        return errors[0]

    return write


def use_queue(config: dict[str, Any]) -> None:
    """Have the share group packers use the queue."""
    with AdminClient({**config, "log_level": 2}) as client:
        for kind, name, key, value in (
            (ResourceType.TOPIC, QUEUE, "errors.deadletterqueue.group.enable", "true"),
            (ResourceType.GROUP, "packers", "errors.deadletterqueue.topic.name", QUEUE),
            (ResourceType.GROUP, "packers", "errors.deadletterqueue.copy.record.enable", "true"),
            (ResourceType.GROUP, "packers", "share.auto.offset.reset", "earliest"),
        ):
            resource = ConfigResource(kind, name)
            operation = AlterConfigOpType.SET
            resource.add_incremental_config(
                ConfigEntry(key, value, incremental_operation=operation)
            )
            for done in client.incremental_alter_configs([resource]).values():
                done.result(PATIENCE_S)


def reject_next(config: dict[str, Any]) -> None:
    async def reject() -> None:
        async with ShareConsumer({**config, "group.id": "packers"}, ["orders"]) as queue:
            await queue.reject(await anext(queue))

    asyncio.run(reject())


def headers_of(topic: str, offset: int) -> list[tuple[str, bytes]]:
    values = (topic, 0, offset, "packers", 5, "Offset rejected by client.")
    return list(zip(dead_letters.HEADERS, (str(one).encode() for one in values), strict=True))


def test_who_may_write_to_a_queue_writes_to_no_other_topic() -> None:
    """Forged letters, one of them about an internal topic, end no redrive and reach no topic."""
    with SecureBroker(users=("mallory",)) as broker:
        config = broker.client_config()
        write, forge = writing_of(config), writing_of(broker.client_config("mallory"))
        for topic, value in (("payments", b"pay order 1"), ("orders", b"bad"), (QUEUE, b"")):
            assert write(topic, value) is None
        use_queue(config)
        broker.allow("mallory", "WRITE", "TOPIC", QUEUE)
        assert forge("payments", b"direct") == "TOPIC_AUTHORIZATION_FAILED"
        assert forge(QUEUE, b"pay mallory", headers=headers_of("payments", 0)) is None
        assert forge(QUEUE, None, headers=headers_of("payments", 0)) is None
        assert forge(QUEUE, b"\0", headers=headers_of("__consumer_offsets", 0)) is None
        reject_next(config)
        redrive = Redrive(config, QUEUE, LetterFilter(), RedriveOptions())
        wait_until(lambda: redrive.plan(threading.Event()).total == 1, PATIENCE_S, "the letter")
        counts = redrive.run(threading.Event())
        assert counts.redriven == {"orders": 1}
        assert {topic: count for (topic, _), count in counts.skipped.items()} == {
            "payments": 2,
            "__consumer_offsets": 1,
        }


def test_a_queue_that_is_denied_to_everybody_still_gets_the_letters_of_the_broker() -> None:
    """The broker writes letters itself, without a permission."""
    with SecureBroker(users=("mallory", "packer")) as broker:
        config, packer = broker.client_config(), broker.client_config("packer")
        assert writing_of(config)("orders", b"bad") is None
        assert writing_of(config)(QUEUE, b"") is None
        use_queue(config)
        broker.allow("packer", "READ", "TOPIC", "orders")
        broker.allow("packer", "READ", "GROUP", "packers")
        broker.allow("mallory", "WRITE", "TOPIC", "*")
        closing = AclBinding(
            ResourceType.TOPIC,
            QUEUE,
            ResourcePatternType.LITERAL,
            "User:*",
            "*",
            AclOperation.WRITE,
            AclPermissionType.DENY,
        )
        with AdminClient({**config, "log_level": 2}) as client:
            for done in client.create_acls([closing]).values():
                done.result(PATIENCE_S)
        forge = writing_of(broker.client_config("mallory"))
        assert forge("orders", b"fine") is None, "mallory may write elsewhere"
        assert forge(QUEUE, b"x", headers=headers_of("orders", 0)) == "TOPIC_AUTHORIZATION_FAILED"
        reject_next(packer)
        redrive = Redrive(config, QUEUE, LetterFilter(), RedriveOptions())
        wait_until(lambda: redrive.plan(threading.Event()).total == 1, PATIENCE_S, "the letter")
        assert redrive.run(threading.Event()).redriven == {"orders": 1}
