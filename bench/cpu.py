"""CPU seconds that a broker spends for each GiB of record values.

Throughput on a shared machine measures clients as much as brokers. CPU time is the broker's own:
user and system time of its process, of all threads, before and after one client's work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from bench import clients, measurements
from bench.measurements import Broker, Scale

RECORD_BYTES = 1024
GIB = 1 << 30

Work = Callable[[Broker, Scale], float]
"""Have one client do its work; return the bytes of record values that the broker moved."""


@dataclass(slots=True)
class CpuResult:
    """CPU seconds per GiB by broker name, in the order of the runs."""

    name: str
    runs: dict[str, list[float]] = field(default_factory=dict)

    def median(self, broker: str) -> float | None:
        """Return a broker's median, or None if it was not measured."""
        values = self.runs.get(broker)
        return median(values) if values else None


def _produce_librdkafka(broker: Broker, scale: Scale) -> float:
    records = scale.large_records
    with measurements.topic(broker) as name:
        clients.librdkafka_produce(broker.bootstrap_servers, name, records, RECORD_BYTES)
    return (records + records // 5) * RECORD_BYTES  # bench/produce.py warms up with a fifth


def _produce_java(broker: Broker, scale: Scale) -> float:
    with measurements.topic(broker) as name:
        clients.java_produce(broker.bootstrap_servers, name, scale.large_records, RECORD_BYTES)
    return scale.large_records * RECORD_BYTES


def _consume_librdkafka(broker: Broker, scale: Scale) -> float:
    name = measurements.filled_topic(broker.bootstrap_servers, scale.large_records)
    clients.librdkafka_consume(broker.bootstrap_servers, name, scale.large_records)
    return scale.large_records * RECORD_BYTES


def _consume_java(broker: Broker, scale: Scale) -> float:
    name = measurements.filled_topic(broker.bootstrap_servers, scale.large_records)
    clients.java_consume(broker.bootstrap_servers, name, scale.large_records)
    return scale.large_records * RECORD_BYTES


def _share_consume(broker: Broker, scale: Scale) -> float:
    measurements.share_consume(broker, scale, consumers=1)
    return scale.large_records * RECORD_BYTES


WORK: Mapping[str, Work] = {
    "produce, librdkafka": _produce_librdkafka,
    "produce, Java (16 KiB batches)": _produce_java,
    "consume, librdkafka": _consume_librdkafka,
    "consume, Java": _consume_java,
    "share-consume, Java, 1 consumer": _share_consume,
}


def seconds_per_gib(broker: Broker, scale: Scale, work: Work) -> float:
    """Return the CPU seconds that the broker spent for each GiB of ``work``."""
    if work in (_consume_librdkafka, _consume_java, _share_consume):
        # Filling the topic is not part of the work.
        measurements.filled_topic(broker.bootstrap_servers, scale.large_records)
    before = measurements.cpu_seconds(broker.pid)
    moved_bytes = work(broker, scale)
    return (measurements.cpu_seconds(broker.pid) - before) / (moved_bytes / GIB)
