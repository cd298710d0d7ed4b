"""End-to-end latency with librdkafka at a steady rate: `latency.py BOOTSTRAP TOPIC SECONDS RATE`
prints JSON.

Producer and consumer live in one process, so that one clock measures: from just before produce() to
the moment at which poll() returned the record. The first two seconds are not counted.
"""

from __future__ import annotations

import json
import statistics
import struct
import sys
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

WARM_UP_S = 2.0
RECORD = struct.Struct(">q92x")


def produce(bootstrap: str, topic: str, seconds: float, rate: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    started = time.perf_counter()
    for n in range(int(seconds * rate)):
        wait_s = started + n / rate - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        producer.produce(topic, RECORD.pack(time.perf_counter_ns()))
        producer.poll(0)
    producer.flush(30)


def main() -> None:
    bootstrap, topic, seconds, rate = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    ends = {
        p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1]
        for p in partitions
    }
    consumer.assign([TopicPartition(topic, p, end) for p, end in ends.items()])
    consumer.poll(0.5)
    producer = threading.Thread(
        target=produce, args=(bootstrap, topic, WARM_UP_S + seconds, rate), daemon=True
    )
    producer.start()
    waits_ms: list[float] = []
    wanted = int((WARM_UP_S + seconds) * rate)
    while len(waits_ms) < wanted:
        message = consumer.poll(10)
        now_ns = time.perf_counter_ns()
        if message is None:
            raise TimeoutError(f"{len(waits_ms)} of {wanted} records came")
        waits_ms.append((now_ns - RECORD.unpack(message.value())[0]) / 1e6)
    consumer.close()
    centiles = statistics.quantiles(waits_ms[int(WARM_UP_S * rate) :], n=100)
    print(json.dumps({"p50_ms": centiles[49], "p99_ms": centiles[98]}))


if __name__ == "__main__":
    main()
