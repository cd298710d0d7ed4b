"""SaslAuthenticate (36), versions 0-2: a message of a SASL mechanism (KIP-152).

This handler serves clients that have not begun a login. The others are served by
:mod:`headrace.net.login_requests`.

Version notes:

* Version 1 adds the lifetime of the session (KIP-368).
* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from headrace.errors import ErrorCode
from headrace.net.api import Api
from headrace.net.call import Call
from headrace.protocol.api import SaslAuthenticateRequest, SaslAuthenticateResponse

API = Api(36)


async def handle(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Refuse a message outside of a login."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
