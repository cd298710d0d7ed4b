"""Keys and certificates: PEM and PKCS12, from files and from the configuration itself."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.file_readers import others_can_read

from . import log

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization import pkcs12

Setting = Callable[[str], str | None]
"""Returns the value of a config of one listener, None if it has none."""

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_TYPES = ("JKS", "PEM", "PKCS12")


class InvalidMaterial(ValueError):
    """Keys or certificates that cannot be used. The message is for users and has no secret."""


class KeyStore(NamedTuple):
    """The key and the certificates of a broker.

    :ivar pem: the private key, its certificate and those that sign it
    :ivar password: of the private key, empty without one
    """

    pem: bytes
    password: str = ""


def key_store(setting: Setting) -> KeyStore:
    """Read the key store of ``ssl.keystore.*``.

    :raises InvalidMaterial: when there is none, or it cannot be read
    """
    kind = _type(setting, "ssl.keystore.type")
    location, key = setting("ssl.keystore.location"), setting("ssl.keystore.key")
    password = setting("ssl.key.password") or ""
    if key is not None:
        if kind != "PEM":
            raise InvalidMaterial("SSL private key can be specified only for PEM")
        if location is not None:
            raise InvalidMaterial("Both SSL key store location and separate private key are given")
        chain = setting("ssl.keystore.certificate.chain")
        if not chain:
            raise InvalidMaterial(
                "SSL certificate chain (ssl.keystore.certificate.chain) is not specified"
            )
        return KeyStore(_lines(key) + b"\n" + _lines(chain), password)
    if location is None:
        raise InvalidMaterial("ssl.keystore.location, or ssl.keystore.key, is not set")
    data = _read("ssl.keystore.location", location)
    if others_can_read(location):
        log.warning(
            location, "Other users can read the private key in %s: chmod 600 %s", location, location
        )
    if kind == "PEM":
        if setting("ssl.keystore.password") is not None:
            raise InvalidMaterial(
                "SSL key store password cannot be specified with PEM format, only key password may "
                "be specified"
            )
        return KeyStore(data, password)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _pkcs12(data, location, setting, "ssl.keystore.password")
    if store.key is None or store.cert is None:
        raise InvalidMaterial(f"{location} has no private key with a certificate")
    pem = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyStore(pem + _pem((store.cert, *store.additional_certs)))


def trusted_certificates(setting: Setting) -> bytes | None:
    """Return the certificates of ``ssl.truststore.*`` in PEM; None if none are configured.

    :raises InvalidMaterial: when they cannot be read
    """
    kind = _type(setting, "ssl.truststore.type")
    location, inline = setting("ssl.truststore.location"), setting("ssl.truststore.certificates")
    if inline is not None:
        if kind != "PEM":
            raise InvalidMaterial("SSL trust store certs can be specified only for PEM")
        if location is not None:
            raise InvalidMaterial(
                "Both SSL trust store location and separate trust certificates are given"
            )
        return _lines(inline)
    if location is None:
        return None
    data = _read("ssl.truststore.location", location)
    if kind == "PEM":
        return data
    store = _pkcs12(data, location, setting, "ssl.truststore.password")
    certificates = [entry for entry in (store.cert, *store.additional_certs) if entry is not None]
    if not certificates:
        raise InvalidMaterial(f"{location} has no certificates")
    return _pem(certificates)


def load(context: ssl.SSLContext, store: KeyStore) -> None:
    """Load the key and certificates of a broker into a context.

    :raises InvalidMaterial: when they cannot be used, or the password is wrong
    """
    with _temporary_file(store.pem) as path:
        try:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(path, password=lambda: store.password)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            raise InvalidMaterial(
                "the private key and certificate cannot be loaded: is ssl.key.password right, and "
                f"are both in PEM and of the same key? ({reason})"
            ) from None


def _type(setting: Setting, name: str) -> str:
    kind = (setting(name) or "JKS").upper()
    if kind not in _TYPES:
        raise InvalidMaterial(f"{name} is {kind}, which is not one of {', '.join(_TYPES)}")
    return kind


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidMaterial(f"{name}: cannot read {path}: {error.strerror}") from error


def _lines(text: str) -> bytes:
    """Return PEM with line breaks, which a properties file may have as blanks."""
    lines = []
    for part in text.replace("-----BEGIN", "\n-----BEGIN").splitlines():
        if part.startswith("-----BEGIN") and part.count("-----") >= 4:
            _, label, body, end, *_ = part.split("-----")
            lines += [f"-----{label}-----", *body.split(), f"-----{end}-----"]
        else:
            lines.append(part)
    return "\n".join(lines).encode()


def _pkcs12(
    data: bytes, path: str, setting: Setting, password_name: str
) -> pkcs12.PKCS12KeyAndCertificates:
    """Read a file in PKCS12.

    :param password_name: the config with its password
    """
    if data.startswith(_JKS_MAGIC):
        raise InvalidMaterial(
            f"{path} is a JKS file, which is not served. Convert it: keytool -importkeystore "
            f"-srckeystore {path} -destkeystore {Path(path).with_suffix('.p12')} -deststoretype "
            "PKCS12"
        )
    # Imported here, as it takes 50 ms, and only these files need it.
    from cryptography.hazmat.primitives.serialization import pkcs12

    password = setting(password_name)
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise InvalidMaterial(
            f"{path} cannot be read as PKCS12: is {password_name} right?"
        ) from None


def _pem(certificates: Iterable[pkcs12.PKCS12Certificate]) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in certificates)


@contextmanager
def _temporary_file(data: bytes) -> Iterator[str]:
    """Yield the path of a file that only this process can read, gone afterwards: Python reads keys
    from files alone. It is in memory where the system has such files.
    """
    is_in_memory = hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")
    with (
        open(os.memfd_create("key"), "wb")
        if is_in_memory
        else tempfile.NamedTemporaryFile(prefix="headrace-")
    ) as file:
        file.write(data)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}" if is_in_memory else file.name
