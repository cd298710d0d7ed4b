"""A member of a share group, with its heartbeats, its share session, its acquired records and
acknowledgements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from headrace.protocol import record_batch
from headrace.protocol.errors import ErrorCode
from tests.conformance.world import OK, PATIENCE_S, Group, Topic, outcome
from tests.support import wait_until

TYPES = {"gap": 0, "accept": 1, "release": 2, "reject": 3, "renew": 4}
NOTHING = ""
BRIEFLY_MS = 300
"""Wait of a fetch that is to find nothing."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a heartbeat.

    :param assignment: topic name → partitions; None when the answer has no assignment
    """

    error: str
    epoch: int
    interval_ms: int
    assignment: dict[str, list[int]] | None


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """One partition of a ShareFetch answer. `offsets` are those of all records in its batches."""

    error: str
    ack_error: str
    acquired: str
    offsets: frozenset[int]


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer to a ShareFetch; partitions that are not in it are not in `partitions` either."""

    error: str
    lock_ms: int
    partitions: dict[tuple[UUID, int], FetchedPartition]

    def __getitem__(self, partition: int) -> FetchedPartition:
        """Return the partition with this index, of the only topic that has one."""
        (found,) = (one for (_, index), one in self.partitions.items() if index == partition)
        return found


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The answer to a ShareAcknowledge."""

    error: str
    lock_ms: int
    partitions: dict[int, str]


def batches(text: str) -> list[dict[str, Any]]:
    """Return acknowledgement batches from text: "0-2 accept; 3 release", "1-3
    accept,release,reject", "7-9 5" (types may be numbers).
    """
    made = []
    for one in filter(None, (part.strip() for part in text.split(";"))):
        offsets, _, types = one.partition(" ")
        first, _, last = offsets.partition("-")
        codes = [TYPES[t] if t in TYPES else int(t) for t in filter(None, types.split(","))]
        made.append(
            {
                "first_offset": int(first),
                "last_offset": int(last or first),
                "acknowledge_types": codes,
            }
        )
    return made


class Member:
    """One member, on a connection of its own. It counts its epochs as a client does."""

    def __init__(self, group: Group, member_id: str) -> None:
        self.group, self.id = group, member_id
        self.world = group.world
        self.connection = self.world.connect()
        self.epoch = 0
        self.assignment: dict[str, list[int]] = {}
        """The assignment of the last heartbeat that had one."""
        self.session_epoch = 0
        self.topics: list[Topic] = []
        """The subscribed topics. Requests are about partition 0 of the first, unless they say
        otherwise.
        """

    # --- the group ---

    def heartbeat(
        self,
        *topics: Topic | str,
        epoch: int | None = None,
        rack_id: str | None = None,
        no_topics: bool = False,
    ) -> Beat:
        """Send ShareGroupHeartbeat. It subscribes to the topics that are given, or to [] with
        `no_topics`.
        """
        named = [one if isinstance(one, str) else one.name for one in topics]
        response = self.world.ask(
            76,
            1,
            group_id=self.group.id,
            member_id=self.id,
            rack_id=rack_id,
            member_epoch=self.epoch if epoch is None else epoch,
            subscribed_topic_names=named if named or no_topics else None,
        )
        known = {
            one.id: one.name for one in [*self.topics, *(t for t in topics if isinstance(t, Topic))]
        }
        assignment = response.assignment and {
            known.get(one.topic_id, str(one.topic_id)): sorted(one.partitions)
            for one in response.assignment.topic_partitions
        }
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if assignment is not None:
                self.assignment = assignment
            self.topics += [
                one for one in topics if isinstance(one, Topic) and one not in self.topics
            ]
        interval_ms = round(response.heartbeat_interval.total_seconds() * 1000)
        return Beat(
            outcome(response.error_code, response.error_message),
            self.epoch,
            interval_ms,
            assignment,
        )

    def join(self, *topics: Topic) -> Member:
        """Send heartbeats from epoch 0 on until there are partitions."""
        assert self.heartbeat(*topics, epoch=0).error == OK
        return self.beat_until(lambda: bool(self.assignment), "partitions")

    def beat_until(self, condition: Any, what: str) -> Member:
        """Send heartbeats until `condition()` holds."""

        def beat() -> bool:
            if condition():
                return True
            assert self.heartbeat().error == OK
            return bool(condition())

        wait_until(beat, PATIENCE_S, what, interval_s=0.05)
        return self

    def leave(self) -> Beat:
        return self.heartbeat(epoch=-1)

    # --- the share session ---

    def start_fetch(
        self,
        ack: str | Mapping[int, str] = "",
        *,
        epoch: int | None = None,
        topic: Topic | UUID | None = None,
        partitions: Iterable[int] | None = None,
        forget: Sequence[int] = (),
        wait_ms: int = 5_000,
        min_bytes: int = 1,
        max_bytes: int = 50_000_000,
        max_records: int = 500,
        batch_size: int = 500,
        record_limit: bool = False,
        mode: int | None = None,
        renew: bool = False,
        version: int = 2,
    ) -> Any:
        """Send a ShareFetch without waiting; `finish_fetch` returns the answer.

        At epoch 0 it names the assigned partitions, later those with acknowledgements only, unless
        `partitions` and `topic` are given.
        """
        epoch = self.session_epoch if epoch is None else epoch
        acks = {0: ack} if isinstance(ack, str) and ack else dict(ack) if ack else {}
        if topic is not None or partitions is not None or acks:
            wanted = {self._id(topic): sorted({*(partitions or acks or (0,))})}
        elif epoch == 0:
            wanted = {self._id(one): self.assignment.get(one.name) or [0] for one in self.topics}
        else:
            wanted = {}
        fields: dict[str, Any] = {
            "group_id": self.group.id,
            "member_id": self.id,
            "share_session_epoch": epoch,
            "max_wait": wait_ms,
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "max_records": max_records,
            "batch_size": batch_size,
            "topics": [
                {
                    "topic_id": topic_id,
                    "partitions": [
                        {
                            "partition_index": one,
                            "acknowledgement_batches": batches(acks.get(one, "")),
                        }
                        for one in indexes
                    ],
                }
                for topic_id, indexes in wanted.items()
            ],
            "forgotten_topics_data": [{"topic_id": self._id(topic), "partitions": forget}]
            if forget
            else [],
            "share_acquire_mode": int(record_limit) if mode is None else mode,
            "is_renew_ack": renew,
        }
        return epoch, self.connection.send_message(78, version, **fields)

    def has_answer(self, within_s: float) -> bool:
        """Return whether the answer comes within this time; it stays to be read."""
        return self.connection.has_response(within_s)

    def finish_fetch(self, started: Any) -> Fetched:
        """Return the answer to a ShareFetch that was sent."""
        epoch, sent = started
        response = self.connection.receive_message(sent)
        self._count(epoch, response.error_code)
        assert response.error_message is None
        return Fetched(
            outcome(response.error_code),
            round(response.acquisition_lock_timeout.total_seconds() * 1000),
            {
                (topic.topic_id, one.partition_index): FetchedPartition(
                    outcome(one.error_code, one.error_message),
                    outcome(one.acknowledge_error_code, one.acknowledge_error_message),
                    ", ".join(
                        f"{run.first_offset}-{run.last_offset} c{run.delivery_count}"
                        for run in one.acquired_records
                    ),
                    _offsets(bytes(one.records or b"")),
                )
                for topic in response.responses
                for one in topic.partitions
            },
        )

    def share_fetch(self, ack: str | Mapping[int, str] = "", **options: Any) -> Fetched:
        """Send a ShareFetch and return the whole answer. For the options see `start_fetch`."""
        return self.finish_fetch(self.start_fetch(ack, **options))

    def fetch(self, ack: str = "", *, partition: int = 0, **options: Any) -> str:
        """Send a ShareFetch that must succeed; return what it acquired of one partition, as "0-4
        c1, 7-9 c2".
        """
        fetched = self.share_fetch(ack, **options)
        assert fetched.error == OK, fetched
        found = [one for (_, index), one in fetched.partitions.items() if index == partition]
        for one in found:
            assert (one.error, one.ack_error) == (OK, OK)
            assert one.offsets >= acquired_offsets(one.acquired), (
                "a record was acquired, and did not come"
            )
        return ", ".join(one.acquired for one in found if one.acquired)

    def fetch_nothing(self, **options: Any) -> bool:
        """Return whether a ShareFetch that waits for a moment acquires nothing."""
        fetched = self.share_fetch(**{"wait_ms": BRIEFLY_MS, **options})
        return fetched.error == OK and all(
            (one.error, one.acquired) == (OK, NOTHING) for one in fetched.partitions.values()
        )

    def share_acknowledge(
        self,
        acks: str | Mapping[int, str] = "",
        *,
        epoch: int | None = None,
        topic: Topic | UUID | None = None,
        renew: bool = False,
        version: int = 2,
    ) -> Acknowledged:
        """Send a ShareAcknowledge and return the whole answer. Acknowledgements are those of
        partition 0, or given by partition.
        """
        epoch = self.session_epoch if epoch is None else epoch
        by_partition = {0: acks} if isinstance(acks, str) and acks else dict(acks) if acks else {}
        partitions = [
            {"partition_index": index, "acknowledgement_batches": batches(text)}
            for index, text in by_partition.items()
        ]
        response = self.connection.ask(
            79,
            version,
            group_id=self.group.id,
            member_id=self.id,
            share_session_epoch=epoch,
            topics=[{"topic_id": self._id(topic), "partitions": partitions}] if partitions else [],
            is_renew_ack=renew,
        )
        self._count(epoch, response.error_code)
        assert response.error_message is None
        lock = getattr(response, "acquisition_lock_timeout", None)
        return Acknowledged(
            outcome(response.error_code),
            round(lock.total_seconds() * 1000) if lock is not None else 0,
            {
                one.partition_index: outcome(one.error_code, one.error_message)
                for topic in response.responses
                for one in topic.partitions
            },
        )

    def ack(self, text: str, *, partition: int = 0, **options: Any) -> str:
        """Send a ShareAcknowledge that must succeed; return the error of the acknowledgements of
        one partition.
        """
        answer = self.share_acknowledge({partition: text}, **options)
        assert answer.error == OK, answer
        assert list(answer.partitions) == [partition]
        return answer.partitions[partition]

    def close_session(self) -> None:
        assert self.share_acknowledge(epoch=-1).error == OK

    def vanish(self) -> None:
        """Close the connection."""
        self.connection.close()

    def reconnect(self) -> None:
        """Open another connection."""
        self.connection = self.world.connect()

    def _id(self, topic: Topic | UUID | None) -> UUID:
        if topic is None:
            return self.topics[0].id
        return topic if isinstance(topic, UUID) else topic.id

    def _count(self, epoch: int, error_code: int) -> None:
        if error_code == ErrorCode.NONE:
            self.session_epoch = 0 if epoch == -1 else epoch + 1


def _offsets(data: bytes) -> frozenset[int]:
    """Return the offsets that the batches of `data` span."""
    return frozenset(
        offset
        for _, header in record_batch.headers(data)
        for offset in range(header.base_offset, header.last_offset + 1)
    )


def acquired_offsets(text: str) -> frozenset[int]:
    """Return the offsets in "0-4 c1, 7-9 c2"."""
    runs = [one.split(" ")[0].split("-") for one in text.split(", ") if one]
    return frozenset(offset for first, last in runs for offset in range(int(first), int(last) + 1))
