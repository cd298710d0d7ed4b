"""A device that cannot write new blocks for a while: the page cache has what the disk has not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.log.data_directory import DataDirectory
from headrace.log.log_config import LogConfig
from headrace.log.log_directory import LogDirectory
from tests.faults.small_disk import FailingDevice
from tests.log.disk import TOPIC_ID, batch, put, values

VALUES = [bytes([number]) * 500_000 for number in range(3)]


@pytest.fixture
def device(tmp_path: Path) -> Iterator[FailingDevice]:
    with FailingDevice(tmp_path) as device:
        yield device


def open_logs(device: FailingDevice) -> LogDirectory:
    return LogDirectory(DataDirectory(device.path / "data", 16))


def test_what_a_restart_has_verified_is_on_the_device(device: FailingDevice) -> None:
    """ext4 takes the blocks of the failed write for unwritten. Written again in place they would
    read as zeros without the page cache.
    """
    logs = open_logs(device)
    log = logs.open("t", TOPIC_ID, 0, LogConfig())
    put(log, batch(VALUES[0]))
    log.flush()
    put(log, batch(VALUES[1]))
    device.fail()
    with pytest.raises(OSError):
        log.flush()
    device.work()
    logs.close()

    logs = open_logs(device)
    log = logs.open("t", TOPIC_ID, 0, LogConfig())
    put(log, batch(VALUES[2]))
    log.flush()
    logs.close()

    device.forget_caches()
    logs = open_logs(device)
    log = logs.open("t", TOPIC_ID, 0, LogConfig())
    assert values(log) == dict(enumerate(VALUES))
    logs.close()
