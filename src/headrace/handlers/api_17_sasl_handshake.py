"""SaslHandshake (17), versions 0-1: choose the mechanism of a login (KIP-43).

This handler serves clients that cannot log in now: on a listener without SASL, or too soon after
the last login. The others are served by :mod:`headrace.broker.login_requests`.

Version notes:

* Version 1 wraps the messages of the mechanism in SaslAuthenticate (KIP-152). After version 0 each
  is a frame of its own.
"""

from __future__ import annotations

from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode

from .context import RequestContext


def handle(
    broker: Broker, request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse:
    """Refuse a login."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=())
