"""A share-partition as clients know it: the expected state of each record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from headrace.share.records import SharePartitionKey

UNKNOWN = -1
Partition = tuple[UUID, int]


class Limits(NamedTuple):
    """Configs of the groups."""

    lock_ms: int
    deliveries: int
    backoff_ms: int
    backoff_max_ms: int


class Persisted(NamedTuple):
    """The state of a record that a restart must find."""

    is_done: bool
    delivery_count: int

    def __str__(self) -> str:
        return (
            "finished" if self.is_done else f"available with delivery count {self.delivery_count}"
        )


class Record:
    """One record as seen by one group.

    :ivar persisted: what a restart would find
    :ivar holder: the member that holds it, None for nobody
    :ivar held_count: its delivery count while it is held
    :ivar not_before_ms: it is not to be delivered before, because it was given back
    :ivar is_dead: whether it is finished because it was rejected, or delivered too often
    :ivar options: after a power cut: what a restart may find
    """

    __slots__ = (
        "deadline_ms",
        "held_count",
        "holder",
        "is_dead",
        "not_before_ms",
        "options",
        "persisted",
    )

    def __init__(self) -> None:
        self.persisted = NEW
        self.holder: str | None = None
        self.held_count = self.not_before_ms = 0
        self.deadline_ms = 0
        self.is_dead = False
        self.options: set[Persisted] = set()

    @property
    def is_done(self) -> bool:
        return self.persisted.is_done


NEW = Persisted(False, 0)


@dataclass(slots=True, eq=False)
class Shelf:
    """A share-partition as seen from outside.

    :ivar start_offset: as last described, UNKNOWN before the first time
    :ivar resetting: the start offset that an administrator is setting, None while nobody is
    :ivar is_orphan: a power cut has left its state without its group, which may begin anew
    """

    key: SharePartitionKey
    start_offset: int = UNKNOWN
    resetting: int | None = None
    is_orphan: bool = False
    records: dict[int, Record] = field(default_factory=dict)

    def record(self, offset: int) -> Record:
        found = self.records.get(offset)
        if found is None:
            found = self.records[offset] = Record()
        return found

    def is_done(self, offset: int) -> bool:
        found = self.records.get(offset)
        return offset < self.start_offset or (found is not None and found.is_done)

    def reset(self, start_offset: int) -> None:
        """Begin anew at an offset that an administrator has set."""
        self.start_offset, self.resetting, self.is_orphan = start_offset, None, False
        for record in self.records.values():
            record.holder = None  # whose lock timer may still be there
        self.records.clear()

    def __str__(self) -> str:
        return f"{self.key.group_id}:{str(self.key.topic_id)[:4]}-{self.key.partition}"


def each(batches: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """Yield (offset, acknowledge type) of the records of a request."""
    for one in batches:
        types = one.acknowledge_types
        for offset in range(one.first_offset, one.last_offset + 1):
            yield offset, types[0] if len(types) == 1 else types[offset - one.first_offset]
