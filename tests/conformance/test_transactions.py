"""Share groups over a log with transactions: the records that each isolation level acquires."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance.members import BRIEFLY_MS, Member, acquired_offsets
from tests.conformance.world import NO_OFFSET, OK, PATIENCE_S, Topic, World
from tests.support import unique, wait_until
from tests.wire_client import batch


@dataclass(slots=True)
class TransactionalProducer:
    """A producer with a transactional id."""

    topic: Topic
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0

    @classmethod
    def of(cls, topic: Topic) -> TransactionalProducer:
        producer = cls(topic, unique("transactions"))
        world = topic.world
        assert world.find_coordinator(producer.transactional_id, 1)[0] == OK
        made = world.ask(
            22, 4, transactional_id=producer.transactional_id, transaction_timeout=60_000
        )
        assert made.error_code == 0, made
        producer.producer_id, producer.epoch = made.producer_id, made.producer_epoch
        return producer

    @property
    def _who(self) -> dict[str, object]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def write(self, records: int) -> None:
        """Write records in a transaction, which begins with the first."""
        names = {f"v3_and_below_{name}": value for name, value in self._who.items()}
        topics = [{"name": self.topic.name, "partitions": [0]}]

        def added() -> bool:
            """Return False while the previous transaction is still being ended."""
            answer = self.topic.world.ask(24, 3, **names, v3_and_below_topics=topics)
            code = (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            )
            assert code in (0, 51), answer  # 51: CONCURRENT_TRANSACTIONS
            return code == 0

        wait_until(added, PATIENCE_S, "the partition to be in the transaction")
        self.topic.append(
            batch(
                [b"v"] * records,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequence,
                transactional=True,
            ),
            transactional_id=self.transactional_id,
        )
        self.sequence += records

    def end(self, *, commit: bool) -> None:
        """Commit or abort, and wait for the marker."""
        before = self.topic.end_offset()
        assert self.topic.world.ask(26, 3, **self._who, committed=commit).error_code == 0
        wait_until(
            lambda: self.topic.end_offset(committed=True) == before + 1, PATIENCE_S, "the marker"
        )


def three_transactions(world: World) -> Topic:
    """A log of 0-2 committed, marker 3, 4-6 aborted, marker 7, and 8-9 without a transaction."""
    topic = world.topic()
    producer = TransactionalProducer.of(topic)
    producer.write(3)
    producer.end(commit=True)
    producer.write(3)
    producer.end(commit=False)
    topic.produce(2)
    return topic


def acquired(member: Member) -> list[int]:
    """Return the offsets that repeated fetches acquire until nothing is left: a fetch may end at a
    marker.
    """
    offsets: set[int] = set()
    while runs := member.fetch(wait_ms=BRIEFLY_MS):
        offsets |= acquired_offsets(runs)
    return sorted(offsets)


def test_everything_is_acquired_when_uncommitted_is_read(world: World) -> None:  # case 45
    topic = three_transactions(world)
    assert acquired(world.earliest_group().join(topic)) == [*range(10)]


# case 45
def test_records_of_an_open_transaction_are_acquired_when_uncommitted_is_read(world: World) -> None:
    topic = world.topic()
    TransactionalProducer.of(topic).write(3)
    assert world.earliest_group().join(topic).fetch() == "0-2 c1"


def test_an_open_transaction_is_waited_for_when_committed_is_read(world: World) -> None:  # case 46
    topic = world.topic()
    producer = TransactionalProducer.of(topic)
    producer.write(1)
    member = world.earliest_group(share_isolation_level="read_committed").join(topic)
    assert member.fetch_nothing()
    producer.end(commit=True)
    assert acquired(member) == [0, 1]  # 1 is the marker


def test_aborted_records_are_archived_when_committed_is_read(
    world: World, differs: Callable[..., Any]
) -> None:
    topic = three_transactions(world)
    group = world.earliest_group(share_isolation_level="read_committed")
    member = group.join(topic)
    assert acquired(member) == [0, 1, 2, 3, 7, 8, 9]  # 3 and 7 are markers
    # The aborted records count as done at once; the coordinator learns of it with the next write,
    # not of the records.
    assert group.offsets(topic) == (NO_OFFSET, NO_OFFSET)
    assert member.ack("0-3 accept,accept,accept,gap") == OK
    assert group.lag(topic) == 3
    assert group.state(topic).batches == differs(
        "START-OFFSET of a share group", kafka="0-2 state 2 c1, 3-3 state 4 c1", headrace=""
    )
