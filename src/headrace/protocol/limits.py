"""The limits on opening a record batch, which may be much larger than its compressed bytes.

A batch is decompressed piece by piece, and its records are read from the pieces. Besides the batch
itself, opening one takes at most the window of its codec (32 KiB for gzip, 4 MiB for lz4, see
:data:`MAX_ZSTD_WINDOW_BYTES` and :data:`MAX_SNAPPY_BLOCK_BYTES`), and three records of
:data:`MAX_OPENED_RECORD_BYTES`: the last one, and the next one while it is put together.
"""

from __future__ import annotations

PIECE_BYTES = 16 * 1024
"""The bytes that are decompressed at a time."""

MAX_OPENED_BYTES = 256 * 1024 * 1024
"""The decompressed size above which a compressed batch is not opened."""

MAX_OPENED_RECORDS = 1_000_000
"""The number of records above which a batch is not opened. This is the most that librdkafka puts
into a batch (``batch.num.messages``).
"""

MAX_OPENED_RECORD_BYTES = 32 * 1024 * 1024
"""The decompressed size above which a record of a compressed batch is not read."""

MAX_RECORD_HEADERS = 100_000
"""The number of headers above which a record is not read."""

MAX_ZSTD_WINDOW_BYTES = 128 * 1024 * 1024
"""The largest window of a zstd frame. Kafka's own: the Java clients read no larger one, and write
it at the compression levels 20 to 22.
"""

MAX_FRAMES = 1000
"""The frames of zstd, or members of gzip, above which a batch is not opened. Clients write one;
each takes some ten microseconds, and an empty one has nine bytes.
"""

MAX_SNAPPY_BLOCK_BYTES = 64 * 1024 * 1024
"""The decompressed size above which a snappy block is not opened, because a block is decompressed
whole. Java clients write blocks of 32 KiB, librdkafka one block for a batch.
"""

MAX_SNAPPY_RATIO = 24
"""A snappy block that claims more than this multiple of its compressed bytes is corrupt: three
bytes expand to 64 at most.
"""

OPENED_ON_LOOP_BYTES = 256 * 1024
"""The decompressed size above which a compressed batch is opened in a thread, off the loop."""

OPENED_ON_LOOP_RECORDS = 1000
"""The number of records above which a batch is opened in a thread: the loop reads about one in a
microsecond.
"""

MAX_RECORD_ERRORS = 1000
"""The records of a refused batch that its response names."""

OPENINGS_OF_ONE_SEARCH = 100
"""Batches that one search by timestamp opens, if it cannot leave the loop. Further ones count as if
all their records had the largest timestamp of the batch.
"""

MAX_REMEMBERED_STEPS = 1_250_000
"""Timestamps of opened batches that searches remember, 16 bytes each: those of the largest batch,
and of many small ones.
"""

LARGE_BATCH_BYTES = 2 * 1024 * 1024
"""The size above which a batch is not checked and written at once, but in pieces, so that the event
loop serves others meanwhile. It takes a millisecond or two; Kafka's default limit is half of it.
"""

PIECE_OF_BATCH_BYTES = 512 * 1024
"""The bytes of a large batch that are checked or written at a time."""
