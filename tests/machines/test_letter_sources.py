"""Which letters go back to which topics. Headers of letters are those of whoever may write them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from headrace.client.cluster import TopicMetadata
from headrace.client.dead_letters.letters import DeadLetter
from headrace.client.dead_letters.originals import (
    CLOCK_SKEW_MS,
    Evidence,
    Original,
    Sources,
    compare,
)
from headrace.client.dead_letters.redrive import RedriveCounts
from headrace.protocol.record_batch import Record, build, records


def topic(name: str, partitions: int, *, is_internal: bool = False) -> TopicMetadata:
    return TopicMetadata(name, uuid4(), dict.fromkeys(range(partitions), 0), is_internal)


SOURCES = Sources(
    {
        "orders": topic("orders", 2),
        "payments": topic("payments", 1),
        "__consumer_offsets": topic("__consumer_offsets", 50, is_internal=True),
        "__transaction_state": topic("__transaction_state", 50, is_internal=True),
    },
    {"packers": frozenset({"orders", "__consumer_offsets"}), "payers": frozenset({"payments"})},
    {"hidden": "GROUP_AUTHORIZATION_FAILED"},
)
NO_USER = "the letter's share group does not use this queue"
ANOTHER_TOPIC = "the letter's share group does not consume the topic"


def letter(**changes: Any) -> DeadLetter:
    """Return a letter of orders-1 at offset 5."""
    return DeadLetter(
        "dlq.orders", 0, 7, 1000, ("orders", 1), 5, "packers", 1, None, True, b"k", b"v", (), 0
    )._replace(**changes)


@pytest.mark.parametrize(
    ("source", "group_id", "obstacle"),
    [
        (("orders", 1), "packers", None),
        (("payments", 0), "payers", None),
        (("payments", 0), "packers", ANOTHER_TOPIC),
        (("orders", 1), "payers", ANOTHER_TOPIC),
        (("orders", 1), "others", NO_USER),
        (("orders", 1), "", NO_USER),
        (("orders", 1), None, "the letter names no share group"),
        (("orders", 1), "hidden", "GROUP_AUTHORIZATION_FAILED"),
        (("orders", 2), "packers", "the partition does not exist"),
        (("gone", 0), "packers", "the topic does not exist"),
        (("__consumer_offsets", 0), "packers", "an internal topic is never a source"),
        (("__transaction_state", 0), "packers", "an internal topic is never a source"),
    ],
)
def test_a_source_is_a_topic_that_the_group_of_the_queue_consumes(
    source: Any, group_id: str | None, obstacle: str | None
) -> None:
    told = SOURCES.obstacle(letter(source=source, group_id=group_id))
    assert told is None if obstacle is None else (told or "").startswith(obstacle)


def record(key: bytes | None, value: bytes | None, timestamp_ms: int = 900) -> Original:
    headers = [[("h", b"1"), ("headrace.redrive.count", b"2")]]
    (original,) = records(build([(key, value)], timestamp_ms=timestamp_ms, headers=headers))
    assert isinstance(original, Record)
    return Original(original)


DIFFERENT = "key or value differ from those of the record in the topic"
GONE = "the queue has no copy of the record, and the topic no longer has it"
EMPTY = {"has_content": False, "key": None, "value": None}


@pytest.mark.parametrize(
    ("changes", "original", "evidence", "reason"),
    [
        ({}, record(b"k", b"v"), Evidence.EQUAL, None),
        # A writer chooses the time of a letter: it does not say that the record is another one.
        ({"timestamp_ms": 0}, record(b"k", b"v", 10**12), Evidence.EQUAL, None),
        ({"timestamp_ms": 0}, record(b"k", b"x", 10**12), Evidence.EQUAL, DIFFERENT),
        ({}, record(b"k", b"x"), Evidence.EQUAL, DIFFERENT),
        ({}, record(None, b"v"), Evidence.EQUAL, DIFFERENT),
        ({"key": b""}, record(None, b"v"), Evidence.EQUAL, DIFFERENT),
        ({}, Original(), Evidence.UNCOMPARED, None),
        ({}, Original(problem="refused"), Evidence.UNCOMPARED, "refused"),
        (EMPTY, record(b"k", b"v"), Evidence.NO_COPY, None),
        (EMPTY, record(b"k", b"v", 1001 + CLOCK_SKEW_MS), Evidence.NO_COPY, GONE),
        (EMPTY, Original(), Evidence.NO_COPY, GONE),
        (EMPTY, Original(problem="refused"), Evidence.NO_COPY, "refused"),
    ],
)
def test_a_record_that_is_there_decides(
    changes: Any, original: Original, evidence: Evidence, reason: str | None
) -> None:
    compared, *rest = compare(letter(**changes), original)
    assert rest == [evidence, reason]
    if reason is None and original.record is not None:
        assert (compared.key, compared.value) == (b"k", b"v")
        assert (compared.headers, compared.redrives) == ((("h", b"1"),), 2), "never the letter's"


def test_names_in_letters_do_not_fill_the_memory() -> None:
    counts = RedriveCounts()
    for number in range(5000):
        counts.skip(f"{number}" + "x" * 10_000, "the topic does not exist")
        counts.add(letter(source=(f"t{number}", 0), value=bytes(10**6)), Evidence.UNCOMPARED)
    assert len(counts.skipped) == 101 and counts.skipped.total() == 5000
    assert max(len(source) for source, _ in counts.skipped) == 249
    assert len(counts.samples) == 30
    assert sum(len(sample.value or b"") for sample, _ in counts.samples) == 30 * 500
