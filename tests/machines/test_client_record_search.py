"""Finding the times of records at positions of a partition: what is found, and from how few
bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.lag.times import FIRST_BYTES, PartitionSearch
from headrace.protocol.compression import compress
from headrace.protocol.primitives import record_bytes, varint
from headrace.protocol.record_batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Marker,
    end_transaction_marker,
    header_at,
    seal,
)

T0 = 1_700_000_000_000


def a_batch(
    base_offset: int,
    times: Sequence[tuple[int, int]],
    last_offset_delta: int,
    *,
    codec: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    value: bytes = b"v",
    horizon_ms: int | None = None,
) -> bytes:
    """A batch of records by (offset delta, timestamp), perhaps with gaps, as compaction leaves
    it."""
    base_timestamp = T0 if not times else times[0][1]
    if horizon_ms is not None:
        base_timestamp, attributes = horizon_ms, attributes | DELETE_HORIZON_BIT
    body = bytearray()
    for offset_delta, timestamp in times:
        delta = timestamp - base_timestamp
        record = [
            b"\0",
            varint(delta),
            varint(offset_delta),
            *record_bytes(None),
            *record_bytes(value),
            varint(0),
        ]
        body += b"".join(record_bytes(b"".join(record)))
    payload = compress(codec, bytes(body))
    latest = max((timestamp for _, timestamp in times), default=-1)
    header = BatchHeader(
        base_offset,
        HEADER_BYTES - LENGTH_OVERHEAD + len(payload),
        0,
        2,
        0,
        attributes | codec,
        last_offset_delta,
        base_timestamp,
        latest,
        producer_id,
        0,
        0,
        len(times),
    )
    return seal(header, payload) + payload


def simple(base_offset: int, count: int, first_ms: int = T0, **more: object) -> bytes:
    """A batch without gaps, whose records are 10 ms apart."""
    times = [(delta, first_ms + 10 * delta) for delta in range(count)]
    return a_batch(base_offset, times, count - 1, **more)  # type: ignore[arg-type]


class Log:
    """A partition of a broker, and its answers."""

    def __init__(
        self, batches: Sequence[bytes], aborted: Sequence[tuple[int, int]] = (), cuts: bool = True
    ) -> None:
        self.batches = batches
        self.aborted = aborted
        self.cuts = cuts
        """Like Kafka, which cuts the last batch to what was asked for; headrace sends whole ones
        only, or none.
        """
        self.read: list[int] = []

    @property
    def end_offset(self) -> int:
        return header_at(self.batches[-1]).last_offset + 1 if self.batches else 0

    def fetch(self, offset: int, max_bytes: int) -> bytes:
        data = b""
        for batch in self.batches:
            if header_at(batch).last_offset < offset:
                continue
            if not self.cuts and len(data) + len(batch) > max_bytes:
                break
            data += batch
        self.read.append(len(data[:max_bytes]))
        return data[:max_bytes]

    def search(
        self, positions: Sequence[int], end_offset: int | None = None
    ) -> dict[int, int | None]:
        search = PartitionSearch(positions, self.end_offset if end_offset is None else end_offset)
        while not search.done:
            search.feed(self.fetch(search.offset, search.max_bytes), self.aborted)
        return search.found


def test_the_first_record_of_a_batch_is_dated_by_its_header_however_large_the_batch() -> None:
    log = Log([simple(0, 100, value=b"v" * 10_000), simple(100, 5)])
    assert log.search([0]) == {0: T0}
    assert log.read == [FIRST_BYTES]


def test_a_record_in_the_middle_of_a_large_batch_takes_reading_exactly_that_batch() -> None:
    large = simple(0, 100, value=b"v" * 1000)
    log = Log([large, simple(100, 5)])
    assert log.search([42]) == {42: T0 + 420}
    assert log.read == [FIRST_BYTES, len(large)]


def test_with_log_append_time_nothing_is_opened() -> None:
    large = simple(0, 100, value=b"v" * 1000, attributes=LOG_APPEND_TIME_BIT)
    log = Log([large])
    assert log.search([42, 7]) == {7: T0 + 990, 42: T0 + 990}
    assert len(log.read) == 1


def test_several_positions_are_found_in_one_answer() -> None:
    log = Log([simple(at, 10, T0 + at) for at in range(0, 1000, 10)])
    assert log.search(range(0, 1000, 7)) == {
        at: T0 + at // 10 * 10 + at % 10 * 10 for at in range(0, 1000, 7)
    }
    assert len(log.read) == 1


def test_what_was_compacted_away_is_represented_by_the_next_record() -> None:
    gaps = a_batch(0, [(2, T0 + 2), (7, T0 + 7)], 9)
    empty = a_batch(10, [], 9)
    log = Log([gaps, empty, simple(20, 3, T0 + 20)])
    assert log.search([0, 2, 3, 8, 12, 20]) == {
        0: T0 + 2,
        2: T0 + 2,
        3: T0 + 7,
        8: T0 + 20,
        12: T0 + 20,
        20: T0 + 20,
    }


def test_the_horizon_of_deletion_is_no_timestamp() -> None:
    log = Log([simple(0, 3, horizon_ms=T0 + 1_000_000)])
    assert log.search([0, 1]) == {0: T0, 1: T0 + 10}


def test_markers_and_aborted_records_do_not_count() -> None:
    aborted = simple(0, 3, attributes=TRANSACTIONAL_BIT, producer_id=7)
    abort = bytearray(end_transaction_marker(7, 0, Marker(False, 0), T0))
    abort[:8] = (3).to_bytes(8, "big")
    again = simple(4, 3, T0 + 500, attributes=TRANSACTIONAL_BIT, producer_id=7)
    batches = [aborted, bytes(abort), again]
    assert Log(batches, aborted=[(7, 0)]).search([0, 1, 3]) == dict.fromkeys((0, 1, 3), T0 + 500)
    assert Log(batches).search([0, 1, 3]) == {0: T0, 1: T0 + 10, 3: T0 + 500}
    assert Log(batches[:2], aborted=[(7, 0)]).search([0, 3]) == {0: None, 3: None}


def test_nothing_is_looked_for_from_the_end_on() -> None:
    log = Log([simple(0, 5), simple(5, 5)])
    assert log.search([5, 10], end_offset=5) == {5: None, 10: None}
    assert log.read == []


def test_a_log_that_begins_later_is_read_from_its_start() -> None:
    search = PartitionSearch([3, 12], 20)
    search.start_at(7)
    assert search.offset == 7
    search.feed(simple(0, 20))
    assert search.found == {3: T0 + 70, 12: T0 + 120}


def test_what_cannot_be_read_stays_unknown() -> None:
    broken = bytearray(simple(0, 5, codec=1))
    broken[HEADER_BYTES:] = b"\xff" * len(broken[HEADER_BYTES:])
    assert Log([bytes(broken), simple(5, 5)]).search([2, 6]) == {
        2: NO_TIMESTAMP,
        6: T0 + 10,
    }
    old = bytearray(simple(0, 5))
    old[16] = 1
    assert Log([bytes(old)]).search([2]) == {}
    assert Log([a_batch(0, [(0, -1)], 0)]).search([0]) == {0: NO_TIMESTAMP}


def test_a_broker_that_answers_nothing_is_given_up() -> None:
    search = PartitionSearch([0], 10)
    answers = 0
    while not search.done:
        search.feed(b"")
        answers += 1
    assert search.found == {0: NO_TIMESTAMP} and answers < 100


@dataclass
class Model:
    """A log, and the records of it that count."""

    log: Log
    counting: list[tuple[int, int]]
    positions: list[int]


@st.composite
def models(draw: st.DrawFn) -> Model:
    batches: list[bytes] = []
    counting: list[tuple[int, int]] = []
    aborted: list[tuple[int, int]] = []
    open_since: dict[int, int] = {}
    fates = {pid: draw(st.booleans()) for pid in (1, 2)}  # whether its transactions commit
    at = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(("data", "data", "transactional", "marker")))
        pid = draw(st.sampled_from((1, 2)))
        if kind == "marker":
            marker = bytearray(end_transaction_marker(pid, 0, Marker(fates[pid], 0), T0))
            marker[:8] = at.to_bytes(8, "big")
            batches.append(bytes(marker))
            if pid in open_since and not fates[pid]:
                aborted.append((pid, open_since.pop(pid)))
            open_since.pop(pid, None)
            at += 1
            continue
        span = draw(st.integers(1, 30))
        deltas = (
            range(span) if draw(st.booleans()) else sorted(draw(st.sets(st.integers(0, span - 1))))
        )
        times = [(delta, T0 + draw(st.integers(-1000, 1000))) for delta in deltas]
        by_broker = LOG_APPEND_TIME_BIT if draw(st.booleans()) else 0
        batch = a_batch(
            at,
            times,
            span - 1,
            codec=draw(st.integers(0, 4)),
            attributes=by_broker | (TRANSACTIONAL_BIT if kind == "transactional" else 0),
            producer_id=pid if kind == "transactional" else -1,
            value=b"v" * draw(st.sampled_from((1, 300))),
            horizon_ms=draw(st.sampled_from((None, T0 + 5000))) if not by_broker else None,
        )
        batches.append(batch)
        if kind == "transactional":
            open_since.setdefault(pid, at)
        if kind == "data" or fates[pid]:
            latest = header_at(batch).max_timestamp
            counting += [
                (at + delta, latest if by_broker else timestamp) for delta, timestamp in times
            ]
        at += span
    for pid, since in open_since.items():  # aborted later on
        if not fates[pid]:
            aborted.append((pid, since))
    positions = draw(st.lists(st.integers(0, at + 2), min_size=1, max_size=20))
    first = header_at(batches[0]).base_offset
    log = Log(batches, aborted, cuts=draw(st.booleans()))
    return Model(log, counting, [max(first, position) for position in positions])


@given(models())
def test_each_position_has_the_time_of_the_first_record_from_there_on_that_counts(
    model: Model,
) -> None:
    expected = {
        position: next((time for offset, time in model.counting if offset >= position), None)
        for position in model.positions
    }
    assert model.log.search(model.positions) == expected


def test_control_batches_are_never_dated() -> None:
    control = simple(0, 1, attributes=CONTROL_BIT | TRANSACTIONAL_BIT)
    assert Log([control, simple(1, 1, T0 + 99)]).search([0]) == {0: T0 + 99}
