"""The files of logs and data directories are for their owner, whatever the umask is."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.log.data_directory import DataDirectory
from tests.log.disk import Disk, batch, put
from tests.log.test_small_files import written
from tests.log.test_snapshot import new_snapshot
from tests.support import ROOT

CREATES_FOR_ALL = re.compile(
    r"0o6[46]4|open\([^()]*\"[wax]b?\"(?!, opener)|os\.mkdir\([^,()]*\)|makedirs\([^,()]*\)"
)


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[str, str]:
    """Return the modes of everything below a directory that others may use."""
    return {
        str(path.relative_to(directory)): f"{path.stat().st_mode & 0o777:o}"
        for path in [directory, *directory.rglob("*")]
        if path.stat().st_mode & 0o077
    }


def test_the_files_of_a_log_are_for_their_owner(tmp_path: Path) -> None:
    directory, _ = written(tmp_path)
    assert len(list(directory.rglob("*"))) > 10
    assert not modes(directory)


def test_the_files_of_a_snapshot_are_for_their_owner(disk: Disk) -> None:
    put(disk.log(), batch(b"a"))
    snapshot = new_snapshot(disk)
    snapshot.link_all()
    assert not {name for name in modes(Path(snapshot.path)) if name != "format"}


@pytest.mark.parametrize("package", ["log", "backup"])
def test_no_call_creates_a_file_for_all(package: str) -> None:
    """Also where no other test comes: files of recoveries and of full disks."""
    sources = sorted((ROOT / "src/headrace" / package).glob("*.py"))
    assert sources
    calls = [
        f"{source.name}: {call[0]}"
        for source in sources
        for call in CREATES_FOR_ALL.finditer(source.read_text())
    ]
    assert not calls


def test_partitions_that_others_could_read_are_closed(tmp_path: Path) -> None:
    """Those of a copy that `cp -r` or `tar` has made, in a directory that others may enter."""
    directory, _ = written(tmp_path)
    directory.chmod(0o755)
    (directory / "t-0").chmod(0o755)
    DataDirectory(directory, 16, sync=False).abandon()
    assert modes(directory) == {".": "755"}


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        (0o700, None),
        (0o755, "INFO Others may list what is in {0}, as its mode is 0755: chmod 700 {0}"),
        (0o777, "WARNING Others may replace files in {0}, as its mode is 0777: chmod 700 {0}"),
    ],
)
def test_a_data_directory_that_is_open_to_others_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, line: str | None
) -> None:
    caplog.set_level(logging.INFO, "headrace.log")
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(mode)
    for _ in range(2):
        DataDirectory(tmp_path / "data", 16, sync=False).abandon()
    lines = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    assert lines == ([] if line is None else 2 * [line.format(tmp_path / "data")])
