"""Delivery of outcomes to the process that holds the share session.

Spark runs a stream's reader, a sink's commit and the user's program in separate processes. The
reader listens, and asks for a random token. There are two ways to its address and its token:

* The reader listens on the loopback interface, and registers both in a file of the directory that
  Spark creates for the application on the driver's host; only its owner can read the file.
* With the option ``includeReceipt``, both travel with each row, as a :class:`~.receipt.Receipt`.
  The reader listens on the address from which it reaches the brokers. There is no file.

A request is the token, and a list of outcomes; the answer tells how many records each outcome was
applied to. When several queries of a group run in the application, all registered ones are asked:
at most one of them holds a record. ``docs/decisions/0018-receipts.md`` says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.spark.errors import SourceError

from .outcome_spans import OUTCOMES, OutcomeSpan
from .receipt import Receipt

_SIZE = struct.Struct(">I")
_TOKEN_BYTES = 16
_TOKEN_LENGTH = 2 * _TOKEN_BYTES
_MAX_REQUEST_SIZE_BYTES = 1 << 30
"""Largest request of a process that has the token. Others are not listened to beyond it."""
_MAX_STRANGERS = 64
"""Number of connections that may be open without having sent the token. Others are closed."""
_STRANGER_TIMEOUT_S = 10.0
"""Time in which a connection must send the token."""
_TIMEOUT_S = 60.0
_LOOPBACK = "127.0.0.1"
_DIRECTORY = "headrace-share"

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


def registry() -> Path | None:
    """Return the directory of the readers' registrations in this Spark application.

    It is the same in every process of the driver; None if there is none on this host.
    """
    from pyspark import SparkFiles

    try:
        root = Path(SparkFiles.getRootDirectory())
    except (AssertionError, AttributeError, TypeError):  # no Spark context here: Spark Connect
        return _linked_registry()
    # The workers of a stream get a folder inside the application's.
    root = next((parent for parent in root.parents if parent.name.startswith("userFiles-")), root)
    path = root / _DIRECTORY
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _link_registry(path: Path) -> None:
    """Make the registry known to the functions of ``foreachBatch`` over Spark Connect.

    Of the application's directories, their processes know only that of its blocks.
    """
    blocks = _block_directory()
    if blocks is not None:
        with contextlib.suppress(OSError):  # another reader has made the link
            (blocks / _DIRECTORY).symlink_to(path)


def _linked_registry() -> Path | None:
    blocks = _block_directory()
    if blocks is None or not (blocks / _DIRECTORY).is_dir():
        return None
    return blocks / _DIRECTORY


def _block_directory() -> Path | None:
    """Return the directory of the application's blocks; Spark tells it to all Python workers."""
    first, _, _ = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")
    path = Path(first)
    return path if path.name.startswith("blockmgr-") else None


class OutcomeServer:
    """The reader's end: takes outcomes while the reader lives."""

    def __init__(self, apply: Apply, count_held: CountHeld) -> None:
        self._apply = apply
        self._count_held = count_held
        self._token = secrets.token_hex(_TOKEN_BYTES)
        self._strangers = 0
        self._server: asyncio.Server | None = None
        self._path: Path | None = None

    async def start(self, bootstrap_servers: str, group_id: str) -> None:
        """Listen on the loopback interface and register."""
        port = await self._listen(_LOOPBACK)
        self._path = _register(Registration(bootstrap_servers, group_id, port, self._token))

    async def start_with_receipt(self, host: str) -> Receipt:
        """Listen on an address of this host, and return the receipt for the rows."""
        return Receipt(host, await self._listen(host), self._token)

    def close(self) -> None:
        """Stop listening and remove the registration."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()

    async def _listen(self, host: str) -> int:
        self._server = await asyncio.start_server(self._serve, host, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not await self._has_token(reader):
                return
            async with asyncio.timeout(_TIMEOUT_S):
                (size_bytes,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
                if size_bytes > _MAX_REQUEST_SIZE_BYTES:
                    return
                request = json.loads(await reader.readexactly(size_bytes))
            writer.write(_frame(await self._answer(request)))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
            pass  # a stranger, or a process that was killed
        finally:
            writer.close()

    async def _has_token(self, reader: asyncio.StreamReader) -> bool:
        if self._strangers >= _MAX_STRANGERS:
            return False
        self._strangers += 1
        try:
            async with asyncio.timeout(_STRANGER_TIMEOUT_S):
                token = await reader.readexactly(_TOKEN_LENGTH)
        finally:
            self._strangers -= 1
        return secrets.compare_digest(token, self._token.encode())

    async def _answer(self, request: dict[str, object]) -> dict[str, object]:
        try:
            outcomes = [OutcomeSpan(*span) for span in request["outcomes"]]  # type: ignore[attr-defined]
            if request["apply"]:
                return {"counts": await self._apply(outcomes)}
            return {"counts": {"held": self._count_held(outcomes)}}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}


def _register(registration: Registration) -> Path | None:
    """Write a registration; None if there is no directory for it."""
    directory = registry()
    if directory is None:
        return None
    _link_registry(directory)
    path = directory / f"{secrets.token_hex(8)}.json"
    draft = path.with_suffix(".new")
    with open(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(registration), file)
    return draft.rename(path)


def _registered(group_id: str | None, bootstrap_servers: str | None) -> dict[Path, Registration]:
    """Return the registrations of this application's readers, of one group and cluster or all."""
    directory = registry()
    found = {}
    for path in directory.glob("*.json") if directory is not None else ():
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
    """Send outcomes to the readers that hold the records, until the broker has applied them.

    Those with a receipt go to the reader that it names, the others to the registered readers.

    :param group_id: needed only when several groups hold the same offsets of the same topic
    :returns: the number of records by outcome; a record that no reader holds any more (its lock
        timed out, or it was acknowledged before) is not counted
    :raises SourceError: there is no such reader, or several groups hold the records
    """
    by_receipt: dict[str | None, list[OutcomeSpan]] = {}
    for span in outcomes:
        by_receipt.setdefault(span.receipt, []).append(span)
    with_receipt = {text: spans for text, spans in by_receipt.items() if text is not None}
    answers = [_ask(Receipt.parse(text), spans, apply=True) for text, spans in with_receipt.items()]
    without_receipt = by_receipt.get(None, [])
    if without_receipt or not with_receipt:
        answers += _deliver_registered(without_receipt, group_id, bootstrap_servers)
    applied = dict.fromkeys(OUTCOMES, 0)
    for counts in filter(None, answers):
        for outcome, count in counts.items():
            applied[outcome] += count
    if all(counts is None for counts in answers):
        raise SourceError(_no_reader(group_id))
    return applied


def _deliver_registered(
    outcomes: Sequence[OutcomeSpan], group_id: str | None, bootstrap_servers: str | None
) -> list[dict[str, int] | None]:
    readers = _registered(group_id, bootstrap_servers)
    groups = {(reader.bootstrap_servers, reader.group_id) for reader in readers.values()}
    if len(groups) > 1:
        readers = _holders(readers, outcomes)
    return [_ask_registered(path, reader, outcomes, apply=True) for path, reader in readers.items()]


def _no_reader(group_id: str | None) -> str:
    of_group = f" of group '{group_id}'" if group_id else ""
    error = (
        f"no kafka-share query{of_group} runs in this Spark application, "
        "so there is nothing to acknowledge"
    )
    if registry() is None:
        error += " (a query that shares no files with this process needs the option includeReceipt)"
    return error


def _holders(
    readers: dict[Path, Registration], outcomes: Sequence[OutcomeSpan]
) -> dict[Path, Registration]:
    """Return the readers that hold records of the outcomes.

    :raises SourceError: they are of several groups
    """
    holders = {}
    for path, reader in readers.items():
        counts = _ask_registered(path, reader, outcomes, apply=False)
        if counts is not None and counts["held"]:
            holders[path] = reader
    groups = sorted({reader.group_id for reader in holders.values()})
    if len(groups) > 1:
        raise SourceError(
            f"queries of several share groups hold these records ({', '.join(groups)}): "
            "pass group_id=…"
        )
    return holders


def _ask_registered(
    path: Path, reader: Registration, outcomes: Sequence[OutcomeSpan], *, apply: bool
) -> dict[str, int] | None:
    """Return the counts that one reader answers; None if its process no longer exists."""
    counts = _ask(Receipt(_LOOPBACK, reader.port, reader.token), outcomes, apply=apply)
    if counts is None:  # the process was killed before it could unregister
        path.unlink(missing_ok=True)
    return counts


def _ask(
    receipt: Receipt, outcomes: Sequence[OutcomeSpan], *, apply: bool
) -> dict[str, int] | None:
    """Return the counts that a reader answers; None if its process no longer exists.

    :raises SourceError: the reader cannot be reached, or could not acknowledge
    """
    address = f"{receipt.host}:{receipt.port}"
    request = {"apply": apply, "outcomes": [span[:-1] for span in outcomes]}  # without the receipt
    try:
        connection = socket.create_connection((receipt.host, receipt.port), timeout=_TIMEOUT_S)
        with connection:
            connection.sendall(receipt.token.encode() + _frame(request))
            stream = connection.makefile("rb")
            size = stream.read(_SIZE.size)
            body = stream.read(_SIZE.unpack(size)[0]) if len(size) == _SIZE.size else b""
    except ConnectionRefusedError:
        return None
    except OSError as error:
        raise SourceError(
            f"the query that holds these records cannot be reached at {address}: {error}"
        ) from None
    if not body:
        raise SourceError(
            f"the query that holds these records ended before it answered at {address}"
        )
    answer = json.loads(body)
    if "error" in answer:
        raise SourceError(
            f"the query that holds these records could not acknowledge: {answer['error']}"
        )
    counts: dict[str, int] = answer["counts"]
    return counts


def _frame(value: object) -> bytes:
    body = json.dumps(value).encode()
    return _SIZE.pack(len(body)) + body
