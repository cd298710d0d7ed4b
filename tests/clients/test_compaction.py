"""Compacted segments, read by librdkafka, by Apache Kafka's consumer and by its dump tool, before
and after a restart.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.clients.compacted import CODECS, CompactedTopic, Read
from tests.peer import run_tool
from tests.support import COMMON_CONFIGS, HeadraceProcess

pytestmark = [pytest.mark.java, pytest.mark.slow]


def run(tool: str, *arguments: str) -> str:
    done = run_tool(tool, *arguments)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def read_by_java(topic: CompactedTopic, isolation_level: str) -> list[Read]:
    text = run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server",
        topic.servers,
        "--topic",
        topic.name,
        "--from-beginning",
        "--timeout-ms",
        "5000",
        "--isolation-level",
        isolation_level,
        "--formatter-property",
        "print.offset=true",
        "--formatter-property",
        "print.key=true",
        "--formatter-property",
        "key.separator=|",
        "--formatter-property",
        "null.literal=<null>",
    )
    found = []
    for line in text.splitlines():
        if not line.startswith("Offset:"):
            continue  # the log of the tool
        offset, key, value = line.removeprefix("Offset:").split("|")
        found.append((int(offset), key, None if value == "<null>" else value))
    return found


def test_everybody_reads_cleaned_segments(tmp_path: Path, kafka_libs: Path) -> None:
    configs = {**COMMON_CONFIGS, "log.cleaner.backoff.ms": "200"}
    with HeadraceProcess(tmp_path / "data", configs) as server:
        indexed = {"index.interval.bytes": "200"}
        topic = CompactedTopic(server.bootstrap_servers, "compacted", random.Random(7), **indexed)
        topic.write(30)
        # a key of its own for each codec, so that each is left over
        for producer in topic.producers:
            topic.committed += topic._send(producer, 3, key=100 + topic.producers.index(producer))
        for _ in range(2):
            topic.time_ms += 1000
            topic.committed += topic._send(topic.producers[0], 1, key=99)
        found = topic.wait_until_compacted()
        for level in ("read_uncommitted", "read_committed"):
            assert topic.read(level) == read_by_java(topic, level) == found
        server.stop()
        server.start()
        topic.servers = server.bootstrap_servers
        assert topic.read("read_committed") == found
        server.stop()
        assert server.output
        assert not server.problems()

    files = sorted(map(str, (tmp_path / "data" / "compacted-0").glob("*.log")))
    text = run(
        "org.apache.kafka.tools.DumpLogSegments",
        "--deep-iteration",
        "--print-data-log",
        "--files",
        ",".join(files),
    )
    assert "isvalid: false" not in text and text.count("isvalid: true") == len(
        re.findall(r"^baseOffset: ", text, re.M)
    )
    codecs = set(re.findall(r"^baseOffset: .* compresscodec: (\w+)", text, re.M))
    assert codecs == set(CODECS)
    data = re.findall(r"^\| offset: (\d+) .*?key: (\S+)", text, re.M)
    assert [(offset, key) for offset, key, _ in found] == [
        (int(offset), key) for offset, key in data
    ]
    assert re.search(r"deleteHorizonMs: OptionalLong\[\d+\]", text), "no batch has a delete horizon"
    indexes = ",".join(
        file.replace(".log", suffix) for file in files for suffix in (".index", ".timeindex")
    )
    text = run(
        "org.apache.kafka.tools.DumpLogSegments",
        "--index-sanity-check",
        "--files",
        indexes,
    )
    assert text.count("passed sanity check") >= 3, text
    assert text.count("passed sanity check") + text.count("is empty.") == 2 * len(files), text
