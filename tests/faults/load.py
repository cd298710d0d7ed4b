"""Load on a broker, in a process of its own that is killed with it: `python load.py BOOTSTRAP TOPIC
GROUP TAG`.

A producer, a consumer group and a share group work at once. Each prints a line for what the broker
has acknowledged, after the acknowledgement and never before: "P partition offset value", "C
partition committed-offset", "A partition offset" for an accepted record; and "D partition offset"
for a record delivered to the share group.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time

from confluent_kafka import Consumer, Message, Producer, ShareConsumer

QUIET = {"log_level": 0}


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def produce(bootstrap: str, topic: str, tag: str) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, **QUIET}
    )

    def delivered(error: object, message: Message) -> None:
        if error is None:
            say("P", message.partition(), message.offset(), message.value().decode().rstrip("."))

    for n in itertools.count():
        producer.produce(
            topic, f"{tag}-{n}".encode().ljust(300, b"."), partition=n % 3, on_delivery=delivered
        )
        producer.poll(0)
        if n % 20 == 19:
            time.sleep(0.01)


def consume(bootstrap: str, topic: str, group: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    while True:
        if consumer.consume(50, timeout=0.2):
            for position in consumer.commit(asynchronous=False):
                if position.error is None and position.offset >= 0:
                    say("C", position.partition, position.offset)


def share(bootstrap: str, topic: str, group: str) -> None:
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 40,
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    while True:
        taken = [message for message in consumer.poll(timeout=0.2) if message.error() is None]
        for message in taken:
            say("D", message.partition(), message.offset())
            consumer.acknowledge(message)
        if taken:
            refused = {
                p.partition
                for p, error in consumer.commit_sync(timeout=10.0).items()
                if error is not None
            }
            for message in taken:
                if message.partition() not in refused:
                    say("A", message.partition(), message.offset())


def main() -> None:
    bootstrap, topic, group, tag = sys.argv[1:]
    for work in (
        lambda: produce(bootstrap, topic, tag),
        lambda: consume(bootstrap, topic, group),
        lambda: share(bootstrap, topic, f"{group}-share"),
    ):
        threading.Thread(target=work, daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
