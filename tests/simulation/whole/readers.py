"""Readers of partitions, with read_uncommitted and read_committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.protocol import record_batch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.record_batch import Record

from ..witness import Violation
from .actor import Actor
from .book import Where
from .producers import GONE

if TYPE_CHECKING:
    from .world import World

FETCH, LIST_OFFSETS = 1, 2
EARLIEST = -2


class Fetched(NamedTuple):
    """A part of a partition as a reader gets it."""

    records: list[Record]
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int


def decode(partition: Any, offset: int, *, committed: bool) -> Fetched:
    """Return the records from an offset on, without those of aborted transactions."""
    data = memoryview(partition.records or b"")
    aborted = sorted(
        (one.first_offset, one.producer_id) for one in partition.aborted_transactions or ()
    )
    active: set[int] = set()
    records: list[Record] = []
    for position, header in record_batch.headers(data):
        whole = data[position : position + header.size_bytes]
        if not record_batch.has_right_crc(whole, header):
            raise Violation(f"a batch at offset {header.base_offset} has a wrong checksum")
        if header.last_offset < offset:
            continue
        if committed:
            while aborted and aborted[0][0] <= header.last_offset:
                active.add(aborted.pop(0)[1])
            if header.is_control:
                marker = record_batch.marker_in(whole)
                if marker is not None and not marker.commit:
                    active.discard(header.producer_id)
        if not header.is_control and not (
            committed and header.is_transactional and header.producer_id in active
        ):
            records += [one for one in record_batch.records(whole) if one.offset >= offset]
        offset = header.last_offset + 1
    return Fetched(
        records,
        offset,
        partition.log_start_offset,
        partition.high_watermark,
        partition.last_stable_offset,
    )


class Reader(Actor):
    """A consumer without a group, which reads all partitions from their beginning."""

    def __init__(self, world: World, name: str, *, committed: bool) -> None:
        super().__init__(world, name)
        self.committed = committed
        self._positions: dict[Where, int] = {}

    def act(self) -> str:
        places = self.world.places()
        if self.is_waiting or not places:
            return "waits"
        where = self.world.rng.choice(places)
        offset = self._positions.get(where, 0)

        def answered(answer: Any) -> None:
            if answer is not None:
                self._got(where, offset, answer.responses[0].partitions[0])

        self.fetch(where, offset, self.world.rng.choice((100, 1000, 100_000)), answered)
        return f"reads {self.world.topic_name(where)}-{where[1]} from {offset}"

    def fetch(self, where: Where, offset: int, max_bytes: int, answered: Any) -> None:
        """Fetch from one partition."""
        partition = {
            "partition": where[1],
            "fetch_offset": offset,
            "partition_max_bytes": max_bytes,
        }
        self.ask(
            FETCH,
            17,
            answered,
            max_wait=0,
            min_bytes=0,
            max_bytes=max_bytes,
            isolation_level=int(self.committed),
            topics=[{"topic_id": where[0], "partitions": [partition]}],
            forgotten_topics_data=[],
        )

    def _got(self, where: Where, offset: int, partition: Any) -> None:
        gone = GONE if not self.world.exists(where) else ()
        if self.failed(partition.error_code, ErrorCode.OFFSET_OUT_OF_RANGE, *gone):
            # on after what was deleted, sooner or later
            self._positions[where] = offset + 1 if where in self.world.places() else 0
            return
        got = decode(partition, offset, committed=self.committed)
        for record in got.records:
            self.world.book.check_read(where, record, committed=self.committed)
        self.world.counts["records read"] += len(got.records)
        self._positions[where] = got.next_offset

    def start_again(self) -> None:
        """Read from the beginning."""
        self._positions.clear()

    def read_all(self, where: Where) -> tuple[list[Record], Fetched]:
        """Read a partition from its log start to its end, without faults."""
        records: list[Record] = []
        offset = self._log_start_offset(where)
        while True:
            answers: list[Any] = []
            self.fetch(where, offset, 1 << 20, answers.append)
            self.world.machine.loop.settle()
            assert answers and answers[0] is not None, "a fetch is not answered"
            partition = answers[0].responses[0].partitions[0]
            assert not partition.error_code, ErrorCode(int(partition.error_code))
            got = decode(partition, offset, committed=self.committed)
            records += got.records
            end = got.last_stable_offset if self.committed else got.high_watermark
            if got.next_offset == offset and offset < end:
                raise Violation(f"a fetch from offset {offset} is empty, and the end is {end}")
            offset = got.next_offset
            if offset >= end:
                return records, got

    def _log_start_offset(self, where: Where) -> int:
        answers: list[Any] = []
        partition = {"partition_index": where[1], "timestamp": EARLIEST}
        topics = [{"name": self.world.topic_name(where), "partitions": [partition]}]
        self.ask(LIST_OFFSETS, 7, answers.append, isolation_level=0, topics=topics, replica_id=-1)
        self.world.machine.loop.settle()
        offset: int = answers[0].topics[0].partitions[0].offset
        return offset
