"""Replace several segments by one cleaned segment, so that a crash between any two steps loses
nothing.

The new segment is written in the directory ``cleaning`` beside the segments. When it is on disk, it
is renamed to ``<base>-<end>.log.swap``. With that the replacement is decided: a start that finds
the file deletes the segments from offset ``base`` up to ``end``, exclusive, and puts the new
segment in their place. A start that does not find it deletes the new segment. The aborted
transactions of the new segment are in ``<base>-<end>.txnindex.swap``, which counts only together
with the other file. Indexes and checksums may be lost: they are rebuilt.

A crash, or a power cut, finds the old segments, or the new one whole: the ``.swap`` file was forced
to disk before it got this name, and the name was forced to disk before the first old segment was
renamed. Only a temporary directory is not forced to disk, and no start ever finds it. If a
``.swap`` file was damaged since then, the start keeps it under another name and restores the old
segments: none of them is deleted before the new one has its final name.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Container
from typing import NamedTuple

from headrace.log import checksums, damage
from headrace.log.files import fsync_path, link_aside, opened, remove_file
from headrace.log.segment import DELETED, SUFFIXES
from headrace.log_lines import get_logger

logger = get_logger("headrace.log")

CLEANING = "cleaning"
"""Directory in which new segments are written."""
_LOG_SWAP, _TXNINDEX_SWAP = ".log.swap", ".txnindex.swap"
_SWAP_NAME = re.compile(r"([0-9]{20})-([0-9]{20})\.log\.swap")


class Swap(NamedTuple):
    """The replacement of the segments from ``base_offset`` up to ``end_offset``, exclusive.

    :ivar directory: path of the log
    """

    directory: str
    base_offset: int
    end_offset: int

    def _path(self, suffix: str) -> str:
        """Return the path of the new segment's ``.log.swap`` or ``.txnindex.swap``."""
        return f"{self.directory}/{self.base_offset:020d}-{self.end_offset:020d}{suffix}"

    def begin(self) -> None:
        """Decide that the segment in ``cleaning`` replaces the segments with these offsets. Force
        the directory to disk before the next step.

        :raises OSError: when the disk fails; then nothing is decided
        """
        cleaned = f"{self.directory}/{CLEANING}/{self.base_offset:020d}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{cleaned}.txnindex", self._path(_TXNINDEX_SWAP))
        os.rename(f"{cleaned}.log", self._path(_LOG_SWAP))

    def cancel(self) -> None:
        """Undo :meth:`begin`."""
        for suffix in (_LOG_SWAP, _TXNINDEX_SWAP):
            remove_file(self._path(suffix))

    def finish(self) -> None:
        """Put the new segment in place. The old files are only renamed, which is quick;
        :func:`discard_old` deletes them.

        :raises OSError: when the disk fails; then the next start finishes it
        """
        for name in self._replaced(SUFFIXES):
            os.rename(f"{self.directory}/{name}", f"{self.directory}/{name}{DELETED}")
        name = f"{self.base_offset:020d}"
        final = f"{self.directory}/{name}"
        for suffix in (".index", ".timeindex", checksums.SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{self.directory}/{CLEANING}/{name}{suffix}", final + suffix)
        with contextlib.suppress(FileNotFoundError):
            os.link(self._path(_TXNINDEX_SWAP), f"{final}.txnindex")
        os.rename(self._path(_LOG_SWAP), f"{final}.log")
        remove_file(self._path(_TXNINDEX_SWAP))

    def _replaced(self, suffixes: Container[str]) -> list[str]:
        """Return the names of the files of the old segments with these suffixes."""
        names = []
        for name in os.listdir(self.directory):
            stem, dot, suffix = name.partition(".")
            if (
                dot + suffix in suffixes
                and stem.isdigit()
                and self.base_offset <= int(stem) < self.end_offset
            ):
                names.append(name)
        return names

    def recover(self) -> None:
        """Finish the replacement at a start; undo it if its new segment is damaged.

        :raises OSError: when the disk fails
        """
        path = self._path(_LOG_SWAP)
        with opened(path) as fd:
            size_bytes = os.fstat(fd).st_size
            problem = next(
                damage.find(fd, path, self.base_offset, size_bytes, self.end_offset, gaps=True),
                None,
            )
        if isinstance(problem, damage.Unreadable):
            raise problem.error
        if problem is None:
            self.finish()
        else:
            self._restore(problem)

    def _restore(self, problem: damage.Damage) -> None:
        """Undo the replacement because of damage in its new segment, which is kept under another
        name. A crash between any two steps loses nothing: the ``.swap`` file goes last.
        """
        swap = self._path(_LOG_SWAP)
        first = f"{self.directory}/{self.base_offset:020d}"
        aside = link_aside(swap, f"{first}.log")
        fsync_path(self.directory)
        logger.error(
            "Set aside %s: %s. The segments that it would have replaced are used again; delete it",
            aside,
            problem,
        )
        if os.path.exists(f"{first}.log{DELETED}"):
            for suffix in SUFFIXES:  # of either segment
                remove_file(first + suffix)
        for name in self._replaced((f".log{DELETED}",)):
            renamed = name.removesuffix(DELETED)
            os.rename(f"{self.directory}/{name}", f"{self.directory}/{renamed}")
        os.unlink(swap)


def discard_old(directory: str) -> None:
    """Delete the files that were replaced. This may take long."""
    for name in os.listdir(directory):
        if name.endswith(DELETED):
            remove_file(f"{directory}/{name}")


def recover(directory: str) -> None:
    """Finish a replacement that was decided before the broker stopped, and discard one that was
    not, or whose new segment is damaged.

    :raises OSError: when the disk fails
    """
    names = os.listdir(directory)
    for name in names:
        match = _SWAP_NAME.fullmatch(name)
        if match is not None:
            if os.path.isdir(f"{directory}/{CLEANING}"):
                shutil.rmtree(f"{directory}/{CLEANING}")  # an index there may be of a later round
            Swap(directory, *map(int, match.groups())).recover()
    for name in names:
        if name.endswith(_TXNINDEX_SWAP):
            remove_file(f"{directory}/{name}")
    if CLEANING in names:
        shutil.rmtree(f"{directory}/{CLEANING}", ignore_errors=True)
    if any(name.endswith(DELETED) for name in names):
        discard_old(directory)
