"""The files of a data directory that belong to a backup."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from headrace.backup import control_socket
from headrace.log import checked_file, directory_format, directory_lock
from headrace.log.snapshot import SIZES_FILE, is_copied, is_snapshot_name, unused_log_files
from headrace.log_lines import printable
from headrace.topics import catalog_file
from headrace.topics.catalog import CATALOG_FILE

from .copy import SourceFile
from .directory import BackupError, text_of
from .manifest import SINGLE_FILES

_CONNECT_TIMEOUT_S = 10.0


class Source(NamedTuple):
    """The files of a data directory at one moment. The first ``size_bytes`` of each do not change.

    :ivar directory: the directory that has them
    :ivar is_running: True for a snapshot of a running broker
    :ivar offline: names of the logs that the broker has taken offline
    :ivar check: raises :class:`BackupError` when the files may be gone
    """

    directory: str
    files: list[SourceFile]
    is_running: bool
    offline: list[str]
    check: Callable[[], None]


@contextlib.contextmanager
def opened(data_dir: str) -> Iterator[Source]:
    """Yield the files of a data directory: of a snapshot if a broker runs in it; otherwise the
    directory is locked meanwhile.

    :param data_dir: an absolute path
    :raises BackupError: when there is no data directory, or it cannot be read
    :raises UnusableDirectory: when another version has written it, or it is an incomplete copy
    :raises DamagedFile: for a damaged file of a snapshot
    :raises OSError: when the disk fails
    """
    if not os.path.exists(f"{data_dir}/{CATALOG_FILE}"):
        raise BackupError(f"{data_dir} is not a data directory: it has no {CATALOG_FILE}")
    directory_format.check(data_dir)
    connection = _connect(data_dir)
    if connection is None:
        with _stopped(data_dir) as source:
            yield source
    else:
        with connection, _running(data_dir, connection) as source:
            yield source


def _connect(data_dir: str) -> socket.socket | None:
    """Connect to the broker that runs in a directory; None if none runs."""
    try:
        return control_socket.connect(data_dir, _CONNECT_TIMEOUT_S)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except OSError as error:
        raise BackupError(
            f"cannot connect to {data_dir}/{control_socket.SOCKET_FILE}: {text_of(error)}"
        ) from error


@contextlib.contextmanager
def _stopped(data_dir: str) -> Iterator[Source]:
    try:
        lock = directory_lock.take(data_dir, "headrace backup")
    except directory_lock.DirectoryInUse as error:
        raise BackupError(f"{error}, which does not answer on its control socket") from error
    try:
        _check_catalog(f"{data_dir}/{CATALOG_FILE}")
        yield Source(data_dir, _files(data_dir, {}), False, [], lambda: None)
    finally:
        os.close(lock)


def _check_catalog(path: str) -> None:
    """Check the catalog of a stopped broker. If SQLite's log has its last changes, which a backup
    does not copy, write them into a new file.
    """
    try:
        catalog_file.complete_replacement(path)
        is_logged = catalog_file.may_be_unwritten(path)
        with contextlib.closing(sqlite3.connect(path)) as catalog:
            (problem,) = catalog.execute("PRAGMA quick_check(1)").fetchone()
            if problem == "ok" and is_logged:
                catalog_file.replace(catalog, path)
    except (OSError, sqlite3.Error) as error:
        problem = printable(str(error))
    if problem != "ok":
        raise BackupError(f"{path} is damaged: {problem}")


@contextlib.contextmanager
def _running(data_dir: str, connection: socket.socket) -> Iterator[Source]:
    response = _request_snapshot(connection)
    directory = f"{data_dir}/{response['name']}"

    def check() -> None:
        with contextlib.suppress(BlockingIOError, TimeoutError):
            if not connection.recv(1, socket.MSG_DONTWAIT):
                raise BackupError("the broker has stopped during the backup")

    try:
        sizes = checked_file.read(f"{directory}/{SIZES_FILE}")
        if sizes is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        yield Source(directory, _files(directory, sizes), True, list(response["offline"]), check)
    except FileNotFoundError:
        check()
        raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)  # the broker would, but it may be gone


def _request_snapshot(connection: socket.socket) -> dict[str, Any]:
    connection.settimeout(None)
    try:
        connection.sendall(json.dumps({"request": control_socket.SNAPSHOT}).encode() + b"\n")
        with connection.makefile("rb") as lines:
            response = json.loads(lines.readline() or b"null")
    except (OSError, ValueError):
        response = None
    if response is None:
        raise BackupError("the broker has stopped during the backup")
    if "error" in response:
        raise BackupError(response["error"])
    if not is_snapshot_name(response["name"]):  # it is deleted in the end
        raise BackupError(f"the broker named an unknown snapshot: {response['name']!r}")
    return dict(response)


def _files(directory: str, sizes: dict[str, int]) -> list[SourceFile]:
    """Return the files of a directory, the catalog last: without it a copy is no data directory.

    :param sizes: file → how many bytes of it belong to the backup; the whole file if missing
    """
    with os.scandir(directory) as entries:
        logs = sorted(entry.name for entry in entries if is_copied(entry.name) and entry.is_dir())
    names = [f"{log}/{file}" for log in logs for file in unused_log_files(f"{directory}/{log}")]
    names += [name for name in SINGLE_FILES if os.path.exists(f"{directory}/{name}")]
    return [
        SourceFile(name, sizes[name] if name in sizes else os.path.getsize(f"{directory}/{name}"))
        for name in names
    ]
