"""Changes of a listener's certificate at run time: it keeps its names, unless they may change.

As Kafka: the distinguished name stays the same, whatever its case and spaces
(``ssl.allow.dn.changes``), and no alternative name is dropped (``ssl.allow.san.changes``). So a
wrong file does not lock clients out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .key_material import InvalidMaterial

if TYPE_CHECKING:
    from cryptography import x509

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\s*", re.DOTALL)


def first_certificate(pem: bytes) -> bytes:
    """Return the certificate of a key store, in PEM; empty if it has none."""
    match = _CERTIFICATE.search(pem)
    return match.group() if match is not None else b""


def check_names(before: bytes, after: bytes, *, may_rename: bool, may_drop: bool) -> None:
    """Check that a certificate may replace another one. Both are in PEM.

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
