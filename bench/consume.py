"""Consume a topic with librdkafka as fast as it goes: `consume.py BOOTSTRAP TOPIC RECORDS` prints
JSON.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition


def main() -> None:
    bootstrap, topic, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            # By default librdkafka pauses for a second when its queue is full: the quicker the
            # broker, the more often.
            "fetch.queue.backoff.ms": 10,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
    consumed = size_bytes = 0
    started: float | None = None
    while consumed < wanted:
        messages = consumer.consume(10_000, timeout=1.0)
        if started is None and messages:
            started = time.perf_counter()  # connecting and the first fetch are not the speed
        else:
            size_bytes += sum(len(message.value()) for message in messages)
        consumed += len(messages)
    assert started is not None
    seconds = time.perf_counter() - started
    consumer.close()
    print(json.dumps({"mib_per_s": size_bytes / seconds / (1 << 20), "seconds": seconds}))


if __name__ == "__main__":
    main()
