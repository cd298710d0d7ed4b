"""The dead-letter queue for clients: a share consumer rejects and releases, a plain consumer reads
the dead letters.
"""

from __future__ import annotations

from confluent_kafka import TIMESTAMP_CREATE_TIME, AcknowledgeType, Message, Producer

from tests.clients.confluent import (
    PATIENCE_S,
    consumer,
    create_topic,
    poll_share,
    share_consumer,
    share_from_earliest,
    take,
)
from tests.support import unique


def test_records_that_are_given_up_are_found_in_the_queue(
    bootstrap_servers: str, topic_name: str, group_id: str, target: str
) -> None:
    """A letter has the key and the value of its record. Only headrace copies the headers, too."""
    queue = create_topic(
        bootstrap_servers, unique("dlq.t"), 2, errors_deadletterqueue_group_enable="true"
    )
    create_topic(bootstrap_servers, topic_name, 4)
    share_from_earliest(
        bootstrap_servers,
        group_id,
        errors_deadletterqueue_topic_name=queue,
        errors_deadletterqueue_copy_record_enable="true",
        share_delivery_count_limit="2",
    )
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "compression.type": "lz4", "linger.ms": 50}
    )
    for key, value in ((None, b"fine"), (b"k", b"bad"), (b"k", None), (None, b"worn out")):
        producer.produce(topic_name, value, key, 3, timestamp=1000, headers=[("h", b"1")])
    assert producer.flush(PATIENCE_S) == 0
    deliveries: list[Message] = []
    outcomes = {b"fine": AcknowledgeType.ACCEPT, b"worn out": AcknowledgeType.RELEASE}
    with share_consumer(bootstrap_servers, group_id, [topic_name]) as source:

        def acknowledge(message: Message) -> None:
            source.acknowledge(
                message, outcomes.get(message.value() or b"", AcknowledgeType.REJECT)
            )
            deliveries.append(message)

        poll_share(source, lambda: len(deliveries) == 5, acknowledge)
        assert set(source.commit_sync(timeout=PATIENCE_S).values()) == {None}
    with consumer(bootstrap_servers, unique("group")) as reader:
        reader.subscribe([queue])
        letters = take(reader, 3)
    assert [(letter.key(), letter.value()) for letter in letters] == [
        (b"k", b"bad"),
        (b"k", None),
        (None, b"worn out"),
    ]
    for offset, letter in enumerate(letters, 1):
        worn_out = offset == 3
        assert letter.partition() == 3 % 2
        kind, timestamp_ms = letter.timestamp()
        assert kind == TIMESTAMP_CREATE_TIME and timestamp_ms > 1000, "the time of the write"
        assert letter.headers() == [
            *([("h", b"1")] if target == "headrace" else []),
            ("__dlq.errors.topic", topic_name.encode()),
            ("__dlq.errors.partition", b"3"),
            ("__dlq.errors.offset", str(offset).encode()),
            ("__dlq.errors.group", group_id.encode()),
            ("__dlq.errors.delivery.count", b"2" if worn_out else b"1"),
            (
                "__dlq.errors.message",
                b"Offset delivery count exceeded the threshold."
                if worn_out
                else b"Offset rejected by client.",
            ),
        ]
