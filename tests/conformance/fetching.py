"""A client that fetches, within a fetch session or without one."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.conformance.world import OK, Topic, World, outcome

Partition = tuple[Topic, int]
Told = dict[Partition, str]
FIRST_WITH_SESSIONS, LAST_WITH_NAMES, FIRST_WITH_IDS, LATEST_VERSION = 7, 12, 13, 18
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a Fetch.

    :param told: each partition in the answer as "0-4 of 5" (first and last offset of its records,
        high watermark), as "of 5" without records, with ", from 2" if the log does not start at 0;
        or its error
    """

    error: str
    session_id: int
    told: Told


class Fetcher:
    """A client that names its session and counts its epoch, but asks only for the partitions that
    it is given.
    """

    def __init__(self, world: World, version: int = LATEST_VERSION) -> None:
        self.world, self.version = world, version
        self.session_id, self.epoch = 0, 0
        self.topics: dict[Any, Topic] = {}

    def open(self, offsets: Mapping[Partition, int], **how: Any) -> Told:
        """Open a session; return the partitions in the answer."""
        self.session_id = self.epoch = 0
        answer = self.fetch(offsets, **how)
        assert answer.error == OK
        assert answer.session_id > 0
        return answer.told

    def go_on(self, offsets: Mapping[Partition, int] | None = None, **how: Any) -> Told:
        """Fetch in the session; return the partitions in the answer."""
        answer = self.fetch(offsets or {}, **how)
        assert (answer.error, answer.session_id) == (OK, self.session_id)
        return answer.told

    def fetch(self, offsets: Mapping[Partition, int], **how: Any) -> Answer:
        """Fetch from these offsets."""
        return self.receive(self.send(offsets, **how))

    def partition(self, topic: Topic, offset: int, **how: Any) -> Any:
        """Fetch from partition 0 outside of a session; return the whole answer about it."""
        response = self.world.connection.receive_message(
            self.send({(topic, 0): offset}, epoch=-1, **how)
        )
        ((one,),) = (found.partitions for found in response.responses)
        return one

    def send(
        self,
        offsets: Mapping[Partition, int],
        *,
        forget: Sequence[Partition] = (),
        max_wait: int = 0,
        min_bytes: int = 1,
        max_bytes: int = MIB,
        partition_max_bytes: int = MIB,
        committed: bool = False,
        session_id: int | None = None,
        epoch: int | None = None,
        connection: Any = None,
        last_fetched_epoch: int = -1,
    ) -> Any:
        """Send a Fetch without waiting for its answer."""
        asked: dict[Topic, list[dict[str, Any]]] = {}
        for (topic, partition), offset in offsets.items():
            asked.setdefault(topic, []).append(
                {
                    "partition": partition,
                    "fetch_offset": offset,
                    "log_start_offset": -1,
                    "partition_max_bytes": partition_max_bytes,
                    "current_leader_epoch": -1,
                    "last_fetched_epoch": last_fetched_epoch,
                }
            )
        forgotten: dict[Topic, list[int]] = {}
        for topic, partition in forget:
            forgotten.setdefault(topic, []).append(partition)
        self.epoch = self.epoch if epoch is None else epoch
        return (connection or self.world.connection).send_message(
            1,
            self.version,
            max_wait=max_wait,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            session_id=self.session_id if session_id is None else session_id,
            session_epoch=self.epoch,
            topics=[
                {**self._name(topic), "partitions": partitions}
                for topic, partitions in asked.items()
            ],
            forgotten_topics_data=[
                {**self._name(topic), "partitions": partitions}
                for topic, partitions in forgotten.items()
            ],
        )

    def receive(self, sent: Any, connection: Any = None) -> Answer:
        """Return the answer to a request that was sent."""
        response = (connection or self.world.connection).receive_message(sent)
        told = {}
        for topic in response.responses:
            known = self.topics[topic.topic_id if self.version >= FIRST_WITH_IDS else topic.topic]
            told |= {(known, one.partition_index): _told(one) for one in topic.partitions}
        answer = Answer(outcome(response.error_code), response.session_id, told)
        if answer.error == OK and self.epoch >= 0:
            self.session_id = answer.session_id
            self.epoch = 1 if self.epoch == 0x7FFF_FFFF else self.epoch + 1
        return answer

    def _name(self, topic: Topic) -> dict[str, Any]:
        self.topics[topic.id] = self.topics[topic.name] = topic
        return {"topic_id": topic.id, "topic": topic.name}


def _told(one: Any) -> str:
    if one.error_code:
        return outcome(one.error_code)
    data, offsets = bytes(one.records or b""), []
    while data:
        base_offset, size = struct.unpack_from(">qi", data)
        (last_offset_delta,) = struct.unpack_from(">i", data, 23)
        offsets += [base_offset, base_offset + last_offset_delta]
        data = data[size + 12 :]
    read = f"{offsets[0]}-{offsets[-1]} " if offsets else ""
    start = f", from {one.log_start_offset}" if one.log_start_offset else ""
    return f"{read}of {one.high_watermark}{start}"
