"""Copy a topic exactly once with librdkafka: `python transactional_copy.py BOOTSTRAP SOURCE
DESTINATION GROUP ID`.

Records and committed offsets are in one transaction, under the transactional id ID. The program
ends with the first error, and prints "copied n" for each transaction.
"""

from __future__ import annotations

import faulthandler
import os
import sys

from confluent_kafka import Consumer, KafkaException, Producer

HANGS_AFTER_S = 5
"""Limit of a send_offsets_to_transaction: librdkafka may wait for ever when the broker was
restarted (its issue 5511).
"""


def copy(bootstrap: str, source: str, destination: str, group: str, transactional_id: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 1500,
            "heartbeat.interval.ms": 300,
            "log_level": 2,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "reconnect.backoff.max.ms": 200,
            "log_level": 2,
        }
    )
    producer.init_transactions()
    consumer.subscribe([source])
    while True:
        messages = consumer.consume(20, timeout=0.1)
        if not messages:
            continue
        faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
        producer.begin_transaction()
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            producer.produce(destination, message.value(), message.key(), message.partition())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        producer.commit_transaction()
        faulthandler.cancel_dump_traceback_later()
        print("copied", len(messages), flush=True)


if __name__ == "__main__":
    try:
        copy(*sys.argv[1:])
    except KafkaException as error:
        print("failed", error, flush=True)
    os._exit(1)  # librdkafka may wait for a broker for ever before it lets go of a producer
