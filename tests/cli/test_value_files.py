"""The files of ``headrace consume --to-directory``: nothing is written outside of the directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.console.value_files import ValueFiles
from headrace.cli.errors import Failure
from headrace.client.records import Record


def record(topic: str = "t", value: bytes | None = b"new") -> list[Record]:
    return [Record(topic, 0, 7, None, value, (), 1, "CreateTime", 0)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a" / "b"


@pytest.fixture
def files(folder: Path) -> Iterator[ValueFiles]:
    opened = ValueFiles(folder)
    yield opened
    opened.close()


def test_values_are_files(files: ValueFiles, folder: Path) -> None:
    files.write(record())
    files.write(record("empty", None))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "t-0-7": b"new",
        "empty-0-7": b"",
    }


@pytest.mark.parametrize("topic", ["../../cron.d/job", "/tmp/x", "..", "", "a\0b"])
def test_a_topic_is_no_path(files: ValueFiles, tmp_path: Path, topic: str) -> None:
    (tmp_path / "cron.d").mkdir()
    with pytest.raises(Failure, match="names an illegal topic"):
        files.write(record(topic))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("kind", ["file", "link", "hard link", "dangling link", "pipe"])
def test_what_is_there_is_replaced_and_not_followed(
    files: ValueFiles, folder: Path, tmp_path: Path, kind: str
) -> None:
    other, mine = tmp_path / "other", folder / "t-0-7"
    other.write_bytes(b"old")
    if kind == "file":
        mine.write_bytes(b"longer than the new value")
    elif kind == "pipe":
        os.mkfifo(mine)
    elif kind == "hard link":
        mine.hardlink_to(other)
    else:
        mine.symlink_to(other if kind == "link" else tmp_path / "missing")
    files.write(record())
    assert other.read_bytes() == b"old"
    assert not mine.is_symlink()
    assert mine.read_bytes() == b"new"
    assert not (tmp_path / "missing").exists()


def test_a_directory_in_its_place_is_an_error_with_its_name(
    files: ValueFiles, folder: Path
) -> None:
    (folder / "t-0-7").mkdir()
    with pytest.raises(Failure, match="t-0-7"):
        files.write(record())


def test_the_directory_stays_when_its_name_leads_elsewhere(
    files: ValueFiles, folder: Path, tmp_path: Path
) -> None:
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path)
    files.write(record())
    assert (tmp_path / "moved" / "t-0-7").read_bytes() == b"new"
