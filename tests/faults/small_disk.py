"""Disks for tests: a small file system in memory, and a device that fails."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

KIB, MIB = 1 << 10, 1 << 20


def run(*command: object) -> str:
    """Run a command and return what it prints; skip the test when it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{command[0]} fails: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


class SmallDisk:
    """A file system in memory that can be filled; the test is skipped where none can be mounted."""

    def __init__(self, parent: Path, size_mib: int = 256) -> None:
        self.path = parent / "disk"
        self.size_mib = size_mib

    def __enter__(self) -> SmallDisk:
        self.path.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={self.size_mib}m", "tmpfs", self.path)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=False)

    @property
    def _ballast(self) -> Path:
        return self.path / "ballast"

    def fill(self) -> None:
        """Take all room that is left."""
        with self._ballast.open("ab", buffering=0) as file:
            size = MIB
            while size >= 1:
                try:
                    if file.write(bytes(size)) < size:
                        size //= 2
                except OSError:
                    size //= 2

    def make_room(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)


class FailingDevice:
    """A file system on a loop device whose writes begin to fail: its blocks are in a file system in
    memory that gets full. The test is skipped where neither can be mounted.
    """

    def __init__(self, parent: Path, size_mib: int = 64) -> None:
        self.path = parent / "device"
        self._store = SmallDisk(parent, size_mib * 2)
        self._size_mib = size_mib
        self._loop = ""

    def __enter__(self) -> FailingDevice:
        self._store.__enter__()
        try:
            blocks = self._store.path / "blocks"
            with blocks.open("wb") as file:
                file.truncate(self._size_mib * MIB)
            self.path.mkdir()
            self._loop = run("losetup", "--find", "--show", blocks)
            # A loop device takes a request that it has written half for a success: one page each.
            queue = Path("/sys/block") / Path(self._loop).name / "queue"
            (queue / "max_sectors_kb").write_text("4")
            # Without a journal an error on a block is an error of one file, as on most devices. All
            # bitmaps and inodes are written now, so that only blocks of files can fail.
            features, now = "^has_journal,^metadata_csum,^uninit_bg", "nodiscard,lazy_itable_init=0"
            run("mkfs.ext4", "-q", "-b", 4 * KIB, "-O", features, "-E", now, self._loop)
            self._mount()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=False, capture_output=True)
        if self._loop:
            subprocess.run(["losetup", "--detach", self._loop], check=False)
        self._store.__exit__()

    def _mount(self) -> None:
        run("mount", "-o", "errors=continue,nodiscard", self._loop, self.path)

    def forget_caches(self) -> None:
        """Mount the file system again: files have only what the device has. All of them must be
        closed.
        """
        run("umount", self.path)
        self._mount()

    def fail(self) -> None:
        """Fail writes of blocks that were never written."""
        self._store.fill()

    def work(self) -> None:
        """Work again."""
        self._store.make_room()
