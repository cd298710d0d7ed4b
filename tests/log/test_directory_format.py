"""The version of the data directory: newer ones are refused, older ones are upgraded."""

from __future__ import annotations

import logging
import sqlite3
import uuid
from pathlib import Path

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.log.data_directory import DataDirectory
from headrace.log.directory_format import FORMAT_VERSION, UnusableDirectory
from headrace.log.directory_lock import DirectoryInUse
from headrace.topics.catalog import Catalog, CatalogError

CLUSTER_ID = "AbCdEfGhIjKlMnOpQrStUv"
TOPIC_ID = uuid.UUID(int=7)
FORMAT_1 = (
    "PRAGMA journal_mode = WAL",
    "CREATE TABLE cluster (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE topics (name TEXT PRIMARY KEY, topic_id BLOB NOT NULL UNIQUE, partitions INTEGER "
    "NOT NULL, internal INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE configs (kind TEXT NOT NULL, resource TEXT NOT NULL, name TEXT NOT NULL, value "
    "TEXT NOT NULL, PRIMARY KEY (kind, resource, name)) WITHOUT ROWID",
    f"INSERT INTO cluster VALUES ('id', '{CLUSTER_ID}')",
    "INSERT INTO cluster VALUES ('next_producer_id', '3000')",
    f"INSERT INTO topics VALUES ('orders', X'{TOPIC_ID.hex}', 3, 0)",
    "INSERT INTO configs VALUES ('topic', 'orders', 'retention.ms', '1000')",
    "PRAGMA application_id = 1212498244",
    "PRAGMA user_version = 1",
)


@pytest.fixture
def oldest(tmp_path: Path) -> Path:
    """A data directory of format 1."""
    with sqlite3.connect(tmp_path / "headrace.db", isolation_level=None) as database:
        for statement in FORMAT_1:
            database.execute(statement)
    database.close()
    return tmp_path


def version_in(path: Path) -> int:
    with sqlite3.connect(path) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
    database.close()
    return version


def open_and_close(data_dir: Path) -> None:
    broker = Broker(Config(), data_dir)
    broker.catalog.close()
    broker.logs.close()


def check_content(path: Path) -> None:
    catalog = Catalog(path)
    assert catalog.cluster_id == CLUSTER_ID
    assert catalog.topics["orders"].topic_id == TOPIC_ID
    assert catalog.topics["orders"].partitions == 3
    assert catalog.topics["orders"].configs == {"retention.ms": "1000"}
    assert catalog.allocate_producer_id() == 3000
    catalog.close()


def test_a_new_directory_has_its_version_written_down(tmp_path: Path) -> None:
    open_and_close(tmp_path)
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert f"headrace.format.version={FORMAT_VERSION}" in lines
    assert version_in(tmp_path / "headrace.db") == FORMAT_VERSION


def test_an_older_one_is_upgraded_after_a_copy(
    oldest: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        open_and_close(oldest)
    assert [f"saved as {oldest}/headrace.db.format-1" in line for line in caplog.messages] == [True]
    assert version_in(oldest / "headrace.db.format-1") == 1
    assert version_in(oldest / "headrace.db") == FORMAT_VERSION
    assert f"cluster.id={CLUSTER_ID}" in (oldest / "meta.properties").read_text()
    check_content(oldest / "headrace.db")
    check_content(oldest / "headrace.db.format-1")
    caplog.clear()
    open_and_close(oldest)
    assert not caplog.messages


def test_an_upgrade_without_a_copy_does_not_happen(
    oldest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (oldest / "headrace.db.format-1.tmp").mkdir()
    with pytest.raises((CatalogError, OSError)):
        open_and_close(oldest)
    assert version_in(oldest / "headrace.db") == 1
    (oldest / "headrace.db.format-1.tmp").rmdir()
    open_and_close(oldest)  # and the directory is not held by the failed start
    check_content(oldest / "headrace.db")


def test_a_crash_in_the_upgrade_is_completed(oldest: Path) -> None:
    Catalog(oldest / "headrace.db").close()  # and no meta.properties yet
    open_and_close(oldest)
    assert f"headrace.format.version={FORMAT_VERSION}" in (oldest / "meta.properties").read_text()


def test_a_newer_one_is_refused_and_left_alone(tmp_path: Path) -> None:
    open_and_close(tmp_path)
    meta = tmp_path / "meta.properties"
    meta.write_text(meta.read_text().replace(f"version={FORMAT_VERSION}", "version=99"))
    (tmp_path / "t-0.abc-delete").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(UnusableDirectory, match=r"newer headrace: its format is 99") as refused:
        open_and_close(tmp_path)
    assert "\n" not in str(refused.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_one_of_apache_kafka_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = "#\nnode.id=1\ndirectory.id=V5GPBSzGRV21_FmJ7njbwg\nversion=1\ncluster.id=x\n"
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(UnusableDirectory, match="has the data of Apache Kafka"):
        open_and_close(tmp_path)
    assert (tmp_path / "meta.properties").read_text() == text
    assert not (tmp_path / "headrace.db").exists()


def test_damage_of_the_file_is_mended_from_the_catalog(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    open_and_close(tmp_path)
    meta = tmp_path / "meta.properties"
    whole = meta.read_text()
    for damage in (b"", b"\xff\xfe", b"headrace.format.version=two\n", b"no lines of the kind"):
        meta.write_bytes(damage)
        caplog.clear()
        open_and_close(tmp_path)
        assert meta.read_text() == whole
        assert any("meta.properties is damaged" in line for line in caplog.messages)


def test_a_catalog_of_another_directory_is_refused(tmp_path: Path) -> None:
    open_and_close(tmp_path / "one")
    open_and_close(tmp_path / "two")
    (tmp_path / "one" / "headrace.db").replace(tmp_path / "two" / "headrace.db")
    with pytest.raises(UnusableDirectory, match="different directories"):
        open_and_close(tmp_path / "two")


def test_an_incomplete_copy_is_refused(tmp_path: Path) -> None:
    open_and_close(tmp_path)
    (tmp_path / "incomplete").touch()
    with pytest.raises(UnusableDirectory, match="not finished"):
        open_and_close(tmp_path)
    (tmp_path / "incomplete").unlink()
    open_and_close(tmp_path)


def test_a_refused_directory_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "incomplete").touch()
    for _ in range(2):
        with pytest.raises(UnusableDirectory):
            DataDirectory(tmp_path, 8)
    (tmp_path / "incomplete").unlink()
    directory = DataDirectory(tmp_path, 8)
    with pytest.raises(DirectoryInUse):
        DataDirectory(tmp_path, 8)
    directory.release()
