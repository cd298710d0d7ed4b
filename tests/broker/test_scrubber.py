"""The verification of stored batches in the background: what it finds, counts, and exports."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import pytest

import headrace
from headrace.broker import scrubber
from headrace.broker.scrubber import Scrubber
from headrace.log import cleaner
from headrace.log.data_directory import DataDirectory
from headrace.log.log_directory import LogDirectory
from headrace.net.metrics import ScrubberMetrics
from tests.clients.confluent import PATIENCE_S, create_topic, produce
from tests.log.disk import TOPIC_ID, batch, put
from tests.log_configs import log_config
from tests.support import wait_until

SIZE = len(batch(b"x"))
BATCHES, PARTITIONS = 5, 3


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scrubber, "SCRUB_BYTES_PER_SECOND", 1 << 40)
    logs = LogDirectory(DataDirectory(tmp_path / "data", 16))
    for partition in range(PARTITIONS):
        log = logs.open("t", TOPIC_ID, partition, log_config())
        for _ in range(BATCHES):
            put(log, batch(b"x"))
    yield logs
    logs.close()


def test_damage_is_counted_once_and_every_pass_is(logs: LogDirectory):
    counted = ScrubberMetrics()
    scrub = Scrubber(logs.directory, counted).scrub
    assert counted.last_pass_s is None
    scrub()
    assert (counted.read_bytes, counted.damaged, counted.passes) == (15 * SIZE, 0, 1)
    path = Path(logs.directory.path) / "t-1" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[2 * SIZE - 1] ^= 1
    path.write_bytes(data)
    before_s = time.time()
    for _ in range(2):
        scrub()
    assert (counted.read_bytes, counted.damaged, counted.passes) == (43 * SIZE, 1, 3)
    assert counted.last_pass_s is not None and counted.last_pass_s >= before_s


def test_what_cannot_be_read_is_damage_and_hides_no_other(
    logs: LogDirectory, caplog: pytest.LogCaptureFixture
):
    for partition in range(2):
        path = Path(logs.directory.path) / f"t-{partition}" / f"{0:020}.log"
        path.unlink()
        path.mkdir()
    (Path(logs.directory.path) / "a-0").touch()
    counted = ScrubberMetrics()
    scrub = Scrubber(logs.directory, counted).scrub
    for _ in range(2):
        scrub()
    assert (counted.read_bytes, counted.damaged, counted.passes) == (2 * 5 * SIZE, 2, 2)
    assert caplog.text.count(f"t-1/{0:020}.log is damaged at position 0, offset 0: ") == 1
    assert "it cannot be read: Is a directory" in caplog.text


def test_small_files_keep_to_the_rate(logs: LogDirectory, monkeypatch: pytest.MonkeyPatch):
    """Each file had a rest of its own, which small files never reached."""
    monkeypatch.setattr(scrubber, "SCRUB_BYTES_PER_SECOND", 100_000)
    checked = Scrubber(logs.directory, ScrubberMetrics())
    rests: list[float] = []
    monkeypatch.setattr(checked._pace.stopped, "wait", rests.append)
    clock = SimpleNamespace(monotonic=lambda: sum(rests), perf_counter=time.perf_counter)
    monkeypatch.setattr(cleaner, "time", clock)
    checked.scrub()
    expected_s = PARTITIONS * (BATCHES + 1) * scrubber.SCRUB_LEAST_BATCH_BYTES / 100_000
    assert sum(rests) == pytest.approx(expected_s, abs=0.03)


def test_partitions_that_come_and_go_meanwhile(logs: LogDirectory):
    scrub = Scrubber(logs.directory, ScrubberMetrics()).scrub
    ended = threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while not ended.is_set():
                scrub()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    for number in range(100):
        name = f"u{number}"
        put(logs.open(name, TOPIC_ID, 0, log_config()), batch(b"x"))
        if number % 2:
            logs.removals.add(logs.delete(name, TOPIC_ID))
    ended.set()
    thread.join()
    assert not errors


@pytest.mark.broker
def test_an_embedded_broker_verifies_its_data_directory(tmp_path: Path):
    with headrace.Broker(tmp_path / "data", metrics_port=0) as broker:
        create_topic(broker.bootstrap_servers, "t")
        produce(broker.bootstrap_servers, "t", [b"a", b"b"])
        wait_until(
            lambda: b"headrace_scrubber_passes_total 1\n" in urlopen(broker.metrics_url).read(),
            PATIENCE_S,
            "a pass",
        )
        page = urlopen(broker.metrics_url).read()
        assert b"\nheadrace_scrubber_damaged_total 0\n" in page
        assert b"\nheadrace_scrubber_last_pass_time_seconds 1" in page


@pytest.mark.broker
def test_a_temporary_directory_is_not_verified():
    with headrace.Broker(metrics_port=0) as broker:
        assert "headrace-scrubber" not in [thread.name for thread in threading.enumerate()]
        page = urlopen(broker.metrics_url).read()
        assert b"headrace_scrubber_passes_total 0\n" in page
        assert b"\nheadrace_scrubber_last_pass_time_seconds " not in page
