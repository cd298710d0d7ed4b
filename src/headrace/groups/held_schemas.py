"""The encoding of partitions with the epochs of their assignment (KIP-1251), in coordinator records
of consumer groups and streams groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from headrace.protocol.primitives import Reader
from headrace.protocol.structures import I32S, Tagged, Type, array, structure

K = TypeVar("K")


def held(key: Type[K]) -> Type[Mapping[K, Mapping[int, int]]]:
    """Return the type of partitions by topic id or subtopology id, each with its epoch.

    Brokers before 4.3 wrote no epochs: they are read as None, see :func:`with_epochs`.
    """
    items = array(structure(tuple, key, I32S, Tagged(0, I32S)))

    def write(value: Mapping[K, Mapping[int, int]]) -> bytes:
        return items.write((name, of.keys(), of.values()) for name, of in value.items())

    def read(reader: Reader) -> dict[K, dict[int, Any]]:
        return {
            name: dict.fromkeys(partitions)
            if epochs is None
            else dict(zip(partitions, epochs, strict=True))
            for name, partitions, epochs in items.read(reader)
        }

    return Type(write, read)


def with_epochs(
    found: Mapping[K, Mapping[int, int | None]], member_epoch: int
) -> dict[K, dict[int, int]]:
    """Return partitions with the member epoch in place of missing epochs."""
    return {
        name: {
            partition: member_epoch if epoch is None else epoch for partition, epoch in of.items()
        }
        for name, of in found.items()
    }
