"""Every bound that is not a Kafka config, by name.

What Kafka has a config for is bounded by that config: ``socket.request.max.bytes``,
``max.connections``, ``group.max.size``, ``group.share.max.share.sessions``,
``group.share.partition.max.record.locks`` and others.
"""

from __future__ import annotations

import resource

MIN_REQUEST_BYTES = 8
"""The shortest request header there is: api key, version, correlation id."""

MAX_QUEUED_REQUESTS = 64
"""Requests of one connection that are received and not yet served; past that nothing more is read
from it.
"""

MAX_QUEUED_BYTES = 8 * 1024 * 1024
"""Likewise, how many bytes of such requests."""

RECEIVE_BUFFER_BYTES = 256 * 1024
"""The buffer that all connections receive into: the most that is read from one of them at a time.
"""

MAX_PRODUCE_TEMPLATES = 1000
"""Request templates of Produce on one connection: one for each partition. One more discards all."""

MAX_COMMIT_TEMPLATES = 100
"""Request templates of OffsetCommit on one connection. One more discards all."""

PRUNED_LOG_BYTES = 1024 * 1024
"""An internal log larger than this begins a new file when it is pruned: the old one can go the
sooner, and a start after a crash has less to check."""

INTERNAL_DIRTY_BYTES = 4 * 1024 * 1024
"""The last segments of a compacted internal topic are cleaned, too, when they are larger than this
together. Until then they are the history of all groups; a start reads them at about 10 MB a second.
"""

INTERNAL_CLEANED_BYTES = 64 * 1024
"""The least size of a last segment that is closed for that."""

MAX_FETCH_WAIT_MS = 5 * 60_000
"""The longest that a fetch may wait for records, whatever it asks for."""

FETCH_SESSION_EVICTION_MS = 120_000
"""Kafka's own: how long a fetch session is safe from those that want its place, from its beginning
and its last use.
"""

MAX_FETCH_SESSION_PARTITIONS = 500_000
"""How many partitions all fetch sessions may have together; at about 0.4 KiB each."""

MAX_TOPIC_NAME_LENGTH = 249
"""Kafka's own: with the partition and a suffix, a directory name is at most 255 long."""

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Kafka's own: how many partitions one request may create."""

PRODUCER_ID_BLOCK = 1000
"""Producer ids are taken from the catalog by the thousand: one transaction each, at most so many
lost in a crash.
"""

MAX_METRIC_PARTITIONS = 50_000
"""Of so many partitions, and of so many partitions of groups, there are metrics; how many are left
out is one, too.
"""

SCRAPE_SLICE_SAMPLES = 1000
"""After so many lines of metrics the requests that have come meanwhile are served."""

SCRAPE_LOADING_MS = 100
"""How long one scrape may spend on opening logs that nobody has used since the start; the next one
goes on.
"""

MAX_SCRAPE_CONNECTIONS = 8
"""Connections at a time to the metrics port."""

MAX_SCRAPE_REQUEST_BYTES = 8192
"""The longest request head there."""

SCRAPE_TIMEOUT_S = 10
"""How long such a connection may take to send its request, and to take the answer."""

_FILES_FOR_OTHERS = 64
"""File descriptors left for the database, the listeners and the interpreter itself."""


def max_open_files() -> int:
    """How many segment files may be open at a time: half of what the process may open, the rest is
    for connections.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 8192
    return max(16, min(8192, (soft - _FILES_FOR_OTHERS) // 2))
