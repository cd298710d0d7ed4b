"""Numbers, durations, times and bytes as people read them. Pure."""

from __future__ import annotations

import codecs
import re
from datetime import UTC, datetime
from string import whitespace

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
    text, is_cut = _decoded(data, max_chars)
    if text is None:
        shown = data[: max_chars // 3].hex(" ")
        return f"0x {shown}{'…' if len(data) > max_chars // 3 else ''}"
    line, is_longer = _escaped(re.sub("[ \n\t]+", " ", text).strip(" "), max_chars)
    return f"{line}…" if is_longer or is_cut else line


FORMATS = ("auto", "text", "hex")


def rendered(data: bytes | None, form: str, max_chars: int) -> tuple[str, str, bool]:
    """Return bytes as text for the page.

    :param form: one of :data:`FORMATS`; what is no text becomes hex
    :returns: the text; its format, which is ``json`` if it looks like JSON: browsers indent and
        colour it; and whether it was cut
    """
    if data is None:
        return "", "null", False
    decoded, is_cut = _decoded(data, max_chars)
    if decoded is None or form == "hex":
        shown = max_chars // 4
        return as_hex(data, shown), "hex", len(data) > shown
    text, is_longer = _escaped(decoded, max_chars)
    is_json = form == "auto" and decoded.lstrip(whitespace).startswith(("{", "["))
    return text, "json" if is_json else "text", is_longer or is_cut


def _decoded(data: bytes, max_chars: int) -> tuple[str | None, bool]:
    """Return the text of the first bytes, None if they are not UTF-8; and whether more follow."""
    # Cut before decoding: a value may have megabytes. A character has up to four bytes.
    head = data[: 4 * max_chars]
    is_cut = len(head) < len(data)
    try:
        # It may end within a character if it was cut.
        return codecs.utf_8_decode(head, "strict", not is_cut)[0], is_cut
    except UnicodeDecodeError:
        return None, is_cut
