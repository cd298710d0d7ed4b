"""A device that cannot write new blocks for a while: the page cache has what the disk has not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest

from headrace.log.data_directory import DataDirectory
from headrace.log.log_directory import LogDirectory
from headrace.topics.catalog import NOT_CREATED, Catalog, CatalogError, Topic
from tests.faults.small_disk import FailingDevice
from tests.log.disk import TOPIC_ID, batch, put, values
from tests.log_configs import log_config

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
    log = logs.open("t", TOPIC_ID, 0, log_config())
    put(log, batch(VALUES[0]))
    log.flush()
    put(log, batch(VALUES[1]))
    device.fail()
    with pytest.raises(OSError):
        log.flush()
    device.work()
    logs.close()

    logs = open_logs(device)
    log = logs.open("t", TOPIC_ID, 0, log_config())
    put(log, batch(VALUES[2]))
    log.flush()
    logs.close()

    device.forget_caches()
    logs = open_logs(device)
    log = logs.open("t", TOPIC_ID, 0, log_config())
    assert values(log) == dict(enumerate(VALUES))
    logs.close()


def killed(work: Callable[[], None]) -> None:
    """Do this in a process that is killed afterwards, and closes nothing."""

    def work_and_die() -> None:
        work()
        os._exit(99)

    process = get_context("fork").Process(target=work_and_die)
    process.start()
    process.join()
    assert process.exitcode == 99


def test_topics_created_after_a_failure_are_on_the_device(device: FailingDevice) -> None:
    """SQLite would write its log in place, where the failed transaction was."""
    path = device.path / "headrace.db"

    def work() -> None:
        catalog = Catalog(path)
        catalog.create_topic("before", 1)
        device.fail()
        with pytest.raises(CatalogError, match="disk I/O error"):
            catalog.create_topics([Topic(f"failed-{i}", NOT_CREATED, 1) for i in range(10_000)])
        with pytest.raises(CatalogError, match="cannot replace"):
            catalog.create_topic("still-failing", 1)
        device.work()
        for number in range(20):
            catalog.create_topic(f"after-{number}", 1)

    killed(work)
    device.forget_caches()
    catalog = Catalog(path)
    assert sorted(catalog.topics) == sorted(["before", *(f"after-{n}" for n in range(20))])
    catalog.close()


def test_topics_created_after_a_failure_and_a_restart_are_on_the_device(
    device: FailingDevice,
) -> None:
    """The broker that starts has not seen the failure."""
    path = device.path / "headrace.db"

    def fail() -> None:
        catalog = Catalog(path)
        device.fail()
        with pytest.raises(CatalogError):
            catalog.create_topics([Topic(f"failed-{i}", NOT_CREATED, 1) for i in range(10_000)])
        device.work()

    def create() -> None:
        Catalog(path).create_topic("after", 1)

    killed(fail)
    killed(create)
    device.forget_caches()
    catalog = Catalog(path)
    assert "after" in catalog.topics
    catalog.close()
