"""The limits of the broker that are not Kafka configs.

Kafka's configs bound the rest: ``socket.request.max.bytes``, ``max.connections``,
``group.max.size``, ``group.share.max.share.sessions``, ``group.share.partition.max.record.locks``
and others.
"""

from __future__ import annotations

import resource
import sys
from typing import NamedTuple

ACCEPTS_PER_TURN = 100
"""The connections that a listener accepts in one turn of the event loop."""

ACCEPT_RETRY_S = 0.1
"""The pause after the system has refused to accept a connection."""

MAX_HELD_CONNECTIONS = 100
"""The connections of a listener that exceed the quota of their address and are held before they are
closed. One more closes the oldest.
"""

TLS_RECORD_BYTES = 16 * 1024
"""The most bytes of data in a TLS record."""

MAX_TLS_RECORD_BYTES = 5 + TLS_RECORD_BYTES + 2048
"""The most bytes of an encrypted TLS record with its header (RFC 5246, section 6.2.3)."""

TLS_RECEIVE_BYTES = 32 * 1024
"""The bytes that one system call receives from a connection with TLS, and the most that wait in it
to be decrypted.
"""

TLS_SEND_BYTES = 2 * TLS_RECORD_BYTES
"""The encrypted bytes that are sent with one system call. At most these, and one record more, wait
for a full socket.
"""

TLS_RECORDS_PER_TURN = 64
"""The TLS records of one connection that are read in one turn of the event loop: up to 1 MiB of
data. A record without data ends its turn.
"""

MAX_EMPTY_TLS_RECORDS = 100
"""The TLS records without data, such as key updates, that a connection may send beyond those with
data. One more closes it.
"""

MAX_HANDSHAKES = 1000
"""TLS handshakes that are not complete. One more ends the oldest."""

HANDSHAKE_BYTES = 192 * 1024
"""The most memory of such a handshake: OpenSSL makes room for the ClientHello that a client claims,
up to 131,396 bytes, and for a record. One that claims nothing takes about 50 KiB.
"""

HANDSHAKE_PIECE_BYTES = 4096
"""The bytes that OpenSSL gets at a time in a handshake: the memory they pass through is kept."""

HANDSHAKE_SLICE_S = 0.004
"""The time for TLS handshakes in one turn of the event loop. Each takes about a millisecond with a
key of 2048 bits.
"""

LOGIN_TIMEOUT_S = 30.0
"""The time for a TLS handshake, and the time for a SASL login. Then the connection is closed."""

JWKS_TIMEOUT_S = 10.0
"""The time to read the keys of tokens (JWKS)."""

MAX_JWKS_BYTES = 1024 * 1024
"""The largest document with keys of tokens."""

MIN_JWKS_INTERVAL_S = 5.0
"""The least time between two reads of the keys because of unknown keys in tokens, or their age."""

LEAST_JWKS_BACKOFF_S = 0.1
"""The least time to the next read of the keys after a failure."""

TLS_FILE_CHECK_S = 5.0
"""The time between two checks of the files of key stores and trust stores for changes."""

MIN_REQUEST_BYTES = 8
"""The shortest request header: api key, version, correlation id."""

MIN_TOKEN_BYTES = 2
"""The shortest message of a login as a frame of its own: as much as an API key. ``\\0a\\0b`` is the
shortest one that succeeds.
"""

MAX_QUEUED_REQUESTS = 64
"""The number of unserved requests of one connection above which nothing is read from it."""

MAX_QUEUED_BYTES = 8 * 1024 * 1024
"""The bytes of unserved requests above which nothing is read from a connection."""

SERVE_SLICE_MS = 5
"""The time for requests and large answers in one turn of the event loop. Then connections with more
of them wait in line, except for requests that are quick in any case.
"""

TURN_MS = 1
"""The time that one connection in line gets in a turn; at least one request is served."""

SEND_AT_BYTES = 64 * 1024
"""Answers to requests that came together are sent together, up to this size."""

SEND_BUFFER_BYTES = 256 * 1024
"""The buffer for records on their way from a file to a socket; one for all connections."""

AWAIT_SOCKET_BYTES = 4096
"""The bytes that are given to a full socket, to learn when it takes more. A client that does not
read its records costs this memory.
"""

MAX_UNSENT_BYTES = 64 * 1024 * 1024
"""The memory of answers that clients do not read, of all connections together. Beyond it, the
connection that was stalled for longest is closed.
"""

COUNTED_REQUEST_BYTES = 16 * 1024
"""A smaller request does not count in ``queued.max.request.bytes`` while it is being served."""

SPENT_RECEIVE_BYTES = 8 * 1024
"""The bytes that one read returns while ``queued.max.request.bytes`` is spent."""

FRAME_CHECK_S = 2.0
"""The time between two checks for connections that send slowly while others wait for memory."""

MIN_FRAME_BYTES_PER_S = 16 * 1024
"""A connection that sends less is slow, see :data:`FRAME_CHECK_S`."""

RECEIVE_BUFFER_BYTES = 256 * 1024
"""The buffer that all connections receive into: the most bytes that one read returns."""

MAX_READ_AHEAD_BYTES = 64 * 1024
"""The records that a Fetch reads while its response is made, to send them with one system call. The
rest, and what the socket does not take at once, is read from the file when the socket takes it.
"""

MAX_PRODUCE_TEMPLATES = 1000
"""Request templates of Produce on one connection: one for each partition. One more discards all."""

PRUNED_LOG_BYTES = 1024 * 1024
"""A larger internal log begins a new file when old records are deleted: then the old file can be
deleted, and a start after a crash has less to verify.
"""

INTERNAL_DIRTY_BYTES = 4 * 1024 * 1024
"""If the active segments of a compacted internal topic exceed this together, they are closed so
that they can be cleaned. A start reads them, at about 10 MB a second.
"""

INTERNAL_CLEANED_BYTES = 64 * 1024
"""The smallest active segment that is closed for cleaning."""

MAX_FETCH_WAIT_MS = 5 * 60_000
"""The longest time that a fetch waits for records, even if it requests more."""

FETCH_SESSION_EVICTION_MS = 120_000
"""Kafka's own: how long after its creation, and after its last use, a fetch session cannot be
evicted.
"""

MAX_FETCH_SESSION_PARTITIONS = 500_000
"""The partitions of all fetch sessions together, at about 0.4 KiB each."""

MAX_SHARE_MEMBER_ID_LENGTH = 36
"""Kafka's own: the length of a UUID in hexadecimal."""

MAX_RELEASE_DELAY_MS = 86_400_000
"""A day: the longest time for which a member keeps released records from being delivered."""

MAX_REJECT_REASON_CHARS = 1000
"""The reason of a rejection, which each of its dead letters has."""

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Kafka's own: the partitions that one request may create."""

MAX_IN_FLIGHT_SPANS = 20_000
"""The spans of records in flight in one response of DescribeShareGroupOffsets. A partition whose
spans do not fit is described without them.
"""

MAX_RELEASES_PER_REQUEST = 1000
"""The ranges of records to release in one request of AlterShareGroupOffsets."""

MAX_TOPICS_PER_TRANSACTION = 2000
"""The topics or configured resources that one transaction of the catalog creates, changes or
deletes. A request with more takes several transactions, and other requests are served between them.
"""

LOOP_WATCH_MS = 100
"""The time between two measurements of the event loop's delay."""

LOOP_HELD_MS = 100
"""A longer delay of the event loop is logged with the request or timer that held it."""

MAX_LOOP_HOLDERS = 200
"""The names of requests and timers for which delays of the event loop are counted."""

TOPICS_PER_TURN = 500
"""The topics that retention, compaction and the scrape of metrics visit in one turn of the event
loop, if none of their partitions needs work.
"""

DELETIONS_AT_ONCE = 20
"""The partitions whose log start offsets are forced to disk by one piece of work of DeleteRecords.
Other requests are served between them, and other DeleteRecords take turns.
"""

SLICED_REQUEST_BYTES = 32 * 1024
"""A larger request is read in slices, except for those that are quick in any case."""

SLICED_ABOVE = 100
"""A request about more resources than this is served in slices, see
:mod:`headrace.protocol.time_slices`.
"""

MAX_METADATA_VERSIONS = 3
"""The versions of the response to Metadata for all topics that are kept as bytes, at about 150
bytes for each topic.
"""

MAX_SHARED_DESCRIPTIONS = 100
"""The descriptions of configs that topics with equal configs share in one response."""

CATALOG_LOG_BYTES = 4 << 20
"""The size of SQLite's log from which on its pages are written to the catalog after each commit,
which lets the log begin again.
"""

PRODUCER_ID_BLOCK = 1000
"""Producer ids are allocated in blocks: one catalog transaction each, and at most one block is lost
in a crash.
"""

MAX_METRIC_PARTITIONS = 50_000
"""Partitions with metrics, and partitions of groups with metrics. The number of those left out is a
metric, too.
"""

SCRAPE_SLICE_SAMPLES = 1000
"""The lines of metrics after which other requests are served."""

SCRAPE_LOADING_MS = 100
"""The time that one scrape spends on opening logs that were not used since the start. The next one
continues.
"""

MAX_SCRAPE_CONNECTIONS = 32
"""Connections to the metrics port at a time, and TLS handshakes. One more closes the oldest that
has sent no request.
"""

OPENING_WORK_S, OPENING_REST_S = 0.002, 0.001
"""The thread that opens large batches pauses for ``OPENING_REST_S`` seconds after about
``OPENING_WORK_S`` seconds of work, so that the event loop can run.
"""

DIRECTORY_CHECK_INTERVAL_S = 0.2
"""The time between two checks that the data directory was not deleted, moved or replaced. Records
that were acknowledged since the last check are lost with it.
"""

DIRECTORY_CHECK_LOGS = 500
"""The most logs whose active segments one check looks for."""

DIRECTORY_CHECK_ROUND = 5
"""The number of checks that visit each log once, unless there are too many logs. If each check
visited all of 100 logs, an idle broker would spend half of its CPU time on them.
"""

MISSING_PARTITIONS_LOGGED = 20
"""The partitions without their directories that a refused start names, each on a line."""

SCRUB_BYTES_PER_SECOND = 4 * 1024 * 1024
"""The rate at which stored batches are verified in the background."""

SCRUB_LEAST_BATCH_BYTES = 1024
"""A smaller batch counts as this size, as it takes as much time."""

SCRUB_INTERVAL_S = 24 * 3600
"""The time from the start of one verification of all batches to the next, if it takes no longer."""

SEARCH_SLICE_S = 0.005
"""The time after which a search by timestamp lets other requests go on."""

_OTHER_DESCRIPTORS = 96
_MAX_SEGMENT_FILES = 8192


class DescriptorBudget(NamedTuple):
    """The file descriptors of the process.

    :ivar files: segment files that are open at a time
    :ivar connections: connections of clients at a time. Further ones are refused
    """

    files: int
    connections: int


def descriptor_budget(limit: int | None = None) -> DescriptorBudget:
    """Divide the file descriptors of the process among logs and connections.

    Up to 96, but at most half, are left for the catalog, the listeners, indexes, directories,
    compaction and metrics. Logs get half of the rest, up to 8,192, and connections the other half.

    :param limit: the limit of the process; by default the present one (``ulimit -n``)
    """
    if limit is None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return DescriptorBudget(_MAX_SEGMENT_FILES, sys.maxsize)
    rest = limit - min(_OTHER_DESCRIPTORS, limit // 2)
    files = min(_MAX_SEGMENT_FILES, rest // 2)
    return DescriptorBudget(files, rest - files)


REGEX_WAIT_S = 0.5
"""How long a heartbeat waits until its regular expression is matched. After that it is answered
without the topics, and a later one continues.
"""

REGEX_SLICE_S = 0.005
"""The time for which one expression is matched before it is the turn of others."""

REGEX_SLICE_TEXTS = 1_000
"""The most texts that are matched in a slice."""

MAX_REMEMBERED_MATCHES = 500_000
"""The topics that match remembered expressions, of all expressions together: some 30 MB."""
