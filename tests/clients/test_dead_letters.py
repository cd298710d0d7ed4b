"""The dead-letter queue for clients: a share consumer rejects, a plain consumer reads the dead
letters.
"""

from __future__ import annotations

import pytest
from confluent_kafka import AcknowledgeType, Message
from confluent_kafka.admin import ResourceType

from tests.clients.confluent import (
    PATIENCE_S,
    consumer,
    create_topic,
    poll_share,
    produce,
    set_configs,
    share_consumer,
    share_from_earliest,
    take,
)
from tests.support import unique


@pytest.fixture(autouse=True)
def _only_where_there_is_one(target: str) -> None:
    if target == "kafka":
        pytest.skip("Apache Kafka has dead-letter queues from 4.4 on")


def test_rejected_records_are_found_in_the_queue(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    queue = create_topic(
        bootstrap_servers, unique("dlq.t"), errors_deadletterqueue_group_enable="true"
    )
    create_topic(bootstrap_servers, topic_name)
    share_from_earliest(bootstrap_servers, group_id)
    set_configs(
        bootstrap_servers,
        ResourceType.GROUP,
        group_id,
        errors_deadletterqueue_topic_name=queue,
        errors_deadletterqueue_copy_record_enable="true",
    )
    produce(
        bootstrap_servers,
        topic_name,
        [f"{i}".encode() for i in range(6)],
        compression_codec="lz4",
        linger_ms=50,
    )
    done: list[Message] = []
    with share_consumer(bootstrap_servers, group_id, [topic_name]) as source:

        def reject_odd(message: Message) -> None:
            odd = message.offset() % 2 == 1
            source.acknowledge(message, AcknowledgeType.REJECT if odd else AcknowledgeType.ACCEPT)
            done.append(message)

        poll_share(source, lambda: len(done) == 6, reject_odd)
        assert set(source.commit_sync(timeout=PATIENCE_S).values()) == {None}
    with consumer(bootstrap_servers, unique("group")) as reader:
        reader.subscribe([queue])
        letters = take(reader, 3)
    assert [letter.value() for letter in letters] == [b"1", b"3", b"5"]
    for offset, letter in zip((1, 3, 5), letters, strict=True):
        assert dict(letter.headers() or ()) == {
            "__dlq.errors.topic": topic_name.encode(),
            "__dlq.errors.partition": b"0",
            "__dlq.errors.offset": str(offset).encode(),
            "__dlq.errors.group": group_id.encode(),
            "__dlq.errors.delivery.count": b"1",
            "__dlq.errors.message": b"Offset rejected by client.",
        }
