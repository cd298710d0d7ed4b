"""The reasons why a connection with the wrong security settings fails, and what to change.

A broker that gets a request in the wrong protocol closes the connection without an answer, and a
client that retries never succeeds. After such a failure :func:`mismatch` tries the other protocols
once, to tell a wrong setting from a broker that is down.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any

from headrace.protocol.api import ApiVersionsRequest, SaslHandshakeRequest
from headrace.protocol.errors import ErrorCode
from headrace.protocol.frames import SIZE
from headrace.protocol.schema import Message

from .errors import AuthenticationFailed, ClientError, ConnectionFailed, error_line
from .frames import decode_response, encode_request
from .sasl import Security

_PROBE_TIMEOUT_S = 5.0
_MAX_ANSWER_BYTES = 1 << 20
_HOSTNAME_MISMATCH, _ADDRESS_MISMATCH, _EXPIRED, _NOT_YET_VALID = 62, 64, 10, 9
_UNKNOWN_AUTHORITY = frozenset((2, 18, 19, 20, 21, 27))
"""OpenSSL's codes for a chain that ends at no trusted certificate."""
CERTIFICATE_SETTINGS = "ssl.certificate.location and ssl.key.location"


async def failed_opening(address: str, security: Security, error: Exception) -> ClientError:
    """Return the error of a connection that could not be opened.

    :param error: of the address, of TCP or of TLS
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return invalid_certificate(address, error)
    mistake = refused_certificate(address, error)
    is_of_tls = isinstance(error, ssl.SSLError)
    if mistake is None and (
        is_of_tls or (security.tls and isinstance(error, ConnectionResetError))
    ):
        mistake = await mismatch(address, security)
    if mistake is not None:
        return mistake
    if isinstance(error, ssl.SSLError):
        return ConnectionFailed(f"no TLS with {address}: {error.reason or error}")
    reason = error_line(error) or "it ended the TLS handshake"
    return ConnectionFailed(f"no broker answers at {address}: {reason}")


def invalid_certificate(address: str, error: ssl.SSLCertVerificationError) -> AuthenticationFailed:
    """Return the error for a broker's certificate that is not trusted."""
    # Such as an extension that RFC 5280 requires: Python checks these from 3.13.
    advice = "it, or the certificate of its authority, must be issued again"
    if error.verify_code in _UNKNOWN_AUTHORITY:
        advice = "set ssl.ca.location to the certificate of the authority that has signed it"
    elif error.verify_code in (_HOSTNAME_MISMATCH, _ADDRESS_MISMATCH):
        advice = "name the broker in bootstrap.servers as its certificate does"
    elif error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        advice = "renew it, or correct the clock"
    return AuthenticationFailed(
        f"the certificate of {address} is invalid: {error.verify_message}: {advice}"
    )


def refused_certificate(address: str, error: Exception | None) -> AuthenticationFailed | None:
    """Return the error if the broker ended TLS because the client's certificate is missing or not
    trusted; else None.
    """
    reason = str(getattr(error, "reason", ""))
    if "_ALERT_" not in reason or not (
        "CERTIFICATE" in reason or reason.endswith(("UNKNOWN_CA", "ACCESS_DENIED"))
    ):
        return None
    alert = reason.partition("_ALERT_")[2].replace("_", " ").lower()
    return AuthenticationFailed(
        f"{address} requires a client certificate that it trusts, and answers '{alert}': check "
        f"{CERTIFICATE_SETTINGS}"
    )


def refused_login(address: str, mechanism: str, name: str, reason: str) -> AuthenticationFailed:
    """Return the error for a login that the broker refuses.

    :param name: the user, or the claim ``sub`` of the token
    :param reason: the broker's reason
    """
    what, advice = f"the login of '{name}'", "check sasl.username and sasl.password"
    if mechanism == "OAUTHBEARER":
        what = f"the token of '{name}'"
        advice = "check its issuer, audience, scope and expiry, and whether the broker has its key"
    return AuthenticationFailed(f"{address} refuses {what}: {reason}: {advice}")


async def mismatch(address: str, security: Security) -> AuthenticationFailed | None:
    """Find out which protocol a broker speaks that has closed a connection.

    :param address: ``host:port``
    :param security: the settings of the connection that failed
    :returns: the error that says which setting to change; None if it is not the protocol
    """
    host, _, port_text = address.rpartition(":")
    port = int(port_text)
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            if security.tls is None and await _speaks_tls(host, port):
                right = "SASL_SSL or SSL" if security.sasl else "SSL or SASL_SSL"
                return AuthenticationFailed(
                    f"{address} speaks TLS, and security.protocol is without: set it to {right}"
                )
            if security.tls is not None and await _ask(host, port, None, ApiVersionsRequest(), 0):
                right = "SASL_PLAINTEXT or PLAINTEXT" if security.sasl else "PLAINTEXT"
                return AuthenticationFailed(
                    f"{address} does not speak TLS, and security.protocol asks for it: set it to "
                    f"{right}"
                )
            if security.sasl is None:
                answer = await _ask(host, port, security.tls, SaslHandshakeRequest("?"), 1)
                if answer and answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                    right = "SASL_PLAINTEXT" if security.tls is None else "SASL_SSL"
                    return AuthenticationFailed(
                        f"{address} requires a login: set security.protocol to {right}, and "
                        f"sasl.mechanism to {' or '.join(answer.mechanisms)}"
                    )
    except Exception:  # the peer may be anything, and answer anything
        return None
    return None


async def _speaks_tls(host: str, port: int) -> bool:
    """Return whether a broker speaks TLS, with any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError as error:
        return "_ALERT_" in str(error.reason)
    except OSError:
        return False
    writer.transport.abort()
    return True


async def _ask(
    host: str, port: int, tls: ssl.SSLContext | None, request: Message, version: int
) -> Any:
    """Send one request on a connection of its own.

    :returns: the response; None if the broker closed the connection instead
    """
    reader, writer = await asyncio.open_connection(
        host, port, ssl=tls, server_hostname=host if tls else None
    )
    try:
        writer.write(encode_request(request, version, 1, ""))
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
            if 0 < size <= _MAX_ANSWER_BYTES:
                return decode_response(request, version, memoryview(await reader.readexactly(size)))
        return None
    finally:
        writer.transport.abort()
