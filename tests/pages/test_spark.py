"""The programs of docs/spark/, in one Spark application."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from headrace import Broker
from headrace.secure_broker import SecureBroker
from headrace.spark import source_progress
from tests.clients.confluent import PATIENCE_S, consumer, create_topic, produce, take
from tests.spark.application import SHORT_LIVED, application
from tests.support import HANG_S, free_port_pair, wait_until

from .notebook import Notebook
from .reader import Block, Reader, blocks

pytestmark = [pytest.mark.spark, pytest.mark.broker]

INDEX = "docs/spark/README.md"
SHARE = "docs/spark/share.md"
LAG = "docs/spark/lag.md"
RUNNING = "docs/spark/running.md"
RECORDS = 20


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of this process, which suites of Spark use too."""
    session = application(2, {**SHORT_LIVED, "spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture
def servers(headrace_broker: Broker) -> str:
    return headrace_broker.bootstrap_servers


@pytest.fixture
def port(servers: str) -> str:
    return servers.rpartition(":")[2]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return the folder of results."""
    return tmp_path / "out"


@pytest.fixture
def metrics_port() -> str:
    """Return the port of the page of metrics."""
    return str(free_port_pair())


@pytest.fixture
def notebook(spark: SparkSession, servers: str, out: Path, metrics_port: str) -> Notebook:
    made = Notebook({"127.0.0.1:9092": servers, '"out/': f'"{out}/', "9309": metrics_port})
    made.names["spark"] = spark
    return made


def programs(page: str, section: str | None = None) -> list[Block]:
    return [block for block in blocks(page, section) if block.language == "python"]


@pytest.mark.follows(INDEX)
@pytest.mark.follows(RUNNING, "Progress of queries")
@pytest.mark.follows(SHARE)
def test_kafka_share(
    notebook: Notebook,
    reader: Reader,
    spark: SparkSession,
    servers: str,
    out: Path,
    metrics_port: str,
    headrace_secure_broker: SecureBroker,
) -> None:
    """Drain a queue, alter its group, drain it again, and write each record once."""
    create_topic(servers, "flights", 2)
    produce(servers, "flights", [b"UA 1545"] * RECORDS)
    (metrics,), (drained,) = programs(RUNNING, "Progress of queries"), programs(INDEX)
    queue, merged, secured = programs(SHARE)
    (altered,) = [block for block in blocks(SHARE) if block.language == "sh"]
    (progress,) = [block for block in blocks(SHARE) if block.language == "json"]

    notebook.run(metrics)
    notebook.run(queue)
    assert spark.read.parquet(f"{out}/flights").count() == RECORDS
    reported = source_progress(notebook.names["query"].lastProgress.sources[0])
    assert set(reported) == set(json.loads(progress.text))
    lag = "headrace_spark_input_records_total{"
    wait_until(lambda: lag in metrics_page(metrics_port), HANG_S, "metrics")

    (said,) = reader.follow(altered)
    assert said.split()[5:] == ["group", "flight-desk", "share.delivery.count.limit", "10", "set"]
    produce(servers, "flights", [b"AA 1141"] * RECORDS)
    notebook.run(drained)
    assert spark.read.parquet(f"{out}/flights").count() == 2 * RECORDS

    notebook.run(merged)
    batch = spark.read.parquet(f"{out}/flights").drop("batch")
    for number in range(2):  # the second time as a replay
        notebook.names["merge"](batch, number)
    assert spark.read.parquet(f"{out}/table").count() == 2 * RECORDS

    run_secured(notebook, secured, headrace_secure_broker)


def metrics_page(port: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        return str(response.read().decode())


def run_secured(notebook: Notebook, block: Block, broker: SecureBroker) -> None:
    """Run the program with the permissions of the page's table, and with no others."""
    admin = AdminClient(dict(broker.client_config()))
    admin.create_topics([NewTopic("flights", 1)])["flights"].result(PATIENCE_S)
    for operation in ("READ", "DESCRIBE"):
        broker.allow("alice", operation, "TOPIC", "flights")
        broker.allow("alice", operation, "GROUP", "flight-desk")
    config = broker.client_config("alice")
    places = {
        "broker.example.com:9093": broker.bootstrap_servers,
        "her password": config["sasl.password"],
        "/etc/kafka/ca.pem": config["ssl.ca.location"],
    }
    notebook.run(block, places)
    assert notebook.names["secured"].isStreaming


@pytest.mark.follows("docs/spark/ordered.md")
def test_kafka_ordered(
    notebook: Notebook, page: list[Block], spark: SparkSession, servers: str, out: Path
) -> None:
    """Each flight gets the observation before it."""
    producer = Producer({"bootstrap.servers": servers})
    for topic in ("weather", "flights"):
        create_topic(servers, topic, 2)
        for partition in range(2):
            for hour in range(3):
                value = b"%s %d" % (topic.encode(), hour)
                at_ms = 1 + 1000 * hour + (topic == "flights")
                producer.produce(topic, value, partition=partition, timestamp=at_ms)
    assert producer.flush(PATIENCE_S) == 0

    (program,) = [block for block in page if block.language == "python"]
    notebook.run(program)
    rows = {(bytes(a), bytes(b)) for a, b in spark.read.parquet(f"{out}/enriched").collect()}
    assert rows == {(b"flights %d" % hour, b"weather %d" % hour) for hour in range(3)}


@pytest.mark.follows(LAG, "`kafka-lag`")
def test_kafka_lag(
    notebook: Notebook,
    page: list[Block],
    spark: SparkSession,
    servers: str,
    out: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The program waits until its query is stopped."""
    commit(servers, "team-a")
    (program,) = page
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(notebook.run, program)

        def has_written() -> bool:
            query = notebook.names.get("history")
            last = query and query.lastProgress
            return running.done() or bool(last and last["numInputRows"])

        wait_until(has_written, HANG_S, "the first snapshot")
        if not running.done():
            notebook.names["history"].stop()
        running.result(HANG_S)
    assert "team-a" in capsys.readouterr().out
    snapshot = spark.read.parquet(f"{out}/lag").select("groupId", "lag").collect()
    assert {tuple(row) for row in snapshot} == {("team-a", RECORDS - 5)}


@pytest.mark.follows(LAG, "`kafka-group-history`")
def test_kafka_group_history(
    notebook: Notebook, page: list[Block], servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(servers, "billing-eu")
    (program,) = page
    notebook.run(program)
    assert "billing-eu" in capsys.readouterr().out


@pytest.mark.follows("docs/spark/produce.md")
def test_kafka_produce(notebook: Notebook, page: list[Block], servers: str) -> None:
    for topic in ("flights", "flights-upper"):
        create_topic(servers, topic, 2)
    produce(servers, "flights", [b"ua 1545"] * RECORDS)
    (program,) = page
    notebook.run(program)
    with consumer(servers, "check", isolation_level="read_committed") as reader:
        reader.subscribe(["flights-upper"])
        assert [one.value() for one in take(reader, RECORDS)] == [b"UA 1545"] * RECORDS


def commit(servers: str, group: str) -> None:
    """Commit an offset of a group in a topic with records."""
    topic = create_topic(servers, f"of-{group}")
    produce(servers, topic, [b"x"] * RECORDS)
    with consumer(servers, group) as member:
        member.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
