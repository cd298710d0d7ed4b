"""The limits of the coordinators that are not Kafka configs."""

from __future__ import annotations

COPY_READ_BYTES = 1024 * 1024
"""Bytes of a log that are read at a time to copy records to a dead-letter queue."""

COPY_OPENED_BYTES = 4 * 1024 * 1024
"""The decompressed size above which a compressed batch is not opened to copy records of it: their
dead letters have no key, value and headers.
"""

COPY_OPENED_RECORDS = 50_000
"""The number of records above which a batch is not opened to copy some of them."""

COPY_OPENED_TOGETHER_BYTES = 64 * 1024 * 1024
"""The decompressed bytes of records that are read to copy the records of one acknowledgement of a
partition to a dead-letter queue; its further dead letters have no key, value and headers. A member
may reject thousands of batches together. A consumer that fetches 50 MiB at a time, the default,
reaches this with compressed records only.
"""

LETTERS_ON_LOOP = 1000
"""The dead letters that are built in one turn of the event loop, in about 10 ms. Further ones are
built in the thread that opens large batches.
"""

DEAD_LETTER_COMPLAINT_MS = 60_000
"""The least time between two log lines about records of one group that have no dead letter."""

LATE_COMPLAINT_MS = 60_000
"""The least time between two log lines about late acknowledgements of one group."""

TURN_MS = 10
"""The time of one turn of the event loop in which commands are decided and written, and the time in
which requests are answered. It takes 500 offset commits together, as many small turns would write
many small batches.
"""

ANSWERS_AT_ONCE = 100
"""The requests that are answered before the time of a turn of the event loop is checked."""

MARKERS_AT_ONCE = 20
"""The partitions of a transaction that get their markers in one turn of the event loop. A marker
may be the first record of a partition, which creates a directory and files.
"""

SHARE_PARTITIONS_AT_ONCE = 50
"""The share-partitions whose locks are timed out in one turn of the event loop, in about 5 ms."""

COMMANDS_AT_ONCE = 20
"""The commands that are decided before the time of a turn of the event loop is checked."""
