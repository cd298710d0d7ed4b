"""Certificates of the throw-away authority follow RFC 5280, which Python checks from 3.13."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from headrace.client.diagnosis import invalid_certificate
from tests.throwaway_ca import Certificate, ThrowawayCA


def context(purpose: ssl.Purpose, authority: ThrowawayCA, own: Certificate) -> ssl.SSLContext:
    """Return the context of a side that requires a certificate from the other one."""
    made = ssl.create_default_context(purpose, cafile=str(authority.certificate))
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_cert_chain(own.certificate, own.key)
    return made


def shake_hands(of_client: ssl.SSLContext, of_server: ssl.SSLContext) -> None:
    """Complete a handshake in memory.

    :raises ssl.SSLCertVerificationError: when one side does not accept the other's certificate
    """
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = of_client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    server = of_server.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


@pytest.mark.parametrize("subject", [None, ""])
def test_both_sides_verify_strictly(tmp_path: Path, subject: str | None) -> None:
    authority = ThrowawayCA(tmp_path)
    server, client = authority.issue("server", subject), authority.issue("client", subject)
    shake_hands(
        context(ssl.Purpose.SERVER_AUTH, authority, client),
        context(ssl.Purpose.CLIENT_AUTH, authority, server),
    )


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (20, "set ssl.ca.location to the certificate of the authority that has signed it"),
        (19, "set ssl.ca.location to the certificate of the authority that has signed it"),
        (62, "name the broker in bootstrap.servers as its certificate does"),
        (10, "renew it, or correct the clock"),
        (85, "it, or the certificate of its authority, must be issued again"),
    ],
)
def test_advice_on_an_invalid_certificate(code: int, advice: str) -> None:
    """85 is OpenSSL's code for a missing Authority Key Identifier."""
    error = ssl.SSLCertVerificationError("certificate verify failed")
    error.verify_code = code
    error.verify_message = "why"
    assert str(invalid_certificate("b:9", error)).endswith(f": why: {advice}")
