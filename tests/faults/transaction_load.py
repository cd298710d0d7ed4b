"""Transactions on a broker, in a process of its own: `python transaction_load.py BOOTSTRAP TOPIC
GROUP TAG`.

Each transaction writes its number to every partition of TOPIC, and commits it as GROUP's offset of
partition 0. Every fourth one is aborted. After the acknowledgement it prints "T number" for a
commit and "X number" for an abort.
"""

from __future__ import annotations

import itertools
import sys

from confluent_kafka import Consumer, Producer, TopicPartition

QUIET = {"log_level": 0}
PARTITIONS = range(3)


def main() -> None:
    bootstrap, topic, group, tag = sys.argv[1:]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **QUIET})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": tag, **QUIET})
    producer.init_transactions()
    for number in itertools.count(1):
        producer.begin_transaction()
        for partition in PARTITIONS:
            producer.produce(topic, b"%d" % number, partition=partition)
        producer.flush()
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, number)], consumer.consumer_group_metadata()
        )
        if number % 4:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        print("T" if number % 4 else "X", number, flush=True)


if __name__ == "__main__":
    main()
