"""Numbers, durations, times and bytes as people read them. Pure."""

from __future__ import annotations

import codecs
import re
from datetime import UTC, datetime

from headrace import amounts
from headrace.log_lines import printable

_HEX_WIDTH = 16
UNKNOWN = "unknown"


def number(value: float | None) -> str:
    """Format a count or a rate: ``0``, ``3.2``, ``950``, ``12,345``."""
    if value is None:
        return UNKNOWN
    return f"{value:,.1f}".removesuffix(".0") if value < 9.95 else f"{value:,.0f}"


def exact(value: int | None) -> str:
    """Format a count with all its digits."""
    return UNKNOWN if value is None else f"{value:,}"


def duration(milliseconds: float | None) -> str:
    """Return :func:`headrace.amounts.duration` of milliseconds."""
    return UNKNOWN if milliseconds is None else amounts.duration(milliseconds / 1000)


def forecast(seconds: float | None) -> str:
    """Format the time until a lag is zero; -1 if it does not shrink."""
    if seconds is None:
        return UNKNOWN
    return "not at this rate" if seconds == -1 else duration(int(seconds * 1000))


def moment(time_ms: int | None) -> str:
    """Format a time since the epoch, in UTC: ``2026-11-22 08:00:00.123Z``."""
    if time_ms is None or time_ms < 0:
        return UNKNOWN
    try:
        when = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return str(time_ms)
    return f"{when:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03}Z"


def _escaped(text: str, max_chars: int) -> tuple[str, bool]:
    """Return the first characters of a text, and whether more would follow. Control characters are
    escaped, but not line breaks and tabs.
    """
    escaped = text[:max_chars]  # none becomes shorter
    if not escaped.isprintable():
        escaped = "".join(
            char if char in "\n\t" or char.isprintable() else printable(char) for char in escaped
        )
    return escaped[:max_chars], len(text) > max_chars or len(escaped) > max_chars


def as_hex(data: bytes, max_bytes: int) -> str:
    """Return a dump of bytes: offsets, hex, and what is printable ASCII."""
    lines = []
    for at in range(0, min(len(data), max_bytes), _HEX_WIDTH):
        row = data[at : at + _HEX_WIDTH]
        ascii_text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<{3 * _HEX_WIDTH}} {ascii_text}")
    return "\n".join(lines)


def short(data: bytes | None, max_chars: int) -> str:
    """Return bytes on one line: as text if they are UTF-8, else as hex."""
    if data is None:
        return ""
    head = data[: 4 * max_chars]
    text = _decoded(head, is_cut=len(head) < len(data))
    if text is None:
        shown = data[: max_chars // 3].hex(" ")
        return f"0x {shown}{'…' if len(data) > max_chars // 3 else ''}"
    line, is_cut = _escaped(re.sub("[ \n\t]+", " ", text).strip(" "), max_chars)
    return f"{line}…" if is_cut or len(head) < len(data) else line


FORMATS = ("auto", "text", "hex")


def rendered(data: bytes | None, form: str, max_chars: int) -> tuple[str, str, bool]:
    """Return bytes as text for the page.

    :param form: one of :data:`FORMATS`; what is no text becomes hex
    :returns: the text; its format, which is ``json`` if it looks like JSON: browsers indent and
        colour it; and whether it was cut
    """
    if data is None:
        return "", "null", False
    # Cut before decoding: a value may have megabytes. A character has up to four bytes.
    head = data[: 4 * max_chars]
    decoded = None if form == "hex" else _decoded(head, is_cut=len(head) < len(data))
    if decoded is None:
        shown = max_chars // 4
        return as_hex(data, shown), "hex", len(data) > shown
    text, is_cut = _escaped(decoded, max_chars)
    is_json = form == "auto" and head.lstrip()[:1] in (b"{", b"[")
    return text, "json" if is_json else "text", is_cut or len(head) < len(data)


def _decoded(head: bytes, *, is_cut: bool) -> str | None:
    """Return the text of bytes, which may end within a character if they were cut; None if they are
    not UTF-8.
    """
    try:
        return codecs.utf_8_decode(head, "strict", not is_cut)[0]
    except UnicodeDecodeError:
        return None
