"""Which records a ShareFetch acquires: where a group begins, in what portions, how often, and for
how long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.conformance.members import BRIEFLY_MS
from tests.conformance.world import OK, World
from tests.support import wait_until


def test_a_group_begins_with_the_oldest_record(world: World) -> None:  # case 29
    topic = world.topic(records=10)
    member = world.earliest_group().join(topic)
    assert member.fetch() == "0-9 c1"
    # With nothing more to give, the next fetch waits as long as it may and names no partition.
    waiting = member.start_fetch(wait_ms=1000)
    assert not member.has_answer(within_s=0.5)
    assert member.finish_fetch(waiting).partitions == {}


def test_a_group_begins_with_what_comes_next(world: World) -> None:  # case 30
    topic = world.topic(records=5)
    member = world.group().join(topic)
    assert member.fetch_nothing()
    topic.produce(2)
    assert member.fetch() == "5-6 c1"


def test_a_group_begins_some_time_ago(world: World) -> None:  # case 30
    topic = world.topic()
    topic.produce(3, age_ms=3 * 3_600_000)
    topic.produce(4)
    assert world.group(share_auto_offset_reset="by_duration:PT1H").join(topic).fetch() == "3-6 c1"
    assert world.group(share_auto_offset_reset="by_duration:PT5H").join(topic).fetch() == "0-6 c1"


def test_a_lock_runs_out(world: World) -> None:  # case 38
    topic = world.topic(records=5)
    member = world.earliest_group(share_record_lock_duration_ms="2000").join(topic)
    fetched = member.share_fetch()
    assert (fetched.lock_ms, fetched[0].acquired) == (2000, "0-4 c1")
    assert member.share_acknowledge().lock_ms == 2000
    assert member.fetch_nothing(wait_ms=100)
    assert (
        wait_until(lambda: member.fetch(wait_ms=BRIEFLY_MS), 10, "the lock to run out") == "0-4 c2"
    )


def test_whole_batches_are_acquired_unless_there_is_a_record_limit(world: World) -> None:  # case 40
    topic = world.topic()
    topic.produce(10, 10)
    member = world.earliest_group().join(topic)
    assert member.fetch(max_records=3) == "0-9 c1"
    assert member.fetch(max_records=4, record_limit=True) == "10-13 c1"
    assert member.fetch(max_records=4, record_limit=True) == "14-17 c1"
    assert member.fetch(max_records=1, record_limit=True) == "18-18 c1"
    assert member.fetch(max_records=50) == "19-19 c1"


def test_acquired_records_come_in_batches_of_the_size_asked_for(world: World) -> None:  # case 41
    topic = world.topic()
    topic.produce(5, 5, 5, 5)
    assert (
        world.earliest_group().join(topic).fetch(batch_size=5)
        == "0-4 c1, 5-9 c1, 10-14 c1, 15-19 c1"
    )
    member = world.earliest_group().join(topic)
    assert member.fetch(batch_size=7, max_records=12) == "0-9 c1, 10-14 c1"
    assert member.fetch(batch_size=1) == "15-19 c1"


@pytest.mark.parametrize("partitions", [2, 4])
def test_each_partition_has_its_turn_when_acknowledgements_come_between_fetches(
    world: World, partitions: int
) -> None:
    topic = world.topic(partitions)
    for partition in range(partitions):
        topic.produce(*[1] * 40, partition=partition)
    member = world.earliest_group().join(topic)
    member.beat_until(
        lambda: len(member.assignment[topic.name]) == partitions, "all partitions of the topic"
    )
    served = set()
    for _ in range(4 * partitions):
        fetched = member.share_fetch(max_records=2, record_limit=True)
        for (_, partition), result in fetched.partitions.items():
            if result.acquired:
                served.add(partition)
                acquired, _ = result.acquired.split(" ")
                assert member.ack(f"{acquired} accept", partition=partition) == OK
    assert served == set(range(partitions))


def test_a_record_is_delivered_five_times_at_most(world: World) -> None:  # case 42
    topic = world.topic(records=2)
    group = world.earliest_group()
    member = group.join(topic)
    assert member.fetch() == "0-1 c1"
    for count in range(2, 6):
        assert member.ack("1 release") == OK
        assert member.fetch() == f"1-1 c{count}"
    assert member.ack("1 release") == OK
    assert member.fetch_nothing()
    assert group.state(topic).batches == "1-1 state 4 c5"
    assert group.lag(topic) == 1


def released_each_time(world: World, records: int, limit: int) -> list[str]:
    """Return the records that each fetch acquires when everything is released after it, until
    nothing is left.
    """
    topic = world.topic(records=records)
    member = world.earliest_group(share_delivery_count_limit=str(limit)).join(topic)
    trace: list[str] = []
    while acquired := member.fetch(wait_ms=BRIEFLY_MS):
        trace.append(acquired)
        for one in acquired.split(", "):
            assert member.ack(f"{one.split(' ')[0]} release") == OK
    return trace


def singles(offsets: Sequence[int], count: int) -> list[str]:
    return [f"{offset}-{offset} c{count}" for offset in offsets]


def test_a_record_that_is_always_released_is_isolated(world: World) -> None:
    assert released_each_time(world, 10, limit=5) == [
        "0-9 c1",
        "0-9 c2",
        "0-9 c3",
        "0-4 c4",
        *singles(range(5), 5),
        "5-9 c4",
        *singles(range(5, 10), 5),
    ]


def test_isolation_halves_step_by_step(world: World) -> None:
    trace = released_each_time(world, 40, limit=10)
    assert trace[:10] == [
        *(f"0-39 c{count}" for count in range(1, 6)),
        "0-19 c6",
        "0-9 c7",
        "0-4 c8",
        "0-1 c9",
        "0-0 c10",
    ]
    assert trace[10:16] == ["1-1 c10", "2-3 c9", "2-2 c10", "3-3 c10", "4-4 c9, 5-5 c8", "4-4 c10"]
    assert len(trace) == 94


def test_a_suspect_batch_waits_until_it_is_delivered_alone(world: World) -> None:
    topic = world.topic()
    topic.produce(5, 5)
    member = world.earliest_group(share_delivery_count_limit="3").join(topic)
    assert member.fetch(batch_size=5) == "0-4 c1, 5-9 c1"
    assert member.ack("5-9 release") == OK
    assert member.fetch() == "5-9 c2"
    assert member.ack("0-4 release; 5-9 release") == OK
    topic.produce(5)
    assert member.fetch() == "0-4 c2"
    assert member.fetch() == "5-5 c3"


@pytest.mark.parametrize(
    ("suspects", "acquired"),
    [("4-9", "0-3 c2, 4-4 c4"), ("5-9", "0-4 c2, 5-9 c4"), ("8-9", "0-7 c2, 8-9 c4")],
)
def test_suspects_are_halved_unless_many_records_precede_them(
    world: World, suspects: str, acquired: str
) -> None:
    member = world.earliest_group().join(world.topic(records=10))
    assert member.fetch() == "0-9 c1"
    for count in (2, 3):
        assert member.ack(f"{suspects} release") == OK
        assert member.fetch() == f"{suspects} c{count}"
    assert member.ack("0-9 release") == OK
    assert member.fetch() == acquired


def test_only_so_many_records_are_in_flight(world: World) -> None:  # case 43
    topic = world.topic()
    topic.produce(*[100] * 25)
    member = world.earliest_group().join(topic)
    for first in range(0, 1800, 300):
        assert member.fetch(max_records=300) == f"{first}-{first + 299} c1"
    assert member.fetch(max_records=300) == "1800-1999 c1"
    assert member.fetch_nothing(max_records=300)
    assert member.ack("500 release") == OK
    assert member.fetch(max_records=300) == "500-500 c2"
    assert member.ack("0-99 accept") == OK
    assert member.fetch(max_records=300) == "2000-2099 c1"


def test_a_group_may_have_another_limit_in_flight(world: World) -> None:
    topic = world.topic()
    topic.produce(*[30] * 10)
    member = world.earliest_group(share_partition_max_record_locks="100").join(topic)
    assert member.fetch() == "0-119 c1"
    assert member.fetch_nothing()


def test_released_records_near_the_limit_in_flight(
    world: World, differs: Callable[..., Any]
) -> None:
    topic = world.topic(records=98)
    member = world.earliest_group(share_partition_max_record_locks="100").join(topic)
    assert member.fetch() == "0-97 c1"
    assert member.ack("1-5 release; 7-9 release") == OK
    assert member.fetch(record_limit=True) == differs(
        "released records in a share-partition close to",
        kafka="1-2 c2",
        headrace="1-5 c2, 7-9 c2",
    )


def test_partitions_share_the_records_that_a_fetch_asks_for(world: World) -> None:
    topic = world.topic(partitions=2)
    topic.produce(5, 5)
    topic.produce(5, 5, partition=1)
    member = world.earliest_group().join(topic)
    taken: list[str] = []

    def fetch() -> bool:
        for one in member.share_fetch(max_records=5, wait_ms=BRIEFLY_MS).partitions.values():
            assert one.acquired in ("", "0-4 c1", "5-9 c1")
            taken.extend(filter(None, [one.acquired]))
        return len(taken) == 4

    wait_until(fetch, 30, "twenty records")
    assert sorted(taken) == ["0-4 c1", "0-4 c1", "5-9 c1", "5-9 c1"]


def test_a_release_wakes_a_waiting_fetch(world: World, differs: Callable[..., Any]) -> None:
    topic = world.topic(records=10)
    group = world.earliest_group()
    member, other = group.join(topic), group.join(topic)
    assert member.fetch() == "0-9 c1"
    assert other.fetch_nothing()
    wait_s = differs("a waiting ShareFetch", kafka=2, headrace=20)
    waiting = other.start_fetch(wait_ms=wait_s * 1000)
    assert not other.has_answer(within_s=0.2)
    assert member.ack("5-9 release") == OK
    woken = other.has_answer(within_s=wait_s * 0.7)
    assert woken == differs("a waiting ShareFetch", kafka=False, headrace=True)
    assert other.finish_fetch(waiting)[0].acquired == "5-9 c2"


def test_new_records_wake_a_waiting_fetch(world: World) -> None:
    topic = world.topic()
    member = world.earliest_group().join(topic)
    assert member.fetch_nothing()
    waiting = member.start_fetch(wait_ms=25_000)
    topic.produce(3)
    assert member.finish_fetch(waiting)[0].acquired == "0-2 c1"
