"""Records per second of CPU that a task reads: the columnar reader beside librdkafka with an object
for each record.

Run it with ``python -m bench.columnar_reader``. Both end with the same Arrow batches. CPU is that
of the reading process alone, without the broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.spark.option_parsing import KafkaOptions
from headrace.spark.reader.columns import SPARK_SCHEMA, arrow_schema
from headrace.spark.reader.log_reader import read
from headrace.spark.reader.ranges import OffsetRange
from tests.support import HeadraceProcess, unique

PARTITIONS = 4
ARROW_SCHEMA = arrow_schema(SPARK_SCHEMA)
ROUNDS = 3
_CHUNK_RECORDS = 2000


def columnar(bootstrap_servers: str, topic: str, records: int) -> None:
    """Read with `headrace.spark.reader.log_reader`."""
    ranges = [
        OffsetRange(topic, partition, 0, records // PARTITIONS) for partition in range(PARTITIONS)
    ]
    assert sum(batch.num_rows for batch in read(KafkaOptions(bootstrap_servers), ranges)) == records


def message_by_message(bootstrap_servers: str, topic: str, records: int) -> None:
    """Read with confluent_kafka's consumer, and make a tuple of each message."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "queued.min.messages": 20_000,
            "fetch.queue.backoff.ms": 10,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    read_records = 0
    while read_records < records:
        rows = [
            _row(message)
            for message in consumer.consume(_CHUNK_RECORDS, 1)
            if message.error() is None
        ]
        read_records += len(rows)
        if rows:
            columns = zip(zip(*rows, strict=True), ARROW_SCHEMA, strict=True)
            pa.RecordBatch.from_arrays(
                [pa.array(c, type=kind.type) for c, kind in columns], schema=ARROW_SCHEMA
            )
    consumer.close()


def _row(message: Any) -> tuple[Any, ...]:
    kind, timestamp_ms = message.timestamp()
    place = (message.topic(), message.partition(), message.offset())
    return (message.key(), message.value(), *place, timestamp_ms * 1000, kind - 1)


READERS: dict[str, Callable[[str, str, int], None]] = {
    "librdkafka, a message per record": message_by_message,
    "columnar": columnar,
}


def measure(records: int, record_bytes: int) -> dict[str, float]:
    """Return records per second of the reader's CPU, by reader; the best of several rounds."""
    with HeadraceProcess() as broker:
        topic = unique("bench")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        for index in range(records):
            producer.produce(topic, b"x" * record_bytes, partition=index % PARTITIONS)
            if index % 10_000 == 0:
                producer.flush(60)
        assert producer.flush(60) == 0
        least = dict.fromkeys(READERS, float("inf"))
        for _ in range(ROUNDS):
            for name, reader in READERS.items():
                begun_s = time.process_time()
                reader(broker.bootstrap_servers, topic, records)
                least[name] = min(least[name], time.process_time() - begun_s)
    return {name: records / seconds for name, seconds in least.items()}


RECORDS = {100: 400_000, 1024: 200_000}
"""Number of records by their size."""

if __name__ == "__main__":
    for record_bytes, records in RECORDS.items():
        for name, rate in measure(records, record_bytes).items():
            print(f"{record_bytes:5} B, {name}: {rate:10,.0f} records per second of CPU")
