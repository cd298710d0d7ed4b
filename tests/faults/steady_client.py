"""A client that works through every fault: `python steady_client.py KIND BOOTSTRAP TOPIC GROUP`.

It produces idempotently to partitions 0 and 1 of a topic, and consumes it in a group. A line for
each acknowledgement: "P partition offset value" for a record, "C partition offset" for a committed
offset. Kinds: librdkafka, librdkafka-848 (the consumer protocol), kafka-python, aiokafka.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable

PAUSE_S = 0.05
TAG = f"{os.getpid()}"
SESSION_MS = 6000


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def values() -> itertools.count[int]:
    return itertools.count()


# librdkafka ---------------------------------------------------------------------------------------


def produce_librdkafka(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Message, Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )

    def delivered(error: object, message: Message) -> None:
        # a record that the broker already had, sent again, may have no offset
        if error is None and message.offset() is not None and message.offset() >= 0:
            say("P", message.partition(), message.offset(), message.value().decode())

    for n in values():
        producer.produce(topic, f"{TAG}-{n}", partition=n % 2, on_delivery=delivered)
        producer.poll(PAUSE_S)


def consume_librdkafka(bootstrap: str, topic: str, group: str, protocol: str) -> None:
    from confluent_kafka import Consumer, KafkaException

    configs = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
    if protocol == "classic":
        configs["session.timeout.ms"] = SESSION_MS
    consumer = Consumer(configs)
    consumer.subscribe([topic])
    while True:
        if not [one for one in consumer.consume(100, timeout=0.3) if one.error() is None]:
            continue
        try:
            for position in consumer.commit(asynchronous=False):
                if position.error is None and position.offset >= 0:
                    say("C", position.partition, position.offset)
        except KafkaException:
            pass  # the records come again


# kafka-python -------------------------------------------------------------------------------------


def produce_kafka_python(bootstrap: str, topic: str) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    producer = KafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, reconnect_backoff_max_ms=500
    )
    for n in values():
        value = f"{TAG}-{n}"
        try:
            done = producer.send(topic, value.encode(), partition=n % 2).get(120)
        except KafkaError:
            continue
        say("P", done.partition, done.offset, value)
        time.sleep(PAUSE_S)


def consume_kafka_python(bootstrap: str, topic: str, group: str) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1000,
        reconnect_backoff_max_ms=500,
    )
    while True:
        try:
            if not consumer.poll(timeout_ms=300):
                continue
            positions = {one: consumer.position(one) for one in consumer.assignment()}
            consumer.commit()
            for one, offset in positions.items():
                say("C", one.partition, offset)
        except KafkaError:
            time.sleep(PAUSE_S)


# aiokafka -----------------------------------------------------------------------------------------


async def produce_aiokafka(bootstrap: str, topic: str) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        for n in values():
            value = f"{TAG}-{n}"
            try:
                done = await producer.send_and_wait(topic, value.encode(), partition=n % 2)
            except KafkaError:
                continue
            say("P", done.partition, done.offset, value)
            await asyncio.sleep(PAUSE_S)


async def consume_aiokafka(bootstrap: str, topic: str, group: str) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1000,
    )
    async with consumer:
        while True:
            try:
                if not await consumer.getmany(timeout_ms=300):
                    continue
                positions = {one: await consumer.position(one) for one in consumer.assignment()}
                await consumer.commit(positions)
                for one, offset in positions.items():
                    say("C", one.partition, offset)
            except KafkaError:
                await asyncio.sleep(PAUSE_S)


async def aiokafka(bootstrap: str, topic: str, group: str) -> None:
    await asyncio.gather(
        produce_aiokafka(bootstrap, topic), consume_aiokafka(bootstrap, topic, group)
    )


def forever(work: Callable[[], object]) -> None:
    """Run this in a thread; the process ends when it does, and is started again."""

    def until_it_fails() -> None:
        try:
            work()
        finally:
            os._exit(1)

    threading.Thread(target=until_it_fails, daemon=True).start()


def main() -> None:
    kind, bootstrap, topic, group = sys.argv[1:]
    logging.disable()
    if kind.startswith("librdkafka"):
        protocol = "consumer" if kind.endswith("848") else "classic"
        forever(lambda: produce_librdkafka(bootstrap, topic))
        forever(lambda: consume_librdkafka(bootstrap, topic, group, protocol))
    elif kind == "kafka-python":
        forever(lambda: produce_kafka_python(bootstrap, topic))
        forever(lambda: consume_kafka_python(bootstrap, topic, group))
    else:
        forever(lambda: asyncio.run(aiokafka(bootstrap, topic, group)))
    threading.Event().wait()


if __name__ == "__main__":
    main()
