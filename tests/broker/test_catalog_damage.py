"""The catalog and ``format``, damaged in every way: mended or refused, never believed."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.log.directory_format import FORMAT_FILE, UnusableDirectory
from headrace.topics import catalog as catalog_module
from headrace.topics.catalog import CATALOG_FILE, Catalog, CatalogError

MOST_BITS, MOST_CUTS = 300, 30
"""Flipped bits, and truncations, of one file: all of them, or a choice."""
State = tuple[Any, ...]


def opened(data_dir: Path) -> State:
    """Open a data directory as a broker does, and return everything that the catalog says."""
    broker = Broker(Config(), data_dir)
    try:
        return state(broker.catalog)
    finally:
        broker.catalog.close()
        broker.logs.close()


def state(catalog: Catalog) -> State:
    kinds = ("topic", "group", "broker")
    configs = {
        (kind, name): dict(catalog.configs(kind, name))
        for kind in kinds
        for name in catalog.configured(kind)
    }
    return (
        catalog.cluster_id,
        dict(catalog.topics),
        {name: dict(topic.configs) for name, topic in catalog.topics.items()},
        configs,
        dict(catalog.deleted_topics),
        catalog._cluster["next_producer_id"],
    )


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A data directory with everything that a catalog may have."""
    data_dir = tmp_path / "data"
    broker = Broker(Config(), data_dir)
    for number in range(40):
        broker.catalog.create_topic(f"topic-{number}", 1 + number, {"retention.ms": f"{number}00"})
    broker.catalog.delete_topics([broker.catalog.topics["topic-3"]])
    broker.catalog.alter_configs({("group", "workers"): {"share.auto.offset.reset": "earliest"}})
    broker.catalog.alter_configs({("broker", ""): {"log.cleaner.threads": "2"}})
    broker.catalog.allocate_producer_id()
    broker.catalog.close()
    broker.logs.close()
    opened(data_dir)
    return data_dir


def damaged(data: bytes, chance: random.Random) -> Iterator[tuple[str, bytes | None]]:
    yield "missing", None
    yield "empty", b""
    yield "zeros", bytes(len(data))
    yield "garbage", chance.randbytes(len(data))
    yield "longer", data + chance.randbytes(13)
    for length in chance.sample(range(1, len(data)), min(MOST_CUTS, len(data) - 1)):
        yield f"cut to {length}", data[:length]
    bits = [bit for bit in range(8 * len(data)) if data[bit // 8]]
    for bit in chance.sample(bits, min(MOST_BITS, len(bits))):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit % 8} of byte {bit // 8}", bytes(flipped)


@pytest.mark.parametrize("name", [CATALOG_FILE, FORMAT_FILE])
def test_damage_is_mended_or_refused(written: Path, name: str, tmp_path: Path) -> None:
    expected, outcomes = opened(written), Counter[str]()
    chance = random.Random(30)
    for how, data in damaged((written / name).read_bytes(), chance):
        copy = tmp_path / "copy"
        shutil.copytree(written, copy)
        (copy / name).unlink() if data is None else (copy / name).write_bytes(data)
        outcomes[check(copy, name, expected, how)] += 1
        shutil.rmtree(copy)
    print(f"{name}: {dict(outcomes)}")
    assert outcomes["refused" if name == CATALOG_FILE else "as before"]


def check(data_dir: Path, name: str, expected: State, how: str) -> str:
    refusal = None
    try:
        found = opened(data_dir)
    except (CatalogError, UnusableDirectory) as error:
        refusal = str(error)
    if refusal is not None:
        assert name in refusal and "\n" not in refusal, (how, refusal)
        return "refused"
    assert found == expected, how
    catalog = Catalog(data_dir / CATALOG_FILE)  # and it can be written
    catalog.create_topic("another", 1)
    catalog.delete_topics([catalog.topics["topic-5"]])
    catalog.close()
    topics = opened(data_dir)[1]
    assert topics.keys() == {*expected[1], "another"} - {"topic-5"}, how
    return "as before"


def test_a_value_that_is_no_text_is_told_in_one_line(written: Path) -> None:
    with closing(sqlite3.connect(written / CATALOG_FILE)) as database, database:
        database.execute("UPDATE entries SET value = CAST(X'ff0a1b5b' AS TEXT)")
    with pytest.raises(CatalogError) as refused:
        opened(written)
    assert str(refused.value).isprintable()


def test_without_checksums_flipped_values_are_believed(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite itself does not find a flipped bit in a value."""
    monkeypatch.setattr(catalog_module, "is_whole", lambda row: True)
    with pytest.raises(AssertionError):
        test_damage_is_mended_or_refused(written, CATALOG_FILE, tmp_path)


def test_the_refusal_says_what_to_do(written: Path) -> None:
    path = written / CATALOG_FILE
    path.write_bytes(path.read_bytes().replace(b"earliest", b"eardiest"))
    with pytest.raises(CatalogError, match=r"an entry of configs has a wrong checksum.*recover"):
        opened(written)
