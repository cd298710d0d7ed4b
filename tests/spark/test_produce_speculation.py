"""Two attempts of one task: the one that Spark does not count leaves no transaction open.

Without Spark: the attempts are calls of the sink, in the order that each test needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from headrace.client.transactions import ONGOING, transactional_ids
from headrace.spark.errors import SourceError
from headrace.spark.produce import sink
from headrace.spark.produce.options import ProduceOptions
from headrace.spark.produce.sink import WriteTask
from tests.spark.conftest import Queue, make_queue
from tests.spark.test_produce_sink import consume
from tests.support import unique

pytestmark = pytest.mark.broker


class Job:
    """A job of one task, whose attempts write rows and whose first attempt is committed."""

    def __init__(self, target: Queue, monkeypatch: pytest.MonkeyPatch, *, is_stream: bool) -> None:
        self.prefix = unique("sink")
        self._patch = monkeypatch
        self._is_stream = is_stream
        options = ProduceOptions.parse(
            {
                "kafka.bootstrap.servers": target.bootstrap_servers,
                "transactionalIdPrefix": self.prefix,
                "topic": target.topic,
                "commitTopic": unique("commits"),
            }
        )
        schema: Any = None
        self.writer: Any = (
            sink.StreamProduceWriter(options, schema)
            if is_stream
            else sink.BatchProduceWriter(options)
        )

    def write(self, attempt: int, rows: Iterator[pa.RecordBatch]) -> Any:
        def task(query_id: str | None) -> WriteTask:
            if self._is_stream:
                return WriteTask("query", "run", 0, attempt, 0)
            assert query_id is not None
            return WriteTask(query_id, "batch", 0, attempt)

        self._patch.setattr(sink, "current_task", task)
        return self.writer.write(rows)

    def end(self, written: Any, *, commit: bool = True) -> None:
        end = self.writer.commit if commit else self.writer.abort
        end([written], *([0] if self._is_stream else []))


def batch(value: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [value]})


@pytest.fixture
def target(bootstrap_servers: str) -> Queue:
    return make_queue(bootstrap_servers, 0, partitions=1, topic=unique("written"))


@pytest.fixture(params=[False, True], ids=["batch", "stream"])
def job(request: pytest.FixtureRequest, target: Queue, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)
    return Job(target, monkeypatch, is_stream=request.param)


def check(job: Job, target: Queue, *values: bytes) -> None:
    """Readers with ``read_committed`` get what was committed, and what is written afterwards."""
    open_now = target.ask(lambda cluster: transactional_ids(cluster, job.prefix, (ONGOING,)))
    assert open_now == {}
    target.produce(1)
    found = consume(target.bootstrap_servers, target.topic, 1, len(values) + 1)
    assert [message.value() for message in found] == [*values, b"0"]


def fails_after(end: Callable[[], None], rows: Iterator[Any]) -> Iterator[Any]:
    yield next(rows)
    end()
    yield from rows


def test_the_slower_attempt_writes_when_the_other_is_committed(job: Job, target: Queue) -> None:
    written = job.write(0, iter([batch("a")]))
    rows = fails_after(lambda: job.end(written), iter([batch("a"), batch("b")]))
    with pytest.raises(SourceError):
        job.write(1, rows)
    check(job, target, b"a")


def test_the_slower_attempt_has_a_producer_when_the_other_is_committed(
    job: Job, target: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = job.write(0, iter([batch("a")]))
    write_batches = sink._write_batches

    def end_before(*arguments: Any) -> None:
        job.end(written)
        write_batches(*arguments)

    monkeypatch.setattr(sink, "_write_batches", end_before)
    with pytest.raises(SourceError):
        job.write(1, iter([batch("a")]))
    check(job, target, b"a")


def test_the_slower_attempt_begins_when_the_other_is_committed(job: Job, target: Queue) -> None:
    job.end(job.write(0, iter([batch("a")])))
    with pytest.raises(SourceError, match="was written by another attempt: this one is too late"):
        job.write(1, iter([batch("a")]))
    check(job, target, b"a")


def test_an_attempt_begins_when_the_job_has_failed(job: Job, target: Queue) -> None:
    job.end(job.write(0, iter([batch("a")])), commit=False)
    with pytest.raises(SourceError, match="this one is too late"):
        job.write(1, iter([batch("a")]))
    check(job, target)
