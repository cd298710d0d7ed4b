"""The version of the data directory: others are refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.log import checked_file
from headrace.log.checked_file import FORMAT_VERSION, OtherVersion
from headrace.log.data_directory import DataDirectory
from headrace.log.directory_format import FORMAT_FILE, UnusableDirectory, saved_cluster_id
from headrace.log.directory_lock import DirectoryInUse
from headrace.log.recovery import LOG_START_FILE
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.record_batch import build
from headrace.topics.catalog import Catalog, CatalogError
from tests.log.disk import NOW, Disk, put


def open_and_close(data_dir: Path) -> None:
    broker = Broker(Config(), data_dir)
    broker.catalog.close()
    broker.logs.close()


def test_a_new_directory_has_its_version_written_down(tmp_path: Path) -> None:
    open_and_close(tmp_path)
    with closing(Catalog(tmp_path / "headrace.db")) as catalog:
        assert saved_cluster_id(str(tmp_path)) == catalog.cluster_id
    with closing(sqlite3.connect(tmp_path / "headrace.db")) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION,)


@pytest.mark.parametrize("version", [FORMAT_VERSION - 1, 99])
def test_one_of_another_version_is_refused_and_left_alone(tmp_path: Path, version: int) -> None:
    open_and_close(tmp_path)
    path = tmp_path / FORMAT_FILE
    path.write_bytes(checked_file.encode(str(path), saved_cluster_id(str(tmp_path)), version))
    (tmp_path / "t-0.abc-delete").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    expected = rf"format was written by another headrace: its format is {version}, and this one"
    with pytest.raises(UnusableDirectory, match=expected) as refused:
        open_and_close(tmp_path)
    assert "\n" not in str(refused.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_catalog_of_another_version_is_refused(tmp_path: Path) -> None:
    open_and_close(tmp_path)
    with closing(sqlite3.connect(tmp_path / "headrace.db")) as database, database:
        database.execute(f"PRAGMA user_version = {FORMAT_VERSION - 1}")
    with pytest.raises(CatalogError, match=rf"headrace.db .* format is {FORMAT_VERSION - 1}"):
        open_and_close(tmp_path)


@pytest.mark.parametrize("name", ["clean-shutdown", "partitions"])
def test_a_small_file_of_another_version_is_refused(tmp_path: Path, name: str) -> None:
    open_and_close(tmp_path)
    path = tmp_path / name
    path.write_bytes(checked_file.encode(str(path), {"from": "elsewhere"}, FORMAT_VERSION + 1))
    with pytest.raises(OtherVersion) as refused:
        open_and_close(tmp_path)
    assert str(refused.value) == str(OtherVersion(str(path), FORMAT_VERSION + 1))
    assert path.exists()


def test_the_log_start_of_another_version_is_refused(tmp_path: Path) -> None:
    """Neither read nor taken for damage: deleted records would come back."""
    disk = Disk(tmp_path)
    put(disk.log(), build([(b"k", b"v")], timestamp_ms=NOW))
    path = disk.path / "t-0" / LOG_START_FILE
    path.write_bytes(checked_file.encode(str(path), 1, FORMAT_VERSION + 1))
    disk.stop()
    disk.start()
    refused = disk.log().append(build([(b"k", b"v")], timestamp_ms=NOW), NOW)
    assert isinstance(refused, Refusal) and refused.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "was written by another headrace" in refused.message
    assert path.exists()


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
    path = tmp_path / FORMAT_FILE
    saved = path.read_bytes()
    damaged = (b"", b"\xff\xfe", saved[:-1], saved.replace(b"5", b"6"), saved + saved)
    for damage in damaged:
        path.write_bytes(damage)
        caplog.clear()
        open_and_close(tmp_path)
        assert path.read_bytes() == saved
        assert any("format is damaged" in line for line in caplog.messages)


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
