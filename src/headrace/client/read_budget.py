"""The limits on one look at records: for a page, an answer of its API, and a chunk of a reader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from headrace.client.records import Record as DeliveredRecord
from headrace.protocol.record_batch import Record

_HEADER_BYTES = 2
"""The least bytes of a header besides its name and content: records may have many empty ones."""


class ReadBudget:
    """The cost that one look at records may have. Whichever limit is reached first ends it.

    One thread at a time spends it; any thread may stop it.

    :param max_bytes: decompressed bytes
    :param max_records: records, shown or not
    :param max_s: seconds from now on. They end nothing before the first record was read, so that a
        look advances even if the broker has taken longer to answer
    :param now_s: the clock
    """

    __slots__ = (
        "_deadline_s",
        "_has_begun",
        "_is_stopped",
        "_left_bytes",
        "_left_records",
        "_now_s",
    )

    def __init__(
        self,
        max_bytes: int,
        max_records: int,
        max_s: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._left_bytes = max_bytes
        self._left_records = max_records
        self._deadline_s = now_s() + max_s
        self._now_s = now_s
        self._has_begun = False
        self._is_stopped = False

    @property
    def is_spent(self) -> bool:
        """True if nothing more may be read."""
        return (
            self._is_stopped
            or self._left_bytes <= 0
            or self._left_records <= 0
            or (self._has_begun and self._now_s() >= self._deadline_s)
        )

    def stop(self) -> None:
        """End the look: nobody waits for it any more."""
        self._is_stopped = True

    def spend(self, size_bytes: int) -> None:
        """Count bytes of batches of which no record is read."""
        self._has_begun = True
        self._left_bytes -= size_bytes

    def spend_record(self, record: Record | DeliveredRecord) -> None:
        """Count a record."""
        self._has_begun = True
        self._left_records -= 1
        self._left_bytes -= size_of(record.key, record.value, record.headers)


def size_of(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> int:
    """Return the bytes of a record's key, value and headers."""
    size_bytes = len(key or b"") + len(value or b"")
    for name, content in headers:
        size_bytes += len(name) + len(content or b"") + _HEADER_BYTES
    return size_bytes
