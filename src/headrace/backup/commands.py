"""Back up a data directory, and restore one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import quote

from headrace.log import directory_lock
from headrace.log.checked_file import FORMAT_VERSION, DamagedFile, OtherVersion
from headrace.log.data_directory import is_partition_name
from headrace.log.directory_format import UnusableDirectory
from headrace.log.files import DIRECTORY_MODE, sync_filesystem
from headrace.log.verify import Verified, log_files, verify_file
from headrace.log_lines import printable
from headrace.topics.catalog import CATALOG_FILE

from . import manifest, source, target
from .copy import Advance, SourceFile, check_file, copy_file
from .directory import BackupError, Directory, text_of
from .manifest import Entry

SYNC_FILES_ABOVE = 1000
"""The number of files above which the whole file system of the copy is forced to disk at once."""

Stage = Callable[[str, int], contextlib.AbstractContextManager[Advance]]
"""Shows the progress of a stage.

Takes the name of the stage and its size in bytes; returns a context with a function that is called
with the bytes of each step.
"""


def paced(stage: Stage, max_bytes_per_second: int) -> Stage:
    """Return stages that process at most ``max_bytes_per_second``."""

    @contextlib.contextmanager
    def begin(name: str, total_bytes: int) -> Iterator[Advance]:
        started, done_bytes = time.monotonic(), 0

        def advance_slowly(size_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += size_bytes
            advance(size_bytes)
            ahead_s = started + done_bytes / max_bytes_per_second - time.monotonic()
            if ahead_s > 0:
                time.sleep(ahead_s)

        with stage(name, total_bytes) as advance:
            yield advance_slowly

    return begin


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a backup or a restore.

    :ivar was_running: True for a backup of a running broker
    :ivar partition_count: partitions that ever had a record
    :ivar offline: names of the logs that the broker has taken offline
    :ivar damaged: the damaged batches, a line for each; empty if records were not checked
    """

    source: str
    target: str
    was_running: bool
    cluster_id: str
    topic_count: int
    partition_count: int
    file_count: int
    size_bytes: int
    seconds: float
    offline: Sequence[str] = ()
    damaged: Sequence[str] = ()


def backup(
    data_dir: str, into: str, stage: Stage, *, verify: bool, check_records: bool = False
) -> Report:
    """Copy a data directory, whether a broker runs in it or not.

    :param into: directory of the backup, which must not exist or be empty
    :param verify: read the copy back
    :param check_records: verify the checksums of all batches in the copy. Damaged ones are copied
        as they are, and named in the report
    :raises BackupError: when it fails; then nothing is left
    """
    data_dir, into = _apart(data_dir, into)
    started = time.monotonic()
    with _readable_errors(), target.building(into) as directory:
        with (
            source.opened(data_dir) as opened,
            contextlib.closing(Directory(opened.directory)) as copied,
        ):
            entries = _copy(opened.files, copied, directory, stage, opened.check)
        catalog = _check_catalog(directory)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        with io.BufferedWriter(directory.create(manifest.MANIFEST_FILE)) as file:
            file.write(manifest.encode(created, catalog[0], entries))
        _force(entries, directory)
        if verify:
            _verify(entries, directory, stage)
        damaged = _damaged(entries, directory, stage) if check_records else []
    return replace(
        _report(data_dir, into, catalog, entries, started),
        was_running=opened.is_running,
        offline=opened.offline,
        damaged=[problem.replace(directory.path, into) for problem in damaged],
    )


def restore(backup_dir: str, data_dir: str, stage: Stage, *, verify: bool) -> Report:
    """Copy a backup to a new data directory, and check it against its manifest.

    :param data_dir: the data directory, which must not exist or be empty
    :param verify: read the copy back
    :raises BackupError: when it fails; then nothing is left
    """
    backup_dir, data_dir = _apart(backup_dir, data_dir)
    started = time.monotonic()
    with _readable_errors(), _held(backup_dir) as backup:
        entries = manifest.read(backup)
        _check_sizes(entries, backup)
        with target.building(data_dir) as directory:
            copied = _copy(entries, backup, directory, stage, lambda: None)
            for expected, copy in zip(entries, copied, strict=True):
                if copy != expected:
                    raise _changed(f"{backup_dir}/{expected.name}")
            catalog = _check_catalog(directory)
            _force(entries, directory)
            if verify:
                _verify(entries, directory, stage)
    return _report(backup_dir, data_dir, catalog, entries, started)


def _apart(*directories: str) -> list[str]:
    """Return the absolute paths of what is copied and of the copy, if none is in the other one."""
    source_dir, target_dir = absolute = [os.path.abspath(path) for path in directories]
    paths = [os.path.realpath(path) for path in absolute]
    if os.path.commonpath(paths) in paths:
        raise BackupError(f"{target_dir} and {source_dir} must not contain each other")
    return absolute


@contextlib.contextmanager
def _readable_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackupError(text_of(error)) from error
    except (UnusableDirectory, directory_lock.DirectoryInUse, DamagedFile) as error:
        raise BackupError(str(error)) from error


@contextlib.contextmanager
def _held(backup_dir: str) -> Iterator[Directory]:
    """Open a backup, and keep brokers from starting in it."""
    with contextlib.ExitStack() as opened:
        backup = opened.enter_context(contextlib.closing(Directory(backup_dir)))
        with contextlib.suppress(FileNotFoundError):
            with backup.open(directory_lock.LOCK_FILE) as file:
                lock = os.dup(file.fileno())
            directory_lock.share(lock, backup_dir)
            opened.callback(os.close, lock)
        yield backup


def _check_sizes(entries: Sequence[Entry], backup: Directory) -> None:
    """Find a file of a backup that is missing or has changed its size, before anything is copied.

    :raises BackupError: when there is one
    """
    for entry in entries:
        path = f"{backup.path}/{entry.name}"
        try:
            with backup.open(entry.name) as file:
                size_bytes = os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            raise BackupError(f"{path} is missing in the backup") from None
        if size_bytes != entry.size_bytes:
            raise _changed(path)


def _changed(path: str) -> BackupError:
    return BackupError(
        f"{path} is not as the backup has written it: it is damaged, or a broker ran in the backup"
    )


def _copy(
    files: Sequence[SourceFile | Entry],
    directory: Directory,
    into: Directory,
    stage: Stage,
    check: Callable[[], None],
) -> list[Entry]:
    total_bytes = sum(file.size_bytes for file in files)
    free_bytes = _free_bytes(into)
    if total_bytes > free_bytes:
        raise BackupError(f"{into.path} has {free_bytes} bytes free, and {total_bytes} are needed")
    entries: list[Entry] = []
    for name in _folders(files):
        os.mkdir(name, DIRECTORY_MODE, dir_fd=into.fd)
    with stage("copying", total_bytes) as advance:
        for file in files:
            check()
            try:
                entries.append(copy_file(file, directory, into, advance))
            except FileNotFoundError:
                check()
                raise
    check()
    return entries


def _folders(files: Iterable[SourceFile | Entry]) -> set[str]:
    """Return the names of the directories of files: those of partitions."""
    return {os.path.dirname(file.name) for file in files} - {""}


def _free_bytes(directory: Directory) -> int:
    file_system = os.statvfs(directory.fd)
    return file_system.f_bavail * file_system.f_frsize


def _force(entries: Sequence[Entry], directory: Directory) -> None:
    """Force a copy to disk.

    :raises OSError: when the disk fails
    """
    if len(entries) > SYNC_FILES_ABOVE:
        sync_filesystem(directory.fd)
        return
    for entry in entries:
        directory.fsync(entry.name)
    for name in _folders(entries):
        directory.fsync(name)
    with contextlib.suppress(FileNotFoundError):  # a restore has none
        directory.fsync(manifest.MANIFEST_FILE)


def _verify(entries: Sequence[Entry], directory: Directory, stage: Stage) -> None:
    with stage("verifying", sum(entry.size_bytes for entry in entries)) as advance:
        for entry in entries:
            check_file(entry, directory, advance)


def _damaged(entries: Sequence[Entry], directory: Directory, stage: Stage) -> list[str]:
    """Verify the batches of all logs in a copy; return a line for each damage."""
    files = log_files(directory.path, sorted(filter(is_partition_name, _folders(entries))))
    problems: list[str] = []
    with stage("checking records", sum(file.size_bytes for file in files)) as advance:
        for file in files:
            problems += map(str, verify_file(file, is_live=False, verified=Verified()))
            advance(file.size_bytes)
    return problems


def _check_catalog(directory: Directory) -> tuple[str, int]:
    """Check a copied catalog, without creating files beside it. Return its cluster id and its
    number of topics.

    :raises BackupError: when it is damaged or of another version
    """
    directory.check_name()
    try:
        uri = f"file:{quote(f'{directory.path}/{CATALOG_FILE}')}?immutable=1"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as catalog:
            (problem,) = catalog.execute("PRAGMA quick_check(1)").fetchone()
            if problem != "ok":
                raise BackupError(f"{CATALOG_FILE} is damaged: {problem}")
            (version,) = catalog.execute("PRAGMA user_version").fetchone()
            if version != FORMAT_VERSION:
                raise BackupError(str(OtherVersion(CATALOG_FILE, version)))
            (value,) = catalog.execute(
                "SELECT value FROM entries WHERE kind = 'cluster' AND key = 'id'"
            ).fetchone()
            cluster_id = json.loads(value)
            if not isinstance(cluster_id, str):
                raise TypeError("the cluster has no id")
            (topics,) = catalog.execute(
                "SELECT count(*) FROM entries WHERE kind = 'topic'"
            ).fetchone()
    except (sqlite3.Error, TypeError, ValueError, RecursionError) as error:
        raise BackupError(f"{CATALOG_FILE} is damaged: {printable(str(error))}") from error
    return cluster_id, topics


def _report(
    copied_from: str,
    copied_to: str,
    catalog: tuple[str, int],
    entries: Sequence[Entry],
    started: float,
) -> Report:
    return Report(
        copied_from,
        copied_to,
        False,
        *catalog,
        len(_folders(entries)),
        len(entries),
        sum(entry.size_bytes for entry in entries),
        round(time.monotonic() - started, 3),
    )
