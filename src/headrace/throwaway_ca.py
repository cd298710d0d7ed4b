"""A certificate authority for tests: it exists in one directory and for a few days."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

VALID_DAYS = 7
NAMES = x509.SubjectAlternativeName(
    [
        x509.DNSName("localhost"),
        x509.IPAddress(ip_address("127.0.0.1")),
        x509.IPAddress(ip_address("::1")),
    ]
)
"""The names of a server on this machine."""
Extensions = Iterable[tuple[x509.ExtensionType, bool]]
"""Extensions of a certificate, each with whether it is critical."""
_PURPOSES_OF_CA = ("key_cert_sign", "crl_sign")
_OTHER_PURPOSES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "encipher_only",
    "decipher_only",
)


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
        usage = x509.KeyUsage(
            **dict.fromkeys(_PURPOSES_OF_CA, True), **dict.fromkeys(_OTHER_PURPOSES, False)
        )
        certificate = self.sign(
            self._name,
            self._key.public_key(),
            ((x509.BasicConstraints(ca=True, path_length=None), True), (usage, True)),
        )
        self.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))

    def issue_pem(self, name: str) -> Path:
        """Return the path of a file with a new key and its certificate, for servers and clients on
        this machine.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name.from_rfc4514_string(f"CN={name}")
        certificate = self.sign(subject, key.public_key(), [(NAMES, False)])
        path = self._directory / f"{name}.both"
        path.touch(0o600)
        path.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            + certificate.public_bytes(Encoding.PEM)
        )
        return path

    def sign(
        self,
        subject: x509.Name,
        public_key: ec.EllipticCurvePublicKey,
        extensions: Extensions = (),
        days: float = VALID_DAYS,
    ) -> x509.Certificate:
        """Return a certificate with the authority's signature.

        RFC 5280 requires both identifiers, and Python checks from 3.13 that they are there.

        :param days: until it expires; negative for one that has expired
        """
        now = datetime.now(UTC)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
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
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, is_critical)
        return builder.sign(self._key, hashes.SHA256())
