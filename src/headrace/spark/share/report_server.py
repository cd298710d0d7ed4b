"""How outcomes reach the process that holds the share session.

Spark runs a stream's reader, a sink's commit and the user's own program in separate processes of
the driver's host. The reader listens on the loopback interface and leaves a note of its port, with
a random token, in the directory that Spark makes for the application, readable by its owner only,
and deletes with it. The others look there.

A request is a list of outcomes; the answer tells how many records each was applied to. When several
queries of one group run in the application, all are asked: a record is held by one of them at most.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import struct
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.spark.option_parsing import SourceError

from .options import OUTCOMES

_SIZE = struct.Struct(">I")
_MAX_REQUEST_SIZE_BYTES = 1 << 30
_TIMEOUT_S = 60.0

OutcomeSpan = tuple[str, int, str, int, int]
"""(topic, partition, outcome, first offset, last offset inclusive)."""

Apply = Callable[[Sequence[OutcomeSpan]], Awaitable[dict[str, int]]]
"""Applies outcomes, and tells how many records each outcome was applied to."""

CountHeld = Callable[[Sequence[OutcomeSpan]], int]
"""How many of these records are held now."""


@dataclass(frozen=True, slots=True)
class Note:
    """Where one reader listens."""

    bootstrap_servers: str
    group_id: str
    port: int
    token: str


def directory() -> Path:
    """Where the readers of this Spark application leave their notes; the same in every process of
    the driver.
    """
    from pyspark import SparkFiles

    try:
        root = Path(SparkFiles.getRootDirectory())
    except (AssertionError, AttributeError, TypeError):  # no Spark context here: Spark Connect
        root = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
    # Workers of a stream are given a folder inside the application's.
    root = next((parent for parent in root.parents if parent.name.startswith("userFiles-")), root)
    path = root / "headrace-share"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


class OutcomeServer:
    """The reader's side: takes outcomes for as long as the reader lives."""

    def __init__(self, apply: Apply, count_held: CountHeld) -> None:
        self._apply = apply
        self._count_held = count_held
        self._token = secrets.token_hex(16)
        self._server: asyncio.Server | None = None
        self._path: Path | None = None

    async def start(self, bootstrap_servers: str, group_id: str) -> None:
        """Listen, and leave the note."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self._path = _leave(Note(bootstrap_servers, group_id, port, self._token))

    def close(self) -> None:
        """Stop listening and take the note away."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            (size_bytes,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
            if size_bytes > _MAX_REQUEST_SIZE_BYTES:
                return
            request = json.loads(await reader.readexactly(size_bytes))
            if not secrets.compare_digest(str(request.get("token")), self._token):
                return
            try:
                if request["apply"]:
                    answer: dict[str, object] = {"counts": await self._apply(request["outcomes"])}
                else:
                    answer = {"counts": {"held": self._count_held(request["outcomes"])}}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            writer.write(_frame(answer))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            writer.close()


def _leave(note: Note) -> Path:
    path = directory() / f"{secrets.token_hex(8)}.json"
    draft = path.with_suffix(".new")
    with open(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(note), file)
    return draft.rename(path)


def notes(group_id: str | None = None, bootstrap_servers: str | None = None) -> dict[Path, Note]:
    """The notes of the readers in this application, of one group or all."""
    found = {}
    for path in directory().glob("*.json"):
        try:
            note = Note(**json.loads(path.read_text()))
        except FileNotFoundError:
            continue
        if group_id in (None, note.group_id) and bootstrap_servers in (
            None,
            note.bootstrap_servers,
        ):
            found[path] = note
    return found


def deliver(
    outcomes: Sequence[OutcomeSpan],
    group_id: str | None = None,
    bootstrap_servers: str | None = None,
) -> dict[str, int]:
    """Hand outcomes to the readers of a group, and wait until the broker has taken them.

    :param group_id: needed only when several groups hold the same offsets of the same topic
    :returns: per outcome the number of records that it was applied to; a record that no reader
        holds any more (its lock was lost, or it was acknowledged before) is not counted
    :raises SourceError: there is no such reader, or it is not clear which group is meant
    """
    readers = notes(group_id, bootstrap_servers)
    if len({(note.bootstrap_servers, note.group_id) for note in readers.values()}) > 1:
        # Of another group's query, or of one that has ended but not gone yet: whoever holds the
        # records is meant.
        readers = {
            path: note
            for path, note in readers.items()
            if (_ask(path, note, outcomes, False) or {}).get("held")
        }
        groups = sorted({note.group_id for note in readers.values()})
        if len(groups) > 1:
            names = ", ".join(groups)
            raise SourceError(
                f"queries of several share groups hold these records ({names}): pass group_id=…"
            )
    applied = dict.fromkeys(OUTCOMES, 0)
    reached = 0
    for path, note in readers.items():
        counts = _ask(path, note, outcomes, True)
        if counts is not None:
            reached += 1
            for outcome, count in counts.items():
                applied[outcome] += count
    if not reached:
        whose = f" of group '{group_id}'" if group_id else ""
        raise SourceError(
            f"no kafka-share query{whose} runs in this Spark application: nobody to acknowledge to"
        )
    return applied


def _ask(
    path: Path, note: Note, outcomes: Sequence[OutcomeSpan], apply: bool
) -> dict[str, int] | None:
    """The counts that one reader answers; None when it is gone."""
    try:
        connection = socket.create_connection(("127.0.0.1", note.port), timeout=_TIMEOUT_S)
    except ConnectionRefusedError:  # its process was killed and could not clear up
        path.unlink(missing_ok=True)
        return None
    with connection:
        connection.sendall(
            _frame({"token": note.token, "apply": apply, "outcomes": list(outcomes)})
        )
        stream = connection.makefile("rb")
        size = stream.read(_SIZE.size)
        body = stream.read(_SIZE.unpack(size)[0]) if len(size) == _SIZE.size else b""
    if not body:
        raise SourceError(f"the reader of group '{note.group_id}' ended before it answered")
    answer = json.loads(body)
    if "error" in answer:
        raise SourceError(
            f"the reader of group '{note.group_id}' could not acknowledge: {answer['error']}"
        )
    counts: dict[str, int] = answer["counts"]
    return counts


def _frame(value: object) -> bytes:
    body = json.dumps(value).encode()
    return _SIZE.pack(len(body)) + body
