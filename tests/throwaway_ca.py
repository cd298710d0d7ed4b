"""A throw-away certificate authority for all kinds of certificates."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
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

from headrace import throwaway_ca
from headrace.throwaway_ca import VALID_DAYS


class Certificate(NamedTuple):
    """A certificate that the authority has signed, with its key.

    :ivar certificate: the path of the certificate in PEM
    :ivar key: the path of the private key in PEM
    :ivar both: the path of a file with key and certificate
    """

    certificate: Path
    key: Path
    both: Path


class ThrowawayCA(throwaway_ca.ThrowawayCA):
    """The authority of the fixtures, and certificates of all kinds."""

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
        who = x509.Name.from_rfc4514_string(f"CN={name}" if subject is None else subject)
        purposes = x509.ExtendedKeyUsage(
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        )
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        extensions = ((purposes, False), (names, not who.rdns))
        certificate = self.sign(who, key.public_key(), extensions, days)
        encryption: KeySerializationEncryption = NoEncryption()
        if password is not None:
            encryption = BestAvailableEncryption(password.encode())
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        pem = certificate.public_bytes(Encoding.PEM)
        folder = self.certificate.parent
        issued = Certificate(*(folder / f"{name}.{kind}" for kind in ("pem", "key", "both")))
        issued.certificate.write_bytes(pem)
        _write_private(issued.key, key_pem)
        _write_private(issued.both, key_pem + pem)
        if password is not None:
            store = pkcs12.serialize_key_and_certificates(
                name.encode(), key, certificate, [self.root], encryption
            )
            _write_private(issued.both.with_suffix(".p12"), store)
        return issued

    @property
    def root(self) -> x509.Certificate:
        """The authority's own certificate."""
        return x509.load_pem_x509_certificate(self.certificate.read_bytes())


def _write_private(path: Path, data: bytes) -> None:
    path.touch(0o600)
    path.write_bytes(data)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
