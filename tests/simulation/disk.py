"""The disk: the files as the broker sees them, what a power cut leaves of them, and faults.

The files are real ones, in memory if possible: they are what the page cache has, and what a killed
process leaves. Beside them the disk keeps what is *durable*:

    * Data of a file is durable after an fsync of the file. A power cut keeps the first of the later
      writes, and perhaps a part of one more, or zeros in its place.
    * Names (created, renamed, linked and deleted files and directories) are durable after an fsync
      of a directory, in the order of the changes, as on a journaling file system. A power cut keeps
      the first of the later changes. Data and names are independent: a renamed file may be empty.
    * After a failed fsync its data stays readable, and a part of it is durable. Where a file had
      grown, the rest never gets durable, even if it is written again: after a power cut there are
      zeros, as on ext4. Elsewhere writing it again makes it durable.
    * A slow disk lets virtual time pass in reads and fsyncs. In a thread of the broker the work
      takes so long, and its end comes so much later.
    * A flipped bit is in a copy of the files, see :meth:`Disk.copy`.

SQLite is real: it calls the operating system itself, and Python's module has no way to give it
other files. So its files are changed as a crash may have left them:

    * A commit is one change. Before it nothing of it is in the files. A torn one leaves a part of
      the write-ahead log: the first of it after a kill, any sectors of it after a power cut.
    * Checkpoints are frequent. A torn one, after a commit or when the database is closed, leaves
      some pages of the database as they were, next to the whole log.
    * A commit is durable with ``synchronous=FULL``.
    * A commit whose fsync fails has left nothing. In truth it may be there after a crash. Later
      commits to the same files are lost in a power cut, see ``_File.unwritten``.
    * Names of the catalog's files change in order with the other names.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
import random
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from headrace.log import data_directory, segment

READ, WRITE, SYNC, NAME = "read", "write", "sync", "name"
"""Kinds of calls that a disk may fail."""

BEFORE, TORN, AFTER = "before", "torn", "after"
"""The part of the last change that happens before the power goes off."""

DATABASE = "headrace.db"
FIRST_HANDLE = 1 << 20
"""The first handle of a disk; each disk has as many."""
CHECKPOINT_PAGES = (1, 4, 1000)
"""Pages in the write-ahead log after which a database is checkpointed, in turn."""
SECTOR_BYTES = 512
PAGE_BYTES = 4096
LOG_HEADER_BYTES = 32
"""The header of SQLite's write-ahead log."""
DURABLE_SYNCHRONOUS = 2
"""``PRAGMA synchronous`` from which on a commit is durable."""


class PowerCut(BaseException):
    """The power is off: this broker does nothing more."""


class Power:
    """A power switch that counts the changes of the disk, and goes off at the chosen one.

    :ivar is_off: whether the broker is dead; nothing that it does counts then
    """

    def __init__(self) -> None:
        self.is_off = False
        self._changes = 0
        self._cut_at = -1
        self._how = AFTER

    @property
    def is_failing(self) -> bool:
        """True while a change is chosen."""
        return self._cut_at > self._changes

    def cut_at(self, changes_from_now: int, how: str) -> None:
        """Go off at the change with this number from now."""
        self._cut_at, self._how = self._changes + changes_from_now, how

    def restore(self) -> None:
        """Switch the power on."""
        self.is_off, self._cut_at = False, -1

    def change(self) -> str | None:
        """Return how much happens of the change that is due, or None if the power stays on.

        :raises PowerCut: if the power is off already
        """
        if self.is_off:
            raise PowerCut
        self._changes += 1
        self.is_off = self._changes == self._cut_at
        return self._how if self.is_off else None


@dataclass(slots=True, eq=False)
class _File:
    """A file: what is durable of it, and the changes since.

    :ivar pending: (position, data) of writes and (size, None) of truncations
    :ivar unwritten: the parts that a failed fsync has allocated and not written: zeros for ever
    """

    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    unwritten: list[range] = field(default_factory=list)

    def sync(self) -> None:
        for position, data in self.pending:
            self._change(self.durable, position, data)
        self.pending.clear()

    def _change(self, content: bytearray, position: int, data: bytes | None) -> None:
        """Carry out a change, but for the unwritten parts."""
        _change(content, position, data)
        if data is None:
            self.unwritten = [
                range(part.start, min(part.stop, position))
                for part in self.unwritten
                if part.start < position
            ]
        for part in self.unwritten:
            end = min(part.stop, len(content))
            if part.start < end:
                content[part.start : end] = bytes(end - part.start)

    def fail_sync(self, rng: random.Random) -> None:
        """Make some changes durable. No later sync does it for the others: the kernel takes them
        for written, and ext4 takes their new blocks for unwritten.
        """
        for position, data in self.pending:
            if data is None or rng.random() < 0.5:
                self._change(self.durable, position, data)
            elif position + len(data) > len(self.durable):
                self.unwritten.append(range(len(self.durable), position + len(data)))
        self.pending.clear()

    def after_power_cut(self, rng: random.Random, *, zeros: bool) -> bytes:
        """Return what a power cut leaves: the first changes since the last sync, the last of them
        perhaps torn, or zeros in its place.
        """
        kept = rng.randint(0, len(self.pending))
        content = bytearray(self.durable)
        for position, data in self.pending[:kept]:
            self._change(content, position, data)
        if kept < len(self.pending):
            position, data = self.pending[kept]
            if data is not None:
                part = data[: rng.randint(0, len(data))]
                in_place = max(len(content) - position, 0)  # zeros are only where nothing was
                torn = part[:in_place] + bytes(len(part[in_place:])) if zeros else part
                self._change(content, position, torn)
        return bytes(content)


def _change(content: bytearray, position: int, data: bytes | None) -> None:
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


_Names = dict[str, _File | None]
"""Files by path; None for a directory."""
_Contents = dict[str, bytes | None]
"""The contents of files by path; None for a missing file."""
_NameChange = tuple[str, str, "_File | _Contents | None"]
"""``("put", path, file)``, ``("drop", path, None)``, ``("move", "old\\0new", None)``, or, for any
change of the catalog's names, ``("catalog", "", the catalog's files before)``.
"""


def _apply(names: _Names, change: _NameChange) -> None:
    what, path, file = change
    if what == "catalog":
        return
    if what == "put":
        assert not isinstance(file, dict)
        names[path] = file
    elif what == "drop":
        names.pop(path, None)
    else:
        old, new = path.split("\0")
        moved = [name for name in names if name == old or name.startswith(f"{old}/")]
        for name in moved:
            names[new + name.removeprefix(old)] = names.pop(name)


class _Handle(NamedTuple):
    """An open file or directory. The broker knows it by a number that is never used again."""

    path: str
    file: _File | None
    fd: int


@dataclass(slots=True)
class Fault:
    """A fault that the disk has for some calls.

    :ivar kinds: the kinds of calls that fail
    :ivar calls: how many calls of these kinds fail
    :ivar skip: how many succeed before
    :ivar within: the fault is only in paths that contain this
    """

    kinds: frozenset[str]
    error: int
    calls: int
    skip: int = 0
    within: str = ""

    def hits(self, kind: str, path: str) -> bool:
        if kind not in self.kinds or not self.calls or self.within not in path:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.calls -= 1
        return True


@dataclass(slots=True)
class Slowness:
    """The time that a slow disk takes.

    :ivar share: the share of calls that take long
    :ivar longest_ms: the most time of one of them
    :ivar within: only calls of paths that contain this
    """

    share: float
    longest_ms: int
    within: str = ""


class Disk:
    """The disk below one directory.

    :param number: tells disks that are used at the same time apart
    :ivar fault: the present fault
    :ivar slowness: the present slowness
    :ivar on_slow: is called with the ms that a call takes
    :ivar free_bytes: how much can still be written; None for plenty
    :ivar was_sick: whether a call failed since the last :meth:`heal`
    :ivar unwritten: the catalog's files that a power cut leaves, whatever is committed to them,
        after a commit whose fsync failed
    """

    def __init__(self, root: Path, power: Power, rng: random.Random, number: int = 0) -> None:
        self.root, self.power, self.rng = os.path.abspath(root), power, rng
        self.fault: Fault | None = None
        self.slowness: Slowness | None = None
        self.on_slow: Callable[[int], object] = lambda ms: None
        self.free_bytes: int | None = None
        self.was_sick = False
        self.unwritten: _Contents = {}
        self.counts: dict[str, int] = {}
        self._prefix = f"{self.root}/"
        self._names: _Names = {self.root: None}
        self._durable_names: _Names = {self.root: None}
        self._journal: list[_NameChange] = []
        self._open: dict[int, _Handle] = {}
        self._first_handle = FIRST_HANDLE * (number + 1)
        self._handles = count(self._first_handle)
        self._databases: list[_Database] = []
        self._connections = count()
        self._log: dict[str, bytes] = {}
        self._real: dict[str, Callable[..., Any]] = {}

    # Faults

    def heal(self) -> None:
        """End all faults."""
        self.fault, self.free_bytes, self.was_sick = None, None, False
        self.slowness = None

    def _check(self, kind: str, path: str) -> None:
        """Fail the call if there is a fault for it."""
        fault = self.fault
        if fault is not None and fault.hits(kind, path):
            self._fail(fault.error, path, kind)
        if self.free_bytes is not None and self.free_bytes <= 0 and kind == NAME:
            self._fail(errno.ENOSPC, path, kind)
        slow = self.slowness
        if slow is None or kind not in (READ, SYNC) or slow.within not in path:
            return
        if self.rng.random() < slow.share:
            self.counts[f"slow {kind}"] = self.counts.get(f"slow {kind}", 0) + 1
            self.on_slow(self.rng.randint(1, slow.longest_ms))

    def _fail(self, error: int, path: str, kind: str) -> None:
        self.was_sick = True
        what = f"{errno.errorcode[error]} of {kind}"
        self.counts[what] = self.counts.get(what, 0) + 1
        raise OSError(error, os.strerror(error), path)

    # Crashes

    def kill(self, *, loses_power: bool = False) -> None:
        """Close what a killed process leaves open; everything written stays.

        :param loses_power: leave only what a power cut leaves
        """
        for handle in self._open.values():
            self._real["close"](handle.fd)
        self._open.clear()
        for database in self._databases:
            database.kill(loses_power=loses_power)
        self._databases.clear()
        if loses_power:
            self._lose_power()

    def _lose_power(self) -> None:
        rng = self.rng
        names = self._durable_names
        kept = rng.randint(0, len(self._journal))
        for change in self._journal[:kept]:
            _apply(names, change)
        lost = (files for _, _, files in self._journal[kept:] if isinstance(files, dict))
        catalog = next(lost, None) or self.catalog_files()
        contents: dict[int, bytes] = {}
        for path, file in names.items():
            if file is not None and id(file) not in contents:
                zeros = path.endswith(".log") and rng.random() < 0.2
                contents[id(file)] = file.after_power_cut(rng, zeros=zeros)
        for entry in list(os.scandir(self.root)):
            if entry.is_dir():
                self._remove_tree(entry.path)
            else:
                self._real["unlink"](entry.path)
        known = [
            (path, file) for path, file in sorted(names.items()) if self._is_whole(names, path)
        ]
        for path, file in known:
            if file is None:
                if path != self.root:
                    self._real["mkdir"](path)
                continue
            file.durable, file.pending = bytearray(contents[id(file)]), []
            file.unwritten = []
            with io.FileIO(path, "w") as raw:
                raw.write(file.durable)
        for path, content in catalog.items():
            if content is not None:
                with io.FileIO(path, "w") as raw:
                    raw.write(content)
        self._names, self._durable_names = dict(known), dict(known)
        self._journal.clear()
        self.unwritten.clear()

    def catalog_files(self) -> _Contents:
        """Return the catalog's files that a power cut leaves now."""
        found: _Contents = {}
        for entry in os.scandir(self.root):
            if entry.name.startswith(DATABASE) and not entry.name.endswith("-shm"):
                with io.FileIO(entry.path) as raw:
                    found[entry.path] = raw.readall()
        return found | self.unwritten

    def _catalog_change(self) -> _NameChange:
        """Return a change of the names of the catalog's files, for the journal."""
        return "catalog", "", self.catalog_files()

    def _is_whole(self, names: _Names, path: str) -> bool:
        """Return whether the directories above a path are there."""
        while path != self.root:
            path = os.path.dirname(path)
            if path not in names:
                return False
        return True

    def _remove_tree(self, path: str) -> None:
        for entry in list(os.scandir(path)):
            if entry.is_dir(follow_symlinks=False):
                self._remove_tree(entry.path)
            else:
                self._real["unlink"](entry.path)
        self._real["rmdir"](path)

    def stamp(self, time_s: float) -> None:
        """Set the modification times of all files, which would be by the real clock."""
        for path, file in self._names.items():
            if file is not None:
                os.utime(path, (time_s, time_s))

    def copy(self, root: str) -> Disk:
        """Return a disk with a copy of the files, without faults, to be used while the broker is
        down.
        """
        faults, (self.fault, self.slowness) = (self.fault, self.slowness), (None, None)
        try:
            shutil.copytree(self.root, root)
        finally:
            self.fault, self.slowness = faults
        disk = Disk(Path(root), Power(), self.rng, number=1)
        for parent, directories, files in os.walk(root):
            disk._names.update({f"{parent}/{name}": None for name in directories})
            disk._names.update({f"{parent}/{name}": _File() for name in files})
        disk._durable_names = dict(disk._names)
        return disk

    # Calls of the broker

    def _is_mine(self, path: Any) -> bool:
        if not isinstance(path, str | os.PathLike):
            return False
        return os.fspath(path).startswith(self._prefix)

    def _is_catalog(self, path: Any) -> bool:
        """Return whether a path is one of the catalog's files, which SQLite writes itself."""
        return self._is_mine(path) and os.fspath(path).startswith(self._prefix + DATABASE)

    def _named(self, change: _NameChange, act: Callable[[], Any], path: str) -> Any:
        """Carry out a change of names, unless the power goes off before it."""
        how = self.power.change()
        if how == BEFORE:
            raise PowerCut
        self._check(NAME, path)
        result = act()
        _apply(self._names, change)
        self._journal.append(change)
        if how:
            raise PowerCut
        return result

    def _os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
        real = self._real["open"]
        if not self._is_mine(path) and path != self.root:
            return int(real(path, flags, mode, dir_fd=dir_fd))
        path = os.fspath(path)
        if flags & os.O_CREAT and path not in self._names:
            file: _File | None = _File()
            fd = self._named(("put", path, file), lambda: real(path, flags, mode), path)
        else:
            if not flags & (os.O_WRONLY | os.O_RDWR):
                self._check(READ, path)
            fd = real(path, flags & ~os.O_TRUNC, mode)
            file = self._names.get(path)
            is_known = file is not None or self._is_catalog(path)
            if not is_known and not stat.S_ISDIR(os.fstat(fd).st_mode):
                raise AssertionError(f"a file that the disk does not know: {path}")
        number = next(self._handles)
        self._open[number] = _Handle(path, file, fd)
        if flags & os.O_TRUNC:
            self._os_ftruncate(number, 0)
        return number

    def _handle(self, number: int) -> _Handle | None:
        """Return what a number stands for; None for a file that is not on this disk."""
        if not self._first_handle <= number < self._first_handle + FIRST_HANDLE:
            return None
        if number not in self._open:
            raise PowerCut  # a crash has closed it
        return self._open[number]

    def _os_close(self, number: int) -> None:
        if not self._first_handle <= number < self._first_handle + FIRST_HANDLE:
            self._real["close"](number)
        elif number in self._open:
            self._real["close"](self._open.pop(number).fd)

    def _os_fstat(self, number: int) -> os.stat_result:
        handle = self._handle(number)
        result: os.stat_result = self._real["fstat"](handle.fd if handle else number)
        return result

    def _flock(self, number: Any, operation: int) -> None:
        handle = self._handle(number) if isinstance(number, int) else None
        self._real["flock"](handle.fd if handle else number, operation)

    def _os_pwritev(self, number: int, buffers: Any, position: int, flags: int = 0) -> int:
        handle = self._handle(number)
        if handle is None:
            return int(self._real["pwritev"](number, buffers, position, flags))
        return self._write(handle, b"".join(buffers), position)

    def _os_pwrite(self, number: int, data: Any, position: int) -> int:
        handle = self._handle(number)
        if handle is None:
            return int(self._real["pwrite"](number, data, position))
        return self._write(handle, bytes(data), position)

    def _os_write(self, number: int, data: Any) -> int:
        handle = self._handle(number)
        if handle is None:
            return int(self._real["write"](number, data))
        return self._write(handle, bytes(data), self._real["fstat"](handle.fd).st_size)

    def _write(self, handle: _Handle, data: bytes, position: int) -> int:
        path, file, fd = handle
        assert file is not None
        how = self.power.change()
        if how == BEFORE:
            raise PowerCut
        self._check(WRITE, path)
        if how == TORN:
            data = data[: len(data) // 2]
        if self.free_bytes is not None:
            if self.free_bytes <= 0 and data:
                self._fail(errno.ENOSPC, path, WRITE)
            data = data[: self.free_bytes]  # a short write, as of a disk that fills up
            self.free_bytes -= len(data)
        self._real["pwrite"](fd, data, position)
        file.pending.append((position, data))
        if how:
            raise PowerCut
        return len(data)

    def _os_ftruncate(self, number: int, size_bytes: int) -> None:
        handle = self._handle(number)
        if handle is None:
            self._real["ftruncate"](number, size_bytes)
            return
        path, file, fd = handle
        assert file is not None
        how = self.power.change()
        if how == BEFORE:
            raise PowerCut
        self._check(WRITE, path)
        self._real["ftruncate"](fd, size_bytes)
        file.pending.append((size_bytes, None))
        if how:
            raise PowerCut

    def _os_pread(self, number: int, size_bytes: int, position: int) -> bytes:
        handle = self._handle(number)
        if handle is not None:
            self._check(READ, handle.path)
        return bytes(self._real["pread"](handle.fd if handle else number, size_bytes, position))

    def _os_fsync(self, number: int) -> None:
        handle = self._handle(number)
        if handle is None:
            self._real["fsync"](number)
            return
        path, file, _ = handle
        how = self.power.change()
        if how in (BEFORE, TORN):
            raise PowerCut
        try:
            self._check(SYNC, path)
        except OSError:
            if file is not None:
                file.fail_sync(self.rng)
            raise
        if file is not None:
            file.sync()
        elif not self._is_catalog(path):
            self._sync_names()
        if how:
            raise PowerCut

    def _sync_names(self) -> None:
        for change in self._journal:
            _apply(self._durable_names, change)
        self._journal.clear()

    def sync_all(self, fd: int) -> None:
        """Force everything to disk (syncfs)."""
        if self.power.change():
            raise PowerCut
        self._check(SYNC, self.root)
        for file in {id(file): file for file in self._names.values() if file}.values():
            file.sync()
        self._sync_names()

    def _os_rename(self, old: Any, new: Any, **options: Any) -> None:
        real = self._real["rename"]
        if not self._is_mine(old):
            real(old, new, **options)
            return
        if self._is_catalog(old):
            self._named(self._catalog_change(), lambda: real(old, new), str(old))
            if str(new) in self.unwritten:
                self.unwritten.clear()
            return
        if str(old) not in self._names:
            real(old, new)  # which fails: there is no such file
        self._named(("move", f"{old}\0{new}", None), lambda: real(old, new), str(old))

    def _os_link(self, old: Any, new: Any, **options: Any) -> None:
        real = self._real["link"]
        if not self._is_mine(old):
            real(old, new, **options)
            return
        file = self._names.get(str(old))
        if file is None:
            real(old, new)  # which fails: there is no such file
        self._named(("put", str(new), file), lambda: real(old, new), str(new))

    def _os_unlink(self, path: Any, **options: Any) -> None:
        real = self._real["unlink"]
        if self._is_catalog(path) and os.path.exists(path):
            self._named(self._catalog_change(), lambda: real(path), str(path))
            return
        if not self._is_mine(path) or str(path) not in self._names:
            real(path, **options)
            return
        self._named(("drop", str(path), None), lambda: real(path), str(path))

    def _os_mkdir(self, path: Any, mode: int = 0o777, **options: Any) -> None:
        real = self._real["mkdir"]
        if not self._is_mine(path):
            real(path, mode, **options)
            return
        self._named(("put", str(path), None), lambda: real(path, mode), str(path))

    def _os_rmdir(self, path: Any, **options: Any) -> None:
        real = self._real["rmdir"]
        if not self._is_mine(path):
            real(path, **options)
            return
        self._named(("drop", str(path), None), lambda: real(path), str(path))

    def _rmtree(self, path: Any, ignore_errors: bool = False, **options: Any) -> None:
        if not self._is_mine(path):
            self._real["rmtree"](path, ignore_errors, **options)
            return
        try:
            for name in sorted(os.listdir(path)):
                below = f"{path}/{name}"
                if os.path.isdir(below):
                    self._rmtree(below, ignore_errors)
                else:
                    self._os_unlink(below)
            self._os_rmdir(path)
        except OSError:
            if not ignore_errors:
                raise

    def _file(self, path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        real = self._real["file"]
        if not self._is_mine(path):
            return real(path, mode, *rest, **options)
        if mode in ("r", "rb"):
            if os.path.exists(path):
                self._check(READ, os.fspath(path))
            return real(path, mode, *rest, **options)
        assert mode in ("w", "wb"), f"the disk does not know the mode {mode}"
        return _Writing(self, os.fspath(path), options.get("encoding"))

    def _connect(self, path: Any, *rest: Any, **options: Any) -> Any:
        if not self._is_mine(path):
            return self._real["connect"](path, *rest, **options)
        if self.power.is_off:
            raise PowerCut
        self._check(READ, os.fspath(path))
        database = self._real["connect"](path, *rest, **options, factory=_Database)
        pages = CHECKPOINT_PAGES[next(self._connections) % len(CHECKPOINT_PAGES)]
        database.execute(f"PRAGMA wal_autocheckpoint = {pages}")
        database.disk, database.path = self, os.fspath(path)
        self._databases.append(database)
        return database

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Route the calls of the broker through this disk."""
        calls = {
            name: getattr(self, f"_os_{name}")
            for name in (
                "open",
                "close",
                "pwritev",
                "pwrite",
                "write",
                "ftruncate",
                "pread",
                "fstat",
                "fsync",
                "rename",
                "link",
                "unlink",
                "mkdir",
                "rmdir",
            )
        }
        self._real = {name: getattr(os, name) for name in calls}
        self._real |= {
            "rmtree": shutil.rmtree,
            "file": builtins.open,
            "connect": sqlite3.connect,
            "flock": fcntl.flock,
        }
        patches = [mock.patch.object(os, name, call) for name, call in calls.items()]
        patches += [
            mock.patch.object(os, "replace", self._os_rename),
            mock.patch.object(os, "remove", self._os_unlink),
            mock.patch.object(os, "fdatasync", self._os_fsync),
            mock.patch.object(segment, "pwritev", self._os_pwritev),
            mock.patch.object(shutil, "rmtree", self._rmtree),
            mock.patch.object(builtins, "open", self._file),
            mock.patch.object(io, "open", self._file),
            mock.patch.object(sqlite3, "connect", self._connect),
            mock.patch.object(fcntl, "flock", self._flock),
            mock.patch.object(data_directory, "sync_filesystem", self.sync_all),
        ]
        with ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            yield


class _Writing:
    """A file opened for writing, with a buffer."""

    def __init__(self, disk: Disk, path: str, encoding: str | None) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._disk, self._encoding = disk, encoding
        self._fd = disk._os_open(path, flags, 0o644)
        self._buffer = bytearray()

    def write(self, data: Any) -> int:
        self._buffer += data.encode(self._encoding or "utf-8") if isinstance(data, str) else data
        return len(data)

    def fileno(self) -> int:
        return self._fd

    def flush(self) -> None:
        while self._buffer:
            del self._buffer[: self._disk._os_write(self._fd, self._buffer)]

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._disk._os_close(self._fd)

    def __enter__(self) -> _Writing:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Database(sqlite3.Connection):
    """A database whose commits are changes of the disk."""

    disk: Disk
    path: str
    _crashed: _Crash | None = None
    _durable: _Contents | None = None

    def execute(self, statement: str, *rest: Any) -> sqlite3.Cursor:
        disk = self.__dict__.get("disk")
        if disk is None:
            return super().execute(statement, *rest)
        if disk.power.is_off:
            raise PowerCut
        word = statement.split(None, 1)[0].upper()
        if statement == "PRAGMA wal_autocheckpoint = 0":
            statement = "PRAGMA wal_autocheckpoint"  # checkpoints are when the disk wants them
        if word not in ("BEGIN", "COMMIT"):
            return super().execute(statement, *rest)
        try:
            disk._check(WRITE if word == "COMMIT" else READ, self.path)
            if word == "COMMIT" and disk.free_bytes is not None and disk.free_bytes <= 0:
                disk._fail(errno.ENOSPC, self.path, WRITE)
        except OSError as error:
            full = error.errno == errno.ENOSPC
            failure = sqlite3.OperationalError(
                "database or disk is full" if full else "disk I/O error"
            )
            failure.sqlite_errorcode = sqlite3.SQLITE_FULL if full else sqlite3.SQLITE_IOERR
            if word == "COMMIT" and not full and not disk.unwritten:
                disk.unwritten = self._files()
            raise failure from error
        if word == "BEGIN":
            return super().execute(statement, *rest)
        return self._commit(disk, statement)

    def _commit(self, disk: Disk, statement: str) -> sqlite3.Cursor:
        how = disk.power.change()
        before = self._files()
        if how == BEFORE:
            self._crashed = _Crash(before, before)
            raise PowerCut
        synchronous = super().execute("PRAGMA synchronous").fetchone()[0]
        result = super().execute(statement)
        if synchronous < DURABLE_SYNCHRONOUS and self._durable is None:
            self._durable = before
        if how == TORN:
            self._crashed = _Crash(before, self._files())
        if how:
            raise PowerCut
        return result

    def backup(self, target: Any, **options: Any) -> None:
        disk = self.disk
        disk._check(READ, self.path)
        disk._check(WRITE, target.path)
        if disk.free_bytes is not None and disk.free_bytes <= 0:
            disk._fail(errno.ENOSPC, target.path, WRITE)
        super().backup(target, **options)

    def _files(self) -> _Contents:
        found: _Contents = {}
        for path in (self.path, f"{self.path}-wal"):
            try:
                with io.FileIO(path) as raw:
                    found[path] = raw.readall()
            except FileNotFoundError:
                found[path] = None
        return found

    def kill(self, *, loses_power: bool) -> None:
        """Leave the files as a crash leaves them: closing the database would tidy up."""
        if loses_power and self._durable is not None:
            files = self._durable
        elif self._crashed is not None:
            files = self._crashed.files(self.path, self.disk.rng, loses_power=loses_power)
        else:
            files = self._files()
        super().close()
        for path, content in files.items():
            if content is None:
                self._remove(path)
                continue
            with io.FileIO(path, "w") as raw:
                raw.write(content)
        self._remove(f"{self.path}-shm")

    def _remove(self, path: str) -> None:
        if os.path.exists(path):
            self.disk._real["unlink"](path)

    def close(self) -> None:
        """Close the database, which ends with a checkpoint and the removal of the log."""
        disk = self.disk
        if self not in disk._databases:
            super().close()
            return
        how = disk.power.change()
        before = self._files()
        if how == BEFORE:
            self._crashed = _Crash(before, before)
            raise PowerCut
        if how == TORN:
            super().execute("PRAGMA wal_checkpoint")
            self._crashed = _Crash(before, self._files())
            raise PowerCut
        disk._databases.remove(self)
        super().close()
        if not os.path.exists(f"{self.path}-wal"):
            disk.unwritten.clear()  # what failed was in the log
        if how:
            raise PowerCut


class _Crash(NamedTuple):
    """A crash of a database in a commit, or in a checkpoint."""

    before: _Contents
    after: _Contents

    def files(self, path: str, rng: random.Random, *, loses_power: bool) -> _Contents:
        """Return the files that it leaves.

        :param path: of the database
        """
        log = f"{path}-wal"
        old, new = self.before[path] or b"", self.after[path] or b""
        is_logged = self.before[log] == self.after[log]
        if new != old and (is_logged or rng.random() < 0.5):
            part = _part(old, new, PAGE_BYTES, rng, in_order=not loses_power)
            return {path: part, log: self.after[log]}
        if is_logged:
            return self.before
        content = self.after[log]
        assert content is not None
        part = _part(self.before[log] or b"", content, SECTOR_BYTES, rng, in_order=not loses_power)
        # SQLite forces a new header to disk before it overwrites pages of the old log.
        part = content[:LOG_HEADER_BYTES] + part[LOG_HEADER_BYTES:]
        return {path: self.before[path], log: part}


def _part(before: bytes, after: bytes, unit: int, rng: random.Random, *, in_order: bool) -> bytes:
    """Return a file of which a part has changed: any units, or the first bytes of all changes."""
    changed = [
        position
        for position in range(0, len(after), unit)
        if before[position : position + unit] != after[position : position + unit]
    ]
    if not changed:
        return before
    if in_order:
        stop = rng.randint(changed[0], min(len(after), changed[-1] + unit))
        return after[:stop] + before[stop:]
    content = bytearray(before)
    for position in changed:
        if rng.random() < 0.5:
            _change(content, position, after[position : position + unit])
    return bytes(content)
