"""All sources over Spark Connect: a server process, and a client process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark
import pytest

from headrace.spark.pyspark_capabilities import HAS_ADMISSION_CONTROL
from tests.pages.reader import blocks
from tests.spark.application import python_environment
from tests.spark.conftest import QUERY_TIMEOUT_S, Queue
from tests.spark.connect import ClientError, ConnectClient, ConnectServer, connect_server
from tests.spark.mistakes import FOREIGN_CHECKPOINT, MISTAKES, Scene, problem
from tests.spark.ordered_topics import Topics
from tests.support import ROOT

pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status")

pytestmark = [pytest.mark.spark, pytest.mark.broker]

MakeQueue = Callable[..., Queue]
PIPELINES = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with connect_server(tmp_path_factory.mktemp("connect")) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: ConnectServer) -> Iterator[ConnectClient]:
    with server.client() as running:
        yield running


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


def micro_batches(results: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(results.iterdir())]


@pytest.mark.parametrize("over_tcp", ["true", "false"])
def test_acknowledging_in_foreach_batch(
    server: ConnectServer,
    client: ConnectClient,
    queue: MakeQueue,
    results: Path,
    over_tcp: str,
) -> None:
    """Over TCP, the function has no directory in common with the reader."""
    flights = queue(300)
    options = flights.options(receiptsOverTcp=over_tcp, defaultOutcome="release")

    client("work", "kafka-share", options, str(results))

    batches = micro_batches(results)
    deliveries = Counter(value for batch in batches for *_, value in batch["rows"])
    assert deliveries == {number: 2 if number % 10 == 7 else 1 for number in range(300)}
    done = Counter[str]()
    for batch in batches:
        done.update(batch["done"])
    assert done == {"accepted": 270, "rejected": 30, "released": 30}
    assert flights.is_drained()
    assert not list(server.folder.rglob("headrace-*/s")), "sockets of ended queries"


def test_the_outcome_sink(
    server: ConnectServer, client: ConnectClient, queue: MakeQueue, tmp_path: Path
) -> None:
    flights = queue(100)
    options = flights.options(receiptsOverTcp="true", defaultOutcome="release")
    progress = client("sink", options, str(tmp_path / "checkpoint"))
    assert flights.is_drained()
    if HAS_ADMISSION_CONTROL:
        assert progress["acquired"] == 100


def test_batches_and_streams_in_order_of_time(
    client: ConnectClient, bootstrap_servers: str, queue: MakeQueue, results: Path
) -> None:
    topics = Topics.create(bootstrap_servers, 2, partitions=2)
    for topic in range(2):
        for partition in topics.numbers:
            topics.produce(topic, range(1000 + topic, 1400, 4), partition)
    merged = topics.merged()
    assert [tuple(row) for row in client("read", "kafka-ordered", topics.options())] == merged

    copies = queue(0)
    client("copy", topics.options(), copies.topic)
    of_copies = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": copies.topic}
    assert len(client("read", "kafka-ordered", of_copies)) == len(merged)

    options = topics.options(maxOffsetsPerTrigger=200, kafka__group__id=topics.names[0])
    client("work", "kafka-ordered", options, str(results), acknowledges=False)
    batches = micro_batches(results)
    assert len(batches) >= 2
    rows = [tuple(row[:3]) for batch in batches for row in batch["rows"]]
    assert sorted(rows) == sorted(merged)
    assert topics.committed(topics.names[0]) == topics.ends()

    lag = {"kafka.bootstrap.servers": bootstrap_servers, "groups": topics.names[0]}
    assert client("lag", lag) == [0, 0, 0, 0]


@pytest.mark.skipif(not PIPELINES.exists(), reason="pyspark 4.0 has no declarative pipelines")
def test_a_pipeline(
    server: ConnectServer, client: ConnectClient, queue: MakeQueue, tmp_path: Path
) -> None:
    folder = tmp_path / "pipeline"
    shutil.copytree(ROOT / "examples" / "pipeline", folder)
    orders, payments = queue(0, partitions=2), queue(0, partitions=2)
    values = [*(f"order {number}" for number in range(9)), "nonsense"]
    bills = [f"payment of {value}" for value in values]
    orders.send(values)
    payments.send(bills)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(
        spec.read_text()
        .replace("/tmp/headrace-shop", str(tmp_path / "storage"))
        .replace("127.0.0.1:9092", orders.bootstrap_servers)
        .replace("shop.orders: orders", f"shop.orders: {orders.topic}")
        .replace("shop.payments: payments", f"shop.payments: {payments.topic}")
        .replace("shop.group: shop", f"shop.group: {orders.group_id}")
    )

    ran = subprocess.run(
        [PIPELINES, "run", "--spec", spec, "--remote", server.url],
        cwd=folder,
        capture_output=True,
        text=True,
        env=python_environment(),
        timeout=QUERY_TIMEOUT_S,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    ledger = [entry for _, entry, _ in client("table", "ledger")]
    assert sorted(ledger) == sorted(values + bills)
    invoices = [invoice for *_, invoice in client("table", "invoices")]
    assert sorted(invoices) == sorted(values)
    # Before pyspark 4.2 the records of invoices are released: see docs/spark/README.md.
    for name in ("invoices", "shipments") if HAS_ADMISSION_CONTROL else ("shipments",):
        assert replace(orders, group_id=f"{orders.group_id}-{name}").is_drained()


def test_the_program_of_the_page(server: ConnectServer) -> None:
    """A client that is a process of its own runs the program of docs/spark/running.md."""
    page = blocks("docs/spark/running.md", "Spark Connect")
    (block,) = [block for block in page if block.language == "python"]
    program = block.text.replace("sc://spark.example:15002", server.url)
    assert server.url in program
    ran = subprocess.run(
        [sys.executable, "-c", f"{program}\nprint(spark.range(3).count())"],
        capture_output=True,
        text=True,
        env=python_environment(),
        timeout=QUERY_TIMEOUT_S,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "3\n"), ran.stderr


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with Scene() as made:
        yield made


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(client: ConnectClient, scene: Scene, name: str, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    options = mistake.change(scene.options(mistake.source, mistake.user))
    is_stream = mistake.source == "kafka-share"
    checkpoint = [str(tmp_path)] if is_stream else []
    with pytest.raises(ClientError) as failed:
        client("stream" if is_stream else "read", mistake.source, options, *checkpoint)
    assert mistake.text in problem(failed.value)


def test_the_checkpoint_of_another_query(
    client: ConnectClient, scene: Scene, tmp_path: Path
) -> None:
    client("stream", "kafka-lag", scene.options("kafka-lag"), str(tmp_path))
    with pytest.raises(ClientError) as failed:
        client("stream", "kafka-share", scene.options("kafka-share"), str(tmp_path))
    assert FOREIGN_CHECKPOINT["kafka-share"] in problem(failed.value)
