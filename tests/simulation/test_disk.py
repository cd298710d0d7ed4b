"""The simulated disk itself."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from .disk import DATABASE, TORN, Disk, Power, PowerCut

TABLES = ("topics", "configs", "acls")


@pytest.mark.parametrize("loses_power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("commits", [1, 5, 6, 7])
def test_a_torn_commit_leaves_the_commits_before_it(
    tmp_path: Path, commits: int, loses_power: bool
) -> None:
    """Also one of several pages that begins the write-ahead log anew, after a checkpoint."""
    power, path = Power(), str(tmp_path / DATABASE)
    disk = Disk(tmp_path, power, random.Random(0))
    with disk.attached():
        database = sqlite3.connect(path, isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA wal_autocheckpoint = 4")
        for table in TABLES:
            database.execute(f"CREATE TABLE {table} (number INTEGER)")
        power.cut_at(commits, TORN)
        for number in range(commits):
            database.execute("BEGIN")
            for table in TABLES if number == commits - 1 else TABLES[:1]:
                database.execute(f"INSERT INTO {table} VALUES ({number})")
            with pytest.raises(PowerCut) if number == commits - 1 else nullcontext():
                database.execute("COMMIT")
    (crashed,) = (one._crashed for one in disk._databases)
    assert crashed is not None
    left = tmp_path / "left.db"
    for seed in range(50):
        files = crashed.files(path, random.Random(seed), loses_power=loses_power)
        for name, content in files.items():
            Path(str(left) + name.removeprefix(path)).write_bytes(content or b"")
        with closing(sqlite3.connect(left)) as recovered:
            rows = recovered.execute("SELECT number FROM topics").fetchall()
        for side in ("-wal", "-shm"):
            Path(f"{left}{side}").unlink(missing_ok=True)
        found = [number for (number,) in rows]
        assert found in (list(range(commits - 1)), list(range(commits))), seed
