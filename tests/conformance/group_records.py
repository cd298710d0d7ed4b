"""The records of one group in ``__consumer_offsets``, as its coordinator has written them."""

from __future__ import annotations

from headrace.groups.record_schemas import decode
from headrace.groups.records import GroupRecord
from headrace.protocol import record_batch
from tests.conformance.world import World

TOPIC = "__consumer_offsets"


def group_records(world: World, group_id: str) -> list[GroupRecord]:
    """Return the records of a group, oldest first."""
    found = []
    (topic,) = world.connection.ask(
        3, 12, topics=[{"name": TOPIC}], allow_auto_topic_creation=False
    ).topics
    for partition in range(len(topic.partitions)):
        for record in _records(world, partition):
            if record.group_id == group_id:
                found.append(record)
    return found


def _records(world: World, partition: int) -> list[GroupRecord]:
    found = []
    offset = 0
    while True:
        asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 24}
        answer = world.ask(
            1, 12, max_bytes=1 << 25, topics=[{"topic": TOPIC, "partitions": [asked]}]
        )
        data = bytes(answer.responses[0].partitions[0].records or b"")
        if not data:
            return found
        for position, header in record_batch.headers(data):
            offset = header.last_offset + 1
            if header.is_control:
                continue
            for record in record_batch.records(memoryview(data)[position:]):
                value = None if record.value is None else bytes(record.value)
                decoded = decode(bytes(record.key), value)
                if decoded is not None:
                    found.append(decoded)
