"""Large records, and batches that open to much more than they have on the wire, pass through
processes whose address space is limited, as `spark.executor.pyspark.memory` does it.

Without Spark: a task reads with `kafka-ordered` in one process, and writes with `kafka-produce` in
another.
"""

from __future__ import annotations

import subprocess
import sys
from typing import IO

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.spark.application import python_environment
from tests.spark.test_produce_sink import consume
from tests.support import unique

pytestmark = [pytest.mark.broker, pytest.mark.slow]

MIB = 1 << 20
COUNT = 12
"""Records of each of two topics."""
RECORD_BYTES = 24 * MIB
MAX_BYTES = 40 * MIB
ROOM_BYTES = 512 * MIB
"""The address space that each process has besides its modules."""

LIMITED = """
import os, resource, sys
import pyarrow as pa
from headrace.spark import python_worker
from headrace.spark.errors import SourceError, one_line_errors
from headrace.spark.option_parsing import KafkaOptions
from headrace.spark.ordered import executor
from headrace.spark.produce.options import ProduceOptions
from headrace.spark.produce.sink import write_rows
from headrace.spark.reader.ranges import OffsetRange, ReadOptions

servers, room, *names = sys.argv[1:]
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + int(room)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
python_worker.prepare()  # as when a worker of Spark unpickles a source
"""
READER = f"""{LIMITED}
ranges = tuple(OffsetRange(name, 0, 0, {COUNT}) for name in names)
work = executor.TaskWork(ranges)
writer = None
for batch in executor.read(work, KafkaOptions(servers, {{}}), ReadOptions()):
    writer = writer or pa.ipc.new_stream(sys.stdout.buffer, batch.schema)
    writer.write_batch(batch)
writer.close()
"""
SINK = f"""{LIMITED}
options = {{"kafka.bootstrap.servers": servers, "topic": names[0]}}
options["kafka.message.max.bytes"] = "{MAX_BYTES}"
try:
    with one_line_errors():
        write_rows(ProduceOptions.parse(options), pa.ipc.open_stream(sys.stdin.buffer))
except SourceError as error:
    print(error, flush=True)
    os._exit(2)  # so that nothing is closed, for which there is no memory either
"""


def make_topics(servers: str, *names: str) -> list[str]:
    """Create topics that take large records."""
    topics = [unique(name) for name in names]
    config = {"max.message.bytes": str(MAX_BYTES)}
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(n, 1, 1, config=config) for n in topics]).values():
        made.result(30)
    return topics


def copy(servers: str, sources: list[str], target: str, sink_room_bytes: int) -> tuple[int, str]:
    """Copy two topics to one; return the exit status of the sink, and what it says."""
    reader = program(READER, servers, ROOM_BYTES, *sources)
    sink = program(SINK, servers, sink_room_bytes, target, stdin=reader.stdout)
    assert reader.stdout is not None
    reader.stdout.close()  # so that the reader ends with the sink
    text, _ = sink.communicate()
    reader.wait()
    return sink.returncode, text.decode()


def program(
    code: str, servers: str, room_bytes: int, *topics: str, stdin: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, servers, str(room_bytes), *topics],
        stdin=stdin,
        stdout=subprocess.PIPE,
        env=python_environment(),
    )


def fill(servers: str, topics: list[str], codec: str) -> None:
    """Produce records with keys of their own."""
    config = {"bootstrap.servers": servers, "compression.type": codec}
    producer = Producer({**config, "message.max.bytes": MAX_BYTES})
    for number in range(COUNT):
        for topic in topics:
            producer.produce(topic, b"%d" % (number % 10) * RECORD_BYTES, f"{topic} {number}")
            assert producer.flush(60) == 0


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_memory_is_bounded(bootstrap_servers: str, codec: str) -> None:
    *sources, target = make_topics(bootstrap_servers, "large", "large", "copies")
    fill(bootstrap_servers, sources, codec)
    assert copy(bootstrap_servers, sources, target, ROOM_BYTES) == (0, "")
    copies = consume(bootstrap_servers, target, 1, 2 * COUNT)
    assert {message.key().decode() for message in copies} == {
        f"{source} {number}" for source in sources for number in range(COUNT)
    }
    assert len(copies) == 2 * COUNT
    assert {len(message.value()) for message in copies} == {RECORD_BYTES}


@pytest.mark.parametrize("room_bytes", [60 * MIB, 100 * MIB, 140 * MIB])
def test_too_little_memory_is_one_line(bootstrap_servers: str, room_bytes: int) -> None:
    *sources, target = make_topics(bootstrap_servers, "large", "large", "copies")
    fill(bootstrap_servers, sources[:1], "zstd")
    status, text = copy(bootstrap_servers, sources[:1], target, room_bytes)
    assert status == 2
    assert text.startswith("the Python process has no memory left: raise spark.executor.pyspark")
    assert text.count("\n") == 1
