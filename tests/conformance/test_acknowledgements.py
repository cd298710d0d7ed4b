"""Acknowledgements: the effect of each type, and refusals, which concern whole partitions."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.conformance.members import Member
from tests.conformance.world import OK, World

STATE, REQUEST = "INVALID_RECORD_STATE", "INVALID_REQUEST"


@pytest.fixture
def member(world: World) -> Member:
    """A member that has acquired the ten records of a topic."""
    joined = world.earliest_group().join(world.topic(records=10))
    assert joined.fetch() == "0-9 c1"
    return joined


def test_what_is_accepted_may_be_accepted_again(member: Member) -> None:  # case 31
    assert member.ack("0 accept") == OK
    assert member.ack("0 accept") == OK
    assert member.ack("0-1 accept") == OK
    assert member.ack("1 accept") == OK
    assert member.ack("2-9 release") == OK
    assert member.fetch() == "2-9 c2"


def test_one_batch_of_three_kinds(world: World) -> None:  # case 32
    member = world.earliest_group().join(world.topic(records=10))
    assert member.fetch() == "0-9 c1"  # offsets 0 to 9, delivered for the first time
    assert member.ack("1-3 accept,release,reject") == OK
    assert member.fetch() == "2-2 c2"


@pytest.mark.parametrize(
    "text",
    ["0 5", "0 -1", "0 renew", "3-2 accept", "0-3", "0-2 accept,accept", "7-8 accept; 7-9 accept"],
)
def test_acknowledgements_that_make_no_sense(member: Member, text: str) -> None:  # case 33
    assert member.ack(text) == REQUEST
    assert member.ack("0-9 accept") == OK


def test_an_older_request_cannot_renew(member: Member) -> None:  # case 33
    assert member.ack("0 renew", version=1) == REQUEST
    assert member.ack("0-9 accept", version=1) == OK


def test_a_record_is_acknowledged_once_per_request(member: Member) -> None:  # case 34
    assert member.ack("8 release; 8 release") == (
        f"{STATE}: The offset cannot be acknowledged. The offset is not acquired."
    )
    assert member.fetch_nothing()
    assert member.ack("8 accept") == OK


def test_records_that_were_not_acquired_yet(member: Member) -> None:  # case 35
    before = f"{REQUEST}: Batch record not found. The"
    assert (
        member.ack("20-21 accept") == f"{before} first offset in request is past acquired records."
    )
    assert member.ack("9-12 accept") == f"{before} last offset in request is past acquired records."


def test_acknowledging_where_nothing_is(member: Member) -> None:  # case 36
    assert member.ack("0 accept", topic=uuid4()) == "UNKNOWN_TOPIC_ID"
    assert member.ack("0 accept", partition=5) == "UNKNOWN_TOPIC_OR_PARTITION"
    empty = member.share_acknowledge({0: ""})
    assert (empty.error, empty.partitions) == (OK, {})


def test_acknowledging_where_nobody_has_fetched(world: World) -> None:
    member = world.earliest_group().join(world.topic(partitions=2, records=1))
    assert member.fetch(partitions=[0]) == "0-0 c1"
    assert member.ack("0 accept", partition=1) == (
        "UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition."
    )


def test_acknowledgements_of_a_partition_succeed_or_fail_together(world: World) -> None:  # case 37
    topic = world.topic(partitions=2)
    topic.produce(5)
    topic.produce(5, partition=1)
    member = world.earliest_group().join(topic)
    held: dict[int, str] = {}
    while len(held) < 2:
        held |= {
            index: one.acquired
            for (_, index), one in member.share_fetch().partitions.items()
            if one.acquired
        }
    assert held == {0: "0-4 c1", 1: "0-4 c1"}
    answer = member.share_acknowledge({0: "0 accept; 1 accept; 9 accept", 1: "0 accept"})
    assert answer.partitions[0].startswith(REQUEST)
    assert answer.partitions[1] == OK
    assert member.ack("0-4 release") == OK
    assert member.fetch() == "0-4 c2"


def test_a_renewal_goes_alone(member: Member) -> None:  # case 39
    assert member.ack("0-9 renew", renew=True) == OK
    epoch = member.session_epoch
    assert (
        member.share_fetch("0-9 renew", renew=True, wait_ms=0, min_bytes=0, max_records=0).error
        == REQUEST
    )
    assert member.session_epoch == epoch
    renewed = member.share_fetch(
        "0-9 renew", renew=True, wait_ms=0, min_bytes=0, max_bytes=0, max_records=0
    )
    assert (renewed.error, renewed[0].error, renewed[0].ack_error) == (OK, OK, OK)
    assert (renewed[0].acquired, renewed[0].offsets) == ("", frozenset())
    assert member.ack("0-9 accept") == OK


def test_acknowledgements_ride_on_a_fetch(member: Member) -> None:
    member.topics[0].produce(5)
    assert member.fetch("0-9 accept") == "10-14 c1"
    fetched = member.share_fetch("20 accept", wait_ms=0)
    assert fetched[0].error == OK
    assert fetched[0].ack_error.startswith(REQUEST)


def test_a_gap_is_done_with(member: Member) -> None:
    assert member.ack("0-3 accept,accept,accept,gap") == OK
    assert member.ack("4-9 release") == OK
    assert member.fetch() == "4-9 c2"
    assert member.group.lag(member.topics[0]) == 6
