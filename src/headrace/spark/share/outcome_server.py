"""Delivery of outcomes to the process that holds the share session.

Spark runs a stream's reader, a sink's commit and the user's program in separate processes on the
driver's host. The reader listens on the loopback interface. It registers its port and a random
token in a file of the directory that Spark creates for the application; only its owner can read the
file. The other processes look there.

A request is a list of outcomes; the answer tells how many records each outcome was applied to. When
several queries of a group run in the application, all are asked: at most one of them holds a
record.
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

from headrace.spark.errors import SourceError

from .outcome_spans import OUTCOMES, OutcomeSpan

_SIZE = struct.Struct(">I")
_MAX_REQUEST_SIZE_BYTES = 1 << 30
_TIMEOUT_S = 60.0
_LOOPBACK = "127.0.0.1"

Apply = Callable[[Sequence[OutcomeSpan]], Awaitable[dict[str, int]]]
"""A function that applies outcomes and returns the number of records by outcome."""

CountHeld = Callable[[Sequence[OutcomeSpan]], int]
"""A function that returns how many records of outcomes are held now."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A reader that takes outcomes.

    :param port: on the loopback interface
    :param token: a secret that requests must contain
    """

    bootstrap_servers: str
    group_id: str
    port: int
    token: str


def registry() -> Path:
    """Return the directory of the readers' registrations in this Spark application.

    It is the same in every process of the driver.
    """
    from pyspark import SparkFiles

    try:
        root = Path(SparkFiles.getRootDirectory())
    except (AssertionError, AttributeError, TypeError):  # no Spark context here: Spark Connect
        root = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
    # The workers of a stream get a folder inside the application's.
    root = next((parent for parent in root.parents if parent.name.startswith("userFiles-")), root)
    path = root / "headrace-share"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


class OutcomeServer:
    """The reader's end: takes outcomes while the reader lives."""

    def __init__(self, apply: Apply, count_held: CountHeld) -> None:
        self._apply = apply
        self._count_held = count_held
        self._token = secrets.token_hex(16)
        self._server: asyncio.Server | None = None
        self._path: Path | None = None

    async def start(self, bootstrap_servers: str, group_id: str) -> None:
        """Listen and register."""
        self._server = await asyncio.start_server(self._serve, _LOOPBACK, 0)
        port = self._server.sockets[0].getsockname()[1]
        self._path = _register(Registration(bootstrap_servers, group_id, port, self._token))

    def close(self) -> None:
        """Stop listening and remove the registration."""
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
            writer.write(_frame(await self._answer(request)))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass  # a stranger, or a process that was killed
        finally:
            writer.close()

    async def _answer(self, request: dict[str, object]) -> dict[str, object]:
        try:
            outcomes = [OutcomeSpan(*span) for span in request["outcomes"]]  # type: ignore[attr-defined]
            if request["apply"]:
                return {"counts": await self._apply(outcomes)}
            return {"counts": {"held": self._count_held(outcomes)}}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}


def _register(registration: Registration) -> Path:
    path = registry() / f"{secrets.token_hex(8)}.json"
    draft = path.with_suffix(".new")
    with open(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(registration), file)
    return draft.rename(path)


def _registered(group_id: str | None, bootstrap_servers: str | None) -> dict[Path, Registration]:
    """Return the registrations of this application's readers, of one group and cluster or all."""
    found = {}
    for path in registry().glob("*.json"):
        try:
            registration = Registration(**json.loads(path.read_text()))
        except FileNotFoundError:
            continue
        if group_id not in (None, registration.group_id):
            continue
        if bootstrap_servers not in (None, registration.bootstrap_servers):
            continue
        found[path] = registration
    return found


def deliver(
    outcomes: Sequence[OutcomeSpan],
    group_id: str | None = None,
    bootstrap_servers: str | None = None,
) -> dict[str, int]:
    """Send outcomes to the readers of a group, and wait until the broker has applied them.

    :param group_id: needed only when several groups hold the same offsets of the same topic
    :returns: the number of records by outcome; a record that no reader holds any more (its lock
        timed out, or it was acknowledged before) is not counted
    :raises SourceError: there is no such reader, or several groups hold the records
    """
    readers = _registered(group_id, bootstrap_servers)
    groups = {(reader.bootstrap_servers, reader.group_id) for reader in readers.values()}
    if len(groups) > 1:
        readers = _holders(readers, outcomes)
    applied = dict.fromkeys(OUTCOMES, 0)
    answered = 0
    for path, reader in readers.items():
        counts = _ask(path, reader, outcomes, apply=True)
        if counts is not None:
            answered += 1
            for outcome, count in counts.items():
                applied[outcome] += count
    if not answered:
        of_group = f" of group '{group_id}'" if group_id else ""
        raise SourceError(
            f"no kafka-share query{of_group} runs in this Spark application, "
            "so there is nothing to acknowledge"
        )
    return applied


def _holders(
    readers: dict[Path, Registration], outcomes: Sequence[OutcomeSpan]
) -> dict[Path, Registration]:
    """Return the readers that hold records of the outcomes.

    :raises SourceError: they are of several groups
    """
    holders = {}
    for path, reader in readers.items():
        counts = _ask(path, reader, outcomes, apply=False)
        if counts is not None and counts["held"]:
            holders[path] = reader
    groups = sorted({reader.group_id for reader in holders.values()})
    if len(groups) > 1:
        raise SourceError(
            f"queries of several share groups hold these records ({', '.join(groups)}): "
            "pass group_id=…"
        )
    return holders


def _ask(
    path: Path, reader: Registration, outcomes: Sequence[OutcomeSpan], *, apply: bool
) -> dict[str, int] | None:
    """Return the counts that one reader answers; None if its process no longer exists."""
    try:
        connection = socket.create_connection((_LOOPBACK, reader.port), timeout=_TIMEOUT_S)
    except ConnectionRefusedError:  # the process was killed before it could unregister
        path.unlink(missing_ok=True)
        return None
    with connection:
        request = {"token": reader.token, "apply": apply, "outcomes": list(outcomes)}
        connection.sendall(_frame(request))
        stream = connection.makefile("rb")
        size = stream.read(_SIZE.size)
        body = stream.read(_SIZE.unpack(size)[0]) if len(size) == _SIZE.size else b""
    if not body:
        raise SourceError(f"the reader of group '{reader.group_id}' ended before it answered")
    answer = json.loads(body)
    if "error" in answer:
        raise SourceError(
            f"the reader of group '{reader.group_id}' could not acknowledge: {answer['error']}"
        )
    counts: dict[str, int] = answer["counts"]
    return counts


def _frame(value: object) -> bytes:
    body = json.dumps(value).encode()
    return _SIZE.pack(len(body)) + body
