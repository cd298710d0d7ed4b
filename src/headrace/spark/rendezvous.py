"""How outcomes reach the process that holds the share session.

Spark runs a stream's reader, a sink's commit and the user's own program in separate processes of the driver's host. The
reader listens on the loopback interface and leaves a note of its port, with a random token, in the directory that Spark
makes for the application, readable by its owner only, and deletes with it. The others look there.

A request is a list of outcomes; the answer tells how many records each was applied to. When several queries of one
group run in the application, all are asked: a record is held by one of them at most.
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

from .options import ShareSourceError

_SIZE = struct.Struct(">I")
_MAX_REQUEST_SIZE_BYTES = 1 << 30
_TIMEOUT_S = 60.0

OutcomeSpan = tuple[str, int, str, int, int]
"""(topic, partition, outcome, first offset, last offset inclusive)."""

Apply = Callable[[Sequence[OutcomeSpan]], Awaitable[dict[str, int]]]
"""Applies outcomes, and tells how many records each outcome was applied to."""


@dataclass(frozen=True, slots=True)
class Note:
    """Where one reader listens."""

    bootstrap_servers: str
    group_id: str
    port: int
    token: str


def directory() -> Path:
    """Where the readers of this Spark application leave their notes; the same in every process of the driver."""
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

    def __init__(self, apply: Apply) -> None:
        self._apply = apply
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
                answer: dict[str, object] = {"applied": await self._apply(request["outcomes"])}
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
        if group_id in (None, note.group_id) and bootstrap_servers in (None, note.bootstrap_servers):
            found[path] = note
    return found


def deliver(
    outcomes: Sequence[OutcomeSpan], group_id: str | None = None, bootstrap_servers: str | None = None
) -> dict[str, int]:
    """Hand outcomes to the readers of a group, and wait until the broker has taken them.

    :param group_id: None is enough as long as all readers of the application are in one group
    :returns: per outcome the number of records that it was applied to; a record that no reader holds any more (its lock
        was lost, or it was acknowledged before) is not counted
    :raises ShareSourceError: there is no such reader, or it is not clear which group is meant
    """
    readers = notes(group_id, bootstrap_servers)
    groups = {(note.bootstrap_servers, note.group_id) for note in readers.values()}
    if len(groups) > 1:
        names = ", ".join(sorted(group for _, group in groups))
        raise ShareSourceError(f"queries of several share groups run here ({names}): say which one, with group_id=…")
    applied: dict[str, int] = {}
    reached = 0
    for path, note in readers.items():
        try:
            answer = _ask(note, outcomes)
        except ConnectionRefusedError:  # its process was killed and could not clear up
            path.unlink(missing_ok=True)
            continue
        reached += 1
        for outcome, count in answer.items():
            applied[outcome] = applied.get(outcome, 0) + count
    if not reached:
        whose = f" of group '{group_id}'" if group_id else ""
        raise ShareSourceError(f"no kafka-share query{whose} runs in this Spark application: nobody to acknowledge to")
    return applied


def _ask(note: Note, outcomes: Sequence[OutcomeSpan]) -> dict[str, int]:
    with socket.create_connection(("127.0.0.1", note.port), timeout=_TIMEOUT_S) as connection:
        connection.sendall(_frame({"token": note.token, "outcomes": list(outcomes)}))
        stream = connection.makefile("rb")
        size = stream.read(_SIZE.size)
        body = stream.read(_SIZE.unpack(size)[0]) if len(size) == _SIZE.size else b""
    if not body:
        raise ShareSourceError(f"the reader of group '{note.group_id}' ended before it answered")
    answer = json.loads(body)
    if "error" in answer:
        raise ShareSourceError(f"the reader of group '{note.group_id}' could not acknowledge: {answer['error']}")
    applied: dict[str, int] = answer["applied"]
    return applied


def _frame(value: object) -> bytes:
    body = json.dumps(value).encode()
    return _SIZE.pack(len(body)) + body
