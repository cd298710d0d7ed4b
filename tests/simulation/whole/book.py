"""The records that producers sent, and what the broker may have of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from headrace.protocol.record_batch import Record

from ..witness import Violation

Where = tuple[UUID, int]
OPEN, COMMITTING, COMMITTED, ABORTED, UNKNOWN = (
    "open",
    "committing",
    "committed",
    "aborted",
    "either",
)
"""Outcomes of a transaction, as far as its producer knows."""


@dataclass(eq=False, slots=True)
class Transaction:
    """A transaction.

    :ivar number: it commits this offset, if any
    """

    name: str
    number: int
    outcome: str = OPEN
    commits_offset: bool = False
    entries: list[tuple[Where, Entry]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Entry:
    """A record that a producer sent.

    :ivar sequence: its number among the records of its producer in the partition
    :ivar offset: where it was acknowledged, None before
    """

    key: bytes | None
    value: bytes | None
    writer: str
    sequence: int
    timestamp_ms: int
    transaction: Transaction | None = None
    offset: int | None = None


@dataclass(slots=True)
class Page:
    """A partition.

    :ivar may_start_at: the highest offset before which records were to be deleted
    :ivar seen: the offset of each value that a reader got
    """

    sent: dict[bytes, Entry] = field(default_factory=dict)
    acknowledged: dict[int, Entry] = field(default_factory=dict)
    tombstones: dict[bytes | None, list[Entry]] = field(default_factory=dict)
    may_start_at: int = 0
    must_start_at: int = 0
    seen: dict[bytes, int] = field(default_factory=dict)


def _may_be_deleted(page: Page, key: bytes | None, offset: int) -> bool:
    """Return whether a tombstone of a key may be at an offset or after it."""
    return any(one.offset is None or one.offset >= offset for one in page.tombstones.get(key, ()))


class Book:
    """All records."""

    def __init__(self) -> None:
        self.pages: dict[Where, Page] = {}
        self.transactions: list[Transaction] = []

    def page(self, where: Where) -> Page:
        found = self.pages.get(where)
        if found is None:
            found = self.pages[where] = Page()
        return found

    def sending(self, where: Where, entries: Iterable[Entry]) -> None:
        page = self.page(where)
        for entry in entries:
            if entry.value is None:
                known = page.tombstones.setdefault(entry.key, [])
                if entry not in known:
                    known.append(entry)
            else:
                page.sent[entry.value] = entry

    def acknowledge(self, where: Where, base_offset: int, entries: Iterable[Entry]) -> None:
        page = self.page(where)
        for offset, entry in enumerate(entries, base_offset):
            known = page.acknowledged.setdefault(offset, entry)
            if known is not entry:
                raise Violation(f"offset {offset} of {where[1]} is given to two records")
            if entry.offset not in (None, offset):
                raise Violation(f"{entry.value!r} is acknowledged at {entry.offset} and {offset}")
            entry.offset = offset

    def power_cut(self) -> None:
        """Forget what readers saw: it may not have been durable."""
        for page in self.pages.values():
            page.seen.clear()

    # What a reader may get

    def check_read(self, where: Where, record: Record, *, committed: bool) -> None:
        page = self.page(where)
        acknowledged = page.acknowledged.get(record.offset)
        if acknowledged is not None and (
            acknowledged.value != record.value or acknowledged.key != record.key
        ):
            raise Violation(
                f"offset {record.offset} of {where[1]} is {record.value!r}, and "
                f"{acknowledged.value!r} was acknowledged there"
            )
        if record.value is None:
            if record.key not in page.tombstones:
                raise Violation(f"nobody deleted {record.key!r}")
            return
        entry = page.sent.get(record.value)
        if entry is None or entry.key != record.key:
            raise Violation(f"nobody sent {record.value!r} to {where[1]}")
        offset = page.seen.setdefault(record.value, record.offset)
        if entry.offset is not None:
            offset = entry.offset
        if offset != record.offset:
            raise Violation(f"{record.value!r} is at offset {record.offset} and at {offset}")
        if committed and entry.transaction is not None:
            outcome = entry.transaction.outcome
            if outcome in (OPEN, ABORTED):
                raise Violation(
                    f"{record.value!r} is read as committed, and its transaction is {outcome}"
                )

    # What is there at the end

    def check_all(self, where: Where, records: list[Record], *, compacted: bool) -> None:
        """Check all records of a partition from its log start offset on."""
        values = [record.value for record in records if record.value is not None]
        if len(set(values)) < len(values):
            raise Violation(f"a record is twice in partition {where[1]}")
        page = self.page(where)
        last: dict[str, int] = {}
        latest: dict[bytes | None, int] = {}
        for record in records:
            self.check_read(where, record, committed=False)
            latest[record.key] = record.offset
            entry = page.sent.get(record.value) if record.value is not None else None
            if entry is not None:
                if last.get(entry.writer, -1) >= entry.sequence:
                    raise Violation(f"{record.value!r} is behind a later record of its producer")
                last[entry.writer] = entry.sequence
        there = {record.offset for record in records}
        for offset, entry in page.acknowledged.items():
            if offset in there:
                continue
            if compacted and (
                latest.get(entry.key, -1) > offset or _may_be_deleted(page, entry.key, offset)
            ):
                continue
            if not compacted and offset < page.may_start_at:
                continue
            raise Violation(
                f"record {offset} of {where[1]} was acknowledged, and is not there: "
                f"{entry.key!r} {entry.value!r}"
            )
        if compacted:
            self._check_last_values(where, latest, {r.offset: r for r in records})

    def _check_last_values(
        self, where: Where, latest: Mapping[bytes | None, int], records: Mapping[int, Record]
    ) -> None:
        """Check that no key has an older value than the last acknowledged one."""
        acknowledged: dict[bytes | None, Entry] = {}
        for _, entry in sorted(self.page(where).acknowledged.items()):
            acknowledged[entry.key] = entry
        for key, entry in acknowledged.items():
            assert entry.offset is not None
            offset = latest.get(key)
            if offset is not None and offset < entry.offset:
                raise Violation(
                    f"key {key!r} has {records[offset].value!r} again, of before "
                    f"{entry.value!r} at {entry.offset}"
                )

    def check_transactions(
        self, visible: Mapping[Where, set[bytes]], offsets: Mapping[str, int]
    ) -> None:
        """Check that each transaction is there as a whole or not at all.

        :param visible: what a read_committed reader gets
        :param offsets: the offset that each producer's group has, by the producer's name
        """
        committed_numbers: dict[str, int] = {}
        for one in self.transactions:
            acknowledged = [
                (where, entry) for where, entry in one.entries if entry.offset is not None
            ]
            there = [
                entry.value in visible[where] for where, entry in acknowledged if where in visible
            ]
            outcome = one.outcome
            if outcome in (COMMITTING, UNKNOWN) and any(there):
                outcome = COMMITTED
            if outcome == COMMITTED and not all(there):
                raise Violation(f"a part of the committed {one.name}-{one.number} is not there")
            if outcome in (OPEN, ABORTED) and any(there):
                raise Violation(f"{one.name}-{one.number} is there, and was {outcome}")
            if not one.commits_offset:
                continue
            known = offsets.get(one.name, -1)
            if outcome == COMMITTED:
                committed_numbers[one.name] = one.number
                if known < one.number:
                    raise Violation(
                        f"{one.name} committed the offset {one.number}, and it is {known}"
                    )
            elif outcome in (OPEN, ABORTED) or there:
                if known == one.number:
                    raise Violation(f"the offset {known} of {one.name} was not committed")
            elif known == one.number:
                committed_numbers[one.name] = known
        for name, offset in offsets.items():
            if offset >= 0 and committed_numbers.get(name, -1) != offset:
                raise Violation(
                    f"{name} has the offset {offset}, and committed {committed_numbers.get(name)}"
                )
