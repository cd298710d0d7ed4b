"""Steps with librdkafka that the tests of this folder share."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from confluent_kafka import (
    Consumer,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

PATIENCE_S = 60.0
"""The timeout of a client's step: long enough for a slow machine."""


@functools.lru_cache(maxsize=2)
def admin(bootstrap_servers: str) -> AdminClient:
    """Return a cached admin client of a broker: the futures of a deleted one fail."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})


def create_topic(bootstrap_servers: str, name: str, partitions: int = 1, **configs: str) -> str:
    """Create a topic (config names with _ for .) and return its name."""
    named = {key.replace("_", "."): value for key, value in configs.items()}
    admin(bootstrap_servers).create_topics([NewTopic(name, partitions, 1, config=named)])[
        name
    ].result(PATIENCE_S)
    return name


def set_configs(bootstrap_servers: str, kind: ResourceType, name: str, **configs: str) -> None:
    """Set configs of a topic, broker or group, leaving the others as they are."""
    resource = ConfigResource(kind, name)
    for key, value in configs.items():
        entry = ConfigEntry(
            key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET
        )
        resource.add_incremental_config(entry)
    for future in admin(bootstrap_servers).incremental_alter_configs([resource]).values():
        future.result(PATIENCE_S)


def share_from_earliest(bootstrap_servers: str, group_id: str, **configs: str) -> str:
    """Make a share group start at the earliest record, not at the end."""
    set_configs(
        bootstrap_servers,
        ResourceType.GROUP,
        group_id,
        share_auto_offset_reset="earliest",
        **configs,
    )
    return group_id


def produce(
    bootstrap_servers: str,
    topic: str,
    values: Iterable[bytes],
    partition: int = -1,
    **configs: object,
) -> None:
    """Produce `values` and wait until each is acknowledged.

    :raises KafkaException: one is refused
    """
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            **{k.replace("_", "."): v for k, v in configs.items()},
        }
    )

    def delivered(error: object, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0)
    if producer.flush(PATIENCE_S):
        raise TimeoutError(f"records for {topic} were not acknowledged")
    if failures:
        raise KafkaException(failures[0])


def gone_records(bootstrap_servers: str, topic: str, partitions: int, count: int = 200) -> None:
    """Write records to a topic and delete them: its next offset is then `count`."""
    for partition in range(partitions):
        produce(bootstrap_servers, topic, [b"gone"] * count, partition)
    ends = [TopicPartition(topic, partition, count) for partition in range(partitions)]
    for future in admin(bootstrap_servers).delete_records(ends).values():
        future.result(PATIENCE_S)


@contextlib.contextmanager
def consumer(bootstrap_servers: str, group_id: str, **configs: object) -> Iterator[Consumer]:
    """Yield a consumer of the classic protocol, from the earliest offset, without auto-commit by
    default.
    """
    opened = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{key.replace("_", "."): value for key, value in configs.items()},
        }
    )
    try:
        yield opened
    finally:
        if "group_instance_id" not in configs:  # a static member is to stay in the group
            unsubscribe(opened)
        opened.close()


def unsubscribe(source: Consumer) -> None:
    """Unsubscribe and wait until it is done: librdkafka may hang if it is closed while an
    assignment arrives (its issue 4884). A manual assignment stays.
    """
    source.unsubscribe()
    for _ in range(50):
        source.poll(0.01)
        if not source.assignment():
            break


def take(source: Consumer, count: int, timeout_s: float = PATIENCE_S) -> list[Message]:
    """Return the next `count` messages.

    :raises AssertionError: fewer come in time
    """
    messages: list[Message] = []
    deadline = time.monotonic() + timeout_s
    while len(messages) < count:
        assert time.monotonic() < deadline, f"got {len(messages)} of {count} messages"
        for message in source.consume(count - len(messages), timeout=1.0):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


@contextlib.contextmanager
def share_consumer(
    bootstrap_servers: str, group_id: str, topics: Sequence[str], **configs: object
) -> Iterator[ShareConsumer]:
    """Yield a share consumer subscribed to `topics`, with explicit acknowledgement by default."""
    opened = ShareConsumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "share.acknowledgement.mode": "explicit",
            "log_level": 3,
            **{key.replace("_", "."): value for key, value in configs.items()},
        }
    )
    opened.subscribe(list(topics))
    try:
        yield opened
    finally:
        opened.close()


def config_of(bootstrap_servers: str, topic: str, name: str) -> str:
    """Return the value of a config of a topic."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (future,) = admin(bootstrap_servers).describe_configs([resource]).values()
    return str(future.result(PATIENCE_S)[name].value)


def poll_share(
    source: ShareConsumer, until: Callable[[], bool], handle: Callable[[Message], None]
) -> None:
    """Poll and pass each record to `handle` until `until()` is true.

    :raises AssertionError: it is not true in time
    """
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < deadline, "the records that are waited for did not come"
        for message in source.poll(timeout=1.0):
            assert message.error() is None, message.error()
            handle(message)
