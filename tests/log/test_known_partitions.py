"""The file with the partitions that have a directory."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from headrace.log import known_partitions
from headrace.log.known_partitions import KNOWN_PARTITIONS_FILE, KnownTopic
from headrace.protocol.uuid_text import uuid_text

A, B = uuid.UUID(int=1), uuid.UUID(int=2)


def known(path: Path) -> dict[str, tuple[str, set[int]]]:
    return {name: tuple(one) for name, one in known_partitions.read(str(path)).items()}


def test_what_was_added_is_read(tmp_path: Path):
    assert known(tmp_path) == {}
    known_partitions.append(str(tmp_path), [("a", A, 3), ("a", A, 1), ("b.c-1", B, 0)], sync=False)
    known_partitions.append(str(tmp_path), [("a", A, 2)], sync=False)
    expected = {"a": (uuid_text(A), {1, 2, 3}), "b.c-1": (uuid_text(B), {0})}
    assert known(tmp_path) == expected
    known_partitions.replace(str(tmp_path), known_partitions.read(str(tmp_path)))
    assert known(tmp_path) == expected
    known_partitions.append(
        str(tmp_path), [("a", None, 1), ("a", None, 2), ("unknown", None, 0)], sync=True
    )
    assert known(tmp_path)["a"] == (uuid_text(A), {3})
    known_partitions.append(str(tmp_path), [("a", None, 3)], sync=True)
    assert known(tmp_path)["a"] == (uuid_text(A), set())
    known_partitions.replace(str(tmp_path), known_partitions.read(str(tmp_path)))
    assert set(known(tmp_path)) == {"b.c-1"}


def test_a_topic_created_again_begins_without_partitions(tmp_path: Path):
    known_partitions.append(str(tmp_path), [("a", A, 0), ("a", A, 1)], sync=False)
    known_partitions.append(str(tmp_path), [("a", B, 0)], sync=False)
    assert known(tmp_path) == {"a": (uuid_text(B), {0})}


def test_many_partitions_take_few_bytes(tmp_path: Path):
    everything = {f"t{n}": KnownTopic(uuid_text(A), set(range(50))) for n in range(100)}
    known_partitions.replace(str(tmp_path), everything)
    assert known_partitions.read(str(tmp_path)) == everything
    assert (tmp_path / KNOWN_PARTITIONS_FILE).stat().st_size < 100 * 50


@pytest.mark.parametrize("damage", ["flipped", "torn"])
def test_damage_never_adds_a_partition(tmp_path: Path, damage: str):
    known_partitions.append(str(tmp_path), [("a", A, 0), ("a", A, 1)], sync=False)
    known_partitions.append(str(tmp_path), [("bb", B, 7)], sync=False)
    file = tmp_path / KNOWN_PARTITIONS_FILE
    whole = file.read_bytes()
    true = known(tmp_path)
    for position in range(len(whole)):
        for bit in range(8) if damage == "flipped" else (0,):
            spoilt = bytearray(whole)
            if damage == "flipped":
                spoilt[position] ^= 1 << bit
            else:
                del spoilt[position:]
            file.write_bytes(spoilt)
            assert known(tmp_path).items() <= true.items()
    known_partitions.append(str(tmp_path), [("c", A, 5)], sync=False)  # behind a torn line
    assert known(tmp_path)["c"] == (uuid_text(A), {5})
