"""Produce with librdkafka as fast as it goes: `produce.py BOOTSTRAP TOPIC RECORDS RECORD_BYTES`
prints JSON.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Message, Producer


def main() -> None:
    bootstrap, topic, records, record_bytes = (
        sys.argv[1],
        sys.argv[2],
        int(sys.argv[3]),
        int(sys.argv[4]),
    )
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    refused: list[object] = []

    def delivered(error: object, _: Message) -> None:
        if error is not None:
            refused.append(error)

    def send(count: int) -> float:
        started, value = time.perf_counter(), bytes(record_bytes)
        for n in range(count):
            while True:
                try:
                    producer.produce(topic, value, on_delivery=delivered)
                    break
                except BufferError:  # its queue is full
                    producer.poll(0.01)
            if n % 100 == 0:
                producer.poll(0)
        producer.flush(120)
        return time.perf_counter() - started

    send(records // 5)  # connecting, and getting warm, are not the speed
    seconds = send(records)
    assert not refused, refused[0]
    print(
        json.dumps({"mib_per_s": records * record_bytes / seconds / (1 << 20), "seconds": seconds})
    )


if __name__ == "__main__":
    main()
