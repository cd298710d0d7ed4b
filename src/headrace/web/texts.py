"""Numbers, durations, times and bytes as people read them. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from headrace.log_lines import printable

_HEX_WIDTH = 16
UNKNOWN = "unknown"
_THOUSANDS = ("", "k", "M", "G", "T")


def number(value: float | None) -> str:
    """Format a count or a rate in few characters: ``0``, ``3.2``, ``950``, ``12.3k``."""
    if value is None:
        return UNKNOWN
    if value and abs(value) < 9.95:
        text = f"{value:.1f}"
        return text.removesuffix(".0")
    size = float(value)
    for unit in _THOUSANDS:
        if abs(size) < 999.5 or unit == _THOUSANDS[-1]:
            return f"{size:.0f}{unit}" if not unit or abs(size) >= 99.95 else f"{size:.1f}{unit}"
        size /= 1000
    raise AssertionError(value)


def whole(value: int | None) -> str:
    """Format a count with all its digits."""
    return UNKNOWN if value is None else f"{value:,}"


def count_of(count: int, noun: str) -> str:
    """Format a count and what is counted: ``1 record``, ``2,000 records``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration(milliseconds: float | None) -> str:
    """Format a duration in its two largest units: ``3.2 s``, ``5m 10s``, ``2h 03m``, ``4d 02h``."""
    if milliseconds is None:
        return UNKNOWN
    if milliseconds < 10_000:
        return f"{milliseconds / 1000:.1f} s" if milliseconds else "0 s"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.0f} s"
    minutes, seconds = divmod(int(milliseconds) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours:02}h"
    return f"{hours}h {minutes:02}m" if hours else f"{minutes}m {seconds:02}s"


def forecast(seconds: float | None) -> str:
    """Format the time until a lag is zero; -1 if it does not shrink."""
    if seconds is None:
        return UNKNOWN
    return "never" if seconds == -1 else duration(int(seconds * 1000))


def moment(time_ms: int | None) -> str:
    """Format a time since the epoch, in UTC: ``2026-11-22 08:00:00.123Z``."""
    if time_ms is None or time_ms < 0:
        return UNKNOWN
    try:
        found = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return str(time_ms)
    return f"{found:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03}Z"


def size(count: int) -> str:
    """Format a number of bytes."""
    if count < 1024:
        return count_of(count, "byte")
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024 or unit == "GiB":
            return f"{value:.1f} {unit}"
    raise AssertionError(count)


def as_text(data: bytes) -> str | None:
    """Return bytes as text, or None if they are not UTF-8. Control characters are escaped, but not
    line breaks and tabs.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if text.isprintable():
        return text
    return "".join(one if one in "\n\t" or one.isprintable() else printable(one) for one in text)


def as_json(data: bytes) -> str | None:
    """Return bytes as indented JSON, or None if they are not JSON."""
    try:
        found = json.loads(data)
        return json.dumps(found, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def as_hex(data: bytes, max_bytes: int) -> str:
    """Return a dump of bytes: offsets, hex, and what is printable ASCII."""
    lines = []
    for at in range(0, min(len(data), max_bytes), _HEX_WIDTH):
        row = data[at : at + _HEX_WIDTH]
        ascii_text = "".join(chr(one) if 32 <= one < 127 else "." for one in row)
        lines.append(f"{at:08x}  {row.hex(' '):<{3 * _HEX_WIDTH}} {ascii_text}")
    return "\n".join(lines)


def short(data: bytes | None, max_chars: int) -> str:
    """Return bytes on one line: as text if they are UTF-8, else as hex."""
    if data is None:
        return ""
    text = _cut_text(data[: 4 * max_chars]) if data else ""
    if text is None or (data[:1] and not text):
        shown = data[: max_chars // 3].hex(" ")
        return f"0x {shown}{'…' if len(data) > max_chars // 3 else ''}"
    text = " ".join(text.split())
    return f"{text[:max_chars]}…" if len(text) > max_chars or len(data) > 4 * max_chars else text


FORMATS = ("auto", "text", "json", "hex")


def rendered(data: bytes | None, form: str, max_chars: int) -> tuple[str, str, bool]:
    """Return bytes as text for the page.

    :param form: one of :data:`FORMATS`; what does not fit becomes hex
    :returns: the text, the format that it has, and whether it was cut
    """
    if data is None:
        return "", "null", False
    # Cut before decoding: a value may have megabytes. A character has up to four bytes.
    head = data[: 4 * max_chars]
    if form in ("auto", "json") and len(data) <= 4 * max_chars:
        text = as_json(data)
        if text is not None and (form == "json" or data[:1] in (b"{", b"[")):
            text = as_text(text.encode("utf-8", "replace")) or ""
            return text[:max_chars], "json", len(text) > max_chars
    if form != "hex":
        text = as_text(head) if len(head) == len(data) else _cut_text(head)
        if text is not None:
            return text[:max_chars], "text", len(text) > max_chars or len(head) < len(data)
    shown = max_chars // 4
    return as_hex(data, shown), "hex", len(data) > shown


def _cut_text(head: bytes) -> str | None:
    """Return the text of bytes that may end within a character."""
    for end in range(len(head), len(head) - 4, -1):
        text = as_text(head[:end])
        if text is not None:
            return text
    return None
