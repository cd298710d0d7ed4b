"""The Spark session of the suite, queues to read, and queries over them."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

import headrace.spark
from headrace.client import Cluster
from headrace.client.configs import ConfigType, describe_config
from headrace.client.offsets import ShareOffset, share_offsets_of_topics
from headrace.client.share_state import share_states
from headrace.spark.pyspark_capabilities import HAS_ADMISSION_CONTROL, PYSPARK_VERSION
from tests.spark.application import SHORT_LIVED, application
from tests.support import unique

QUERY_TIMEOUT_S = 120

T = TypeVar("T")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = application(
        2,
        {
            **SHORT_LIVED,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.noDataProgressEventInterval": "500",
        },
    )
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _active_session(request: pytest.FixtureRequest) -> None:
    """Let Spark find sinks in this thread, whose connection to the JVM may be a new one: in it no
    session is active until somebody says so.
    """
    if "spark" in request.fixturenames:
        session = request.getfixturevalue("spark")
        java: Any = session.sparkContext._jvm
        java.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


@dataclass(frozen=True)
class Queue:
    """A topic, a share group that starts at its beginning, and questions about both."""

    bootstrap_servers: str
    topic: str
    group_id: str
    partitions: int

    def produce(self, count: int, start: int = 0, **headers: bytes) -> None:
        """Produce values b"0", b"1", … to the partitions in turn, with keys of ten kinds."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap_servers, "linger.ms": 5, "batch.num.messages": 50}
        )
        for i in range(start, start + count):
            producer.produce(
                self.topic,
                partition=i % self.partitions,
                value=b"%d" % i,
                key=b"k%d" % (i % 10),
                headers=dict(headers) or None,
            )
        assert producer.flush(30) == 0

    def send(self, values: Iterable[str]) -> None:
        """Produce values to the partitions in turn."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers})
        for number, value in enumerate(values):
            producer.produce(self.topic, value.encode(), partition=number % self.partitions)
        assert producer.flush(30) == 0

    def options(self, **more: Any) -> dict[str, str]:
        """Return reader options: `defaultOutcome="reject"` sets one, and None removes one."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "kafka.group.id": self.group_id,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            **{name.replace("__", "."): value for name, value in more.items()},
        }
        return {name: str(value) for name, value in options.items() if value is not None}

    def group_configs(self, *names: str) -> dict[str, str | None]:
        """Return configs of the group."""
        return self.ask(
            lambda cluster: describe_config(cluster, ConfigType.GROUP, self.group_id, names)
        )

    def lag(self) -> list[ShareOffset]:
        """Return the progress in each partition of the topic."""
        progress = self.ask(
            lambda cluster: share_offsets_of_topics(cluster, self.group_id, [self.topic])
        )
        return list(progress.values())

    def ask(self, question: Callable[[Cluster], Awaitable[T]]) -> T:
        """Return the answer of a call on the cluster."""

        async def ask() -> T:
            async with Cluster(self.bootstrap_servers) as cluster:
                return await question(cluster)

        return asyncio.run(ask())

    def broker_can_uncount(self) -> bool:
        """Return whether the broker releases records without counting the delivery (headrace)."""
        partition = (self.topic, 0)
        states = self.ask(lambda cluster: share_states(cluster, self.group_id, [partition]))
        return states[partition].spans is not None

    def is_drained(self) -> bool:
        """Return True if nothing is left in any partition."""
        return all(lag.lag == 0 for lag in self.lag())


def make_queue(
    bootstrap_servers: str,
    records: int,
    partitions: int = 4,
    topic: str | None = None,
    group_id: str | None = None,
) -> Queue:
    """Create a topic with records, and return it with a new group."""
    made = Queue(
        bootstrap_servers, topic or unique("flights"), group_id or unique("workers"), partitions
    )
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for created in admin.create_topics([NewTopic(made.topic, partitions, 1)]).values():
        created.result(30)
    if records:
        made.produce(records)
    return made


@pytest.fixture
def queue(bootstrap_servers: str) -> Callable[..., Queue]:
    """Return `make_queue` for the broker under test: queue(records, partitions=4, …)."""
    return functools.partial(make_queue, bootstrap_servers)


class Batches:
    """Rows of a query's micro-batches. `work(batch_df)` runs in each before its rows are kept."""

    def __init__(self, work: Callable[[DataFrame], Any] | None = None) -> None:
        self._work = work
        self._lock = threading.Lock()
        self.rows: list[list[Row]] = []
        self.tasks: list[int] = []

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        batch_df.persist()
        rows = batch_df.collect()
        if self._work is not None:
            self._work(batch_df)
        with self._lock:
            self.rows.append(rows)
            self.tasks.append(batch_df.rdd.getNumPartitions())
        batch_df.unpersist()

    def all(self) -> list[Row]:
        return [row for rows in self.rows for row in rows]

    def values(self) -> list[int]:
        return sorted(int(row.value) for row in self.all())


@pytest.fixture
def drain(spark: SparkSession, tmp_path: Path) -> Callable[..., Batches]:
    """Return drain(queue, work=None, **options): a query over everything there is, to its end.

    It has a checkpoint of its own, or goes on with one, and may keep its rows in given batches.
    """

    def run(
        queue: Queue,
        work: Callable[[DataFrame], Any] | None = None,
        checkpoint: str | None = None,
        batches: Batches | None = None,
        **options: Any,
    ) -> Batches:
        batches = batches or Batches(work)
        frame = spark.readStream.format("kafka-share").options(**queue.options(**options)).load()
        writer = frame.writeStream.foreachBatch(batches)
        writer = writer.option(
            "checkpointLocation", str(tmp_path / (checkpoint or unique("checkpoint")))
        )
        headrace.spark.drain(writer)
        return batches

    return run


needs_available_now = pytest.mark.skipif(
    not HAS_ADMISSION_CONTROL, reason=f"pyspark {PYSPARK_VERSION} has no AvailableNow for sources"
)
needs_progress = pytest.mark.skipif(
    not HAS_ADMISSION_CONTROL, reason=f"pyspark {PYSPARK_VERSION} has no progress of sources"
)


def finish(query: StreamingQuery) -> None:
    """Wait for a query that ends by itself."""
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the query did not end"
    finally:
        query.stop()
