"""Programs that produce, consume and end, and have configured no logging: what they write to stderr
comes from their client library, or from a broker in their process.

``python quiet_programs.py PROGRAM SERVERS TOPIC GROUP``; with ``embedded`` for the servers, the
broker is in the process, and ends after the clients.
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

import headrace
from headrace.blocking import ShareConsumer

RECORDS = 100


def run_librdkafka(servers: str, topic: str, group: str, protocol: str) -> None:
    """Run a producer and a consumer of librdkafka."""
    producer = Producer({"bootstrap.servers": servers})
    for _ in range(RECORDS):
        producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    settings = {"group.id": group, "auto.offset.reset": "earliest", "group.protocol": protocol}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.subscribe([topic])
    count = 0
    while count < RECORDS:
        count += len(consumer.consume(RECORDS - count, 60))
    consumer.commit(asynchronous=False)
    consumer.close()


def run_kafka_python(servers: str, topic: str, group: str) -> None:
    """Run a producer and a consumer of kafka-python."""
    producer = KafkaProducer(bootstrap_servers=servers)
    for _ in range(RECORDS):
        producer.send(topic, b"x")
    producer.flush()
    settings = {"group_id": group, "auto_offset_reset": "earliest"}
    consumer = KafkaConsumer(topic, bootstrap_servers=servers, **settings)
    for _ in range(RECORDS):
        next(consumer)
    consumer.commit()
    consumer.close()
    producer.close()


async def run_aiokafka(servers: str, topic: str, group: str) -> None:
    """Run a producer and a consumer of aiokafka."""
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for _ in range(RECORDS):
            await producer.send(topic, b"x")
    settings = {"group_id": group, "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(topic, bootstrap_servers=servers, **settings) as consumer:
        for _ in range(RECORDS):
            await anext(consumer)
        await consumer.commit()


def run_share_consumer(servers: str, topic: str, group: str) -> None:
    """Run a producer of librdkafka and headrace's share consumer."""
    producer = Producer({"bootstrap.servers": servers})
    for _ in range(RECORDS):
        producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    conf = {"bootstrap.servers": servers, "group.id": group}
    count = 0
    with ShareConsumer(conf, [topic], start="earliest") as queue:
        while count < RECORDS:
            records = queue.poll(timeout=60)
            queue.accept(records)
            count += len(records)


def run(program: str, servers: str, topic: str, group: str) -> None:
    """Run a program on a topic."""
    if program == "aiokafka":
        asyncio.run(run_aiokafka(servers, topic, group))
    elif program == "kafka-python":
        run_kafka_python(servers, topic, group)
    elif program == "headrace":
        run_share_consumer(servers, topic, group)
    else:
        run_librdkafka(servers, topic, group, program)


if __name__ == "__main__":
    _, chosen, address, *names = sys.argv
    if address == "embedded":
        with headrace.Broker() as broker:
            run(chosen, broker.bootstrap_servers, *names)
    else:
        run(chosen, address, *names)
