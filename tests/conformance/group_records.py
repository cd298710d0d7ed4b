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
        3,
        12,
        topics=[{"name": TOPIC, "topic_id": None}],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
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
        asked = {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 24,
        }
        answer = world.ask(
            1,
            12,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=1 << 25,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": TOPIC, "partitions": [asked]}],
            forgotten_topics_data=[],
            rack_id="",
            cluster_id=None,
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
