"""Tokens from an endpoint of an OAuth provider, by the grant ``client_credentials`` (KIP-768)."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode, urlsplit

from .errors import AuthenticationFailed, ConnectionFailed
from .tokens import MAX_TOKEN_BYTES, Token, claims_of, read_token

ENDPOINT_TIMEOUT_S = 10.0
"""The timeout of connecting to a token endpoint, of each read, and of reading a response."""
_REFUSALS = frozenset((400, 401, 403))
"""HTTP statuses of an endpoint that does not accept the client."""
_ADVICE = "check sasl.oauthbearer.token.endpoint.url"


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """A token endpoint and the credentials of a client (RFC 6749, section 4.4).

    :param url: with ``https`` or ``http``
    :param scope: None for the default of the endpoint
    :param tls: used for ``https``
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __call__(self) -> Token:
        """Ask for a token.

        :raises AuthenticationFailed: the endpoint does not accept the client, or its certificate is
            invalid
        :raises ConnectionFailed: it does not answer, or answers without a token
        """
        answer = self._ask()
        try:
            found = json.loads(answer)
            text = found["access_token"]
        except (ValueError, KeyError, TypeError, RecursionError):
            text = found = None
        if not isinstance(text, str):
            raise ConnectionFailed(f"{self._place} answers without an access_token")
        lasts_s = found.get("expires_in")
        expires_s = None
        if isinstance(lasts_s, int | float) and "exp" not in claims_of(text):
            expires_s = time.time() + lasts_s
        return read_token(text, self._place, expires_s, self.extensions)

    @property
    def _place(self) -> str:
        """The URL for error texts, without the parts that may have secrets."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def _ask(self) -> bytes:
        form = {"grant_type": "client_credentials"}
        if self.scope:
            form["scope"] = self.scope
        credentials = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        request = urllib.request.Request(
            self.url,
            urlencode(form).encode(),
            {"Authorization": f"Basic {credentials}", "Accept": "application/json"},
        )
        opener = urllib.request.build_opener(
            _NoRedirects, urllib.request.HTTPSHandler(context=self.tls)
        )
        try:
            with opener.open(request, timeout=ENDPOINT_TIMEOUT_S) as response:
                return _read(response)
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise AuthenticationFailed(
                    f"the certificate of {self._place} is invalid: {error.reason.verify_message}: "
                    "set https.ca.location to the certificate of the authority that has signed it"
                ) from None
            reason = getattr(error.reason, "strerror", None) or error.reason
        except (OSError, HTTPException, ValueError) as error:
            reason = error
        raise ConnectionFailed(f"{self._place} does not answer with a token: {reason}: {_ADVICE}")

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        with error:
            if error.code not in _REFUSALS:
                reason = f"HTTP status {error.code}"
                return ConnectionFailed(
                    f"{self._place} does not answer with a token: {reason}: {_ADVICE}"
                )
            try:
                reason = str(json.loads(_read(error))["error"])
            except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError):
                reason = f"HTTP status {error.code}"
        return AuthenticationFailed(
            f"{self._place} refuses the client '{self.client_id}': {reason}: check "
            "sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret and sasl.oauthbearer.scope"
        )


def _read(response: Any) -> bytes:
    """Return the body of a response, or its beginning.

    :raises TimeoutError: it is not complete after :data:`ENDPOINT_TIMEOUT_S`
    """
    ends_at_s = time.monotonic() + ENDPOINT_TIMEOUT_S
    data = bytearray()
    while len(data) < MAX_TOKEN_BYTES and (part := response.read1(MAX_TOKEN_BYTES - len(data))):
        data += part
        if time.monotonic() > ends_at_s:
            raise TimeoutError("timed out")
    return bytes(data)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: credentials are sent to the configured address only."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
