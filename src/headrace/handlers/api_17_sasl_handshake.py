"""SaslHandshake (17), versions 0-1: choose the mechanism of a login (KIP-43).

This handler serves clients that cannot log in now: on a listener without SASL, or too soon after
the last login. The others are served by :mod:`headrace.net.login_requests`.

Version notes:

* Version 1 wraps the messages of the mechanism in SaslAuthenticate (KIP-152). After version 0 each
  is a frame of its own.
"""

from __future__ import annotations

from headrace.net.api import stub
from headrace.protocol.errors import ErrorCode, Refusal

API, handle = stub(17, error=Refusal(ErrorCode.ILLEGAL_SASL_STATE))
