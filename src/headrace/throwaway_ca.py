"""A certificate authority for tests: it exists in one directory and for a few days."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

VALID_DAYS = 7


class Certificate(NamedTuple):
    """A certificate that the authority has signed, with its key.

    :ivar certificate: the path of the certificate in PEM
    :ivar key: the path of the private key in PEM
    :ivar both: the path of a file with key and certificate
    """

    certificate: Path
    key: Path
    both: Path


def _write_private(path: Path, data: bytes) -> None:
    """Write a file with a key."""
    path.touch(0o600)
    path.write_bytes(data)


class ThrowawayCA:
    """A certificate authority.

    :param directory: for all files; must exist
    :ivar certificate: the path of its certificate in PEM, for trust stores
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name.from_rfc4514_string("CN=throw-away CA")
        self.certificate = directory / "ca.pem"
        builder = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
        )
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.certificate.write_bytes(self._certificate.public_bytes(Encoding.PEM))

    def issue(
        self,
        name: str,
        subject: str | None = None,
        hosts: Sequence[str] = ("localhost", "127.0.0.1", "::1"),
        password: str | None = None,
        days: float = VALID_DAYS,
    ) -> Certificate:
        """Sign a certificate for a new key.

        :param name: of the files
        :param subject: in the form of RFC 4514; by default ``CN=`` and the name
        :param hosts: names and addresses that a server with it has
        :param password: encrypts the key
        :param days: until it expires; negative for one that has expired
        """
        key = ec.generate_private_key(ec.SECP256R1())
        who = x509.Name.from_rfc4514_string(subject or f"CN={name}")
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        purposes = x509.ExtendedKeyUsage(
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        )
        builder = (
            self._builder(who, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(digital_signature=True), critical=True)
            .add_extension(purposes, critical=False)
            .add_extension(names, critical=not who.rdns)
        )
        certificate = builder.sign(self._key, hashes.SHA256())
        encryption: KeySerializationEncryption = NoEncryption()
        if password is not None:
            encryption = BestAvailableEncryption(password.encode())
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        pem = certificate.public_bytes(Encoding.PEM)
        at = Certificate(*(self._directory / f"{name}.{kind}" for kind in ("pem", "key", "both")))
        at.certificate.write_bytes(pem)
        _write_private(at.key, key_pem)
        _write_private(at.both, key_pem + pem)
        if password is not None:
            store = pkcs12.serialize_key_and_certificates(
                name.encode(), key, certificate, [self._certificate], encryption
            )
            _write_private(at.both.with_suffix(".p12"), store)
        return at

    def _builder(
        self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey, days: float = VALID_DAYS
    ) -> x509.CertificateBuilder:
        """Return a builder with what all certificates have. RFC 5280 requires both identifiers, and
        Python 3.13 checks that they are there.
        """
        now = datetime.now(UTC)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=VALID_DAYS + 1))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(issuer, critical=False)
        )


def _key_usage(**usages: bool) -> x509.KeyUsage:
    purposes = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{**dict.fromkeys(purposes, False), **usages})


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
