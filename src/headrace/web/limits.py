"""The limits of the page that are not options."""

from __future__ import annotations

MAX_URL_BYTES = 8192
"""The path and the query of a request."""

MAX_FILTERS_BYTES = 2048
"""The filters of a page of records, as part of an address: the link to the next page has them, and
the link to log in has that one, escaped once more.
"""

MAX_CONNECTIONS = 256
"""Connections at a time, and TLS handshakes. One more closes the oldest that has sent no request.
"""

MAX_CONCURRENT_REQUESTS = 64
"""Requests in progress; further ones get 503."""

MAX_SESSIONS = 100
"""Logins that are valid at a time; the oldest ends first."""

SESSION_S = 12 * 3600
"""The time for which a login is valid."""

SESSION_IDLE_S = 3600
"""The time after which a login ends if its user does nothing."""

FIRST_LOGIN_S = 600
"""The time for which the address that is printed at the start logs in."""

MAX_PLANS = 100
"""Actions that wait for their confirmation; the oldest is forgotten first."""

PLAN_S = 600
"""The time in which an action must be confirmed."""

HISTORY_POINTS = 180
"""Points in the history of a group or topic."""

MAX_HISTORIES = 20_000
"""Groups and topics with a history."""

MAX_STUCK = 20
"""Groups with a partition in which nothing is finished that are told."""

GROUPS_OF_TURN = 5
"""Share groups that each observation asks for what is in flight."""

ROWS_OF_PAGE = 50
"""Rows of a table of groups or topics."""

MAX_RUNNING_OF_PAGE, MAX_FAILURES_OF_PAGE, MAX_WORKERS_OF_PAGE = 50, 50, 200
"""Rows below the table of tasks."""

PARTITIONS_OF_PAGE = 50
"""Partitions of a group or topic on one page."""

MAX_SPANS_OF_PAGE = 500
"""Spans of records in flight on the page of a group, shared by its partitions."""

LEAST_SPANS_OF_PARTITION = 10
"""The spans of a partition on a page with many partitions."""

RECORDS_OF_PAGE = 50
"""Records on one page, unless a request names another number."""

MAX_RECORDS_OF_PAGE = 200

MAX_READ_BYTES = 32 * 1024 * 1024
"""Decompressed bytes that are read for one page of records."""

MAX_SCANNED_RECORDS = 50_000
"""Records that are compared with the filters for one page."""

MAX_READ_S = 5.0
"""The time in which one page of records is read."""

MAX_OPENED_BYTES = 8 * 1024 * 1024
"""The decompressed size above which a batch is not opened; its records cannot be shown. A page may
read more, so that each page comes further than the one before.
"""

MAX_KEPT_BYTES = 1024 * 1024
"""Bytes of keys, values and headers on one page; the record that reaches it is the last one."""

MAX_READS = 4
"""Pages of records that are read and written at a time; others wait for them."""

FETCH_BYTES = 1024 * 1024
"""Bytes of one Fetch request."""

MAX_SHOWN_CHARS = 2_000
"""Characters of a value in a table of records."""

MAX_VALUE_CHARS = 64 * 1024
"""Characters of a value on the page of its record."""

SHOWN_VALUE_BYTES = 4 * MAX_SHOWN_CHARS + 1
"""Bytes of a key, of a value and of all headers of a record in a list: a character has up to four,
and one more tells that the value was cut.
"""

RECORD_VALUE_BYTES = 4 * MAX_VALUE_CHARS
"""The same of one record."""

MAX_SHOWN_HEADERS = 20
"""Headers of a record."""

MAX_HITS = 20
"""Results of a search."""

MAX_GROUPS_OF_RECORD = 20
"""Share groups that are asked for the state of a record."""

MAX_SPANS_OF_RECORD = 10_000
"""Spans of a partition in which a record is looked for."""

MAX_REDRIVES = 4
"""Redrives of dead letters at a time."""

REDRIVE_PLAN_S = 10.0
"""The time in which a queue is read to show what a redrive would do."""

REDRIVE_WAIT_S = 5.0
"""The time that a request waits for the end of a redrive, which then goes on."""

MAX_ENDED_REDRIVES = 20
"""Redrives that have ended, and are still listed."""
