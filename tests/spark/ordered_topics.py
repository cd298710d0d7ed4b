"""Topics for the tests of `kafka-ordered`, and the merge of their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec, TopicMetadata
from pyspark.sql import Row

from headrace.admin import AdminClient as GroupAdmin
from headrace.ordered.ordered_task import OrderedTask
from tests.support import unique, wait_until

Place = tuple[str, int, int]
"""(topic, partition, offset)"""
_NONE = TopicMetadata()
Offsets = Mapping[str, Mapping[str, int]]


@dataclass
class Topics:
    """New topics, in the order of the subscription."""

    bootstrap_servers: str
    names: tuple[str, ...]
    partitions: int

    @classmethod
    def create(
        cls, bootstrap_servers: str, count: int, partitions: int = 1, prefix: str = "input"
    ) -> Topics:
        prefix = unique(prefix)
        made = cls(
            bootstrap_servers, tuple(f"{prefix}-{number}" for number in range(count)), partitions
        )
        for name in made.names:
            made.add(name)
        return made

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def add(self, name: str) -> None:
        for created in self.admin.create_topics([NewTopic(name, self.partitions, 1)]).values():
            created.result(30)
        # Kafka answers before all brokers know the topic.
        wait_until(
            lambda: len(self.admin.list_topics(timeout=10).topics.get(name, _NONE).partitions),
            30,
            name,
        )

    def drop(self, name: str) -> None:
        """Delete a topic, and wait until it no longer exists."""
        self.admin.delete_topics([name])[name].result(30)
        wait_until(
            lambda: name not in self.admin.list_topics(timeout=10).topics,
            30,
            f"the deletion of {name}",
        )

    def drop_records(self, topic: int, before: int, partition: int = 0) -> None:
        """Delete the records before an offset, as retention does."""
        place = TopicPartition(self.names[topic], partition, before)
        self.admin.delete_records([place])[place].result(30)

    def widen(self, name: str, partitions: int) -> None:
        for done in self.admin.create_partitions([NewPartitions(name, partitions)]).values():
            done.result(30)

    def produce(self, topic: int | str, timestamps: Iterable[int], partition: int = 0) -> None:
        """Produce a record for each timestamp; its value is the timestamp."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap_servers, "linger.ms": 5, "batch.num.messages": 7}
        )
        _send(
            producer, topic if isinstance(topic, str) else self.names[topic], timestamps, partition
        )
        assert producer.flush(30) == 0

    def transaction(
        self, topic: int, timestamps: Iterable[int], partition: int = 0, *, commit: bool = True
    ) -> None:
        """Produce in a transaction, and wait for its marker."""
        place = TopicPartition(self.names[topic], partition)
        before = self.end(place)
        producer = Producer(
            {"bootstrap.servers": self.bootstrap_servers, "transactional.id": unique("producer")}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        _send(producer, self.names[topic], timestamps, partition)
        assert producer.flush(30) == 0
        count = self.end(place) - before
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
        wait_until(
            lambda: self.end(place, committed=True) == before + count + 1,
            30,
            "the end of a transaction",
        )

    def end(self, place: TopicPartition, *, committed: bool = False) -> int:
        """Return the end of a partition, or its last stable offset."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        listed = self.admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)
        return int(listed[place].result(30).offset)

    def committed(self, group_id: str) -> dict[str, dict[str, int]]:
        """Return a group's committed offsets in the form of Spark's offsets."""
        admin = GroupAdmin({"bootstrap.servers": self.bootstrap_servers})
        listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[
            group_id
        ].result(30)
        found: dict[str, dict[str, int]] = {}
        for place in listed.topic_partitions:
            found.setdefault(place.topic, {})[str(place.partition)] = place.offset
        return found

    def options(self, **more: Any) -> dict[str, str]:
        """Return reader options: `maxTaskIdleMs=5`, `kafka__group__id="g"`; None removes one."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "subscribe": ",".join(self.names),
            "startingOffsets": "earliest",
            **{name.replace("__", "."): value for name, value in more.items()},
        }
        return {name: str(value) for name, value in options.items() if value is not None}

    def ends(self) -> dict[str, dict[str, int]]:
        """Return the ends of all partitions in the form of Spark's offsets."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": "unused"})
        try:
            return {
                name: {
                    str(p): consumer.get_watermark_offsets(TopicPartition(name, p), 30)[1]
                    for p in self.numbers
                }
                for name in self.names
            }
        finally:
            consumer.close()

    @property
    def numbers(self) -> range:
        return range(self.partitions)

    def merged(
        self, start: Offsets | None = None, end: Offsets | None = None, committed: bool = False
    ) -> list[Place]:
        """Return the records between two offsets in order, task after task.

        The next record is always the one with the smallest timestamp.
        """
        end = end or self.ends()
        records = self._records(end, committed)
        order = []
        for partition in self.numbers:
            merge: OrderedTask[str, int] = OrderedTask(self.names)
            for name in self.names:
                first = (start or {}).get(name, {}).get(str(partition), 0)
                merge.add(name, [(t, o) for t, o in records[name, partition] if o >= first])
            order += [(name, partition, offset) for name, offset in iter(merge.pop, None)]
        return order

    def _records(
        self, ends: Offsets, committed: bool
    ) -> dict[tuple[str, int], list[tuple[int, int]]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        found: dict[tuple[str, int], list[tuple[int, int]]] = {
            (name, partition): [] for name in self.names for partition in self.numbers
        }
        consumer.assign([TopicPartition(*key, 0) for key in found])
        reading = set(found)
        while reading:
            message = consumer.poll(30)
            assert message is not None, f"no record of {reading}"
            key = (message.topic(), message.partition())
            if message.error() is not None:
                reading.discard(key)
            elif message.offset() < ends[key[0]][str(key[1])]:
                found[key].append((message.timestamp()[1], message.offset()))
        consumer.close()
        return found


def _send(producer: Producer, topic: str, timestamps: Iterable[int], partition: int) -> None:
    for timestamp in timestamps:
        # Compacted topics accept only records with a key.
        producer.produce(
            topic, b"%d" % timestamp, b"%d" % timestamp, partition=partition, timestamp=timestamp
        )


def places(rows: Sequence[Row]) -> list[Place]:
    """Return where rows come from, task after task, in the order of Spark within each."""
    return sorted(
        ((row.topic, row.partition, row.offset) for row in rows), key=lambda place: place[1]
    )
