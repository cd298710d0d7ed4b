"""The configuration of a share group that concerns its share-partitions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The limits of a group. Each command takes them, so that changed configs take effect with the
    next command.

    :param delivery_count_limit: a record that is released after this many deliveries is archived
    :param max_record_locks: no new records are acquired while this many are between start and end
        offset
    :param renew_enabled: members may renew acquisition locks
    :param read_committed: only records of committed transactions, and those without a transaction,
        are delivered
    :param release_backoff_ms: the time for which a record that is released after its first delivery
        cannot be acquired; it doubles with each further delivery, up to ``release_backoff_max_ms``
    """

    delivery_count_limit: int = 5
    lock_duration_ms: int = 30_000
    max_record_locks: int = 2000
    release_backoff_ms: int = 0
    release_backoff_max_ms: int = 60_000
    renew_enabled: bool = True
    read_committed: bool = False
