"""The configuration of a share group that concerns its share-partitions, and the limits of a
ShareFetch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


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


class FetchLimits(NamedTuple):
    """The limits of a ShareFetch for all its partitions together, or for one of them.

    :ivar max_records: the number of records to acquire, rounded up to the end of the log batch or
        in-flight batch
    :ivar batch_size: new records are split into runs of about this many, at the starts of log
        batches
    :ivar record_limit: ``max_records`` is not rounded up
    """

    max_bytes: int
    max_records: int
    batch_size: int
    record_limit: bool
