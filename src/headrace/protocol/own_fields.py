"""Tagged fields that headrace adds to four Kafka APIs (KIP-482); ``own_fields.txt`` has them with
their types. They show the records of share groups that are in flight, acquire and release
them.

A broker that does not know a tagged field skips it, and leaves out its answer. So a client may send
these fields to any broker, and learns from the answer whether it knows them. Without them requests
and responses are those of Apache Kafka, byte for byte. The tags, from 10,000 on, are far from those
that Kafka uses.

DescribeShareGroupOffsets 1, for each partition:

* ``in_flight_limit``: the largest number of spans to return; 0 to return none.
* ``in_flight``: the spans from the start offset on, ascending. A span is a run of records in one
  state up to ``last_offset``, inclusive. Its ``delivery_count`` is 0 where it is not known,
  ``member_id`` the holder of locked records, else null, ``remaining_ms`` the time until the lock or
  the backoff ends, -1 for other states.
* ``in_flight_end``: the offset after the last span; -1 if the broker does not tell.
* ``released_count``: records released since the broker loaded the share-partition.
* ``archived_count``: records archived without having been accepted, since the broker started.
* ``late_count``: records acknowledged after the end of their lock, since the broker started.

AlterShareGroupOffsets 0:

* ``releases``: release records that members hold, up to ``last_offset``, inclusive. With them the
  request has no ``topics``, and the group may have members.

ShareAcknowledge 2:

* ``uncounted_release``: the released records were not processed, so this delivery is not counted.
  Another broker counts it.
* ``release_delay_ms``: the shortest time for which the released records are not delivered again.
  Another broker delivers them at once.
* ``reject_reason``: the text of the dead letters of the rejected records.

ShareFetch 2:

* ``offsets_only``: acquire records, and answer with their offsets alone. The client reads them with
  Fetch. Another broker sends the records.
"""

from enum import IntEnum


class SpanState(IntEnum):
    """The state of records in flight."""

    AVAILABLE = 0
    LOCKED = 1
    FINISHED = 2
    WAITING = 3
    """Released, and not available until the end of a backoff."""
