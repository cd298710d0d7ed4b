"""The share-partition by example: texts of refusals, cost, and what random histories seldom meet.
All else is checked by ``test_share_partition_model.py``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.protocol.errors import ErrorCode, Refusal
from headrace.share.acknowledgement import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    AcknowledgementBatch,
    AcknowledgeTerms,
)
from headrace.share.acquisition_locks import MAX_ENDED_LOCKS, AcquisitionLock, EndedLocks
from headrace.share.records import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    Archived,
    ArchiveReason,
    StateBatch,
)
from headrace.share.share_partition import SharePartition
from headrace.share.spans import Spans, offset_count
from tests.machines.share_shelf import Shelf


def shelf(*sizes, **kwargs):
    made = Shelf(**kwargs)
    made.produce(*sizes)
    return made


# --- acquire ---


def test_a_fetch_that_read_little_acquires_what_it_read():
    s = shelf(5, 5)
    s.fetch()
    s.close()
    assert s.fetch(log_batches=1) == [(0, 4, 2)]
    assert s.fetch() == [(5, 9, 2)]


# --- bad-record isolation ---


def shelf_with_a_suspect_end(deliveries):
    """Return a share-partition with a batch of four, 0-1 delivered once and 2-3 more often, all
    available, and four new records.
    """
    s = shelf(4, 4)
    assert s.fetch("m", max_records=2, record_limit=True) == [(0, 1, 1)]
    for count in range(1, deliveries + 1):
        assert s.fetch("n", max_records=2, record_limit=True) == [(2, 3, count)]
        s.close("n")
    s.close("m")
    return s


def test_one_suspect_record_is_enough_for_its_batch_to_be_delivered_alone():
    s = shelf_with_a_suspect_end(3)
    assert s.fetch() == [(0, 1, 2), (2, 3, 4)]
    assert s.fetch() == [(4, 7, 1)]


def test_records_before_a_last_attempt_go_without_it():
    s = shelf_with_a_suspect_end(4)
    assert [s.fetch() for _ in range(4)] == [[(0, 1, 2)], [(2, 2, 5)], [(3, 3, 5)], [(4, 7, 1)]]


def test_a_lower_limit_holds_for_what_was_delivered_before():
    s = shelf(8, delivery_count_limit=10)
    for count in range(1, 6):
        assert s.fetch() == [(0, 7, count)]
        s.close()
    s.settings = replace(s.settings, delivery_count_limit=4)
    assert s.fetch() == [(0, 0, 6)]
    s.close()
    assert s.partition.start_offset == 1


# --- acknowledge ---


@pytest.mark.parametrize(
    ("batches", "renew"),
    [
        ([(0, 0, 5)], True),
        ([(0, 0, -1)], True),
        ([(0, 0, RENEW)], False),
        ([(1, 0, ACCEPT)], False),
        ([(0, 0, [])], False),
        ([(0, 2, [ACCEPT, ACCEPT])], False),
        ([(7, 8, ACCEPT), (7, 9, ACCEPT)], False),
    ],
)
def test_malformed_acks_are_refused_without_a_text(batches, renew):
    s = shelf(10)
    s.fetch()
    assert s.ack(*batches, renew=renew) == Refusal(ErrorCode.INVALID_REQUEST)
    assert s.states() == [StateBatch(0, 9, 1, 1)]


NOT_FOUND = "Batch record not found. The request batch offsets are not found in the cache."
FIRST_PAST = "Batch record not found. The first offset in request is past acquired records."
LAST_PAST = "Batch record not found. The last offset in request is past acquired records."
BATCH_STATE = "The batch cannot be acknowledged. The batch is not in the acquired state."
OFFSET_STATE = "The offset cannot be acknowledged. The offset is not acquired."
BATCH_OWNER = "Member is not the owner of batch record"
OFFSET_OWNER = "Member is not the owner of offset"


@pytest.mark.parametrize(
    ("batch", "code", "message"),
    [
        ((30, 31, ACCEPT), ErrorCode.INVALID_REQUEST, FIRST_PAST),
        ((3, 31, ACCEPT), ErrorCode.INVALID_REQUEST, LAST_PAST),
        ((5, 5, ACCEPT), ErrorCode.INVALID_RECORD_STATE, OFFSET_STATE),
        ((6, 6, RELEASE), ErrorCode.INVALID_RECORD_STATE, OFFSET_STATE),
        ((2, 9, REJECT), ErrorCode.INVALID_RECORD_STATE, OFFSET_STATE),
        ((10, 14, ACCEPT), ErrorCode.INVALID_RECORD_STATE, BATCH_STATE),
        ((12, 12, ACCEPT), ErrorCode.INVALID_RECORD_STATE, BATCH_STATE),
        ((25, 29, ACCEPT), ErrorCode.INVALID_RECORD_STATE, BATCH_STATE),
        ((15, 19, ACCEPT), ErrorCode.INVALID_RECORD_STATE, BATCH_OWNER),
        ((17, 17, ACCEPT), ErrorCode.INVALID_RECORD_STATE, BATCH_OWNER),
        ((20, 20, RENEW), ErrorCode.INVALID_RECORD_STATE, OFFSET_OWNER),
    ],
)
def test_acks_of_what_is_not_held_are_refused_whole(batch, code, message):
    s = shelf(*[5] * 6)
    for member, count in (("m", 10), ("m", 5), ("other", 5), ("other", 5), ("m", 5)):
        s.fetch(member, max_records=count)
    s.ack((22, 22, ACCEPT), member="other")
    s.ack((5, 5, ACCEPT), (6, 6, RELEASE), (10, 14, REJECT), (25, 29, RELEASE))
    before = s.states()
    assert s.ack((1, 1, ACCEPT), batch, renew=True) == Refusal(code, message)
    assert s.states() == before, "all or nothing"


def test_nothing_in_flight_is_not_found():
    s = shelf(10)
    assert s.ack((0, 4, ACCEPT)) == Refusal(ErrorCode.INVALID_RECORD_STATE, NOT_FOUND)


def test_a_request_can_not_acknowledge_an_offset_twice():
    s = shelf(10, 1)
    s.fetch(max_records=10)
    assert s.ack((8, 8, RELEASE), (8, 8, RELEASE)) == Refusal(
        ErrorCode.INVALID_RECORD_STATE, OFFSET_STATE
    )
    assert s.states() == [StateBatch(0, 9, 1, 1)]
    s.fetch()
    assert s.ack((10, 10, RELEASE), (10, 10, ACCEPT)) == Refusal(
        ErrorCode.INVALID_RECORD_STATE, BATCH_STATE
    )


# --- locks ---


def test_renewing_starts_the_lock_anew_and_writes_nothing():
    s = shelf(10, lock_duration_ms=3000)
    s.fetch()
    s.wait(2000)
    update = s.partition.acknowledge(
        "m", [(2, 4, [RENEW])], s.now_ms, s.settings, AcknowledgeTerms(renew=True)
    )
    assert update is None
    s.wait(1000)
    assert s.fetch("n") == [(0, 1, 2), (5, 9, 2)]
    s.wait(2000)
    assert s.fetch("n") == [(2, 4, 2)]


def test_what_is_archived_says_why():
    s = shelf(10, delivery_count_limit=2)
    s.fetch()
    assert s.ack((0, 4, [GAP, REJECT, REJECT, ACCEPT, RELEASE])) is None
    assert s.archived == [
        Archived(0, 0, 1, ArchiveReason.GAP),
        Archived(1, 2, 1, ArchiveReason.REJECTED),
    ]
    assert s.fetch("n") == [(4, 4, 2)]
    s.close("n")
    assert s.archived[2:] == [Archived(4, 4, 2, ArchiveReason.DELIVERY_LIMIT)]
    s.close()
    s.log = [(8, 9)]
    assert s.fetch() == [(8, 9, 2)]
    assert s.archived[3:] == [Archived(5, 7, 1, ArchiveReason.GONE)]


# --- archiving ---


def test_nobody_ends_or_takes_what_waits_for_dead_letters():
    s = shelf(4, 2)
    s.fetch(max_records=4)
    assert s.ack((1, 2, [REJECT, ACCEPT]), waits=True) is None
    assert s.ack((1, 1, ACCEPT)) == Refusal(ErrorCode.INVALID_RECORD_STATE, OFFSET_STATE)
    s.close()
    s.wait(60_000)
    assert s.fetch("n") == [(0, 0, 2), (3, 3, 2), (4, 5, 1)]
    assert not s.partition.idle
    assert (s.lag, s.archived) == (6, [])
    assert s.ack((0, 0, ACCEPT), member="n") is None
    s.end_letters(are_written=True)
    assert s.partition.start_offset == 3
    assert s.archived == [Archived(1, 1, 1, ArchiveReason.REJECTED)]
    assert s.lag == 3


def test_letters_that_cannot_be_written_leave_the_lock_as_it_was():
    s = shelf(4)
    s.fetch()
    s.ack((0, 1, REJECT), waits=True)
    s.wait(10_000)
    s.end_letters(are_written=False)
    assert s.ack((0, 0, ACCEPT)) is None
    s.wait(19_999)
    assert s.fetch("n") == []
    s.wait(1)
    assert s.fetch("n") == [(1, 3, 2)]


def test_the_log_may_start_behind_what_waits_for_dead_letters():
    s = shelf(4)
    s.fetch()
    s.ack((0, 3, REJECT), waits=True)
    s.log_start = 2
    s.fetch("n")
    s.end_letters(are_written=True)
    assert (s.partition.start_offset, s.lag) == (4, 0)
    assert s.archived == [Archived(2, 3, 1, ArchiveReason.REJECTED)]


# --- transactions (share.isolation.level=read_committed) ---


def test_aborted_data_does_not_fill_the_record_locks():
    s = Shelf(read_committed=True, max_record_locks=100)
    s.produce(*[50] * 6, 1)
    s.aborted = [(first, first + 49) for first in range(0, 300, 50)]
    assert [s.fetch() for _ in range(4)] == [[], [], [], [(300, 300, 1)]]
    assert s.ack((300, 300, GAP)) is None
    assert s.lag == 0


# --- release backoff ---


def test_the_maximum_holds_for_the_first_backoff_too():
    s = shelf(1, release_backoff_ms=1000, release_backoff_max_ms=10)
    s.fetch()
    s.close()
    s.wait(10)
    assert s.fetch() == [(0, 0, 2)]


# --- cost ---


def test_the_cost_grows_with_spans_and_not_with_records():
    """With an object for each record this would need more memory than there is."""
    n = 10**9
    s = Shelf(max_record_locks=10 * n, release_backoff_ms=10)
    s.produce(n, n)
    assert s.fetch(max_records=2 * n, batch_size=n) == [(0, n - 1, 1), (n, 2 * n - 1, 1)]
    assert s.ack((0, 9, ACCEPT), (10, n - 1, RELEASE), (n, 2 * n - 1, REJECT)) is None
    s.wait(10)
    assert s.fetch() == [(10, n - 1, 2)]
    s.close()
    s.log_start = n // 2
    s.fetch()
    assert s.lag == n // 2


# --- restart ---


def test_state_written_with_a_trailing_start_offset_is_passed_on_loading():
    partition = SharePartition(
        0, [StateBatch(0, 4, 2, 1), StateBatch(5, 5, 4, 1), StateBatch(8, 8, 2, 1)]
    )
    assert (partition.start_offset, partition.end_offset, partition.delivery_complete_count) == (
        6,
        9,
        1,
    )
    assert SharePartition(0, [StateBatch(0, 4, 2, 1)]).in_flight == 0


# --- given up ---


def test_records_given_up_without_a_dead_letter_queue_are_counted_and_logged_once_a_minute(caplog):
    def give_up():
        for _ in range(2):
            s.fetch()
            s.close()

    s = shelf(2, delivery_count_limit=2)
    give_up()
    s.produce(2)
    s.fetch()
    assert s.ack((2, 2, REJECT)) is None
    s.close()
    give_up()
    (line,) = caplog.messages
    assert line.startswith("records that share group g has given up since the broker started: 2, ")
    assert "Set errors.deadletterqueue.topic.name of the group" in line
    s.wait(60_000)
    s.produce(1)
    give_up()
    assert "since the broker started: 5, " in caplog.messages[1]
    assert s.coordinators.share.dead_letters.counts["g"].given_up == 5


# --- late acknowledgements ---


def test_few_ended_locks_are_remembered():
    ended = EndedLocks()
    for number in range(1000):
        lock = AcquisitionLock(f"m{number % 3}", number, 1)
        ended.add([(2 * number, 2 * number, lock)])
    assert len(ended) == MAX_ENDED_LOCKS
    batches = [AcknowledgementBatch(0, 2000, [ACCEPT])]
    late = [ended.take(f"m{number}", batches, Spans(), 1000) for number in range(3)]
    assert sum(each.records for each in late if each is not None) == MAX_ENDED_LOCKS
    assert len(ended) == 0


def test_ended_locks_of_many_members_are_counted_once(monkeypatch):
    counted = 0
    length = Spans.__len__

    def count(spans):
        nonlocal counted
        counted += 1
        return length(spans)

    monkeypatch.setattr(Spans, "__len__", count)
    ended = EndedLocks()
    ended.add(
        (2 * number, 2 * number, AcquisitionLock(f"m{number // 2}", 0, 1)) for number in range(2001)
    )
    assert counted < 5000
    assert len(ended) == MAX_ENDED_LOCKS
    assert not ended.take("m900", [AcknowledgementBatch(0, 3601, [ACCEPT])], Spans(), 1000)
    late = ended.take("m900", [AcknowledgementBatch(3602, 3602, [ACCEPT])], Spans(), 1000)
    assert late is not None and late.records == 1
    assert late == ended.take("m1000", [AcknowledgementBatch(0, 4000, [ACCEPT])], Spans(), 1000)


def test_a_member_delays_what_it_releases():
    s = shelf(4, release_backoff_ms=1000)
    s.fetch()
    assert s.ack((0, 1, RELEASE), delay_ms=500) is None  # the group's backoff is longer
    assert s.ack((2, 3, RELEASE), delay_ms=5000) is None
    s.wait(1000)
    assert s.fetch() == [(0, 1, 2)]
    s.wait(3999)
    assert s.fetch() == []
    s.wait(1)
    assert s.fetch() == [(2, 3, 2)]


# --- releases that are not counted ---


def test_a_release_that_is_not_counted_is_never_the_last_one():
    s = shelf(4, delivery_count_limit=2)
    for _ in range(5):
        assert s.fetch() == [(0, 3, 1)]
        assert s.ack((0, 3, RELEASE), uncounted=True) is None
        assert s.fetch() == []  # else a member could make a loop of it
        s.wait(1000)
    s.fetch()
    s.close()
    assert s.fetch() == [(0, 3, 2)]  # the last delivery
    assert s.ack((0, 3, RELEASE), uncounted=True) is None
    s.restart()
    assert s.fetch() == [(0, 3, 2)]
    s.close()
    assert s.fetch() == []
    assert s.archived == [Archived(0, 3, 2, ArchiveReason.DELIVERY_LIMIT)]


# --- inspection and release by others ---


def test_a_range_is_released_whoever_holds_it():
    s = shelf(4, 4, 4)
    s.fetch(max_records=4)
    s.fetch("n", max_records=4)
    s.ack((0, 0, ACCEPT), (2, 2, REJECT))
    locks = s.partition.locks.spans.within(1, 5)
    assert offset_count(locks) == 4  # 1 and 3 of m, 4 and 5 of n
    s.release(locks)
    told = [(one.first_offset, one.last_offset, one.state) for one in s.partition.in_flight_spans()]
    assert [one for one in told if one[0] >= 1] == [
        (1, 1, AVAILABLE),
        (2, 2, ARCHIVED),
        (3, 5, AVAILABLE),
        (6, 7, ACQUIRED),
    ]
    (held,) = [one for one in s.partition.in_flight_spans() if one.state == ACQUIRED]
    assert (held.member_id, held.delivery_count) == ("n", 1)
    assert s.partition.locks.spans.within(0, 5) == []
