"""Two drivers run one query, with one checkpoint: one of them ends, and no record suffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.application import kill_session, start_driver
from tests.spark.conftest import Queue
from tests.spark.test_produce_sink import consume
from tests.support import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PARTITIONS = 2
TIMEOUT_S = 120
SPARK_SAYS = "Multiple streaming"  # jobs detected, or queries are concurrently using …
SAYS = {
    "kafka-share": (SPARK_SAYS,),
    # The sink may see it before Spark does.
    "kafka-ordered": (
        SPARK_SAYS,
        "another query writes with it",
        "the same checkpoint",
        "another query has the same transactional id",
    ),
}

OTHER_DRIVER = """
import sys
from pathlib import Path
from tests.spark.application import SHORT_LIVED, application
from tests.spark.test_one_checkpoint import start

source, folder, servers, topic, group, target = sys.argv[1:]
spark = application(1, {**SHORT_LIVED, "spark.sql.shuffle.partitions": "1"})
query = start(spark, source, Path(folder), servers, topic, group, target)
try:
    while not query.awaitTermination(1):
        if Path(folder, "end").exists():
            query.stop()
except Exception as error:
    Path(folder, "failed").write_text(str(error))
"""


def start(
    spark: SparkSession,
    source: str,
    folder: Path,
    servers: str,
    topic: str,
    group_id: str,
    target: str,
) -> StreamingQuery:
    """Start the query. A driver that runs has a file of its own below ``folder``."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "maxOffsetsPerTrigger": "10"}
    options |= {"startingOffsets": "earliest"}
    if source == "kafka-share":
        options |= {"kafka.group.id": group_id, "share.session.timeout.ms": "5000"}
    frame = spark.readStream.format(source).options(**options).load()
    if source == "kafka-share":
        writer = frame.writeStream.foreachBatch(lambda batch, _: note(batch, folder / "delivered"))
    else:
        writer = frame.select("key", "value").writeStream.format("kafka-produce")
        writer = writer.option("kafka.bootstrap.servers", servers).option("topic", target)
        writer = writer.option("transactionalIdPrefix", target)
        writer = writer.option("commitTopic", f"{target}-commits")
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def note(batch: DataFrame, file: Path) -> None:
    lines = [row.value.decode() for row in batch.select("value").collect()]
    with file.open("a") as output:
        output.write("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("source", ["kafka-share", "kafka-ordered"])
def test_one_of_two_drivers_ends(
    spark: SparkSession, queue: Callable[..., Queue], tmp_path: Path, source: str
) -> None:
    orders, target = queue(40, PARTITIONS), queue(0, PARTITIONS)
    places = [orders.bootstrap_servers, orders.topic, orders.group_id, target.topic]
    failure_of_other = tmp_path / "failed"
    count = 40

    def one_has_ended() -> bool:
        nonlocal count
        orders.produce(10, start=count)
        count += 10
        assert other.poll() is None or failure_of_other.exists()
        return failure_of_other.exists() or not query.isActive

    def is_done() -> bool:
        return orders.is_drained() and len(set(delivered(tmp_path))) == count

    query = start(spark, source, tmp_path, *places)
    other = start_driver(OTHER_DRIVER, source, str(tmp_path), *places)
    try:
        wait_until(one_has_ended, TIMEOUT_S, "one of the drivers to end", interval_s=0.5)
        if source == "kafka-share":
            wait_until(is_done, TIMEOUT_S, "the other driver to process all records")
        else:
            messages = consume(*places[:1], target.topic, PARTITIONS, count)
            assert Counter(int(message.value()) for message in messages) == dict.fromkeys(
                range(count), 1
            )
    finally:
        query.stop()
        (tmp_path / "end").touch()
        kill_session(other)
    failures = [str(query.exception())] if query.exception() is not None else []
    failures += [failure_of_other.read_text()] if failure_of_other.exists() else []
    (failure,) = failures
    assert any(text in failure for text in SAYS[source]), failure


def delivered(folder: Path) -> list[int]:
    file = folder / "delivered"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []
