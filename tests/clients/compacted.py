"""A compacted topic with every case that compaction treats specially, and its expected content."""

from __future__ import annotations

import random
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 12
PATIENCE_S = 120

Read = tuple[int, str, str | None]
"""(offset, key, value)"""


class CompactedTopic:
    """A topic with one partition, written by producers with each codec and by two transactional
    ones.

    Timestamps are in the near future, with small steps, so that ``segment.ms`` ends segments.
    """

    def __init__(
        self, bootstrap_servers: str, name: str, rng: random.Random, **configs: str
    ) -> None:
        self.servers, self.name, self.rng = bootstrap_servers, name, rng
        self.time_ms = int(time.time() * 1000) + 1_800_000
        self.serial = 0
        self.committed: list[tuple[str, str | None]] = []
        settings = {
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            **configs,
        }
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(30)
        common = {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 20,
            "batch.num.messages": 10_000,
        }
        self.producers = [
            Producer(
                {
                    **common,
                    "compression.type": codec,
                    "enable.idempotence": codec in ("gzip", "zstd"),
                }
            )
            for codec in CODECS
        ]
        self.transactional = [
            Producer({**common, "compression.type": codec, "transactional.id": f"{name}-{codec}"})
            for codec in ("none", "lz4")
        ]
        for producer in self.transactional:
            producer.init_transactions(30)

    def _send(
        self, producer: Producer, count: int, key: int | None = None
    ) -> list[tuple[str, str | None]]:
        sent: list[tuple[str, str | None]] = []
        for _ in range(count):
            self.serial += 1
            self.time_ms += self.rng.randint(0, 20)
            name = f"k{self.rng.randrange(KEYS) if key is None else key}"
            value = None if key is None and self.rng.random() < 0.2 else str(self.serial).zfill(100)
            producer.produce(self.name, key=name, value=value, timestamp=self.time_ms)
            sent.append((name, value))
        assert producer.flush(30) == 0
        return sent

    def write(self, rounds: int) -> None:
        """Write random batches, some in transactions, some of those aborted; then close the
        segments.
        """
        for _ in range(rounds):
            if self.rng.random() < 0.4:
                producer = self.rng.choice(self.transactional)
                producer.begin_transaction()
                sent = self._send(producer, self.rng.randint(1, 5)) + self._send(producer, 2)
                if self.rng.random() < 0.6:
                    producer.commit_transaction(30)
                    self.committed += sent
                else:
                    producer.abort_transaction(30)
            else:
                self.committed += self._send(
                    self.rng.choice(self.producers), self.rng.randint(1, 8)
                )
        for _ in range(2):
            self.time_ms += 1000
            self.committed += self._send(self.producers[0], 1, key=99)

    def wanted(self, *, tombstones: bool = True) -> list[tuple[str, str | None]]:
        """Return the last record of each key, in order, without the last segment, which has one
        record.
        """
        sealed, last = self.committed[:-1], self.committed[-1]
        final = {key: number for number, (key, _) in enumerate(sealed)}
        kept = [one for number, one in enumerate(sealed) if final[one[0]] == number]
        return [one for one in kept if tombstones or one[1] is not None] + [last]

    def read(self, isolation_level: str = "read_uncommitted", start: int = 0) -> list[Read]:
        """Read from an offset to the end with librdkafka."""
        settings = {
            "bootstrap.servers": self.servers,
            "group.id": self.name,
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
        source = Consumer(settings)
        source.assign([TopicPartition(self.name, 0, start)])
        found: list[Read] = []
        while True:
            message = source.poll(30)
            assert message is not None, "no record, and no end either"
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                break
            key, value = message.key(), message.value()
            assert key is not None
            found.append(
                (message.offset(), key.decode(), None if value is None else value.decode())
            )
        end = source.get_watermark_offsets(TopicPartition(self.name, 0), timeout=30)[1]
        assert source.position([TopicPartition(self.name, 0)])[0].offset == end
        source.close()
        return found

    def wait_until_compacted(self, *, tombstones: bool = True) -> list[Read]:
        """Wait until only the expected records are left, and return them."""
        wanted = self.wanted(tombstones=tombstones)

        def compacted() -> list[Read]:
            found = self.read()
            return found if [(key, value) for _, key, value in found] == wanted else []

        return wait_until(
            compacted, PATIENCE_S, f"{self.name} to be compacted to {wanted}", interval_s=0.3
        )
