"""Distinguished names of certificates, as Java's ``X500Principal.getName()`` writes them (RFC
2253). Principals and mapping rules refer to this text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_VERSION = 0xA0
_ENCODINGS = {
    0x0C: "utf-8",
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "ascii",  # IA5String
    0x1B: "latin-1",  # GeneralString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_SPACES_AROUND = re.compile(r"\A +| +\Z")
_ESCAPED = ',=+<>#;"\\'


class _Value(NamedTuple):
    """A value in DER: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    encoded: bytes


def subject(certificate: bytes) -> str:
    """Return the subject of a certificate in DER.

    :raises ValueError: when it is no certificate
    """
    try:
        (outer,) = _values(certificate)
        body = next(_values(outer.content))
        fields = [field for field in _values(body.content) if field.tag != _VERSION]
        # serial number, signature algorithm, issuer, validity, subject
        return _name(fields[4].content)
    except (IndexError, StopIteration, UnicodeDecodeError) as error:
        raise ValueError("not a certificate") from error


def _name(names: bytes) -> str:
    parts = []
    for relative in _values(names):
        attributes = [_attribute(value.content) for value in _values(relative.content)]
        parts.append("+".join(attributes))
    return ",".join(reversed(parts))


def _attribute(content: bytes) -> str:
    oid_value, value = _values(content)
    oid = _oid(oid_value.content)
    keyword, encoding = _KEYWORDS.get(oid), _ENCODINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or oid}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode(encoding))}"


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{char}" if char in _ESCAPED else char for char in text)
    escaped = escaped.replace("\0", "\\00")
    return _SPACES_AROUND.sub(lambda match: "\\ " * len(match[0]), escaped)


def _oid(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _values(data: bytes) -> Iterator[_Value]:
    """Yield the values in DER that ``data`` consists of.

    :raises ValueError: when a value is longer than the data
    """
    position = 0
    while position < len(data):
        tag, length, start = data[position], data[position + 1], position + 2
        if length & 0x80:
            digits = length & 0x7F
            length = int.from_bytes(data[start : start + digits], "big")
            start += digits
        end = start + length
        if end > len(data):
            raise ValueError("a value in DER is cut")
        yield _Value(tag, data[start:end], data[position:end])
        position = end
