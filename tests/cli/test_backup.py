"""`headrace backup` and `headrace restore`: results, refusals, and what a failure leaves."""

from __future__ import annotations

import errno
import filecmp
import json
import os
import shutil
import signal
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from io import FileIO
from pathlib import Path

import pytest

import headrace
from headrace.backup import commands, control_socket, copy, manifest
from headrace.backup.directory import BackupError, Directory
from headrace.log import checked_file
from headrace.log.checked_file import FORMAT_VERSION
from headrace.log.directory_format import FORMAT_FILE
from tests.cli.command import run, start
from tests.clients.confluent import PATIENCE_S, consumer, create_topic, produce, take
from tests.support import HeadraceProcess, wait_until

pytestmark = pytest.mark.broker

RECORDS = [b"%d" % n for n in range(20)]


def no_progress(stage: str, total_bytes: int) -> nullcontext[copy.Advance]:
    return nullcontext(lambda size_bytes: None)


def entries_of(backup: Path) -> list[manifest.Entry]:
    with closing(Directory(str(backup))) as directory:
        return manifest.read(directory)


@contextmanager
def broker(data_dir: Path, **config: str) -> Iterator[str]:
    named = {name.replace("_", "."): value for name, value in config.items()}
    with headrace.Broker(data_dir, named) as running:
        yield running.bootstrap_servers


def produce_orders(bootstrap_servers: str) -> None:
    """Produce the records, half of them to each partition."""
    for partition in range(2):
        produce(bootstrap_servers, "orders", RECORDS[10 * partition :][:10], partition)


def read_all(bootstrap_servers: str, count: int = len(RECORDS)) -> list[bytes]:
    with consumer(bootstrap_servers, "reader") as source:
        source.subscribe(["orders"])
        return sorted((message.value() for message in take(source, count)), key=int)


def start_and_read(data_dir: Path) -> list[bytes]:
    with broker(data_dir) as bootstrap_servers:
        return read_all(bootstrap_servers)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with records. Tests must not change it."""
    data_dir = tmp_path_factory.mktemp("stopped") / "data"
    with broker(data_dir) as bootstrap_servers:
        create_topic(bootstrap_servers, "orders", partitions=2)
        produce_orders(bootstrap_servers)
    return data_dir


@pytest.fixture
def made(stopped: Path, tmp_path: Path) -> Path:
    """A backup of it."""
    commands.backup(str(stopped), str(tmp_path / "made"), no_progress, verify=True)
    return tmp_path / "made"


def files_of(directory: Path) -> set[str]:
    return {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}


def check_nothing_left(*targets: Path) -> None:
    for target in targets:
        assert not target.exists(), sorted(target.iterdir())
        assert not partials(target)


def partials(target: Path) -> list[Path]:
    """Return the unfinished copies of a backup or a restore."""
    return sorted(target.parent.glob(f"{target.name}.partial-*"))


# ---------------------------------------------------------------------- results


def test_a_backup_of_a_running_broker_starts(tmp_path: Path) -> None:
    data_dir, target = tmp_path / "data", tmp_path / "backup"
    with broker(data_dir) as bootstrap_servers:
        create_topic(bootstrap_servers, "orders", partitions=2)
        create_topic(bootstrap_servers, "unused")
        produce_orders(bootstrap_servers)
        status, output, errors = run(
            "backup", str(target), "--data-dir", str(data_dir), "-o", "jsonl"
        )
        assert (status, errors) == (0, [])
        report = json.loads(output)
        produce(bootstrap_servers, "orders", [b"1000"])
        wait_until(
            lambda: not list(data_dir.glob("snapshot.*")), PATIENCE_S, "the snapshot to be deleted"
        )
    assert report["was_running"] is True
    assert (report["topic_count"], report["partition_count"]) == (2, 2)
    assert report["size_bytes"] == sum(entry.size_bytes for entry in entries_of(target))
    assert report["offline"] == []
    assert (report["source"], report["target"]) == (str(data_dir), str(target))
    with broker(target) as bootstrap_servers:
        assert read_all(bootstrap_servers) == RECORDS
        produce(bootstrap_servers, "orders", [b"100"])
        create_topic(bootstrap_servers, "more")


def test_a_backup_of_a_stopped_broker_starts_without_verification(
    made: Path, stopped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert files_of(made) - {"backup-manifest"} == files_of(stopped) - {"lock"}
    assert start_and_read(made) == RECORDS
    assert {record.name for record in caplog.records} <= {"headrace.loop"}, caplog.messages


def test_a_broker_that_was_killed_leaves_what_can_be_backed_up(tmp_path: Path) -> None:
    server = HeadraceProcess(tmp_path / "data").start()
    create_topic(server.bootstrap_servers, "orders", partitions=2)
    produce_orders(server.bootstrap_servers)
    server.kill()
    assert (tmp_path / "data" / control_socket.SOCKET_FILE).exists()
    commands.backup(str(tmp_path / "data"), str(tmp_path / "backup"), no_progress, verify=True)
    shutil.rmtree(tmp_path / "data")
    assert start_and_read(tmp_path / "backup") == RECORDS


def test_a_restored_directory_is_as_it_was_backed_up(made: Path, tmp_path: Path) -> None:
    restored = tmp_path / "restored"
    status, output, errors = run("restore", str(made), "--data-dir", str(restored))
    assert (status, errors) == (0, [])
    assert output.decode().startswith("restored 1 topics with 2 used partitions, ")
    names = files_of(restored)
    assert names == files_of(made) - {"backup-manifest"}
    assert filecmp.cmpfiles(made, restored, names, shallow=False)[1:] == ([], [])
    for name in names:  # the age of segments without timestamps
        assert (made / name).stat().st_mtime_ns == (restored / name).stat().st_mtime_ns
    assert start_and_read(restored) == RECORDS


def test_an_empty_directory_may_be_the_target(made: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    commands.restore(str(made), str(tmp_path / "empty"), no_progress, verify=False)
    assert start_and_read(tmp_path / "empty") == RECORDS


def test_a_mount_point_is_filled_in_place(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "mounted"
    (target / "lost+found").mkdir(parents=True)
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) == str(target))
    (target / "incomplete").touch()  # of a restore that was killed
    (target / "orders-0").mkdir()
    commands.restore(str(made), str(target), no_progress, verify=False)
    assert start_and_read(target) == RECORDS
    with pytest.raises(BackupError, match="not empty"):
        commands.restore(str(made), str(target), no_progress, verify=False)


def test_a_directory_of_another_version_is_not_copied(stopped: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(stopped, other)
    path = str(other / FORMAT_FILE)
    Path(path).write_bytes(checked_file.encode(path, "x" * 22, FORMAT_VERSION - 1))
    line = refusal("backup", tmp_path / "made", "--data-dir", other)
    assert f"{path} was written by another headrace" in line
    check_nothing_left(tmp_path / "made")


# ---------------------------------------------------------------------- refusals


def refusal(*arguments: object) -> str:
    """Return the only line on stderr of a command that fails with status 1."""
    status, output, errors = run(*map(str, arguments))
    assert (status, output, len(errors)) == (1, b"", 1), (status, output, errors)
    return errors[0]


def test_refused_backups(stopped: Path, made: Path, tmp_path: Path) -> None:
    def refused(target: Path, data_dir: Path = stopped) -> str:
        return refusal("backup", target, "--data-dir", data_dir)

    assert f"{made} exists and is not empty" in refused(made)
    (tmp_path / "other").mkdir()
    line = refused(tmp_path / "b", tmp_path / "other")
    assert "is not a data directory: it has no headrace.db" in line
    assert "must not contain each other" in refused(stopped / "backup")
    assert "must not contain each other" in refused(stopped)
    (tmp_path / "file").touch()
    assert "is not a directory" in refused(tmp_path / "file")
    assert "Not a directory" in refused(tmp_path / "file" / "backup")


def test_a_catalog_of_another_version_or_damaged_is_not_backed_up(
    stopped: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped, tmp_path / "data")
    catalog, target = tmp_path / "data" / "headrace.db", tmp_path / "backup"
    whole = catalog.read_bytes()
    catalog.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    assert "headrace.db is damaged" in refusal("backup", target, "--data-dir", tmp_path / "data")
    catalog.write_bytes(whole[:60] + (99).to_bytes(4, "big") + whole[64:])  # PRAGMA user_version
    line = refusal("backup", target, "--data-dir", tmp_path / "data")
    assert "another headrace: its format is 99" in line
    check_nothing_left(target)


def test_a_program_that_reads_the_catalog_hides_no_topic(tmp_path: Path) -> None:
    """It keeps SQLite from writing the last changes into the file."""
    data_dir, target = tmp_path / "data", tmp_path / "backup"
    with broker(data_dir) as bootstrap_servers:
        create_topic(bootstrap_servers, "orders")
    with closing(sqlite3.connect(data_dir / "headrace.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchone()
        with broker(data_dir) as bootstrap_servers:
            create_topic(bootstrap_servers, "late")
        assert (
            commands.backup(str(data_dir), str(target), no_progress, verify=True).topic_count == 2
        )


def test_only_one_backup_of_a_broker_at_a_time(tmp_path: Path) -> None:
    with broker(tmp_path / "data"):
        with control_socket.connect(str(tmp_path / "data"), 10) as connection:
            connection.sendall(b'{"request": "snapshot"}\n')
            assert b"name" in connection.recv(1000)
            line = refusal("backup", tmp_path / "backup", "--data-dir", tmp_path / "data")
            assert "another backup is running" in line
            assert list((tmp_path / "data").glob("snapshot.*"))
        check_nothing_left(tmp_path / "backup")
        for name in "abc":  # one after the other is no problem
            commands.backup(str(tmp_path / "data"), str(tmp_path / name), no_progress, verify=True)


def test_a_broker_that_does_not_answer_is_named(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "data")
    with broker(tmp_path / "data") as bootstrap_servers:
        (tmp_path / "data" / control_socket.SOCKET_FILE).unlink()
        line = refusal("backup", tmp_path / "backup", "--data-dir", tmp_path / "data")
        assert f"is in use (process {os.getpid()} at {bootstrap_servers})" in line
        assert "does not answer on its control socket" in line


def test_refused_restores(made: Path, stopped: Path, tmp_path: Path) -> None:
    def refused(target: Path = tmp_path / "restored") -> str:
        return refusal("restore", made, "--data-dir", target)

    assert "is not a backup: it has no backup-manifest" in refusal(
        "restore", stopped, "--data-dir", tmp_path / "restored"
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    assert "exists and is not empty" in refused(tmp_path / "mine")
    with broker(made):
        assert "is in use" in refused()
    check_nothing_left(tmp_path / "restored")
    assert files_of(tmp_path / "mine") == {"file"}


def test_a_changed_backup_is_not_restored(made: Path, tmp_path: Path) -> None:
    target = tmp_path / "restored"

    def refused() -> str:
        line = refusal("restore", made, "--data-dir", target)
        check_nothing_left(target)
        return line

    segment = next(made.glob("orders-*/*.log"))
    whole = segment.read_bytes()
    for changed in (bytes([whole[0] ^ 1]) + whole[1:], whole[:-1], whole + b"\0"):
        segment.write_bytes(changed)
        assert f"{segment} is not as the backup has written it" in refused()
    segment.unlink()
    assert f"{segment} is missing in the backup" in refused()
    segment.write_bytes(whole)

    saved = (made / "backup-manifest").read_bytes()
    for damaged in (b"", saved[:-1], saved[:-9] + saved[-8:], saved + saved, b"\xff\n{}\n"):
        (made / "backup-manifest").write_bytes(damaged)
        assert "backup-manifest is damaged" in refused()
    (made / "backup-manifest").write_bytes(checked_file.encode("backup-manifest", {}, 99))
    assert f"its format is 99, and this one has {FORMAT_VERSION}" in refused()


@pytest.mark.parametrize("name", ["../mine", "/mine", "orders-0/../../mine", "a/b/c", "", "."])
def test_a_manifest_names_only_files_of_the_backup(made: Path, tmp_path: Path, name: str) -> None:
    entries = entries_of(made)
    entries.append(manifest.Entry(name, 0, 0))
    (made / "backup-manifest").write_bytes(
        manifest.encode("2026-11-28T03:00:00+00:00", "a cluster", entries)
    )
    with pytest.raises(BackupError, match="is not the name of a file"):
        commands.restore(str(made), str(tmp_path / "restored"), no_progress, verify=True)


# ---------------------------------------------------------------------- failures


@pytest.mark.parametrize("failing", [1, 3, 6])
def test_a_full_disk_leaves_nothing(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    writes = iter(range(1, 1000))
    write = copy._write

    def full(file: FileIO, data: bytes, path: str) -> None:
        if next(writes) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        write(file, data, path)

    monkeypatch.setattr(copy, "_write", full)
    with pytest.raises(BackupError, match=r"^No space left on device: .*backup.partial-"):
        commands.backup(str(stopped), str(tmp_path / "backup"), no_progress, verify=True)
    check_nothing_left(tmp_path / "backup")


def test_too_little_space_is_found_before_anything_is_copied(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_free_bytes", lambda path: 1000)
    with pytest.raises(BackupError, match=r"has 1000 bytes free, and \d+ are needed"):
        commands.backup(str(stopped), str(tmp_path / "backup"), no_progress, verify=True)
    check_nothing_left(tmp_path / "backup")


def test_a_disk_that_forgets_is_found(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(entries: object, directory: Directory) -> None:
        segment = next(Path(directory.path).glob("orders-*/*.log"))
        segment.write_bytes(bytes(segment.stat().st_size))

    monkeypatch.setattr(commands, "_force", forget)
    with pytest.raises(BackupError, match="is not what was written to it"):
        commands.backup(str(stopped), str(tmp_path / "backup"), no_progress, verify=True)
    check_nothing_left(tmp_path / "backup")
    commands.backup(str(stopped), str(tmp_path / "backup"), no_progress, verify=False)


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_leaves_nothing(
    stopped: Path, tmp_path: Path, number: signal.Signals, expected: int
) -> None:
    data_dir, target = tmp_path / "data", tmp_path / "backup"
    shutil.copytree(stopped, data_dir)
    with open(data_dir / "orders-0" / "00000000000000900000.log", "wb") as file:
        file.truncate(16 << 30)  # a hole, which takes a while to copy
    backup = start("backup", str(target), "--data-dir", str(data_dir))
    try:
        wait_until(
            lambda: list(tmp_path.glob("backup.partial-*/*/*")), PATIENCE_S, "the copy to begin"
        )
        (partial,) = partials(target)
        assert refusal("serve", "--data-dir", partial).endswith(
            "that was not finished: delete it and start again"
        )
        assert "another process is writing" in refusal("backup", target, "--data-dir", stopped)
        backup.send_signal(number)
        _, errors = backup.communicate(timeout=PATIENCE_S)
    finally:
        backup.kill()
    assert (backup.returncode, errors) == (expected, b"")
    check_nothing_left(target)


# ---------------------------------------------------------------------- the control socket


def test_only_the_owner_can_connect(tmp_path: Path) -> None:
    with broker(tmp_path / "data"):
        mode = (tmp_path / "data" / control_socket.SOCKET_FILE).stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
    assert not (tmp_path / "data" / control_socket.SOCKET_FILE).exists()


def test_a_long_path_is_no_obstacle(tmp_path: Path) -> None:
    data_dir = tmp_path / ("x" * 120) / "data"
    with broker(data_dir) as bootstrap_servers:
        create_topic(bootstrap_servers, "orders", partitions=2)
        produce_orders(bootstrap_servers)
        commands.backup(str(data_dir), str(tmp_path / "backup"), no_progress, verify=True)
    assert start_and_read(tmp_path / "backup") == RECORDS


def test_other_requests_are_refused(tmp_path: Path) -> None:
    with broker(tmp_path / "data"):
        for request in (b"garbage\n", b"\xff" * 1000 + b"\n", b"[]\n", b'{"request": "stop"}\n'):
            with control_socket.connect(str(tmp_path / "data"), 10) as connection:
                connection.sendall(request)
                assert json.loads(connection.recv(1000)) == {"error": "unknown request"}
        for request in (b"", b"x" * 1_000_000):
            with (
                control_socket.connect(str(tmp_path / "data"), 10) as connection,
                suppress(BrokenPipeError),
            ):
                connection.sendall(request)
        commands.backup(str(tmp_path / "data"), str(tmp_path / "b"), no_progress, verify=True)


def test_a_stop_does_not_wait_for_a_backup(tmp_path: Path) -> None:
    server = HeadraceProcess(tmp_path / "data").start()
    with control_socket.connect(str(tmp_path / "data"), 10) as connection:
        connection.sendall(b'{"request": "snapshot"}\n')
        assert b"name" in connection.recv(1000)
        assert server.stop(timeout_s=5) == 0
        assert connection.recv(1000) == b""
    server.start()
    wait_until(lambda: not list((tmp_path / "data").glob("snapshot.*")), PATIENCE_S, "its deletion")
    server.stop()
    assert not [line for line in server.output if "Traceback" in line or "ERROR" in line]


def test_damaged_records_are_named(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "data")
    sound = ("backup", str(tmp_path / "sound"), "--data-dir", str(stopped))
    assert run(*sound, "--verify-records")[0] == 0
    for path in (tmp_path / "data").glob(f"orders-*/{0:020}.log"):
        data = bytearray(path.read_bytes())
        if data:
            data[70] ^= 1
            path.write_bytes(data)
    source = ("--data-dir", str(tmp_path / "data"))
    assert run("backup", str(tmp_path / "quiet"), *source)[0] == 0
    made = str(tmp_path / "made")
    status, out, told = run("backup", made, *source, "--verify-records", "-o", "jsonl")
    damaged = json.loads(out)["damaged"]
    assert status == 1 and damaged
    assert all(made in line and "checksum" in line for line in damaged)
    assert [line.startswith("warning: ") for line in told] == [True] * len(damaged)
    assert (tmp_path / "made" / "backup-manifest").exists()


def test_a_slow_backup_takes_its_time(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("headrace.backup.commands.time.sleep", slept.append)
    slow = commands.paced(no_progress, 1000)
    report = commands.backup(str(stopped), str(tmp_path / "made"), slow, verify=False)
    # Other threads of this process may sleep a second, too.
    assert max(slept) == pytest.approx(report.size_bytes / 1000, abs=5)
