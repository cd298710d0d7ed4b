"""The cost of a request to a share-partition with 10,000 records in flight.

Run it with ``python -m bench.share_partition``.

Records with odd offsets are accepted; each other record is a span of its own, acquired or (for the
fetches) available again. Timed is the machine alone, deciding and replaying: no socket, no log, no
share coordinator.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from statistics import median
from time import perf_counter

from headrace.protocol.errors import Refusal
from headrace.share.acknowledgement import ACCEPT, RELEASE, AcknowledgementBatch, AcknowledgeTerms
from headrace.share.records import StateUpdate
from headrace.share.settings import FetchLimits, ShareSettings
from headrace.share.share_partition import SharePartition

RECORDS = 10_000
LOG_BATCHES = [(first, first + 99) for first in range(0, 2 * RECORDS, 100)]
MAX_POLL_RECORDS = 500
ROUNDS = 30
WANTED_MS = 2.0

_SETTINGS = ShareSettings(delivery_count_limit=5, max_record_locks=RECORDS)


def apply(partition: SharePartition, update: StateUpdate | Refusal | None) -> None:
    """Replay a decision, as the broker does once it is in the log."""
    assert isinstance(update, StateUpdate), update
    partition.replay(update)


def acknowledge(partition: SharePartition, offsets: range, acknowledge_type: int) -> None:
    """Acknowledge single records, each in a batch of its own, as clients do for records that are
    not adjacent.
    """
    batches = [AcknowledgementBatch(offset, offset, (acknowledge_type,)) for offset in offsets]
    apply(partition, partition.acknowledge("m", batches, 1, _SETTINGS, AcknowledgeTerms()))


def acknowledge_types(partition: SharePartition, offsets: range) -> None:
    """Accept and release in turns, in one batch with a type for each offset."""
    types = (ACCEPT, RELEASE) * (len(offsets) // 2)
    apply(
        partition,
        partition.acknowledge(
            "m",
            [AcknowledgementBatch(offsets[0], offsets[-1], types)],
            1,
            _SETTINGS,
            AcknowledgeTerms(),
        ),
    )


def acquire(partition: SharePartition, max_records: int) -> None:
    offset = partition.fetch_offset(_SETTINGS)
    assert offset is not None
    limits = FetchLimits(1, max_records, 500, record_limit=True)
    assert partition.acquire("m", LOG_BATCHES[offset // 100 :], limits, 1, _SETTINGS)


def release(partition: SharePartition) -> None:
    apply(partition, partition.release(partition.locks.held_by("m"), 1, _SETTINGS))


def expire(partition: SharePartition) -> None:
    apply(partition, partition.release(partition.locks.expired(10**9), 10**9, _SETTINGS))


def whole() -> SharePartition:
    """Return a share-partition with 10,000 acquired records, 500 at a time."""
    partition = SharePartition(0)
    limits = FetchLimits(1, MAX_POLL_RECORDS, 500, record_limit=False)
    while partition.in_flight < RECORDS:
        log_batches = LOG_BATCHES[partition.end_offset // 100 :]
        partition.acquire("m", log_batches, limits, 0, _SETTINGS)
    return partition


def held() -> SharePartition:
    """Return the same with every second record accepted."""
    partition = whole()
    acknowledge(partition, range(1, RECORDS, 2), ACCEPT)
    return partition


def available() -> SharePartition:
    """Return the same with every second record accepted, the others released."""
    partition = held()
    release(partition)
    return partition


REQUESTS: dict[str, tuple[Callable[[], SharePartition], Callable[[SharePartition], object]]] = {
    "acquire 500 records": (available, lambda p: acquire(p, MAX_POLL_RECORDS)),
    "acquire all 5,000": (available, lambda p: acquire(p, RECORDS)),
    "accept 1 record": (held, lambda p: acknowledge(p, range(5_000, 5_001), ACCEPT)),
    "accept 500 records": (held, lambda p: acknowledge(p, range(4_000, 5_000, 2), ACCEPT)),
    "release 500 records": (held, lambda p: acknowledge(p, range(4_000, 5_000, 2), RELEASE)),
    "accept and release 500 in turns": (whole, lambda p: acknowledge_types(p, range(4_000, 4_500))),
    "release: a session with 5,000 locks ends": (held, release),
    "expire: 5,000 locks run out": (held, expire),
}


def measure(
    prepare: Callable[[], SharePartition], request: Callable[[SharePartition], object]
) -> float:
    """Return the median of the milliseconds of a request, each on a new share-partition."""
    times = []
    for _ in range(ROUNDS):
        partition = prepare()
        gc.collect()
        begin = perf_counter()
        request(partition)
        times.append((perf_counter() - begin) * 1000)
    return median(times)


def main() -> None:
    """Run the benchmark, and print a table."""
    print(f"{'request':42} {'median ms':>9}   (wanted: under {WANTED_MS:g})")
    for name, (prepare, request) in REQUESTS.items():
        print(f"{name:42} {measure(prepare, request):9.3f}")


if __name__ == "__main__":
    main()
