"""The TLS of one listener: its context, replaced when files or configs change, and the principals
of certificates.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace.imports import require
from headrace.log_lines import get_logger
from headrace.protocol.configuration import entries
from headrace.protocol.errors import ConfigError
from headrace.security.distinguished_names import subject
from headrace.security.principal import ANONYMOUS, Principal
from headrace.security.principal_mapping import PrincipalMapping
from headrace.topics.settings import Settings

from .key_material import (
    InvalidMaterial,
    KeyStore,
    Setting,
    key_store,
    load,
    trusted_certificates,
)

if TYPE_CHECKING:
    from cryptography import x509

log = get_logger("headrace.tls")

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\s*", re.DOTALL)


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


class _Material(NamedTuple):
    """What the settings of a listener and its files give.

    :ivar certificate: the one that the listener shows, in PEM
    """

    context: ssl.SSLContext
    mapping: PrincipalMapping
    certificate: bytes


class TlsListener:
    """The TLS of one listener.

    :param name: the listener's
    :raises ConfigError: when its keys, certificates or other settings cannot be used
    :raises MissingPackage: cryptography is not installed
    """

    def __init__(self, name: str, config: Settings) -> None:
        # Files in PEM need it only when they change: a broker that cannot follow then must not
        # start.
        require("cryptography", "security")
        self._name = name
        self._config = config
        self._versions = self._file_versions()
        self._material = self._load(config, present=None)

    @property
    def context(self) -> ssl.SSLContext:
        """The context of new connections."""
        return self._material.context

    def principal(self, certificate: bytes | None) -> Principal:
        """Return the principal of a client.

        :param certificate: its certificate in DER, None if it has shown none
        :raises ValueError: when no mapping rule applies
        """
        if certificate is None:
            return ANONYMOUS
        return Principal(self._material.mapping.name_of(subject(certificate)))

    def check(self, config: Settings) -> None:
        """Check that the listener can take over a configuration.

        :raises ConfigError: when it cannot
        """
        self._load(config, self._material)

    def reload(self) -> None:
        """Use the present configuration and files for new connections. If they are not valid, log
        that and go on with those before.
        """
        self._versions = self._file_versions()
        try:
            self._material = self._load(self._config, self._material)
        except ConfigError as error:
            log.error("%s; the certificates before are used", error)
            return
        log.info("listener %s has loaded its certificates again", self._name)

    def reload_changed_files(self) -> None:
        """Do the same as :meth:`reload` if a file has changed."""
        if self._file_versions() != self._versions:
            self.reload()

    def _load(self, config: Settings, present: _Material | None) -> _Material:
        """Read the files of a configuration.

        :param present: what is in use, whose certificate has names that the new one must have
        :raises ConfigError: when they cannot be used
        """
        setting = partial(config.listener_text, self._name)
        try:
            store = key_store(setting)
            material = _Material(
                make_context(setting, store),
                PrincipalMapping(setting("ssl.principal.mapping.rules") or ""),
                _first_certificate(store.pem),
            )
            if present is not None:
                _check_names(
                    present.certificate,
                    material.certificate,
                    may_rename=bool(config.listener_value(self._name, "ssl.allow.dn.changes")),
                    may_drop=bool(config.listener_value(self._name, "ssl.allow.san.changes")),
                )
        except ValueError as error:  # InvalidMaterial, InvalidRules, or that of a certificate
            raise ConfigError(f"listener {self._name}: {error}") from error
        return material

    def _file_versions(self) -> list[tuple[int, int, int] | None]:
        """Return inode, ctime and size of each file, None for one that is missing or not set.

        They differ after a change of the content, and also of the owner or the permissions, which
        changes the ctime.
        """
        versions: list[tuple[int, int, int] | None] = []
        for name in ("ssl.keystore.location", "ssl.truststore.location"):
            path = self._config.listener_text(self._name, name)
            try:
                status = os.stat(path or "")
                versions.append((status.st_ino, status.st_ctime_ns, status.st_size))
            except OSError:
                versions.append(None)
        return versions


def _first_certificate(pem: bytes) -> bytes:
    """Return the certificate of a key store, in PEM; empty if it has none."""
    match = _CERTIFICATE.search(pem)
    return match.group() if match is not None else b""


def _check_names(before: bytes, after: bytes, *, may_rename: bool, may_drop: bool) -> None:
    """Check that a certificate may replace another one. Both are in PEM.

    As in Kafka, the distinguished name stays the same, whatever its case and spaces, and no
    alternative name is dropped, unless these may change. So a wrong file does not lock clients out.

    :param may_rename: whether the distinguished name may change
    :param may_drop: whether alternative names may be missing
    :raises InvalidMaterial: it may not
    """
    if before == after or not before or not after or (may_rename and may_drop):
        return
    from cryptography import x509

    old, new = x509.load_pem_x509_certificate(before), x509.load_pem_x509_certificate(after)
    if not may_rename and _folded(old.subject) != _folded(new.subject):
        raise InvalidMaterial(
            "Keystore DistinguishedName does not match: existing="
            f"{old.subject.rfc4514_string()}, new={new.subject.rfc4514_string()}: "
            "ssl.allow.dn.changes would allow it"
        )
    if may_drop:
        return
    dropped = _alternative_names(old) - _alternative_names(new)
    if dropped:
        raise InvalidMaterial(
            "Keystore SubjectAltNames do not match: the new certificate lacks "
            f"{', '.join(sorted(dropped))}: ssl.allow.san.changes would allow it"
        )


def _folded(name: x509.Name) -> list[set[tuple[str, str]]]:
    """Return a name as Java compares it: without case and repeated spaces, in its order."""
    return [
        {
            (attribute.oid.dotted_string, " ".join(str(attribute.value).upper().lower().split()))
            for attribute in part
        }
        for part in name.rdns
    ]


def _alternative_names(certificate: x509.Certificate) -> set[str]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}


# Contexts -----------------------------------------------------------------------------------------


def make_context(setting: Setting, store: KeyStore) -> ssl.SSLContext:
    """Return a context of a server.

    :param store: its key and certificates
    :raises InvalidMaterial: when keys or certificates cannot be used, or the configuration asks
        for what OpenSSL does not have
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    suites = entries(setting("ssl.cipher.suites"))
    _set_versions(context, entries(setting("ssl.enabled.protocols")), suites)
    _set_cipher_suites(context, suites)
    load(context, store)
    trusted = trusted_certificates(setting)
    context.verify_mode = _CLIENT_AUTH[setting("ssl.client.auth") or "none"]
    if trusted is not None:
        try:
            context.load_verify_locations(cadata=trusted.decode("ascii", "replace"))
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
    enabled = TLS13_SUITES & set(suites)
    if enabled and enabled != TLS13_SUITES:  # OpenSSL enables all of them
        raise InvalidMaterial(
            "ssl.cipher.suites names some suites of TLS 1.3, but Python enables all or none: name "
            f"{', '.join(sorted(TLS13_SUITES))}, or none of them"
        )
    versions = {PROTOCOLS[name.upper()] for name in names}
    if suites and not enabled:
        versions.discard(ssl.TLSVersion.TLSv1_3)
    if not versions:
        raise InvalidMaterial("ssl.cipher.suites has no suite of the enabled protocols")
    context.minimum_version, context.maximum_version = min(versions), max(versions)


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
    rest = re.sub("AES_(128|256)", r"AES\1", rest)
    rest = rest.replace("_CBC_", "_").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    parts = [] if exchange == "RSA" else [exchange]
    return "_".join([*parts, rest]).replace("_", "-")
