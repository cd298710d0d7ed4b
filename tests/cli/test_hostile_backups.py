"""`headrace backup` and `headrace restore` where others may write, and with what others wrote."""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from crc32c import crc32c

import headrace
from headrace.backup import commands, copy, manifest
from headrace.backup.directory import BackupError
from headrace.log import checked_file
from tests.cli.command import run
from tests.cli.test_backup import entries_of, no_progress
from tests.clients.confluent import create_topic, produce

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a record. Tests must not change it."""
    data_dir = tmp_path_factory.mktemp("stopped") / "data"
    with headrace.Broker(data_dir) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        produce(broker.bootstrap_servers, "orders", [b"1"])
    return data_dir


@pytest.fixture
def made(stopped: Path, tmp_path: Path) -> Path:
    """A backup of it."""
    commands.backup(str(stopped), str(tmp_path / "made"), no_progress, verify=True)
    return tmp_path / "made"


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(directory: Path) -> list[Path]:
    return [path for path in (directory, *directory.rglob("*")) if path.stat().st_mode & 0o077]


@pytest.mark.usefixtures("no_umask")
def test_a_backup_and_what_is_restored_are_for_their_owner(stopped: Path, tmp_path: Path) -> None:
    commands.backup(str(stopped), str(tmp_path / "made"), no_progress, verify=True)
    commands.restore(str(tmp_path / "made"), str(tmp_path / "restored"), no_progress, verify=True)
    assert not open_to_others(tmp_path / "made")
    assert not open_to_others(tmp_path / "restored")


@pytest.mark.usefixtures("no_umask")
def test_a_mount_point_becomes_private(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "mounted"
    target.mkdir()
    target.chmod(0o755)
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) == str(target))
    commands.backup(str(stopped), str(target), no_progress, verify=True)
    assert not open_to_others(target)


def test_what_others_have_put_beside_the_target_is_left_alone(
    stopped: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    for name in ("nightly.partial", "nightly.partial-1234"):
        (shared / name).mkdir(parents=True)
        (shared / name).chmod(0o755)
        (shared / name / "incomplete").symlink_to(tmp_path / "created through a link")
    (shared / "nightly.partial-link").symlink_to(tmp_path)
    before = sorted(shared.rglob("*"))
    commands.backup(str(stopped), str(shared / "nightly"), no_progress, verify=True)
    assert not (tmp_path / "created through a link").exists()
    assert [path for path in before if not path.is_symlink() and not path.exists()] == []
    assert not open_to_others(shared / "nightly")


def test_what_a_killed_process_has_left_is_deleted_where_a_group_is_inherited(
    stopped: Path, tmp_path: Path
) -> None:
    """As in a volume of Kubernetes with ``fsGroup``."""
    tmp_path.chmod(0o2770)
    left = Path(tempfile.mkdtemp(prefix="nightly.partial-", dir=tmp_path))
    for name in ("incomplete", "headrace.db"):
        (left / name).touch()
    commands.backup(str(stopped), str(tmp_path / "nightly"), no_progress, verify=True)
    assert not left.exists()


def test_a_target_that_is_a_link_is_refused(stopped: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "nightly").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BackupError, match="nightly is a symbolic link: name what it points to"):
        commands.backup(str(stopped), str(tmp_path / "nightly"), no_progress, verify=True)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_mark_in_place_is_not_followed(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "mounted"
    target.mkdir()
    (target / "incomplete").symlink_to(tmp_path / "created through a link")
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) == str(target))
    with pytest.raises(BackupError, match="incomplete is a link or not a regular file"):
        commands.backup(str(stopped), str(target), no_progress, verify=True)
    assert not (tmp_path / "created through a link").exists()


def test_a_directory_that_is_exchanged_meanwhile_gets_nothing(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may write to a shared directory without a sticky bit may rename what is in it."""
    copy_file, strange = copy.copy_file, tmp_path / "strange"

    def exchange_then_copy(*arguments: object) -> manifest.Entry:
        if not strange.exists():
            (partial,) = tmp_path.glob("nightly.partial*")
            partial.rename(tmp_path / "moved")
            (strange / "orders-0").mkdir(parents=True)
            strange.rename(partial)
            strange.mkdir()
        return copy_file(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(commands, "copy_file", exchange_then_copy)
    with pytest.raises(BackupError, match="somebody has exchanged it"):
        commands.backup(str(stopped), str(tmp_path / "nightly"), no_progress, verify=True)
    assert not [path for path in tmp_path.glob("nightly*/**/*") if path.is_file()]


# ---------------------------------------------------------------------- what others wrote


def a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("kind", [a_fifo, a_link, a_directory])
@pytest.mark.parametrize("name", ["backup-manifest", "headrace.db", "lock", "orders-0/*.log"])
def test_only_regular_files_are_restored(
    made: Path, tmp_path: Path, name: str, kind: Callable[[Path], None]
) -> None:
    (made / "lock").touch()
    kind(next(made.glob(name)))
    status, output, errors = run("restore", str(made), "--data-dir", str(tmp_path / "restored"))
    assert (status, output, len(errors)) == (1, b"", 1), errors
    assert "is a link or not a regular file" in errors[0]
    assert not list(tmp_path.glob("restored*"))


def test_a_partition_that_is_a_link_is_not_followed(made: Path, tmp_path: Path) -> None:
    (made / "orders-0").rename(tmp_path / "moved")
    (made / "orders-0").symlink_to(tmp_path / "moved")
    with pytest.raises(BackupError, match="is a link or not a regular file"):
        commands.restore(str(made), str(tmp_path / "restored"), no_progress, verify=True)


def with_checksum(text: bytes) -> bytes:
    """Return the content of a manifest that has a right checksum."""
    head = checked_file.encode(manifest.MANIFEST_FILE, None).rsplit(b" ", 2)[0]
    return b"%s %08x %s\n" % (head, crc32c(text, crc32c(head)), text)


def about(files: str) -> bytes:
    return (
        f'{{"headrace": "1", "created": "now", "cluster_id": "c", "files": [{files}]}}'
    ).encode()


@pytest.mark.parametrize(
    "text",
    [
        about('["orders-0/a\\u0000.log", 0, 0]'),
        about('["orders-0/\\ud800.log", 0, 0]'),
        about(f'["{"x" * 5000}", 0, 0]'),
        about("[7, 0, 0]"),
        about("[null, 0, 0]"),
        about('["headrace.db", "0", 0]'),
        about('["headrace.db", -1, 0]'),
        about('["headrace.db", 1.5, 0]'),
        about('["headrace.db", true, 0]'),
        about('["headrace.db", 0, null]'),
        about('["headrace.db", 0]'),
        about('{"a": 1, "b": 2, "c": 3}'),
        about('"abc"'),
        about('["headrace.db", 0, 0], ["headrace.db", 0, 0]'),
        about('["headrace.db-wal", 0, 0]'),
        about('["secrets/a", 0, 0]'),
        about('["/headrace.db", 0, 0]'),
        about(f'["headrace.db", {"9" * 5000}, 0]'),
        about("[" * 100_000),
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"headrace": 1, "created": [], "cluster_id": {}, "files": []}',
        about("")[:-1] + b', "more": 1}',
        b"\xff\xfe",
    ],
    ids=lambda text: text[-40:].decode(errors="replace"),
)
def test_a_manifest_of_others_is_refused_on_one_line(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "backup-manifest").write_bytes(with_checksum(text))
    with pytest.raises(BackupError, match="backup-manifest is damaged") as raised:
        entries_of(tmp_path / "made")
    assert "\n" not in str(raised.value) and str(raised.value).isprintable()
    assert len(str(raised.value)) < 1000


def test_a_manifest_is_not_endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_file, "MAX_FILE_BYTES", 1000)
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "backup-manifest").write_bytes(bytes(1001))
    with pytest.raises(BackupError, match="backup-manifest is larger than 1000 bytes"):
        entries_of(tmp_path / "made")


@pytest.mark.parametrize("cluster_id", [b"\xff\xfe", 7, None, "[", "[]", "7"])
def test_a_catalog_with_other_types_is_damaged(
    made: Path, tmp_path: Path, cluster_id: object
) -> None:
    path = made / "headrace.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as catalog:
        catalog.execute("DROP TABLE entries")
        catalog.execute("CREATE TABLE entries (kind, key, value)")
        catalog.execute("INSERT INTO entries VALUES ('cluster', 'id', ?)", (cluster_id,))
    data = path.read_bytes()
    entries = entries_of(made)
    entries = [one for one in entries if one.name != "headrace.db"]
    entries.append(manifest.Entry("headrace.db", len(data), crc32c(data)))
    (made / "backup-manifest").write_bytes(
        manifest.encode("2026-11-28T03:00:00+00:00", "a cluster", entries)
    )
    status, _, errors = run("restore", str(made), "--data-dir", str(tmp_path / "restored"))
    assert (status, len(errors)) == (1, 1)
    assert "headrace.db is damaged" in errors[0]


def test_a_device_is_not_read(made: Path, tmp_path: Path) -> None:
    (segment,) = made.glob("orders-0/*.log")
    segment.unlink()
    try:
        os.mknod(segment, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        os.symlink("/dev/zero", segment)  # only root makes devices
    with pytest.raises(BackupError, match="is a link or not a regular file"):
        commands.restore(str(made), str(tmp_path / "restored"), no_progress, verify=True)
