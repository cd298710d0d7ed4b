"""Progress of sources, in lastProgress of every pyspark version and for Prometheus."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

import headrace.spark
from headrace.spark.listener import (
    MAX_ENDED_QUERIES,
    PrometheusListener,
    export_metrics,
)
from headrace.spark.pyspark_capabilities import SelfPacedReader
from headrace.spark.source_progress import PROGRESS, source_progress
from tests.spark.conftest import QUERY_TIMEOUT_S, Batches, Queue
from tests.support import wait_until

LABELS = ("query", "source", "topic", "phase", "outcome")
Samples = Mapping[tuple[str, ...], float]


def source(reported: Mapping[str, Any] | None = None, **fields: Any) -> SimpleNamespace:
    given = {
        "endOffset": json.dumps(
            {"session": "s", "batch": 1, "records": 1, "spans": {}, "alone": []}
        ),
        "latestOffset": None if reported is None else json.dumps(reported),
        "numInputRows": 10,
        "inputRowsPerSecond": float("nan"),
        "processedRowsPerSecond": 5.0,
    }
    return SimpleNamespace(**given | fields)


def progress(*sources: SimpleNamespace, rows: int = 10, **fields: Any) -> SimpleNamespace:
    given = {
        "id": "q1",
        "name": "desk",
        "batchDuration": 1500,
        "durationMs": {"addBatch": 1200},
        "timestamp": "2026-01-01T00:00:00.000Z",
        "numInputRows": rows,
        "sources": list(sources),
    }
    return SimpleNamespace(progress=SimpleNamespace(**given | fields))


def parsed(page: str) -> Samples:
    """Return name and label values → value."""
    return {
        (sample.name, *(sample.labels[one] for one in LABELS if one in sample.labels)): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def page(listener: PrometheusListener) -> Samples:
    return parsed(listener.page())


SHARE = {"lag": {"flights": {"0": 3, "1": 4}}, "acquired": 12, "accepted": 9, "rejected": 1}


def test_a_query_over_a_queue() -> None:
    listener = PrometheusListener()
    listener.onQueryStarted(SimpleNamespace(id="q1", name="desk"))
    listener.onQueryProgress(progress(source(SHARE)))
    listener.onQueryProgress(progress(source(SHARE, numInputRows=0), rows=0))
    found = page(listener)
    assert found["headrace_spark_query_running", "desk"] == 1
    assert found["headrace_spark_micro_batches_total", "desk"] == 1
    assert found["headrace_spark_micro_batch_seconds", "desk"] == 1.5
    assert found["headrace_spark_micro_batch_phase_seconds", "desk", "addBatch"] == 1.2
    assert found["headrace_spark_input_records_total", "desk", "kafka-share"] == 10
    assert found["headrace_spark_lag", "desk", "kafka-share", "flights"] == 7
    assert found["headrace_spark_outcomes_total", "desk", "kafka-share", "accepted"] == 9
    assert found["headrace_spark_processing_rate", "desk", "kafka-share"] == 5
    assert ("headrace_spark_input_rate", "desk", "kafka-share") not in found


def test_a_query_that_fails_keeps_its_counters_only() -> None:
    listener = PrometheusListener()
    listener.onQueryProgress(progress(source(SHARE)))
    listener.onQueryTerminated(SimpleNamespace(id="q1", exception="broken"))
    found = page(listener)
    assert found["headrace_spark_query_running", "desk"] == 0
    assert found["headrace_spark_query_failures_total", "desk"] == 1
    assert found["headrace_spark_input_records_total", "desk", "kafka-share"] == 10
    assert not [name for name, *_ in found if name == "headrace_spark_lag"]


def test_ended_queries_are_forgotten() -> None:
    listener = PrometheusListener()
    for number in range(2 * MAX_ENDED_QUERIES):
        event = SimpleNamespace(id=f"q{number}", name=None, exception=None)
        listener.onQueryStarted(event)
        listener.onQueryTerminated(event)
    running = {name for name in page(listener) if name[0] == "headrace_spark_query_running"}
    assert len(running) == MAX_ENDED_QUERIES


def test_sources_of_one_format_and_of_others() -> None:
    counts = {"lateRecords": 2, "enforcedProcessing": 0}
    ordered = {"lag": {"a": {"0": 1}}, "waiting": {"0": "…"}, **counts}
    offset = '{"a":{"0":1}}'
    of_spark = source(latestOffset=offset, endOffset=offset)
    first, second = source(ordered, endOffset=offset), source(ordered, endOffset=offset)
    listener = PrometheusListener()
    listener.onQueryProgress(progress(first, second, of_spark))
    found = page(listener)
    assert found["headrace_spark_lag", "desk", "kafka-ordered", "a"] == 1
    assert found["headrace_spark_lag", "desk", "kafka-ordered-1", "a"] == 1
    assert found["headrace_spark_waiting_tasks", "desk", "kafka-ordered"] == 1
    assert found["headrace_spark_late_records_total", "desk", "kafka-ordered"] == 2
    assert found["headrace_spark_input_records_total", "desk", "2"] == 10


class Reporting:
    """A source of numbers with progress, as pyspark 4.2 calls it."""

    def __init__(self) -> None:
        self.end = 10
        self.seen: list[Any] = []

    def initialOffset(self) -> dict[str, int]:
        return {"next": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        self.seen.append(start)
        return {"next": self.end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Any]:
        self.seen += [start, end]
        return []

    def commit(self, end: dict[str, int]) -> None:
        self.seen.append(end)

    def reportLatestOffset(self) -> dict[str, Any]:
        return {"lag": {"a": {"0": 4}}}


def test_progress_travels_in_offsets_where_spark_does_not_ask_for_it() -> None:
    inner = Reporting()
    reader = SelfPacedReader(inner)
    end = reader.latestOffset()
    assert end == {"next": 10, PROGRESS: {"lag": {"a": {"0": 4}}}}
    for text in (json.dumps(end), str(end)):  # as in the events of listeners, and in lastProgress
        shown = SimpleNamespace(latestOffset=text, endOffset=text)
        assert source_progress(shown) == {"lag": {"a": {"0": 4}}}
    assert (
        source_progress(SimpleNamespace(latestOffset="{'next': 1}", endOffset="{'next': 1}"))
        is None
    )
    reader.partitions(reader.initialOffset(), end)
    assert reader.latestOffset() is end, "nothing new is the same offset"
    inner.end = 20
    assert reader.latestOffset()["next"] == 20
    reader.commit(end)
    assert all(PROGRESS not in offset for offset in inner.seen)


@pytest.mark.spark
def test_a_page_for_prometheus(
    spark: SparkSession, queue: Callable[..., Queue], tmp_path: Path
) -> None:
    flights = queue(40)
    listener = export_metrics(spark, port=0)
    try:
        frame = spark.readStream.format("kafka-share").options(**flights.options()).load()
        writer = frame.writeStream.foreachBatch(Batches()).queryName("desk")
        query = headrace.spark.drain(writer.option("checkpointLocation", str(tmp_path / "desk")))
        assert [source_progress(one.sources[0]) for one in query.recentProgress][-1] is not None

        def scraped() -> Samples:
            with urlopen(f"http://127.0.0.1:{listener.server_port}/metrics") as answer:
                return parsed(answer.read().decode())

        ended = ("headrace_spark_query_running", "desk")
        wait_until(lambda: scraped().get(ended) == 0, QUERY_TIMEOUT_S, "the end of the query")
        records = ("headrace_spark_input_records_total", "desk", "kafka-share")
        assert scraped()[records] == 40
    finally:
        spark.streams.removeListener(listener)
