"""Answers of one connection that the socket has not taken."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from headrace.protocol.file_range import FileRange, Piece

MOST_VIEWS = 64
"""Pieces of one system call; the kernel takes up to 1024."""


class FileReadError(Exception):
    """Records of an answer cannot be read any more, so that the answer cannot be sent."""


class Unsent:
    """Pieces of answers, in order.

    :ivar held_bytes: the memory that they take. File ranges take none: they are read when the
        socket takes them
    """

    __slots__ = ("_pieces", "_start", "held_bytes")

    def __init__(self) -> None:
        self._pieces: list[Piece] = []  # an empty deque takes ten times as much
        self._start = 0  # of what is unsent in the first one
        self.held_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, pieces: list[Piece]) -> None:
        """Add pieces."""
        for piece in pieces:
            if len(piece):
                self._pieces.append(piece)
                if not isinstance(piece, FileRange):
                    self.held_bytes += len(piece)

    def clear(self) -> None:
        """Forget everything."""
        self._pieces.clear()
        self._start = self.held_bytes = 0

    def write_to(self, fd: int, room: memoryview) -> bool:
        """Write what fits into one system call; return whether the socket took all of that.

        :param room: memory to read file ranges into
        :raises FileReadError: when a file cannot be read
        :raises OSError: when the socket is broken
        """
        views = self._next_views(room)
        try:
            written = os.writev(fd, views)
        except BlockingIOError:
            written = 0
        self._advance(written)
        return written == sum(map(len, views))

    def send_to(
        self, send: Callable[[Sequence[bytes | memoryview]], int], room: memoryview
    ) -> None:
        """Send what a transport takes now.

        :param send: sends bytes and returns how many the transport has taken
        :param room: memory to read file ranges into
        :raises FileReadError: when a file cannot be read
        """
        self._advance(send(self._next_views(room)))

    def take(self, size_bytes: int) -> bytes:
        """Remove the next bytes, at most ``size_bytes``, and return them.

        :raises FileReadError: when a file cannot be read
        """
        data = bytes(self._next_views(memoryview(bytearray(size_bytes)))[0][:size_bytes])
        self._advance(len(data))
        return data

    def forget_data(self) -> None:
        """Read the data of file ranges again when the socket takes it, instead of holding it."""
        for piece in self._pieces:
            if isinstance(piece, FileRange):
                piece.data = None

    def _next_views(self, room: memoryview) -> list[bytes | memoryview]:
        views: list[bytes | memoryview] = []
        start = self._start
        for piece in self._pieces:
            if not isinstance(piece, FileRange):
                views.append(memoryview(piece)[start:] if start else piece)
            elif piece.data is not None:
                views.append(memoryview(piece.data)[start:])
            else:
                try:
                    size_bytes = piece.read_into(room, start)
                except OSError as error:
                    raise FileReadError(str(error)) from error
                views.append(room[:size_bytes])
                room = room[size_bytes:]
            start = 0
            if len(views) == MOST_VIEWS or not room:
                break
        return views

    def _advance(self, size_bytes: int) -> None:
        self._start += size_bytes
        sent = 0
        for piece in self._pieces:
            if self._start < len(piece):
                break
            self._start -= len(piece)
            sent += 1
            if not isinstance(piece, FileRange):
                self.held_bytes -= len(piece)
        del self._pieces[:sent]  # once for all: it moves the others
