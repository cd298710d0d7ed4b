"""A data directory over several lives of a broker: opened, stopped and crashed."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.log import timestamps
from headrace.log.cleaner import Cleanable, Pace, Round
from headrace.log.data_directory import DataDirectory
from headrace.log.log_directory import LogDirectory
from headrace.log.partition_log import Appended, PartitionLog
from headrace.protocol.errors import Refusal
from headrace.protocol.record_batch import NO_SEQUENCE, build, headers, records
from tests.log_configs import log_config

NOW = 1_800_000_000_000
TOPIC_ID = uuid.UUID(int=77)


class Disk:
    """A data directory of logs of one topic id, over several lives of a broker.

    :ivar home: the logs in this life
    :ivar lives: number of crashes
    """

    def __init__(self, path: Path, file_limit: int = 16) -> None:
        self.lives = 0
        self.file_limit = file_limit
        self.path = path / "data-0"
        self.home = LogDirectory(DataDirectory(self.path, file_limit, sync=False))

    def log(self, topic: str = "t", partition: int = 0, **config: Any) -> PartitionLog:
        return self.home.open(topic, TOPIC_ID, partition, log_config(**config))

    def stop(self) -> None:
        self.home.close()

    def start(self) -> None:
        self.home = LogDirectory(DataDirectory(self.path, self.file_limit, sync=False))

    def crash(self, spoil: Callable[[Path], None] = lambda path: None) -> None:
        """Continue with a copy of the files as they are now, as after ``kill -9``: nothing that is
        only in memory survives.

        :param spoil: changes the copy
        """
        self.lives += 1
        path = self.path.with_name(f"data-{self.lives}")
        shutil.copytree(self.path, path)
        self.home.close()
        self.path = path
        (path / "clean-shutdown").unlink(missing_ok=True)
        spoil(path)
        self.start()


def batch(
    *values: bytes, at: int = NOW, producer: int = -1, epoch: int = 0, sequence: int = NO_SEQUENCE
) -> bytes:
    return build(
        [(b"k", value) for value in values],
        timestamp_ms=at,
        producer_id=producer,
        producer_epoch=epoch if producer >= 0 else -1,
        base_sequence=sequence,
    )


def put(log: PartitionLog, data: bytes, now_ms: int = NOW) -> Appended:
    appended = log.append(data, now_ms)
    assert isinstance(appended, Appended), appended
    return appended


def values(log: PartitionLog, max_bytes: int = 1000) -> dict[int, bytes | None]:
    """Return the values of all records by offset, read as a consumer reads."""
    found: dict[int, bytes | None] = {}
    offset = log.log_start_offset
    while offset < log.end_offset:
        data = log.read(offset, max_bytes)
        assert isinstance(data, bytes) and data, (data, offset)
        for position, header in headers(data):
            found.update(
                {record.offset: record.value for record in records(memoryview(data)[position:])}
            )
            offset = header.last_offset + 1
    return {offset: value for offset, value in found.items() if offset >= log.log_start_offset}


def first_at_or_after(log: PartitionLog, timestamp_ms: int) -> tuple[int, int] | None:
    """Return ``(offset, timestamp)`` of the first record that has at least a timestamp."""
    return timestamps.finish(timestamps.first_at_or_after(log, timestamp_ms))


def latest(log: PartitionLog) -> tuple[int, int] | None:
    """Return ``(offset, timestamp)`` of the first record with the largest timestamp."""
    return timestamps.finish(timestamps.latest(log))


def delete_records(log: PartitionLog, before_offset: int) -> int | Refusal:
    """Delete the records before an offset, as a request does."""
    target = log.new_log_start(before_offset)
    if isinstance(target, Refusal):
        return target
    return log.save_log_start(target) or log.advance_log_start(target)


def finish_removals(logs: LogDirectory) -> None:
    """Wait until the directories of deleted topics are removed."""
    finished = threading.Event()
    logs.removals.add({}, finished.set)
    assert finished.wait(60)


def apply_retention(log: PartitionLog, now_ms: int) -> int:
    """Take all steps of retention now, and return the number of deleted segments."""
    segments = list(log.segments)
    for work in log.retention_steps(now_ms):
        work()
    return sum(segment not in log.segments for segment in segments)


def clean(log: PartitionLog, plan: Cleanable, now_ms: int, dedupe_bytes: int = 1 << 27) -> Round:
    """Run a whole round of compaction at once, in this thread."""
    finished = Round(log, plan, now_ms, dedupe_bytes, Pace())
    for step in finished.steps():
        step()
    return finished
