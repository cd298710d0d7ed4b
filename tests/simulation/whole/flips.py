"""Flipped bits in files at rest.

While the broker is down, bits of copies of its files are flipped, one in each copy, and a broker is
started with every copy. What it says is compared with what a broker says of an unspoilt copy:

    * It says the same; or it refuses to start, and names the file or its directory.
    * Of the partition that the file belongs to, it may say something else, unless the file is
      derived from the log. Then the damage is reported: in the broker's log, by an error or a wrong
      checksum in an answer, or by ``headrace verify``.
    * Deleted records may come back, which the broker's log says.
    * No whole batch is deleted, unless all its records were deleted with DeleteRecords: a log that
      ends before its start offset begins again there, as in Kafka. Batches behind damage in the log
      of a coordinator are not given up, either: the start is refused.

A flipped bit in the write-ahead log of the catalog looks like a torn commit. It may undo the last
changes of topics, users and ACLs, or contradict what the directories say. Nothing is deleted then,
either.
"""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.log import checked_file
from headrace.log.data_directory import is_partition_name
from headrace.log.directory_format import UnusableDirectory
from headrace.log.directory_lock import LOCK_FILE
from headrace.log.recovery import LOG_START_FILE, CorruptLog, is_marked_offline
from headrace.log.swap import CLEANING
from headrace.log.verify import Verified, log_files, verify_file
from headrace.net.client_quotas import KIND as QUOTA
from headrace.net.scram_users import SCRAM
from headrace.protocol import record_batch
from headrace.protocol.errors import ErrorCode, StorageError
from headrace.topics.catalog import CATALOG_FILE
from tests.kio_messages import request_type
from tests.wire_client import fitted, message

from ..clients import Client
from ..network import Network
from ..power import Machine
from ..witness import Violation
from .readers import EARLIEST, FETCH, LIST_OFFSETS, decode

if TYPE_CHECKING:
    from .world import World

OFFSET_FETCH = 9
SHARE = 0.15
"""The share of the broker's stops at which bits are flipped."""
COPIES = 3
"""Copies with a flipped bit, at one stop of the broker."""
MAX_JUMP_MS = 1_500_000
QUESTIONS = 4
"""Fetches from the middle of each partition, and look-ups by timestamp."""
MOST_FETCHES = 1000
DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot", ".checksums")
"""Files with nothing that is not in the log itself."""
TRACEBACK = "the broker logged an exception"
Name = tuple[str, int]
"""A topic's name and a partition."""
Batch = tuple[int, int, int]
"""The base offset, the size and the checksum of a batch."""


@dataclass(slots=True)
class Partition:
    """All that a broker says of a partition.

    :ivar answers: to the questions from its middle
    :ivar producers: id, epoch and last sequence number of each producer
    :ivar aborted: the aborted transactions
    :ivar errors: errors, and answers with damaged batches
    """

    records: list[tuple[int, bytes | None, bytes | None]] = field(default_factory=list)
    start_offset: int = -1
    end_offset: int = -1
    stable_offset: int = -1
    answers: list[Any] = field(default_factory=list)
    producers: list[tuple[int, int, int]] = field(default_factory=list)
    aborted: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Said:
    """All that a broker says.

    :ivar refusal: the reason why it does not start; None if it does
    :ivar log: its warnings and errors
    :ivar topics: id, number of partitions and configs, by name
    :ivar verified: what ``headrace verify`` says before the start
    :ivar deleted: the whole batches that are not there any more after the start
    :ivar cut: those that are not in the logs of coordinators any more
    """

    refusal: str | None = None
    log: list[str] = field(default_factory=list)
    topics: dict[str, Any] = field(default_factory=dict)
    configs: dict[Any, Any] = field(default_factory=dict)
    partitions: dict[Name, Partition] = field(default_factory=dict)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    verified: set[str] = field(default_factory=set)
    deleted: set[Batch] = field(default_factory=set)
    cut: set[Batch] = field(default_factory=set)


class Flip(NamedTuple):
    """A flipped bit.

    :ivar path: in the data directory
    """

    path: str
    position: int
    mask: int

    def __str__(self) -> str:
        return f"bit {self.mask:#04x} of byte {self.position} of {self.path}"

    @property
    def partition(self) -> Name | None:
        """The partition that the file belongs to."""
        directory = self.path.partition("/")[0]
        if "/" not in self.path or not is_partition_name(directory):
            return None
        topic, _, number = directory.rpartition("-")
        return topic, int(number)


class _Nobody:
    """An observer of frames that notes nothing."""

    def arrived(self, connection_id: int, request: Any) -> object:
        return None

    def answered(
        self, connection_id: int, request: Any, foreseen: Any, answer: Any, frame: bytes
    ) -> None: ...

    def disconnected(self, connection_id: int) -> None: ...


class _Log(logging.Handler):
    """Collects warnings and errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if record.exc_info and not isinstance(record.exc_info[1], OSError):
            self.lines.append(f"{TRACEBACK}: {record.exc_info[1]!r}")


class Flips:
    """Flips bits in copies of the files of a broker that is down."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rng = random.Random(f"flips of {seed}")
        self._dead: list[Machine] = []

    def happen(self) -> None:
        """Flip some bits now and then, each in a copy of its own.

        :raises Violation: when the damage is believed
        """
        if self._rng.random() >= SHARE:
            return
        disk = self._world.disk
        fault, disk.fault = disk.fault, None  # what reads the files here is not the broker
        try:
            self._flip_some()
        finally:
            disk.fault = fault

    def _flip_some(self) -> None:
        questions = random.Random(self._rng.random())
        expected = self._say(None, questions.getstate())
        if expected.refusal is not None:
            raise Violation(f"a copy of the files is refused: {expected.refusal}")
        for _ in range(COPIES):
            flip = self._choose()
            said = self._say(flip, questions.getstate())
            result = self._compare(flip, expected, said)
            self._world.counts[f"flips in {_kind(flip.path)} {result}"] += 1

    def _choose(self) -> Flip:
        """Choose a file of any kind, and a bit of it; mostly of a byte that is not zero, as those
        are often not used.
        """
        root, rng = self._world.disk.root, self._rng
        kinds: dict[str, list[str]] = {}
        for parent, directories, names in os.walk(root):
            directories.sort()
            for name in sorted(names):
                path = os.path.relpath(f"{parent}/{name}", root)
                if name != LOCK_FILE and os.path.getsize(f"{root}/{path}"):
                    kinds.setdefault(_kind(path), []).append(path)
        path = rng.choice(kinds[rng.choice(sorted(kinds))])
        with open(f"{root}/{path}", "rb") as file:
            data = file.read()
        positions = [position for position, byte in enumerate(data) if byte]
        if rng.random() < 0.2 or not positions:
            positions = list(range(len(data)))
        return Flip(path, rng.choice(positions), 1 << rng.randrange(8))

    def _say(self, flip: Flip | None, questions: Any) -> Said:
        """Return what a broker says of a copy of the files with a flipped bit."""
        world = self._world
        root = f"{world.disk.root}-copy"
        said = Said()
        try:
            disk = world.disk.copy(root)
            if flip is not None:
                _flip(f"{root}/{flip.path}", flip)
            said.verified = set(_verified(root))
            before, state = set(_batches(root)), set(_batches(root, of_coordinators=True))
            before -= set(_batches(root, are_deleted=True))
            machine = world.machine.double(disk)
            self._dead.append(machine)
            rng = random.Random()
            rng.setstate(questions)
            with disk.attached(), _logged() as said.log:
                try:
                    machine.start()
                except (StorageError, CorruptLog, UnusableDirectory, OSError) as error:
                    said.refusal = str(error)
                else:
                    _ask(machine, said, rng, sorted(world.offsets.sent))
                finally:
                    machine.kill()
            said.log = [line.replace(f"{root}/", "") for line in said.log]
            said.deleted = before - set(_batches(root))
            said.cut = state - set(_batches(root, of_coordinators=True))
        finally:
            shutil.rmtree(root, ignore_errors=True)
        return said

    def _compare(self, flip: Flip, expected: Said, said: Said) -> str:
        """Return what came of a flip.

        :raises Violation: if that must not be
        """
        gone = said.deleted - expected.deleted
        if gone:
            raise Violation(f"{flip}: {len(gone)} batches are deleted. {said.refusal or said.log}")
        name = flip.path.rpartition("/")[2]
        raised = [line for line in said.log if line.startswith(TRACEBACK)]
        if raised:
            raise Violation(f"{flip}: {raised[0]}")
        is_journal = flip.path == f"{CATALOG_FILE}-wal"
        if said.refusal is not None:
            if "\n" in said.refusal or not (is_journal or _names(said.refusal, flip.path)):
                raise Violation(f"{flip}: the start is refused with {said.refusal!r}")
            return "refused"
        if is_journal:
            return "not refused"
        # After a failed fsync a power cut leaves holes in what was never on disk.
        directory = f"{self._world.disk.root}/{os.path.dirname(flip.path)}"
        if said.cut - expected.cut and not is_marked_offline(directory):
            raise Violation(f"{flip}: the state of coordinators is cut. {said.log}")
        for what in ("topics", "configs"):
            if getattr(said, what) != getattr(expected, what):
                raise Violation(f"{flip}: {what} are {getattr(said, what)}")
        own = flip.partition
        told = any(_names(line, flip.path) for line in said.log)
        told = told or bool(said.verified - expected.verified)
        result = "mended"
        if said.offsets != expected.offsets:
            if own is None or own[0] != "__consumer_offsets" or not told:
                raise Violation(f"{flip}: committed offsets are {said.offsets}. {said.log}")
            result = "reported"
        for where, partition in said.partitions.items():
            if partition == expected.partitions[where]:
                continue
            if own is not None and own[0].startswith("__") and told:
                result = "reported"
                continue
            if where != own or not (told or partition.errors):
                raise Violation(
                    f"{flip}: {where} is {partition}, not {expected.partitions[where]}. {said.log}"
                )
            right = expected.partitions[where]
            if name == LOG_START_FILE and partition.start_offset > right.start_offset:
                raise Violation(f"{flip}: {where} starts at {partition.start_offset}")
            if name.endswith(".snapshot"):  # older records of a producer may be deleted
                right = replace(right, producers=partition.producers)
            if name.endswith(DERIVED) and partition != right:
                raise Violation(f"{flip}: {where} is {partition}, not {right}")
            result = "reported"
        return result


def _kind(path: str) -> str:
    """Return the kind of a file."""
    directory, _, name = path.rpartition("/")
    kind = re.sub(r"^[0-9]{20}", "", name)
    if directory.endswith(("-delete", "-stray")):
        return "others"
    return f"{'internal ' if path.startswith('__') else ''}{kind}"


def _names(line: str, path: str) -> bool:
    """Return True if a line names a file, or the directory that it is in."""
    directory = path.rpartition("/")[0]
    path = path.removesuffix(".new")  # of the catalog; the start gives it its name
    return path in line or (directory != "" and directory in line)


def _flip(path: str, flip: Flip) -> None:
    with open(path, "r+b", buffering=0) as file:
        file.seek(flip.position)
        (byte,) = file.read(1)
        file.seek(flip.position)
        file.write(bytes([byte ^ flip.mask]))


@contextmanager
def _logged() -> Iterator[list[str]]:
    handler = _Log()
    logger = logging.getLogger("headrace")
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)


def _verified(root: str) -> Iterator[str]:
    """Yield the damage that ``headrace verify`` finds."""
    for file in log_files(root, sorted(filter(is_partition_name, os.listdir(root)))):
        for damage in verify_file(file, is_live=False, verified=Verified()):
            yield str(damage)


def _batches(
    root: str, *, of_coordinators: bool = False, are_deleted: bool = False
) -> Iterator[Batch]:
    """Yield the whole batches in all files of all directories, also of those set aside, but not in
    what a crash has left of a cleaning.

    :param of_coordinators: only those in the logs of coordinators
    :param are_deleted: only those before the log start offset
    """
    for parent, _, names in os.walk(root):
        if parent.endswith(("-delete", f"/{CLEANING}")):
            continue
        if of_coordinators and not parent.startswith(f"{root}/__"):
            continue
        start = _log_start(parent) if are_deleted else None
        for name in names:
            if not name.endswith(".log") if of_coordinators else ".log" not in name:
                continue
            with open(f"{parent}/{name}", "rb") as file:
                data = memoryview(file.read())
            position = 0
            while position + record_batch.HEADER_BYTES <= len(data):
                header = record_batch.header_at(data, position)
                whole = data[position : position + max(header.size_bytes, 0)]
                if (
                    header.magic == 2
                    and record_batch.HEADER_BYTES <= len(whole) == header.size_bytes
                    and record_batch.has_right_crc(whole, header)
                ):
                    if start is None or header.last_offset < start:
                        yield header.base_offset, header.size_bytes, header.crc
                    position += header.size_bytes
                else:
                    position += 1


def _log_start(directory: str) -> int:
    """Return the log start offset that DeleteRecords has saved; 0 without a right one."""
    try:
        return checked_file.read(f"{directory}/{LOG_START_FILE}") or 0
    except checked_file.DamagedFile:
        return 0


def _ask(machine: Machine, said: Said, rng: random.Random, keys: list[tuple[str, int]]) -> None:
    """Ask a broker for everything."""
    client = _Questioner(machine)
    catalog = machine.broker.catalog
    for name in sorted(catalog.topics):
        topic = catalog.topics[name]
        said.topics[name] = topic.topic_id, topic.partitions, dict(topic.configs)
    kinds = [
        (kind, name)
        for kind in ("group", "broker", SCRAM, QUOTA)
        for name in catalog.configured(kind)
    ]
    said.configs = {key: dict(catalog.configs(*key)) for key in kinds}
    said.configs["cluster id"] = catalog.cluster_id
    said.configs["ACLs"] = set(catalog.acls)
    for name, (topic_id, partitions, _) in said.topics.items():
        if not name.startswith("__"):
            for number in range(partitions):
                found = said.partitions[name, number] = Partition()
                client.read(found, name, topic_id, number, rng.random())
                log = machine.broker.topic_logs.partition(topic_id, number)
                if not isinstance(log, ErrorCode):
                    found.producers = [
                        (producer_id, entry.epoch, entry.batches[-1].last_sequence)
                        for producer_id, entry in sorted(log.producers)
                        if entry.batches
                    ]
                    found.aborted = list(log.aborted.overlapping(0, log.end_offset))
    said.offsets = {key: client.offset(*key) for key in keys}
    errors = [failure for failure in machine.loop.failures if failure.get("exception")]
    if errors:
        raise Violation(f"{errors[0]['message']}: {errors[0]['exception']!r}")


class _Questioner(Client):
    """A client that asks, and waits for each answer."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(Network(machine, machine.power, _Nobody()), "questioner")
        self._now_ms = machine.loop.now_ms

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        schema = request_type(api_key, version)
        answer = self.call(message(schema, **fitted(api_key, version, fields)))
        assert answer is not None, f"a request of API {api_key} is not answered"
        return answer

    def read(self, found: Partition, topic: str, topic_id: Any, number: int, seed: float) -> None:
        """Read a partition, from its start and from some offsets and times in its middle."""
        rng = random.Random(seed)
        start, error = self.list_offset(topic, number, EARLIEST)
        if error:
            found.errors.append(error)
            return
        offset = found.start_offset = start
        for _ in range(MOST_FETCHES):
            got = self.fetch(topic_id, number, offset, 1 << 20)
            if isinstance(got, str):
                found.errors.append(got)
                break
            found.end_offset, found.stable_offset = got.high_watermark, got.last_stable_offset
            found.records += [(one.offset, one.key, one.value) for one in got.records]
            if got.next_offset == offset:
                break
            offset = got.next_offset
        else:
            found.errors.append("a partition without an end")
        if offset < found.end_offset and not found.errors:
            raise Violation(f"{topic}-{number} ends with empty fetches at {offset}")
        span = max(0, found.end_offset - start)
        for _ in range(QUESTIONS):
            middle = start + int(rng.random() * span)
            if middle < found.end_offset:
                got = self.fetch(topic_id, number, middle, 1)
                first = got if isinstance(got, str) else [one.offset for one in got.records[:1]]
                found.answers.append((middle, first))
        for _ in range(QUESTIONS):
            timestamp_ms = self._now_ms - rng.randint(-MAX_JUMP_MS, 2 * MAX_JUMP_MS)
            found.answers.append((timestamp_ms, self.list_offset(topic, number, timestamp_ms)))

    def fetch(self, topic_id: Any, number: int, offset: int, max_bytes: int) -> Any:
        """Return what is fetched; an error, or damage in the answer, as text."""
        partition = {
            "partition": number,
            "fetch_offset": offset,
            "partition_max_bytes": max_bytes,
        }
        answer = self.ask(
            FETCH,
            17,
            max_wait=0,
            min_bytes=0,
            max_bytes=max_bytes,
            isolation_level=0,
            topics=[{"topic_id": topic_id, "partitions": [partition]}],
            forgotten_topics_data=[],
        )
        one = answer.responses[0].partitions[0]
        if one.error_code:
            return ErrorCode(int(one.error_code)).name
        try:
            got = decode(one, offset, committed=False)
        except (Violation, record_batch.CorruptBatch) as error:
            return str(error)
        if one.records and got.next_offset == offset:
            return "no whole batch"
        return got

    def list_offset(self, topic: str, number: int, timestamp_ms: int) -> tuple[int, str]:
        """Return the offset for a timestamp and the error."""
        partition = {"partition_index": number, "timestamp": timestamp_ms}
        topics = [{"name": topic, "partitions": [partition]}]
        answer = self.ask(LIST_OFFSETS, 7, isolation_level=0, topics=topics, replica_id=-1)
        one = answer.topics[0].partitions[0]
        error = ErrorCode(int(one.error_code))
        return one.offset, error.name if error else ""

    def offset(self, group_id: str, partition: int) -> int:
        """Return a committed offset; the error code below -1000."""
        topics = [{"name": "orders", "partition_indexes": [partition]}]
        group = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": topics}
        answer = self.ask(OFFSET_FETCH, 9, groups=[group], require_stable=False)
        found = answer.groups[0]
        if found.error_code:
            return -1000 - int(found.error_code)
        one = found.topics[0].partitions[0]
        return -1000 - int(one.error_code) if one.error_code else int(one.committed_offset)
