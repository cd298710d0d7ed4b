"""TLS contexts from the configuration of a listener."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from .key_material import (
    InvalidMaterial,
    KeyStore,
    Setting,
    load,
    trusted_certificates,
)

PROTOCOLS = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}
"""The served versions, in upper case."""

TLS13_SUITES = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)
"""The cipher suites of TLS 1.3 that OpenSSL enables."""

_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def make_context(setting: Setting, store: KeyStore) -> ssl.SSLContext:
    """Return a context of a server.

    :param store: its key and certificates
    :raises InvalidMaterial: when keys or certificates cannot be used, or the configuration asks
        for what OpenSSL does not have
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    suites = _names(setting("ssl.cipher.suites"))
    _set_versions(context, _names(setting("ssl.enabled.protocols")), suites)
    _set_cipher_suites(context, suites)
    load(context, store)
    trusted = trusted_certificates(setting)
    context.verify_mode = _CLIENT_AUTH[setting("ssl.client.auth") or "none"]
    if trusted is not None:
        try:
            context.load_verify_locations(cadata=trusted)
        except (ssl.SSLError, ValueError):
            raise InvalidMaterial("the trust store has no valid certificates in PEM") from None
    elif context.verify_mode != ssl.CERT_NONE:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def _set_versions(context: ssl.SSLContext, names: Sequence[str], suites: Sequence[str]) -> None:
    unknown = [name for name in names if name.upper() not in PROTOCOLS]
    if unknown or not names:
        raise InvalidMaterial(
            f"ssl.enabled.protocols has {', '.join(unknown) or 'nothing'}; TLSv1.2 and TLSv1.3 are "
            "served"
        )
    versions = [PROTOCOLS[name.upper()] for name in names]
    if not _allows_tls13(suites):
        versions = [version for version in versions if version is not ssl.TLSVersion.TLSv1_3]
    if not versions:
        raise InvalidMaterial("ssl.cipher.suites has no suite of the enabled protocols")
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _allows_tls13(suites: Sequence[str]) -> bool:
    """Return whether ``ssl.cipher.suites`` leaves TLS 1.3 enabled.

    :raises InvalidMaterial: when it names some of its suites: OpenSSL enables all of them
    """
    enabled = TLS13_SUITES & set(suites)
    if enabled and enabled != TLS13_SUITES:
        raise InvalidMaterial(
            "ssl.cipher.suites names some suites of TLS 1.3, but Python enables all or none: name "
            f"{', '.join(sorted(TLS13_SUITES))}, or none of them"
        )
    return bool(enabled) or not suites


def _set_cipher_suites(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    named = [suite for suite in suites if suite not in TLS13_SUITES]
    if not named:
        return
    for name in named:
        try:
            context.set_ciphers(openssl_name(name))
        except ssl.SSLError:
            raise InvalidMaterial(
                f"ssl.cipher.suites has {name}, which OpenSSL does not have"
            ) from None
    context.set_ciphers(":".join(map(openssl_name, named)))


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite of TLS 1.2 with its standard name:
    ``ECDHE-RSA-AES128-GCM-SHA256`` for ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256``.
    """
    exchange, separator, rest = suite.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return suite
    for size in ("128", "256"):
        rest = rest.replace(f"AES_{size}", f"AES{size}")
    rest = rest.replace("_CBC_", "_").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    parts = [] if exchange == "RSA" else [exchange]
    return "_".join([*parts, rest]).replace("_", "-")


def _names(text: str | None) -> Sequence[str]:
    return [name for part in (text or "").split(",") if (name := part.strip())]
