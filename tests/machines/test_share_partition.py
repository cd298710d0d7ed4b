"""The share-partition by example: delivery, locks, isolation of bad records, refusals, lag."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import ErrorCode, Refusal
from headrace.share.acknowledgement import ACCEPT, GAP, REJECT, RELEASE, RENEW
from headrace.share.records import ACQUIRED, ARCHIVED, AVAILABLE, ArchiveReason, StateBatch
from headrace.share.share_partition import SharePartition
from tests.machines.share_shelf import KEY, Shelf


def shelf(*sizes, **kwargs):
    made = Shelf(**kwargs)
    made.produce(*sizes)
    return made


# --- acquire ---


def test_new_records_are_acquired_once():
    s = shelf(10)
    assert s.fetch() == [(0, 9, 1)]
    assert s.fetch() == []
    assert s.fetch("n") == []


def test_batch_optimized_goes_on_to_the_end_of_the_log_batch():
    assert shelf(10, 10).fetch(max_records=3) == [(0, 9, 1)]


def test_record_limit_acquires_exactly_so_many():
    s = shelf(10, 10)
    s.fetch(max_records=10)
    assert [s.fetch(max_records=n, record_limit=True) for n in (4, 4, 1)] == [
        [(10, 13, 1)],
        [(14, 17, 1)],
        [(18, 18, 1)],
    ]
    assert s.fetch(max_records=50) == [(19, 19, 1)]


@pytest.mark.parametrize(
    ("batch_size", "max_records", "expected"),
    [
        (5, 20, [(0, 4, 1), (5, 9, 1), (10, 14, 1), (15, 19, 1)]),
        (7, 12, [(0, 9, 1), (10, 14, 1)]),
        (20, 20, [(0, 19, 1)]),
        (0, 20, [(0, 4, 1), (5, 9, 1), (10, 14, 1), (15, 19, 1)]),
    ],
)
def test_acquired_records_are_split_at_log_batches(batch_size, max_records, expected):
    assert shelf(5, 5, 5, 5).fetch(max_records=max_records, batch_size=batch_size) == expected


def test_a_single_log_batch_is_not_split():
    s = Shelf(start_offset=15)
    s.log = [(15, 19)]
    assert s.fetch(batch_size=1) == [(15, 19, 1)]


def test_nothing_is_acquired_without_a_budget():
    s = shelf(10)
    assert s.fetch(max_records=0) == []
    assert s.fetch(max_records=-1) == []
    assert s.partition.in_flight == 0


def test_the_record_lock_limit_is_soft_and_released_records_come_again():
    s = shelf(*[100] * 30)
    assert [s.fetch(max_records=300) for _ in range(6)] == [
        [(i * 300, i * 300 + 299, 1)] for i in range(6)
    ]
    assert s.fetch(max_records=300) == [(1800, 1999, 1)]
    assert s.fetch(max_records=300) == []
    assert s.partition.fetch_offset(s.settings) is None
    assert s.ack((500, 500, RELEASE)) is None
    assert s.fetch(max_records=300) == [(500, 500, 2)]
    assert s.ack((0, 99, ACCEPT)) is None
    assert s.fetch(max_records=300) == [(2000, 2099, 1)]


@pytest.mark.parametrize(("size", "expected"), [(250, [(0, 249, 1)]), (30, [(0, 119, 1)])])
def test_the_limit_takes_whole_log_batches(size, expected):
    s = shelf(*[size] * 10, max_record_locks=100)
    assert s.fetch() == expected
    assert s.fetch() == []


def test_redeliveries_join_records_of_equal_count():
    s = shelf(10)
    s.fetch()
    assert s.ack((0, 9, [ACCEPT, ACCEPT, RELEASE, ACCEPT, *[RELEASE] * 6])) is None
    assert s.fetch() == [(2, 2, 2), (4, 9, 2)]


def test_records_available_again_come_before_new_ones_in_one_fetch():
    s = shelf(5, 5, 5)
    s.fetch(max_records=5)
    s.fetch(max_records=5)
    s.ack((1, 2, RELEASE), (5, 9, RELEASE))
    assert s.fetch() == [(1, 2, 2), (5, 9, 2), (10, 14, 1)]


def test_a_fetch_that_read_little_acquires_what_it_read():
    s = shelf(5, 5)
    s.fetch()
    s.close()
    assert s.fetch(log_batches=1) == [(0, 4, 2)]
    assert s.fetch() == [(5, 9, 2)]


# --- bad-record isolation ---


def released_again_and_again(size, limit):
    s = shelf(size, delivery_count_limit=limit)
    trace = []
    while acquired := s.fetch():
        trace.append(acquired)
        for first, last, _ in acquired:
            assert s.ack((first, last, RELEASE)) is None
    assert s.lag == 0
    return trace


@pytest.mark.parametrize(
    ("first", "acquired"),
    [(4, [(0, 3, 2), (4, 4, 4)]), (5, [(0, 4, 2), (5, 9, 4)]), (8, [(0, 7, 2), (8, 9, 4)])],
)
def test_suspects_are_halved_unless_as_many_records_precede_them(first, acquired):
    s = shelf(10)
    s.fetch()
    for _ in range(2):
        s.ack((first, 9, RELEASE))
        s.fetch()
    s.ack((0, 9, RELEASE))
    assert s.fetch() == acquired


def test_new_records_do_not_pass_a_suspect_batch():
    s = shelf(5, 5, 5, delivery_count_limit=3)
    s.fetch(max_records=5)
    s.fetch(max_records=5)
    s.ack((5, 9, RELEASE))
    assert s.fetch(max_records=5) == [(5, 9, 2)]
    s.ack((0, 4, RELEASE), (5, 9, RELEASE))
    assert s.fetch() == [(0, 4, 2)]
    assert s.fetch() == [(5, 5, 3)]


def test_isolation_of_ten_records_with_limit_five():
    singles = [[(i, i, 5)] for i in range(10)]
    expected = [
        [(0, 9, 1)],
        [(0, 9, 2)],
        [(0, 9, 3)],
        [(0, 4, 4)],
        *singles[:5],
        [(5, 9, 4)],
        *singles[5:],
    ]
    assert released_again_and_again(10, 5) == expected


def test_isolation_of_forty_records_with_limit_five():
    singles = [[(i, i, 5)] for i in range(40)]
    whole = [[(0, 39, count)] for count in (1, 2, 3)]
    expected = [*whole, [(0, 19, 4)], *singles[:20], [(20, 39, 4)], *singles[20:]]
    assert len(expected) == 45
    assert released_again_and_again(40, 5) == expected


def test_isolation_of_forty_records_with_limit_ten():
    trace = released_again_and_again(40, 10)
    assert trace[:5] == [[(0, 39, count)] for count in range(1, 6)]
    assert trace[5:20] == [
        [(0, 19, 6)],
        [(0, 9, 7)],
        [(0, 4, 8)],
        [(0, 1, 9)],
        [(0, 0, 10)],
        [(1, 1, 10)],
        [(2, 3, 9)],
        [(2, 2, 10)],
        [(3, 3, 10)],
        [(4, 4, 9), (5, 5, 8)],
        [(4, 4, 10)],
        [(5, 5, 9), (6, 6, 8)],
        [(5, 5, 10)],
        [(6, 6, 9), (7, 7, 8)],
        [(6, 6, 10)],
    ]
    assert len(trace) == 94


def test_with_limit_two_a_released_batch_is_delivered_again_whole():
    assert released_again_and_again(6, 2) == [[(0, 5, 1)], [(0, 5, 2)]]


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
    s = shelf(64, delivery_count_limit=10)
    for count in range(1, 6):
        assert s.fetch() == [(0, 63, count)]
        s.close()
    s.settings = replace(s.settings, delivery_count_limit=4)
    assert s.fetch() == [(0, 3, 6)]
    s.close()
    assert s.partition.start_offset == 4


def test_a_suspect_batch_is_delivered_alone():
    s = shelf(4, 4, 4)
    for _ in range(3):
        s.fetch(max_records=4)
        s.ack((0, 3, RELEASE))
    s.ack((0, 3, RELEASE))
    assert s.fetch() == [(0, 1, 4)]
    assert s.ack((0, 1, ACCEPT)) is None
    assert s.fetch() == [(2, 3, 4)]
    assert s.fetch() == [(4, 11, 1)]


def test_other_records_come_before_a_suspect_batch_but_not_with_it():
    s = shelf(4, 4)
    s.fetch(max_records=4)
    s.fetch(max_records=4)
    for _ in range(2):
        s.ack((4, 7, RELEASE))
        s.fetch()
    s.ack((0, 7, RELEASE))
    assert s.fetch() == [(0, 3, 2)]
    assert s.fetch() == [(4, 5, 4)]


# --- acknowledge ---


def test_each_type_does_what_it_says():
    s = shelf(10)
    s.fetch()
    assert s.ack((1, 3, [ACCEPT, RELEASE, REJECT])) is None
    assert s.fetch() == [(2, 2, 2)]
    assert s.ack((4, 5, GAP)) is None
    assert s.ack((2, 2, RELEASE)) is None
    assert s.fetch() == [(2, 2, 3)]


def test_acks_below_the_start_offset_succeed_and_ones_across_apply_above():
    s = shelf(10)
    s.fetch()
    assert s.ack((0, 0, ACCEPT)) is None
    assert s.ack((0, 0, ACCEPT)) is None
    assert s.ack((0, 1, ACCEPT)) is None
    assert s.partition.start_offset == 2
    assert s.ack((0, 4, [REJECT, REJECT, RELEASE, ACCEPT, REJECT])) is None
    assert s.fetch() == [(2, 2, 2)]


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
    assert s.partition.states() == [StateBatch(0, 9, 1, 1)]


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
    before = s.partition.states()
    assert s.ack((1, 1, ACCEPT), batch, renew=True) == Refusal(code, message)
    assert s.partition.states() == before, "all or nothing"


def test_nothing_in_flight_is_not_found():
    s = shelf(10)
    assert s.ack((0, 4, ACCEPT)) == Refusal(ErrorCode.INVALID_RECORD_STATE, NOT_FOUND)


def test_a_request_can_not_acknowledge_an_offset_twice():
    s = shelf(10, 1)
    s.fetch(max_records=10)
    assert s.ack((8, 8, RELEASE), (8, 8, RELEASE)) == Refusal(
        ErrorCode.INVALID_RECORD_STATE, OFFSET_STATE
    )
    assert s.partition.states() == [StateBatch(0, 9, 1, 1)]
    s.fetch()
    assert s.ack((10, 10, RELEASE), (10, 10, ACCEPT)) == Refusal(
        ErrorCode.INVALID_RECORD_STATE, BATCH_STATE
    )


def test_a_bad_ack_of_one_partition_applies_nothing_of_it():
    s = shelf(10)
    s.fetch()
    assert s.ack((0, 0, ACCEPT), (1, 1, ACCEPT), (9, 11, ACCEPT)).code == ErrorCode.INVALID_REQUEST
    assert s.partition.start_offset == 0


# --- locks ---


def test_a_lock_runs_out_and_the_records_come_again():
    s = shelf(10, lock_duration_ms=3000)
    s.fetch()
    s.wait(2999)
    assert s.fetch() == []
    s.wait(1)
    assert s.fetch("n") == [(0, 9, 2)]
    assert s.partition.next_deadline_ms() == 6000


def test_renewing_starts_the_lock_anew_and_writes_nothing():
    s = shelf(10, lock_duration_ms=3000)
    s.fetch()
    s.wait(2000)
    outcome = s.partition.acknowledge("m", [(2, 4, [RENEW])], s.now_ms, s.settings, renew=True)
    assert (outcome.reply, outcome.records) == (None, ())
    s.wait(1000)
    assert s.fetch("n") == [(0, 1, 2), (5, 9, 2)]
    s.wait(2000)
    assert s.fetch("n") == [(2, 4, 2)]


def test_renew_may_be_mixed_with_other_types():
    s = shelf(6, lock_duration_ms=1000)
    s.fetch()
    s.wait(500)
    assert (
        s.ack((0, 3, [ACCEPT, RENEW, RENEW, RELEASE]), (3, 3, RENEW), renew=True).code
        == ErrorCode.INVALID_RECORD_STATE
    )
    assert s.partition.next_deadline_ms() == 1000, "nothing was renewed"
    assert s.ack((0, 3, [ACCEPT, RENEW, RENEW, RELEASE]), renew=True) is None
    assert s.ack((1, 1, RENEW), (1, 1, REJECT), renew=True) is None
    s.wait(500)
    assert s.partition.states() == [StateBatch(2, 2, 1, 1), StateBatch(3, 5, AVAILABLE, 1)]


def test_a_closed_session_gives_back_all_that_the_member_holds():
    s = shelf(5, 5)
    s.fetch(max_records=5)
    s.fetch("n")
    s.ack((1, 1, ACCEPT))
    s.close()
    assert s.fetch("o") == [(0, 0, 2), (2, 4, 2)]
    assert s.ack((5, 9, ACCEPT), member="n") is None


def test_the_delivery_limit_ends_it():
    s = shelf(1)
    for count in range(1, 6):
        assert s.fetch() == [(0, 0, count)]
        assert s.ack((0, 0, RELEASE)) is None
    assert s.fetch() == []
    assert (s.partition.start_offset, s.lag) == (1, 0)


def test_locks_that_run_out_and_sessions_that_close_count_as_deliveries_too():
    s = shelf(3, lock_duration_ms=1000, delivery_count_limit=2)
    s.fetch()
    s.wait(1000)
    s.fetch()
    s.close()
    assert s.fetch() == []
    assert s.lag == 0


def test_what_is_archived_says_why():
    s = shelf(10, delivery_count_limit=2)
    s.fetch()
    assert s.ack((0, 4, [GAP, REJECT, REJECT, ACCEPT, RELEASE])) is None
    assert s.archived == [(0, 0, 1, ArchiveReason.GAP), (1, 2, 1, ArchiveReason.REJECTED)]
    assert s.fetch("n") == [(4, 4, 2)]
    s.close("n")
    assert s.archived[2:] == [(4, 4, 2, ArchiveReason.DELIVERY_LIMIT)]
    s.close()
    s.log = [(8, 9)]
    assert s.fetch() == [(8, 9, 2)]
    assert s.archived[3:] == [(5, 7, 1, ArchiveReason.GONE)]


# --- the log moves ---


def test_the_log_start_takes_the_start_offset_along():
    s = shelf(*[5] * 4, lock_duration_ms=1000)
    s.fetch(max_records=10)
    s.fetch("n", max_records=5)
    s.ack((6, 7, ACCEPT))
    s.log_start = 12
    s.log = [(10, 14), (15, 19)]
    assert s.fetch() == [(15, 19, 1)]
    assert s.partition.start_offset == 12
    assert s.lag == 8
    assert s.ack((0, 9, ACCEPT)) is None, "below the start offset: nothing to do"
    assert s.ack((10, 14, ACCEPT), member="n") is None
    assert (s.partition.start_offset, s.lag) == (15, 5)


def test_the_log_start_may_pass_everything_in_flight():
    s = shelf(10, 10)
    s.fetch(max_records=10)
    s.log_start = 15
    assert s.fetch() == [(15, 19, 1)]
    s.close()
    assert s.lag == 5


def test_the_start_offset_goes_on_over_finished_records_at_the_new_log_start():
    s = shelf(10)
    s.fetch()
    s.ack((3, 6, ACCEPT))
    s.log_start = 4
    s.fetch()
    assert (s.partition.start_offset, s.partition.delivery_complete_count, s.lag) == (7, 0, 3)


def test_records_gone_from_the_log_are_archived():
    s = shelf(5, 5, 5, 5)
    s.fetch(max_records=20, batch_size=5)
    s.close()
    # 0-4 was compacted away, and 10-14, which is for the client to report as a gap
    s.log = [(5, 9), (15, 19)]
    assert s.fetch() == [(5, 9, 2), (10, 14, 2), (15, 19, 2)]
    assert (s.partition.start_offset, s.lag) == (5, 15)
    assert s.ack((5, 9, ACCEPT), (10, 14, GAP), (15, 19, ACCEPT)) is None
    assert s.lag == 0


def test_a_hole_past_the_end_is_no_lag():
    s = shelf(5)
    s.fetch()
    s.log.append((9, 9))
    assert s.fetch() == [(9, 9, 1)]
    assert s.ack((0, 4, ACCEPT)) is None
    assert (s.partition.start_offset, s.lag) == (9, 1)
    s.restart()
    assert s.fetch() == [(9, 9, 1)]


# --- transactions (share.isolation.level=read_committed) ---


def shelf_with_aborted_data(**settings):
    """0-2 data, 3 marker, 4-6 aborted, 7 marker, 8-9 data."""
    s = Shelf(read_committed=True, **settings)
    s.produce(3, 1, 3, 1, 2)
    s.aborted = [(4, 6)]
    return s


def test_aborted_data_is_archived_when_it_is_acquired():
    s = shelf_with_aborted_data()
    assert s.fetch() == [(0, 3, 1), (7, 9, 1)], "markers stay, for the client to report as gaps"
    assert s.fetch() == []
    assert s.partition.states() == [
        StateBatch(0, 3, 1, 1),
        StateBatch(4, 6, ARCHIVED, 0),
        StateBatch(7, 9, 1, 1),
    ]
    assert s.partition.delivery_complete_count == 3
    assert s.coordinator.summary(KEY, 1) == s.summary_before_any_write, "nothing is written for it"
    assert s.ack((4, 4, ACCEPT)) == Refusal(ErrorCode.INVALID_RECORD_STATE, OFFSET_STATE)


def test_the_next_write_carries_the_count_of_aborted_data():
    s = shelf_with_aborted_data()
    s.fetch()
    assert s.ack((7, 7, GAP)) is None
    summary = s.coordinator.summary(KEY, 1)
    assert (summary.start_offset, summary.delivery_complete_count, s.lag) == (0, 4, 6)
    assert s.partition_state() == (StateBatch(7, 7, ARCHIVED, 1),), (
        "the aborted batches are not written"
    )


def test_lag_example_of_aborted_data():
    s = shelf_with_aborted_data()
    s.fetch()
    assert s.ack((0, 3, [ACCEPT, ACCEPT, ACCEPT, GAP])) is None
    assert s.lag == 3
    assert s.partition.start_offset == 7, "past the aborted ones"
    assert s.ack((7, 9, [GAP, ACCEPT, ACCEPT])) is None
    assert s.lag == 0


def test_with_read_uncommitted_aborted_data_is_delivered():
    s = shelf_with_aborted_data()
    s.settings = replace(s.settings, read_committed=False)
    assert s.fetch() == [(0, 9, 1)]


def test_aborted_data_counts_as_taken():
    s = shelf_with_aborted_data()
    assert [s.fetch(max_records=2) for _ in range(4)] == [[(0, 2, 1)], [(3, 3, 1)], [(7, 9, 1)], []]
    s = shelf_with_aborted_data()
    fetches = [s.fetch(max_records=2, record_limit=True) for _ in range(6)]
    assert fetches == [[(0, 1, 1)], [(2, 2, 1), (3, 3, 1)], [], [(7, 7, 1)], [(8, 9, 1)], []]


def test_aborted_data_does_not_fill_the_record_locks():
    s = Shelf(read_committed=True, max_record_locks=100)
    s.produce(*[50] * 6, 1)
    s.aborted = [(first, first + 49) for first in range(0, 300, 50)]
    assert [s.fetch() for _ in range(4)] == [[], [], [], [(300, 300, 1)]]
    assert s.ack((300, 300, GAP)) is None
    assert s.lag == 0


def test_a_restart_finds_aborted_data_again_in_the_log():
    s = shelf_with_aborted_data()
    s.fetch()
    s.ack((8, 9, ACCEPT))
    s.restart()
    assert s.fetch() == [(0, 3, 1), (7, 7, 1)]
    s.ack((7, 7, GAP))
    assert s.lag == 4


# --- release backoff ---


def test_a_backoff_doubles_with_each_delivery_up_to_its_maximum():
    s = shelf(1, release_backoff_ms=100, release_backoff_max_ms=500, delivery_count_limit=6)
    for count, backoff in enumerate((100, 200, 400, 500, 500), start=1):
        assert s.fetch() == [(0, 0, count)]
        assert s.ack((0, 0, RELEASE)) is None
        assert s.partition.states() == [StateBatch(0, 0, AVAILABLE, count)]
        s.wait(backoff - 1)
        assert s.fetch() == []
        s.wait(1)
    assert s.fetch() == [(0, 0, 6)]


def test_the_maximum_holds_for_the_first_backoff_too():
    s = shelf(1, release_backoff_ms=1000, release_backoff_max_ms=10)
    s.fetch()
    s.close()
    s.wait(10)
    assert s.fetch() == [(0, 0, 2)]


def test_other_records_are_delivered_meanwhile():
    s = shelf(5, 5, release_backoff_ms=100, lock_duration_ms=50)
    s.fetch(max_records=5)
    s.ack((1, 2, RELEASE), (3, 3, ACCEPT))
    assert s.fetch("n", max_records=5) == [(5, 9, 1)]
    s.wait(50)  # the locks run out: those records wait until 150
    assert s.fetch() == []
    s.wait(50)
    assert s.fetch() == [(1, 2, 2)]
    s.wait(50)
    assert s.fetch() == [(0, 0, 2), (4, 4, 2), (5, 9, 2)]


def test_records_that_wait_are_not_acquired_and_go_with_the_log():
    s = shelf(5, 5, release_backoff_ms=100)
    s.fetch()
    s.ack((0, 9, RELEASE))
    assert s.ack((0, 0, ACCEPT)) == Refusal(ErrorCode.INVALID_RECORD_STATE, BATCH_STATE)
    s.log_start = 5
    del s.log[0]
    s.fetch()
    assert (s.partition.start_offset, s.lag) == (5, 5)
    s.wait(100)
    assert s.fetch() == [(5, 9, 2)]


def test_a_restart_forgets_backoffs():
    s = shelf(5, release_backoff_ms=10_000)
    s.fetch()
    s.ack((0, 4, RELEASE))
    s.restart()
    assert s.fetch() == [(0, 4, 2)]
    assert s.partition.next_deadline_ms() == s.now_ms + s.settings.lock_duration_ms


def test_switching_a_backoff_off_leaves_what_waits():
    s = shelf(1, 1, release_backoff_ms=100)
    s.fetch(max_records=1)
    s.ack((0, 0, RELEASE))
    s.settings = replace(s.settings, release_backoff_ms=0)
    assert s.fetch() == [(1, 1, 1)]
    s.ack((1, 1, RELEASE))
    assert s.fetch() == [(1, 1, 2)]
    s.wait(100)
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


def test_a_restart_keeps_what_was_finished_or_given_back_and_forgets_what_was_held():
    s = shelf(*[5] * 4)
    s.fetch()
    s.ack((3, 5, ACCEPT), (7, 7, REJECT), (12, 14, RELEASE))
    s.restart()
    assert s.lag == 16
    assert s.fetch() == [(0, 2, 1), (6, 6, 1), (8, 11, 1), (12, 14, 2), (15, 19, 1)]


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


# --- lag (KIP-1226) ---


def test_lag_example_of_three_writes():
    s = shelf(10)
    s.fetch()
    s.ack((0, 0, ACCEPT))
    s.ack((1, 1, ACCEPT))
    s.ack((2, 3, [RELEASE, REJECT]))
    summary = s.coordinator.summary(KEY, 1)
    assert (summary.start_offset, summary.delivery_complete_count, s.lag) == (2, 1, 7)


def test_lag_is_nothing_once_all_is_accepted():
    s = shelf(10)
    s.fetch()
    s.ack((0, 9, ACCEPT))
    assert s.lag == 0
    assert s.coordinator.summary(KEY, 1).start_offset == 10, "the start offset does not trail"
    s.produce(1)
    assert s.lag == 1
    s.fetch()
    s.ack((10, 10, ACCEPT))
    assert s.lag == 0


def test_lag_example_of_the_proposal():
    s = shelf(10)
    s.fetch()
    lags = []
    for batch in [
        (3, 3, RELEASE),
        (3, 3, RELEASE),
        (5, 5, ACCEPT),
        (6, 6, REJECT),
        (0, 1, REJECT),
        (7, 9, RELEASE),
    ]:
        if len(lags) == 1:
            assert s.fetch() == [(3, 3, 2)]
        if len(lags) == 2:
            s.produce(1)
        assert s.ack(batch) is None
        lags.append(s.lag)
    assert lags == [10, 10, 10, 9, 7, 7]
    summary = s.coordinator.summary(KEY, 1)
    assert (summary.start_offset, summary.delivery_complete_count) == (2, 2)


def test_lag_example_of_acks_in_the_middle():
    s = shelf(*[5] * 4)
    s.fetch()
    s.ack((3, 5, ACCEPT), (7, 7, REJECT), (12, 14, RELEASE))
    assert (s.coordinator.summary(KEY, 1).delivery_complete_count, s.lag) == (4, 16)
    s.ack((0, 2, ACCEPT))
    assert s.lag == 13
    s.ack((6, 6, ACCEPT))
    assert (s.partition.start_offset, s.lag) == (8, 12)


def test_lag_after_a_reset_counts_from_there():
    s = Shelf(start_offset=5)
    s.produce(10)
    assert s.fetch() == [(5, 9, 1)]
    s.ack((5, 6, ACCEPT))
    assert s.lag == 3


# --- inspection and release by others ---


def test_a_range_is_released_whoever_holds_it():
    s = shelf(4, 4, 4)
    s.fetch(max_records=4)
    s.fetch("n", max_records=4)
    s.ack((0, 0, ACCEPT), (2, 2, REJECT))
    outcome = s.partition.release_range(1, 5, s.now_ms, s.settings)
    assert outcome.reply == 4  # 1 and 3 of m, 4 and 5 of n
    s.apply(outcome)
    told = [(one.first_offset, one.last_offset, one.state) for one in s.partition.in_flight_spans()]
    assert [one for one in told if one[0] >= 1] == [
        (1, 1, AVAILABLE),
        (2, 2, ARCHIVED),
        (3, 5, AVAILABLE),
        (6, 7, ACQUIRED),
    ]
    (held,) = [one for one in s.partition.in_flight_spans() if one.state == ACQUIRED]
    assert (held.member_id, held.delivery_count) == ("n", 1)
    assert s.partition.release_range(0, 5, s.now_ms, s.settings).reply == 0
