"""Records are copied on a cluster on which tasks fail, lose their executors and stall, Python
workers are not reused and have little memory, and no two time zones agree.

The applications run with what people turn on: speculation, `spark.python.worker.reuse=false`,
`spark.executor.pyspark.memory`, an event log.
"""

from __future__ import annotations

import json
import secrets
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.transactions import ONGOING, transactional_ids
from tests.spark.conftest import Queue
from tests.spark.standalone import StandaloneCluster
from tests.spark.test_produce_sink import consume
from tests.support import ROOT, is_soak, unique

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not is_soak(), reason="takes minutes: `make soak SOAK=spark`"),
]

TIMEOUT_S = 900
RECORDS, PARTITIONS = 400, 4
BEFORE_THE_CLOCK_CHANGES = datetime(2024, 10, 27, 0, 20, tzinfo=UTC)
"""From 0:00 to 2:00 UTC, clocks in Berlin show the hour from 2:00 to 3:00 twice."""
TIMES_MS = [int(BEFORE_THE_CLOCK_CHANGES.timestamp() * 1000) + 10_007 * n for n in range(RECORDS)]
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.75",
    "spark.speculation.multiplier": "1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.python.worker.reuse": "false",
    "spark.executor.memory": "1g",
    "spark.executor.pyspark.memory": "2g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
    "spark.sql.session.timeZone": "Europe/Berlin",
    "spark.executorEnv.TZ": "Asia/Kolkata",
    "spark.executorEnv.PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.log.level": "INFO",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    # What docs/spark/README.md recommends for keys that are given as text.
    "spark.redaction.regex": "(?i)secret|password|token|key",
    "spark.sql.redaction.options.regex": "(?i)secret|password|token|key",
}


class Habits:
    """The topics of a run of the application, and its folder."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.servers = servers
        self.prefix = unique("habits")
        self.secret = secrets.token_hex(8)
        self.folder = folder
        (folder / "secret").write_text(self.secret)
        sizes = {"in": PARTITIONS, "batch": 4, "batch-stall": 4, "stream": 4, "plain": 4}
        configs = {"retention.ms": "-1"}
        admin = AdminClient({"bootstrap.servers": servers})
        topics = [
            NewTopic(self.name(name), size, 1, config=configs) for name, size in sizes.items()
        ]
        for created in admin.create_topics(topics).values():
            created.result(60)

    def name(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def produce(self) -> None:
        """Write what is copied."""
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5})
        for number, time_ms in enumerate(TIMES_MS):
            place = {"partition": number % PARTITIONS, "timestamp": time_ms}
            producer.produce(self.name("in"), b"%d" % number, b"k%d" % number, **place)
        assert producer.flush(60) == 0

    def run(self, cluster: StandaloneCluster) -> None:
        """Run the application to its end."""
        events = self.folder / "events"
        events.mkdir()
        settings = {**SETTINGS, "spark.eventLog.dir": events.as_uri()}
        python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        words = [f"{name}={value}" for name, value in {**python, "TZ": "America/New_York"}.items()]
        words += ["spark-submit", "--master", cluster.url]
        words += [word for conf in settings.items() for word in ("--conf", "=".join(conf))]
        words += [str(ROOT / "tests/spark/habits.py"), self.servers, str(self.folder)]
        log = self.folder / "driver.log"
        driver = cluster.submit(shlex.join([*words, self.prefix]), self.folder, log)
        try:
            assert driver.wait(TIMEOUT_S) == 0
        except (AssertionError, subprocess.TimeoutExpired):
            print("\n".join(line for line in log.read_text().splitlines() if "INFO" not in line))
            raise

    def read(self, name: str, partitions: int, count: int) -> list[Any]:
        return consume(self.servers, self.name(name), partitions, count)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture(scope="module")
def habits(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Habits]:
    topics = Habits(bootstrap_servers, tmp_path_factory.mktemp("habits"))
    topics.produce()
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        topics.run(cluster)
        yield topics


@pytest.mark.parametrize("name", ["batch", "batch-stall", "stream"])
def test_each_record_is_written_once_in_transactions(habits: Habits, name: str) -> None:
    """No attempt that lost leaves a transaction open, for which readers would wait."""
    queue = Queue(habits.servers, habits.name(name), "", PARTITIONS)
    prefix = habits.name(name)
    assert queue.ask(lambda cluster: transactional_ids(cluster, prefix, (ONGOING,))) == {}
    messages = habits.read(name, PARTITIONS, RECORDS)
    assert Counter(message.key() for message in messages) == {
        b"k%d" % number: 1 for number in range(RECORDS)
    }
    assert {int(message.value()): message.timestamp()[1] for message in messages} == dict(
        enumerate(TIMES_MS)
    )
    queue.produce(PARTITIONS)
    assert len(habits.read(name, PARTITIONS, RECORDS + PARTITIONS)) == RECORDS + PARTITIONS


def test_no_record_is_lost_without_transactions(habits: Habits) -> None:
    messages = habits.read("plain", PARTITIONS, RECORDS)
    assert {message.key() for message in messages} == {b"k%d" % n for n in range(RECORDS)}


def test_a_queue_is_drained_and_each_record_delivered_once(habits: Habits) -> None:
    delivered = [tuple(json.loads(line)) for line in habits.text("shared").splitlines()]
    per_partition = RECORDS // PARTITIONS
    assert Counter(delivered) == {
        (partition, offset, 1): 1
        for partition in range(PARTITIONS)
        for offset in range(per_partition)
    }
    queue = Queue(habits.servers, habits.name("in"), habits.name("group"), PARTITIONS)
    assert queue.is_drained()


def test_tasks_were_in_trouble(habits: Habits) -> None:
    files = {file.name for file in habits.folder.iterdir()}
    for job in ("batch-lose", "plain-lose", "stream"):
        assert f"{job}-killed" in files
    log = habits.text("driver.log")
    assert "this attempt fails" in log
    assert log.count("as speculatable") >= 2


def test_secrets_are_shown_nowhere(habits: Habits) -> None:
    places = [habits.folder / "shown", habits.folder / "driver.log"]
    places += [
        file
        for name in ("events", "checkpoint-stream", "checkpoint-share")
        for file in (habits.folder / name).rglob("*")
        if file.is_file()
    ]
    assert len(places) > 6
    assert "eve" in habits.text("shown")
    for place in places:
        assert habits.secret not in place.read_text(errors="replace"), place
