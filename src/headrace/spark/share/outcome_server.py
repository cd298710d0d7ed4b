"""Delivery of outcomes to the process that holds the share session.

Spark runs a stream's reader, a sink's commit and the user's program in separate processes. The
reader listens, and asks for a random token. There are two ways to its address and its token:

* The reader listens on a Unix socket, and registers its path and the token in a file of the
  directory that Spark creates for the application on the driver's host; only its owner can read the
  file. The reader locks it while it lives, so that what a killed reader has left is removed.
* With the option ``includeReceipt``, both travel with each row, as a :class:`~.receipt.Receipt`.
  The reader listens on the address from which it reaches the brokers. There is no file.

A request is a list of outcomes (:mod:`headrace.spark.token_server`); the answer tells how many
records each outcome was applied to. When several queries of a group run in the application, all
registered ones are asked: at most one of them holds a record. ``docs/decisions/0018-receipts.md``
has the reasons.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.log_lines import get_logger
from headrace.spark.errors import SourceError
from headrace.spark.token_server import Address, TokenServer, exchange, remove_socket

from .outcome_spans import OUTCOMES, OutcomeSpan
from .receipt import Receipt

_log = get_logger(__name__)

_MAX_REQUEST_SIZE_BYTES = 1 << 30
_ATTEMPTS = 2
"""Number of attempts to ask a reader that closes the connection without an answer. A reader that
has ended refuses the second connection."""
_DIRECTORY = "headrace-share"

Apply = Callable[[Sequence[OutcomeSpan]], Awaitable[dict[str, int]]]
"""A function that applies outcomes and returns the number of records by outcome."""

CountHeld = Callable[[Sequence[OutcomeSpan]], int]
"""A function that returns how many records of outcomes are held now."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A reader that takes outcomes.

    :param path: of its Unix socket
    :param token: a secret that requests must contain
    """

    bootstrap_servers: str
    group_id: str
    path: str
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

    Their processes know only the application's directory of blocks, so it gets a link to the
    registry.
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
        self._server = TokenServer(self._answer, _MAX_REQUEST_SIZE_BYTES)
        self._file: RegistrationFile | None = None

    async def start(self, bootstrap_servers: str, group_id: str) -> None:
        """Listen for processes of this host and register."""
        address = await self._server.listen_on_host()
        self._file = _register(
            Registration(bootstrap_servers, group_id, address.host, address.token)
        )

    async def start_with_receipt(self, host: str) -> Receipt:
        """Listen on an address of this host, and return the receipt for the rows."""
        return Receipt(*await self._server.listen_at(host))

    def close(self) -> None:
        """Stop listening and remove the registration."""
        if self._file is not None:
            self._file.remove()
        self._server.close()

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        outcomes = [OutcomeSpan(*span) for span in request["outcomes"]]
        if request["apply"]:
            return {"counts": await self._apply(outcomes)}
        return {"counts": {"held": self._count_held(outcomes)}}


class RegistrationFile:
    """The file with a registration, locked until it is removed or the process ends."""

    def __init__(self, directory: Path, registration: Registration) -> None:
        self._path = directory / f"{secrets.token_hex(8)}.json"
        draft = self._path.with_suffix(".new")
        self._file = os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        json.dump(asdict(registration), self._file)
        self._file.flush()
        draft.rename(self._path)

    def remove(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        self.unlock()

    def unlock(self) -> None:
        """Leave the file as a process that was killed leaves it."""
        self._file.close()


def _register(registration: Registration) -> RegistrationFile | None:
    """Write a registration; None if there is no directory for it."""
    directory = registry()
    if directory is None:
        return None
    _link_registry(directory)
    return RegistrationFile(directory, registration)


def _registered(group_id: str | None, bootstrap_servers: str | None) -> list[Registration]:
    """Return the registrations of this application's readers, of one group and cluster or all.

    Those of processes that were killed are removed.
    """
    directory = registry()
    found = []
    for path in directory.glob("*.json") if directory is not None else ():
        registration = _read_registration(path)
        if registration is None:
            continue
        if group_id not in (None, registration.group_id):
            continue
        if bootstrap_servers not in (None, registration.bootstrap_servers):
            continue
        found.append(registration)
    return found


def _read_registration(path: Path) -> Registration | None:
    """Return the registration in a file; None if its reader has ended."""
    try:
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return Registration(**json.load(file))
            path.unlink(missing_ok=True)
            remove_socket(Path(json.load(file)["path"]))
    except FileNotFoundError:
        pass
    return None


def deliver(
    outcomes: Sequence[OutcomeSpan],
    group_id: str | None = None,
    bootstrap_servers: str | None = None,
) -> dict[str, int]:
    """Send outcomes to the readers that hold the records, until the broker has applied them.

    Those with a receipt go to the reader that it names, the others to the registered readers.

    :param group_id: needed only when several groups hold the same offsets of the same topic
    :returns: the number of records by outcome; a record that no reader holds any more (its lock
        timed out, it was acknowledged before, or the reader has ended) is not counted
    :raises SourceError: there is no reader for outcomes without a receipt, or several groups hold
        the records
    """
    by_receipt: dict[str | None, list[OutcomeSpan]] = {}
    for span in outcomes:
        by_receipt.setdefault(span.receipt, []).append(span)
    answers = [
        _ask_holder(receipt, spans) for receipt, spans in by_receipt.items() if receipt is not None
    ]
    if without_receipt := by_receipt.get(None):
        answers += _deliver_registered(without_receipt, group_id, bootstrap_servers)
    applied = dict.fromkeys(OUTCOMES, 0)
    for counts in answers:
        for outcome, count in counts.items():
            applied[outcome] += count
    return applied


def _ask_holder(receipt: str, outcomes: Sequence[OutcomeSpan]) -> dict[str, int]:
    """Return the counts that the reader of a receipt answers; none if it has ended.

    Rows with a receipt may outlive their reader, in a query's state: they must not stop the query
    whenever it starts again.
    """
    counts = _ask(Receipt.parse(receipt), outcomes, apply=True)
    if counts is None:
        _log.warning(
            "outcomes of %s-%d from offset %d on are not applied: the query that gave their "
            "receipts has ended, and the broker delivers the records again",
            outcomes[0].topic,
            outcomes[0].partition,
            outcomes[0].first_offset,
        )
    return counts or {}


def _deliver_registered(
    outcomes: Sequence[OutcomeSpan], group_id: str | None, bootstrap_servers: str | None
) -> list[dict[str, int]]:
    """Return the counts that the registered readers answer.

    :raises SourceError: there is no reader, or readers of several groups hold the records
    """
    readers = _registered(group_id, bootstrap_servers)
    groups = {(reader.bootstrap_servers, reader.group_id) for reader in readers}
    if len(groups) > 1:
        readers = _holders(readers, outcomes)
        if not readers:
            return []
    answers = [_ask_registered(reader, outcomes, apply=True) for reader in readers]
    found = [counts for counts in answers if counts is not None]
    if not found:
        raise SourceError(_no_reader(group_id))
    return found


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
    readers: Sequence[Registration], outcomes: Sequence[OutcomeSpan]
) -> list[Registration]:
    """Return the readers that hold records of the outcomes.

    :raises SourceError: they are of several groups
    """
    holders = []
    for reader in readers:
        counts = _ask_registered(reader, outcomes, apply=False)
        if counts is not None and counts["held"]:
            holders.append(reader)
    groups = sorted({reader.group_id for reader in holders})
    if len(groups) > 1:
        raise SourceError(
            f"queries of several share groups hold these records ({', '.join(groups)}): "
            "pass group_id=…"
        )
    return holders


def _ask_registered(
    reader: Registration, outcomes: Sequence[OutcomeSpan], *, apply: bool
) -> dict[str, int] | None:
    """Return the counts that one reader answers; None if its process no longer exists."""
    return _ask(Address(reader.path, 0, reader.token), outcomes, apply=apply)


def _ask(
    address: Address, outcomes: Sequence[OutcomeSpan], *, apply: bool
) -> dict[str, int] | None:
    """Return the counts that a reader answers; None if its process no longer exists.

    A reader that ends while it is asked may have applied the outcomes. They are not counted then.

    :raises SourceError: the reader cannot be reached, or could not acknowledge
    """
    where = f"{address.host}:{address.port}" if address.port else address.host
    body = {"apply": apply, "outcomes": [span[:-1] for span in outcomes]}  # without the receipt
    answered = b""
    for _ in range(_ATTEMPTS):
        try:
            answered = exchange(address, body)
        except (ConnectionRefusedError, FileNotFoundError):
            return None
        except ConnectionError:
            continue
        except OSError as error:
            raise SourceError(
                f"the query that holds these records cannot be reached at {where}: {error}"
            ) from None
        if answered:
            break
    if not answered:
        raise SourceError(
            f"the process at {where} closes connections without an answer: it is not the query "
            "that holds these records: start the query again"
        )
    answer = json.loads(answered)
    if "error" in answer:
        raise SourceError(
            f"the query that holds these records could not acknowledge: {answer['error']}"
        )
    counts: dict[str, int] = answer["counts"]
    return counts
