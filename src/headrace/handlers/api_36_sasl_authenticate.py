"""SaslAuthenticate (36), versions 0-2: a message of a SASL mechanism (KIP-152).

This handler serves clients that have not begun a login. The others are served by
:mod:`headrace.net.login_requests`.

Version notes:

* Version 1 adds the lifetime of the session (KIP-368).
* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from headrace.net.api import stub
from headrace.protocol.errors import ErrorCode, Refusal

API, handle = stub(
    36,
    error=Refusal(
        ErrorCode.ILLEGAL_SASL_STATE,
        "SaslAuthenticate request received after successful authentication",
    ),
)
