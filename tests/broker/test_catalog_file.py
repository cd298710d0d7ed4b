"""The files of the catalog after an error of the disk: they are replaced, whole."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from headrace.topics import catalog_file
from headrace.topics.catalog import Catalog, CatalogError

pytestmark = pytest.mark.pure


class FailingCommits:
    """A database whose next commit fails as its file does."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database: Any = database
        self._fails = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def execute(self, statement: str, *parameters: Any) -> Any:
        if statement == "COMMIT" and self._fails:
            self._fails = False
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return self._database.execute(statement, *parameters)


def test_after_a_commit_that_the_disk_refused_the_catalog_has_new_files(tmp_path: Path) -> None:
    """Blocks of the old ones may lose what is written to them later."""
    path = tmp_path / "headrace.db"
    catalog = Catalog(path)
    catalog.create_topic("before", 1)
    database, file_number = catalog._database, path.stat().st_ino
    catalog._database = FailingCommits(database)  # type: ignore[assignment]
    with pytest.raises(CatalogError, match="disk I/O error"):
        catalog.create_topic("refused", 1)
    assert path.stat().st_ino == file_number
    catalog._database = database
    catalog.create_topic("after", 1)
    assert path.stat().st_ino != file_number
    catalog.close()
    again = Catalog(path)
    assert set(again.topics) == {"before", "after"}
    again.close()


def test_a_replacement_that_was_interrupted_is_completed_without_the_old_log(
    tmp_path: Path,
) -> None:
    """SQLite would apply the old log to the copy."""
    path = tmp_path / "headrace.db"
    catalog = Catalog(path)
    catalog.create_topic("kept", 1)
    assert os.path.getsize(f"{path}-wal") > 0
    old_log = Path(f"{path}-wal").read_bytes()
    catalog.create_topic("copied", 1)
    catalog_file.save(catalog._database, f"{path}.new")
    catalog.close()
    Path(f"{path}-wal").write_bytes(old_log)
    catalog_file.complete_replacement(path)
    assert [file.name for file in tmp_path.iterdir()] == ["headrace.db"]
    again = Catalog(path)
    assert set(again.topics) == {"kept", "copied"}
    again.close()
