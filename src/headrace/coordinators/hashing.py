"""The placement of coordinator keys on internal-topic partitions, by Java's String.hashCode."""

from __future__ import annotations

from functools import lru_cache

KEYS_KEPT = 4096
"""The number of keys whose partition is remembered."""


def java_hash(text: str) -> int:
    """Return ``String.hashCode`` of ``text``: over UTF-16 units, as a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@lru_cache(KEYS_KEPT)
def internal_partition(key: str, partitions: int) -> int:
    """Return the internal-topic partition of a coordinator key. Kafka's ``Utils.abs`` maps the
    lowest integer to 0.
    """
    hashed = java_hash(key)
    return (0 if hashed == -0x8000_0000 else abs(hashed)) % partitions
