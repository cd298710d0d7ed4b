"""A share group in a query whose other source fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from headrace.admin import AdminClient
from tests.spark.conftest import Queue, needs_progress
from tests.support import wait_until

pytestmark = [pytest.mark.spark, needs_progress]


class FailingSource(DataSource):
    """A streaming source that fails where its option ``at`` says."""

    @classmethod
    def name(cls) -> str:
        return "failing"

    def schema(self) -> str:
        return "value binary"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return FailingReader(self.options["at"])


class FailingReader(DataSourceStreamReader):
    def __init__(self, at: str) -> None:
        self._at = at

    def _call(self, method: str) -> None:
        if method == self._at:
            raise RuntimeError(f"failing at {method}")

    def getDefaultReadLimit(self) -> Any:
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        self._call("getDefaultReadLimit")
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, int]:
        self._call("initialOffset")
        return {"offset": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        self._call("latestOffset")
        return start

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Any]:
        return []

    def read(self, partition: Any) -> Iterator[Any]:
        return iter(())


@pytest.mark.parametrize("at", ["getDefaultReadLimit", "initialOffset", "latestOffset"])
@pytest.mark.parametrize("trigger", [{"processingTime": "0 seconds"}, {"availableNow": True}])
def test_the_group_has_no_member_after_another_source_has_failed_at_the_start(
    spark: SparkSession,
    queue: Callable[..., Queue],
    tmp_path: Path,
    at: str,
    trigger: dict[str, Any],
) -> None:
    flights = queue(10)
    spark.dataSource.register(FailingSource)
    share = spark.readStream.format("kafka-share").options(**flights.options()).load()
    other = spark.readStream.format("failing").option("at", at).load()
    query = (
        share.select("value")
        .union(other)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(**trigger)
        .start()
    )
    with pytest.raises(StreamingQueryException, match=f"failing at {at}"):
        query.awaitTermination(120)
    admin = AdminClient({"bootstrap.servers": flights.bootstrap_servers})

    def has_no_member() -> bool:
        described = admin.describe_groups([flights.group_id])[flights.group_id]
        missing = described.exception()
        if isinstance(missing, KafkaException):
            return bool(missing.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND)
        return not described.result().members

    wait_until(has_no_member, 30, "the reader to leave the group")
