"""A TLS client that sends key updates (RFC 8446, section 4.6.3), and reads nothing that it does not
want to. Python's ssl sends none, so the records are made here, from the secret that it logs.
"""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

HANDSHAKE, APPLICATION_DATA = 22, 23
_KEY_UPDATE = b"\x18\0\0\1"
_SECRET = "CLIENT_TRAFFIC_SECRET_0"
_TAG_BYTES = 16


class KeyUpdates:
    """A connection after its handshake.

    :param context: of clients; TLS 1.3 with AES-GCM is used
    :param log: a file for its secrets, which does not exist
    """

    def __init__(self, port: int, context: ssl.SSLContext, log: Path) -> None:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(log)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        is_complete = False
        while not is_complete:
            try:
                tls.do_handshake()
                is_complete = True
            except ssl.SSLWantReadError:
                pass
            self.socket.sendall(outgoing.read())
            if not is_complete:
                incoming.write(self.socket.recv(65536))
        cipher = tls.cipher()
        assert cipher is not None
        self._hash = hashes.SHA384() if cipher[0].endswith("SHA384") else hashes.SHA256()
        self._key_bytes = cipher[2] // 8
        (secret,) = (line.split()[2] for line in log.read_text().splitlines() if _SECRET in line)
        self._take(bytes.fromhex(secret))

    def updates(self, count: int, *, wants_answers: bool) -> bytes:
        """Return the bytes of the next key updates."""
        records = []
        for _ in range(count):
            records.append(self.record(HANDSHAKE, _KEY_UPDATE + bytes([wants_answers])))
            self._take(self._expand(self._secret, b"traffic upd", self._hash.digest_size))
        return b"".join(records)

    def record(self, kind: int, payload: bytes) -> bytes:
        """Return the next record."""
        inner = payload + bytes([kind])
        header = b"\x17\x03\x03" + struct.pack(">H", len(inner) + _TAG_BYTES)
        number = self._sent.to_bytes(len(self._iv), "big")
        nonce = bytes(a ^ b for a, b in zip(self._iv, number, strict=True))
        self._sent += 1
        return header + self._key.encrypt(nonce, inner, header)

    def _take(self, secret: bytes) -> None:
        self._secret = secret
        self._key = AESGCM(self._expand(secret, b"key", self._key_bytes))
        self._iv = self._expand(secret, b"iv", 12)
        self._sent = 0

    def _expand(self, secret: bytes, label: bytes, length: int) -> bytes:
        full = b"tls13 " + label
        info = struct.pack(">HB", length, len(full)) + full + b"\0"
        return HKDFExpand(self._hash, length, info).derive(secret)
