"""The limits of the HTTP server that are not parameters."""

from __future__ import annotations

MAX_HEAD_BYTES = 32 * 1024
"""The request line and the headers of a request."""

MAX_BODY_BYTES = 1024 * 1024
"""The body of a request."""

MAX_BODIES = 16
"""Bodies that are being received, or whose requests wait, at a time; half of them of one address.
One more closes the oldest.
"""

MAX_UNSENT_BYTES = 64 * 1024 * 1024
"""Responses that clients have not read, half of them of one address. More closes those that were
sent first.
"""

HEAD_S = 10
"""The time for the head of the first request on a connection, and for a TLS handshake."""

TURN_S = 10
"""The time that a request waits until it is served. After it, the answer is 503."""

BODY_S = 30
"""The time for the body of a request."""

IDLE_S = 15
"""The time from a response to the whole head of the next request."""

SEND_S = 30
"""The time in which a client must read a response."""

DISCARD_S = 2
"""The time for which the rest of a refused request is received."""

FAILED_LOGINS_S = 60
"""The time for which wrong passwords are counted."""

MAX_FAILED_LOGINS = 5
"""Wrong passwords of one address, or for one user, in that time. Further ones are answered late."""

FAILED_LOGIN_DELAY_S = 1.0
"""The time by which they are late."""

MAX_DELAYED_LOGINS = 16
"""Wrong passwords that are waiting for their late answer. Further ones are answered at once."""

MAX_COUNTED_LOGINS = 1000
"""Addresses and users whose wrong passwords are counted. The one with the oldest is forgotten."""
