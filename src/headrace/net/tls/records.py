"""TLS records in what a client sends (RFC 8446, section 5.1)."""

from __future__ import annotations

from headrace.broker.limits import MAX_TLS_RECORD_BYTES

HEADER_BYTES = 5
_CHANGE_CIPHER_SPEC, _APPLICATION_DATA = 20, 23


def record_bytes(data: memoryview) -> int:
    """Return the size of the record that begins here, with its header; 0 if this is no record.

    :param data: at least the header
    """
    if not _CHANGE_CIPHER_SPEC <= data[0] <= _APPLICATION_DATA:
        return 0
    size_bytes = HEADER_BYTES + (data[3] << 8 | data[4])
    return size_bytes if size_bytes <= MAX_TLS_RECORD_BYTES else 0
